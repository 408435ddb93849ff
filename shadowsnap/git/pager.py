"""Showing text through the person's pager, as git does."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping


def run_pager(command: str, text: bytes, environment: Mapping[str, str]) -> bool:
    """Let the person read until they leave; False if the pager could not be started."""
    try:
        # Like git: the setting is a command of the shell, with arguments if they want some.
        pager = subprocess.Popen(command, shell=True, stdin=subprocess.PIPE, env=dict(environment))
    except OSError:
        return False
    assert pager.stdin is not None
    try:
        pager.stdin.write(text)
    except (BrokenPipeError, KeyboardInterrupt):
        pass  # they have seen enough
    while True:
        try:
            pager.stdin.close()
        except BrokenPipeError:
            pass
        except KeyboardInterrupt:
            continue
        break
    while True:
        try:
            return pager.wait() not in (126, 127)  # the shell's "cannot be run" and "not found"
        except KeyboardInterrupt:
            continue  # Ctrl-C is the pager's, as long as it runs
