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


@pytest.fixture(scope="module")
def replayed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What the replay of all kept inputs says of each target."""
    done = fuzz("--replay", "--corpus", tmp_path_factory.mktemp("corpus"))
    parts = re.split(r"^([\w-]+): (?=\d+ kept inputs)", done.stdout, flags=re.MULTILINE)
    assert len(parts) > 50, done.stdout + done.stderr
    return dict(zip(parts[1::2], parts[2::2], strict=True))


@pytest.mark.parametrize("name", sorted(folder.name for folder in KNOWN.iterdir()))
def test_an_input_that_failed_once_does_not_fail_again(replayed: dict[str, str], name: str) -> None:
    count = len(list((KNOWN / name).iterdir()))
    assert count and replayed[name].startswith(f"{count} kept inputs, 0 failures"), replayed[name]


def test_the_seeds_of_no_target_fail(replayed: dict[str, str]) -> None:
    assert [name for name, said in replayed.items() if ", 0 failures" not in said] == []


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
