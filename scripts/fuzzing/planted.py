"""Targets that fail on purpose, each in its own way: the test of the fuzzer feeds them."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable
from pathlib import Path

from fuzzing.targets import Prepared, Target


def _failing(action: Callable[[], object]) -> Callable[[Path], Prepared]:
    def prepare(place: Path) -> Prepared:
        def run(data: bytes) -> None:
            if b"!" in data:
                action()

        return run, [b"harmless" * 20]

    return prepare


def _raise() -> None:
    raise KeyError("planted")


def _loop() -> None:
    while True:
        pass


PLANTED = {
    name: Target(name, "fails on purpose", _failing(action), words=(b"!",), seconds=0.3)
    for name, action in {
        "raises": _raise,
        "loops": _loop,
        "hangs": lambda: time.sleep(3600),
        "dies": lambda: ctypes.string_at(0),
        "grows": lambda: bytearray(2 << 30),
    }.items()
} | {"sound": Target("sound", "never fails", _failing(lambda: None))}
