"""Our comparison of patterns with names is that of git."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from helpers import git
from shadowsnap.patterns import matches

PIECES = [
    *"ab]-[!^*?\\/.:z", "**", "é", "[:alpha:]", "[a-z]", "[!/]", "[^", "[[:digit:]]", "[\\]]", "[\\[-z]", "[z-a]",
    "[[:x:]]",
]  # fmt: skip


@pytest.mark.parametrize("seed", range(3))
def test_random_patterns_and_names(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    git(tmp_path, "init", "-q")
    asked: dict[str, tuple[str, str]] = {}
    for number in range(300):
        pattern = "".join(chance.choice(PIECES) for _ in range(chance.randint(1, 6)))
        if pattern.startswith("!") or "//" in pattern or not pattern.strip("/"):
            continue
        (tmp_path / f"{number}").mkdir()
        (tmp_path / f"{number}" / ".gitignore").write_text(f"{pattern}\n")
        names = ["".join(chance.choice("abz-.:[]!é\\") for _ in range(chance.randint(1, 3))) for _ in range(10)]
        names = [name for name in names if name not in (".", "..")]
        below = [*names, *(f"{above}/{name}" for above in names[:4] for name in names[4:])]
        asked |= {f"{number}/{path}": (pattern, path) for path in below}
    paths = "\0".join(asked).encode()
    told = git(tmp_path, "check-ignore", "--no-index", "--stdin", "-znv", stdin=paths).split("\0")
    ignored = {told[at + 3]: bool(told[at]) for at in range(0, len(told) - 3, 4)}
    assert len(ignored) == len(asked) and 100 < sum(ignored.values()) < len(asked) - 100
    wrong = [(*asked[path], found) for path, found in ignored.items() if matches(*asked[path]) != found]
    assert wrong == []
