"""What the fuzzer found stays fixed, and the fuzzer finds what it should."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from helpers import ROOT

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="limits of memory, and processes that fork")

KNOWN = ROOT / "tests" / "data" / "fuzz"


def fuzz(*words: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, ROOT / "scripts" / "fuzz.py", *words]
    return subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ, "HOME": "/"})


def test_no_seed_and_no_input_that_failed_once_fails(tmp_path: Path) -> None:
    """All targets in one test: to start the fuzzer costs more than to replay a target."""
    done = fuzz("--replay", "--corpus", tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    sound = dict(re.findall(r"^([\w-]+): (\d+) kept inputs, 0 failures$", done.stdout, flags=re.MULTILINE))
    assert len(sound) > 25
    assert {folder.name: str(len(list(folder.iterdir()))) for folder in KNOWN.iterdir()}.items() <= sound.items()


@pytest.mark.every(4)
@pytest.mark.parametrize(
    ("name", "said"),
    [("raises", "KeyError"), ("loops", "TooSlow"), ("dies", "dies of signal 11"), ("grows", "MemoryError")],
)
def test_the_fuzzer_finds_and_shrinks(tmp_path: Path, name: str, said: str) -> None:
    done = fuzz("--planted", "--until-first", "--seconds", "20", "--seed", "1", "--corpus", tmp_path, name)
    assert done.returncode == 1 and said in done.stdout, done.stdout + done.stderr
    (found,) = (tmp_path / name).glob("fail-*")
    assert found.read_bytes() == b"!"


def test_the_fuzzer_finds_nothing_where_nothing_is(tmp_path: Path) -> None:
    done = fuzz("--planted", "--seconds", "1", "--seed", "1", "--corpus", tmp_path, "sound")
    assert (done.returncode, done.stderr) == (0, "")
    assert re.search(r"sound +\d{3,} executions .* failures 0", done.stdout)


def test_the_fuzzer_knows_its_targets() -> None:
    listed = [line.split()[0] for line in fuzz("--list").stdout.splitlines()]
    assert {folder.name for folder in KNOWN.iterdir()} <= {*listed} and len(listed) == len({*listed})
    assert fuzz("nonsense").returncode == 2
