"""The person's own git repository: only ever read, and mostly without git."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from shadowsnap.errors import GitFailed
from shadowsnap.git.runner import Git

_READ_ONLY = (
    "core.fsmonitor=false",
    "core.untrackedCache=false",
    "core.splitIndex=false",
    "core.hooksPath=" + os.devnull,
)
_GITLINK = b"160000 "


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

    def tracked_despite(self, git: Git, workdir: Path, exclude_files: list[Path]) -> list[bytes]:
        """Files below `workdir` that their index holds although an exclude matches."""
        theirs = git.bound(git_dir=self.git_dir, work_tree=self.top, index_file=None, config=_READ_ONLY)
        if workdir == self.top:
            options = [f"--exclude-from={path}" for path in exclude_files]
            return _listed(theirs, "-c", "-i", "--exclude-per-directory=.gitignore", *options)
        # Our patterns are relative to the project, theirs to the top: ask the one, then the other.
        inside = os.fsencode(workdir.relative_to(self.top)) + b"/"
        below = [path[len(inside) :] for path in _listed(theirs, "-c", "--", str(workdir))]
        return sorted(ignored_paths(git, below))

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
    """The lines of an ignore file that mean something."""
    try:
        lines = os.fsdecode(path.read_bytes()).splitlines()
    except OSError:
        return []
    return [line for line in lines if line.strip() and not line.startswith("#")]


def ignored_paths(git: Git, paths: list[bytes]) -> set[bytes]:
    """Which of the paths the ignore rules match, whether they are in the index or not."""
    if not paths:
        return set()
    # This one command refuses literal pathspecs; behind "./" nothing in a name is magic.
    asked = b"".join(b"./%s\0" % path for path in paths)
    plain = git.bound(literal_pathspecs=False)
    answer = plain.run("check-ignore", "-z", "--stdin", "--no-index", stdin=asked, ok=(0, 1))
    return {path[2:] for path in answer.split(b"\0")[:-1]}


def _listed(theirs: Git, *options: str) -> list[bytes]:
    rows = theirs.run("ls-files", "-z", "-s", *options).split(b"\0")
    return sorted({row.partition(b"\t")[2] for row in rows if row and not row.startswith(_GITLINK)})


def tracked_despite_excludes(
    repository: PersonRepository, git: Git, workdir: Path, exclude_files: list[Path]
) -> list[bytes] | None:
    """As `tracked_despite`; None if their repository cannot be read."""
    try:
        return repository.tracked_despite(git, workdir, exclude_files)
    except GitFailed:
        return None


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
