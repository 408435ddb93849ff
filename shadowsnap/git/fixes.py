"""Whether a git has the security fixes that we rely on.

A restore of many files has git write them out, and git parses the `.gitattributes` of the checkpoint for that.
Such a file could make older versions write outside of their memory (CVE-2022-23521). The other known flaws of
the versions that we run are in what we never have git do: clone, fetch, apply patches, run submodules or hooks,
ask for credentials, format commits by a format that came from outside.
"""

from __future__ import annotations

import os

from shadowsnap.git.repository import Git, dotted, git_version
from shadowsnap.records import replace

FIXED = ((2, 34, 6), (2, 35, 6), (2, 36, 4), (2, 37, 5), (2, 38, 3), (2, 39, 1))
"""The first version of each series that has the fix. Every later series has it from the beginning."""

# Git without the fix cuts a line of attributes at 2048 bytes; with it, the whole line is ignored.
_PROBE = b"probe shadowsnap-probe" + b" a" * 1100 + b"\n"


def missing_fixes(git: Git) -> str:
    """Which fix the git that we run lacks, in a sentence; empty if it has them all."""
    version = git_version(git.git_dir / "git-version.json")
    if is_fixed(version) or _ignores_long_lines(git):
        return ""
    return (
        f"git {dotted(version)} lacks the fix of CVE-2022-23521: a hostile .gitattributes in a project could run "
        f"code during a restore. Update git to {dotted(FIXED[-1])} or later"
    )


def is_fixed(version: tuple[int, ...]) -> bool:
    """Whether a version has the fix by its number."""
    first = next((fixed for fixed in FIXED if fixed[:2] == version[:2]), None)
    return version >= first if first is not None else version >= FIXED[-1]


def _ignores_long_lines(git: Git) -> bool:
    """Whether git behaves as with the fix. Distributions put it into older versions and keep their number."""
    path = git.git_dir / f"probe-{os.getpid()}"
    try:
        path.write_bytes(_PROBE)
        asking = replace(git, config=(*git.config, f"core.attributesFile={path}"))
        return asking.run("check-attr", "shadowsnap-probe", "--", "probe").endswith(b": unspecified\n")
    except OSError:
        return False
    finally:
        path.unlink(missing_ok=True)
