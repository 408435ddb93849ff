"""The person's own git repository, as far as plain files tell."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from shadowsnap.git.runner import Git
from shadowsnap.records import dataclass


@dataclass(frozen=True)
class PersonRepository:
    top: Path
    git_dir: Path
    common_dir: Path

    def exclude_lines(self) -> list[str]:
        return read_patterns(self.common_dir / "info" / "exclude")

    def index_signature(self) -> list[int]:
        """Changes whenever their index file does; empty if there is none."""
        try:
            seen = os.stat(self.git_dir / "index")
        except OSError:
            return []
        return [seen.st_mtime_ns, seen.st_size, seen.st_ino]

    def head(self) -> tuple[str | None, str | None]:
        """The commit and branch they are on, as far as plain files tell."""
        text = _text(self.git_dir / "HEAD")
        if not text.startswith("ref: "):
            return (text or None), None
        ref = text[5:]
        commit = _text(self.git_dir / ref) or _text(self.common_dir / ref) or self._packed(ref)
        return (commit or None), ref.removeprefix("refs/heads/")

    def _packed(self, ref: str) -> str:
        try:
            lines = (self.common_dir / "packed-refs").read_text("utf-8", "replace").splitlines()
        except OSError:
            return ""
        return next((line[:40] for line in lines if line[41:] == ref), "")


def find_repository(workdir: Path) -> PersonRepository | None:
    """The repository whose work tree this directory is in."""
    for top in (workdir, *workdir.parents):
        found = _repository_at(top)
        if found is not None:
            return found
    return None


def read_patterns(path: Path) -> list[str]:
    """The lines of an ignore file that mean something, cut as git cuts them."""
    try:
        text = os.fsdecode(path.read_bytes().removeprefix(b"\xef\xbb\xbf"))
    except OSError:
        return []
    lines = (line.removesuffix("\r") for line in text.split("\n"))
    return [line for line in lines if line.strip() and not line.startswith("#")]


class Answers:
    """Which paths of a question the answer was yes for: each is asked once."""

    def __init__(self) -> None:
        self._given: dict[object, dict[bytes, bool]] = {}

    def ask(
        self, question: object, paths: list[bytes], answer: Callable[[list[bytes]], set[bytes]]
    ) -> set[bytes]:
        given = self._given.setdefault(question, {})
        new = [path for path in paths if path not in given]
        if new:
            yes = answer(new)
            given.update((path, path in yes) for path in new)
        return {path for path in paths if given[path]}


class AskingIgnored:
    """A question to git under way: which of some paths the ignore rules match, whether they are in the
    index or not."""

    def __init__(self, git: Git, paths: list[bytes]) -> None:
        # This one command refuses literal pathspecs; behind "./" nothing in a name is magic.
        asked = b"".join(b"./%s\0" % path for path in paths)
        plain = git.bound(literal_pathspecs=False)
        words = ("check-ignore", "-z", "--stdin", "--no-index")
        self._running = plain.start(*words, stdin=asked, ok=(0, 1)) if paths else None

    def answer(self) -> set[bytes]:
        if self._running is None:
            return set()
        return {path[2:] for path in self._running.output().split(b"\0")[:-1]}

    def abandon(self) -> None:
        if self._running is not None:
            self._running.abandon()


def ignored_paths(git: Git, paths: list[bytes]) -> set[bytes]:
    """Which of the paths the ignore rules match, whether they are in the index or not."""
    return AskingIgnored(git, paths).answer()


def _repository_at(top: Path) -> PersonRepository | None:
    dot_git = top / ".git"
    if not os.path.lexists(dot_git):
        return None
    git_dir = dot_git
    if dot_git.is_file():
        text = _text(dot_git)
        if not text.startswith("gitdir: "):
            return None
        git_dir = Path(os.path.normpath(top / text[8:]))
    if not (git_dir / "HEAD").exists():
        return None
    common = _text(git_dir / "commondir")
    return PersonRepository(top, git_dir, Path(os.path.normpath(git_dir / common)) if common else git_dir)


def _text(path: Path) -> str:
    try:
        return os.fsdecode(path.read_bytes()).strip()
    except OSError:
        return ""
