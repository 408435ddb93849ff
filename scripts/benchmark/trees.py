"""Trees to measure on: generated ones, copies of real ones, the Linux source; and changes to them."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

KERNEL_PACKAGE = "linux-source-6.1"

_WORDS = (
    "index", "tree", "node", "path", "file", "state", "value", "result", "error", "buffer", "length", "offset",
    "count", "name", "flags", "self", "return", "if", "not", "in", "for", "while", "break", "def", "class",
    "import", "from", "with", "try", "raise", "None", "True", "and", "or", "lambda", "yield",
)  # fmt: skip
_SUFFIXES = (".py", ".py", ".c", ".h", ".ts", ".ts", ".md", ".json", ".go", ".rs")
_POOL_BYTES = 2_000_000
_LARGEST = 200_000


class CannotGet(Exception):
    """A tree that was asked for is not to be had here; the message says why."""


@dataclass(frozen=True)
class Tree:
    name: str
    path: Path
    files: int
    directories: int
    bytes: int

    def to_dict(self) -> dict[str, object]:
        return {"name": self.name, "files": self.files, "directories": self.directories, "bytes": self.bytes}


def generate(path: Path, files: int) -> Tree:
    """A source tree, the same every time: some ten files in a directory, a few levels deep, most files
    of a few KB and a few large ones, text that compresses like code."""
    chance = random.Random(files)
    pool = _pool(chance)
    folders = _folders(chance, files)
    for folder in set(folders):
        (path / folder).mkdir(parents=True, exist_ok=True)
    for number, folder in enumerate(folders):
        size = min(_LARGEST, int(chance.lognormvariate(8.0, 1.1)))
        start = chance.randrange(len(pool) - _LARGEST)
        name = f"{chance.choice(_WORDS)}_{number}{chance.choice(_SUFFIXES)}"
        with open(f"{path}/{folder}/{name}", "wb", buffering=0) as file:
            file.write(b"// file %d\n" % number + pool[start : start + size])
    return measured(f"{files:,} files", path)


def copy_of(source: Path, path: Path) -> Tree:
    """A real directory. Only the copy is worked on."""
    path.parent.mkdir(parents=True, exist_ok=True)
    done = subprocess.run(["cp", "-a", "--", str(source), str(path)], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise CannotGet(f"{source} could not be copied: {done.stderr.strip()[:300]}")
    return measured(source.resolve().name or str(source), path)


def kernel(path: Path, download: Path) -> Tree:
    """The Linux source as Debian packages it; root is not needed."""
    download.mkdir(parents=True, exist_ok=True)
    _command("apt-get", "download", KERNEL_PACKAGE, cwd=download)
    package = next(download.glob("*.deb"), None)
    if package is None:
        raise CannotGet(f"apt-get brought no {KERNEL_PACKAGE}")
    _command("dpkg-deb", "-x", package.name, "unpacked", cwd=download)
    archive = next(download.glob("unpacked/usr/src/*.tar.*"), None)
    if archive is None:
        raise CannotGet(f"{package.name} holds no source archive")
    path.mkdir(parents=True)
    _command("tar", "-xf", str(archive), "-C", str(path), "--strip-components=1", cwd=download)
    shutil.rmtree(download)
    (path / ".gitignore").unlink(missing_ok=True)  # the packagers' one ignores everything
    return measured(KERNEL_PACKAGE, path)


def measured(name: str, path: Path) -> Tree:
    files = directories = size = 0
    for folder, below, names in os.walk(path):
        below[:] = [each for each in below if each != ".git"]
        directories += len(below)
        files += len(names)
        size += sum(os.lstat(os.path.join(folder, each)).st_size for each in names)
    return Tree(name, path, files, directories, size)


class Changes:
    """Edits to some files of a tree, each time different ones in content, never in kind."""

    def __init__(self, tree: Path, candidates: list[Path], seed: int = 0) -> None:
        self._tree = tree
        self._candidates = sorted(candidates)
        random.Random(seed).shuffle(self._candidates)
        self._edits = 0

    def choose(self, count: int) -> list[Path]:
        """The same files for the same count."""
        return self._candidates[:count]

    def edit(self, paths: list[Path]) -> None:
        """Append a line that was never there before."""
        self._edits += 1
        for path in paths:
            with open(self._tree / path, "ab") as file:
                file.write(b"// edit %d\n" % self._edits)


def _folders(chance: random.Random, files: int) -> list[str]:
    """One directory for each file, about ten files in each directory."""
    folders = [f"src{number}" for number in range(max(2, files // 2000))]
    while len(folders) < files // 10:
        parent = min(chance.choices(folders, k=3), key=lambda folder: folder.count("/"))
        folders.append(f"{parent}/{chance.choice(_WORDS)}{len(folders)}")
    return [chance.choice(folders) for _ in range(files)]


def _pool(chance: random.Random) -> bytes:
    lines: list[str] = []
    size = 0
    while size < _POOL_BYTES:
        words = chance.choices(_WORDS, k=chance.randint(2, 9))
        words.insert(1, f"{chance.choice('abcdefgh')}{chance.randrange(10_000)}")
        lines.append("    " * chance.randrange(4) + " ".join(words))
        size += len(lines[-1]) + 1
    return "\n".join(lines).encode()


def _command(*argv: str, cwd: Path) -> None:
    try:
        done = subprocess.run(argv, cwd=cwd, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    except OSError as problem:
        raise CannotGet(f"{argv[0]} cannot be run here: {problem.strerror}") from problem
    if done.returncode != 0:
        raise CannotGet(f"{' '.join(argv)}: {done.stderr.strip()[-300:]}")
