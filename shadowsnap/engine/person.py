"""The person's own git repository, as far as plain files tell. Nothing in it is ever written, and git is
never run in it; its files are foreign, so they are read with bounds (see `foreign`)."""

from __future__ import annotations

import os
from pathlib import Path

from shadowsnap.errors import MalformedObject
from shadowsnap.foreign import OddFile, problem_of, read_foreign
from shadowsnap.records import dataclass

_MOST_TEXT = 1 << 16
_MOST_PATTERNS = 1 << 20
_MOST_REFS = 64 << 20
_MOST_INDEX = 512 << 20


@dataclass(frozen=True)
class PersonRepository:
    top: Path
    git_dir: Path
    common_dir: Path

    def odd_files(self) -> dict[str, str]:
        """What is in the place of a file that decides what is tracked or ignored, and is no file that can be
        read (a FIFO, a device, one that is huge), and why."""
        looked_at = {
            self.git_dir / "HEAD": _MOST_TEXT,
            self.git_dir / "index": _MOST_INDEX,
            self.git_dir / "commondir": _MOST_TEXT,
            self.common_dir / "config": _MOST_PATTERNS,
            self.common_dir / "info" / "exclude": _MOST_PATTERNS,
        }
        found = {os.fspath(path): problem_of(path, most) for path, most in looked_at.items()}
        return {path: why for path, why in found.items() if why is not None}

    def exclude_lines(self) -> list[str]:
        return pattern_lines(self._read(self.common_dir / "info" / "exclude", _MOST_PATTERNS))

    def index_signature(self) -> list[int]:
        """Changes whenever their index file does; empty if there is none."""
        try:
            seen = os.stat(self.git_dir / "index")
        except OSError:
            return []
        return [seen.st_mtime_ns, seen.st_ctime_ns, seen.st_size, seen.st_ino]

    def tracked(self, workdir: Path) -> set[bytes] | None:
        """The files below `workdir` that their index names, relative to it; None if it cannot be read."""
        if not self.index_signature():
            return set()
        data = self._read(self.git_dir / "index", _MOST_INDEX)
        if data is None:
            return None
        from shadowsnap.git.tracked import tracked_paths  # only where their index has changed

        try:
            paths = tracked_paths(data, self._shared_index)
        except MalformedObject:
            return None
        if workdir == self.top:
            return paths
        inside = os.fsencode(workdir.relative_to(self.top).as_posix()) + b"/"
        return {path[len(inside) :] for path in paths if path.startswith(inside)}

    def head(self) -> tuple[str | None, str | None]:
        """The commit and branch they are on, as far as plain files tell."""
        text = self._text(self.git_dir / "HEAD")
        if not text.startswith("ref: "):
            return (text or None), None
        ref = text[5:]
        if ".." in ref.split("/") or os.path.isabs(ref):
            return None, None
        commit = self._text(self.git_dir / ref) or self._text(self.common_dir / ref) or self._packed(ref)
        return (commit or None), ref.removeprefix("refs/heads/")

    def _packed(self, ref: str) -> str:
        lines = (self._read(self.common_dir / "packed-refs", _MOST_REFS) or b"").splitlines()
        wanted = os.fsencode(ref)
        return next((os.fsdecode(line[:40]) for line in lines if line[41:] == wanted), "")

    def _shared_index(self, name: str) -> bytes | None:
        return self._read(self.git_dir / f"sharedindex.{name}", _MOST_INDEX)

    def _text(self, path: Path) -> str:
        return os.fsdecode(self._read(path, _MOST_TEXT) or b"").strip()

    def _read(self, path: Path, most: int) -> bytes | None:
        try:
            return read_foreign(path, most)
        except OddFile:
            return None


def find_repository(workdir: Path) -> PersonRepository | None:
    """The repository whose work tree this directory is in."""
    for top in (workdir, *workdir.parents):
        found = _repository_at(top)
        if found is not None:
            return found
    return None


def read_patterns(path: Path) -> list[str]:
    """The patterns of an ignore file; none if it is no regular file of a reasonable size."""
    try:
        return pattern_lines(read_foreign(path, _MOST_PATTERNS))
    except OddFile:
        return []


def pattern_lines(data: bytes | None) -> list[str]:
    """The lines of an ignore file that mean something, cut as git cuts them."""
    text = os.fsdecode((data or b"").removeprefix(b"\xef\xbb\xbf"))
    lines = (line.removesuffix("\r") for line in text.split("\n"))
    return [line for line in lines if line.strip() and not line.startswith("#")]


def _repository_at(top: Path) -> PersonRepository | None:
    dot_git = top / ".git"
    if not os.path.lexists(dot_git):
        return None
    found = PersonRepository(top, dot_git, dot_git)
    if dot_git.is_file():
        text = found._text(dot_git)
        if not text.startswith("gitdir: "):
            return None
        git_dir = Path(os.path.normpath(top / text[8:]))
        found = PersonRepository(top, git_dir, git_dir)
    if not os.path.exists(found.git_dir / "HEAD"):
        return None
    common = found._text(found.git_dir / "commondir")
    if not common:
        return found
    return PersonRepository(top, found.git_dir, Path(os.path.normpath(found.git_dir / common)))
