"""Valid inputs made by git itself, and the payloads that agents were recorded to send."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
DATA = ROOT / "tests" / "data"
KNOWN = DATA / "fuzz"
"""Inputs that failed once, by target. A test replays them."""


def seal(home: Path) -> None:
    """Let nothing in the environment of this process lead to settings outside of `home`."""
    for name in list(os.environ):
        if name.startswith(("GIT_", "XDG_", "SHADOWSNAP_")):
            del os.environ[name]
    home.mkdir(parents=True, exist_ok=True)
    os.environ |= {
        "HOME": str(home),
        "GIT_CONFIG_NOSYSTEM": "1", "GIT_TERMINAL_PROMPT": "0", "GIT_AUTHOR_NAME": "fuzz",
        "GIT_AUTHOR_EMAIL": "fuzz@localhost", "GIT_AUTHOR_DATE": "1700000000 +0000",
        "GIT_COMMITTER_NAME": "fuzz", "GIT_COMMITTER_EMAIL": "fuzz@localhost",
        "GIT_COMMITTER_DATE": "1700000000 +0000",
    }


def git(folder: Path, *words: str) -> bytes:
    return subprocess.run(["git", *words], cwd=folder, check=True, capture_output=True).stdout


def payloads() -> list[bytes]:
    """What agents sent to their hooks, one JSON object each."""
    files = sorted((DATA / "payloads").glob("*.jsonl"))
    return [line for file in files for line in file.read_bytes().splitlines()]


def indexes(folder: Path) -> list[tuple[bytes, bytes]]:
    """Index files of every kind that git writes, each with its shared part (empty if it has none)."""
    found: list[tuple[bytes, bytes]] = []
    for kind in ("sha1", "sha256"):
        top = folder / kind
        top.mkdir(parents=True)
        git(top, "init", "-q", f"--object-format={kind}")
        for name in ("a", "dir/b", "dir/c", "dir/sub/deep", "x" * 60, "z"):
            (top / name).parent.mkdir(parents=True, exist_ok=True)
            (top / name).write_text(name)
        os.symlink("a", top / "link")
        git(top, "add", "-A")
        git(top, "commit", "-qm", "one")
        for version in ("2", "4"):
            git(top, "update-index", "--index-version", version)
            found.append((_index(top), b""))
        git(top, "update-index", "--index-version", "2")
        (top / "new").write_text("new")
        git(top, "add", "-N", "new")  # extended flags: version 3
        found.append((_index(top), b""))
        git(top, "update-index", "--split-index")
        for step in (("rm", "-q", "--cached", "z", "dir/b"), ("add", "new")):
            git(top, "-c", "splitIndex.maxPercentChange=100", *step)
            shared = max((top / ".git").glob("sharedindex.*"), key=lambda path: path.stat().st_mtime_ns)
            found.append((_index(top), shared.read_bytes()))
    return found


def packs(folder: Path) -> list[tuple[bytes, bytes]]:
    """Packs with their indexes: with deltas by offset and by name, and without any."""
    found: list[tuple[bytes, bytes]] = []
    top = folder / "packed"
    top.mkdir(parents=True)
    git(top, "init", "-q")
    for number in range(6):
        lines = (f"line {line} of {number if line % 7 == 0 else 0}\n" for line in range(60))
        (top / "file").write_text("".join(lines))
        (top / f"other-{number}").write_text(f"{number}\n" * 5)
        git(top, "add", "-A")
        git(top, "commit", "-qm", str(number))
    for options in (
        ("repack.useDeltaBaseOffset=true", "--depth=50"),
        ("repack.useDeltaBaseOffset=false", "--depth=5"),
        ("pack.depth=0", "--depth=0"),
    ):
        git(top, "-c", options[0], "repack", "-adfq", options[1])
        (pack,) = (top / ".git" / "objects" / "pack").glob("*.pack")
        found.append((pack.read_bytes(), pack.with_suffix(".idx").read_bytes()))
    return found


def trees(folder: Path) -> list[bytes]:
    """Tree objects of a repository with files, links and directories, the uppermost first."""
    top = folder / "trees"
    for name in ("a", "b/c", "b/d/e", "b/d/f.txt", "sp ace", "é"):
        (top / name).parent.mkdir(parents=True, exist_ok=True)
        (top / name).write_text(name)
    os.symlink("a", top / "link")
    git(top, "init", "-q")
    git(top, "add", "-A")
    git(top, "commit", "-qm", "one")
    return [git(top, "cat-file", "tree", name) for name in ("HEAD^{tree}", "HEAD:b", "HEAD:b/d")]


def _index(top: Path) -> bytes:
    return (top / ".git" / "index").read_bytes()
