"""Ignore rules: the exclude patterns of a project, and asking git which paths are ignored.

Git reads the `.gitignore` files itself, so it must never open one that would block it or exhaust it: a FIFO, a
device, a file of gigabytes. Where such a file exists, the other rules are copied to a scratch directory and git is
asked there. The rules of an older checkpoint are evaluated in the same way.

The last part reads what matters here from the user's own repository, as plain files: its patterns, which files it
tracks, and its HEAD.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from shadowsnap.deadline import Deadline
from shadowsnap.errors import DeadlineExceeded, MalformedObject
from shadowsnap.files import UnreadableFile, read_bounded, reading_problem, scratch_folder
from shadowsnap.git.index import tracked_paths
from shadowsnap.git.repository import Git, side_by_side
from shadowsnap.patterns import parts, rests
from shadowsnap.settings import Settings
from shadowsnap.snapshot.worktree import Worktree, folders_above
from shadowsnap.store.layout import Store

SHARE_OF_TIME = 0.4
"""The share of the remaining time for a question to git that a hostile project could make endless."""
ODD, UNSETTLED = -1, 0
"""In place of a rule file's time: git must not open the file; the file may have changed after it was examined."""
VERSION = 1
"""The version of the default patterns. Every checkpoint records the one it was taken under."""

_MAX_RULES_SIZE = 1 << 20
# Limits for the rules above a project. What further or longer lines would leave out is captured.
_MAX_INHERITED_LINES = 5000
_MAX_LINE_LENGTH = 4096

RuleFiles = dict[bytes, int]
"""The path of each `.gitignore`, and its change time."""


class IgnoreRules:
    """Answers which paths are ignored, now or under the rules of a checkpoint."""

    def __init__(self, git: Git, worktree: Worktree, store: Store, patterns: Sequence[str]) -> None:
        self.git = git
        self._worktree = worktree
        self._store_folder = store.git_dir
        self._patterns = patterns
        self.files: RuleFiles = {}
        """The rule files above every path that was asked about."""
        self._answers: dict[object, dict[bytes, bool]] = {}
        self.is_too_slow = False
        """Git could not answer in time and is not asked again."""

    @contextmanager
    def within(self, deadline: Deadline) -> Iterator[None]:
        """Make git answer by this deadline."""
        before, self.git = self.git, self.git.bound(deadline=deadline)
        try:
            yield
        finally:
            self.git = before

    def ignored(
        self,
        paths: Sequence[bytes],
        folders: Collection[bytes] = (),
        meanwhile: Callable[[], None] = lambda: None,
    ) -> set[bytes]:
        """Which of the paths are ignored, whether they are captured or not. `folders` are the directories among
        them. No path may be behind a link. `meanwhile` may be called while git starts."""
        if not paths:
            return set()
        above = {b"", *folders_above(paths)}
        self.files.update(rule_files(self._worktree, above))
        if not any(self.files.get(_rules_in(folder)) == ODD for folder in above):
            return _check_ignore(self.git, paths, meanwhile)
        texts = {folder: self._text(folder) for folder in above}
        return self.ignored_under(texts, self._patterns, paths, folders)

    def ignored_under(
        self,
        texts: Mapping[bytes, bytes | None],
        patterns: Sequence[str],
        paths: Sequence[bytes],
        folders: Collection[bytes],
    ) -> set[bytes]:
        """Which of the paths are ignored under other rules: the text of the `.gitignore` in each directory, and
        the exclude patterns of the project."""
        with scratch_folder(self._store_folder, "rules") as scratch:
            (scratch / ".git").mkdir()
            for folder, text in texts.items():
                if text is not None:
                    file = scratch / os.fsdecode(folder) / ".gitignore"
                    with suppress(OSError):  # the path is too long here: these rules do not count
                        file.parent.mkdir(parents=True, exist_ok=True)
                        file.write_bytes(text)
            for folder in set(folders).intersection(paths):  # some patterns match directories only
                with suppress(OSError):  # a directory named .gitignore, or the path is too long here
                    Path(scratch, os.fsdecode(folder)).mkdir(parents=True, exist_ok=True)
            excludes = scratch / ".git" / "patterns"
            excludes.write_bytes(exclude_file(patterns))
            git = self.git.bound(work_tree=scratch, config=(f"core.excludesFile={excludes}",))
            return _check_ignore(git, paths)

    def remembered(
        self, question: object, paths: Sequence[bytes], ask: Callable[[Sequence[bytes]], set[bytes]]
    ) -> set[bytes]:
        """The paths for which `ask` answers yes. Each path is asked once per question, since a plan may be made
        twice. Where git does not answer in time, the answer is yes: a restore keeps what may be ignored."""
        known = self._answers.setdefault(question, {})
        new = [path for path in paths if path not in known]
        if new:
            yes = set(new)
            if not self.is_too_slow:
                try:
                    with self.within(self.git.deadline.part(SHARE_OF_TIME)):
                        yes = ask(new)
                except DeadlineExceeded:
                    self.is_too_slow = True
            known.update((path, path in yes) for path in new)
        return {path for path in paths if known[path]}

    def text(self, folder: bytes) -> bytes | None:
        """The `.gitignore` of a directory; None if there is none that git would read."""
        return self._text(folder) if rule_files(self._worktree, [folder]) else None

    def _text(self, folder: bytes) -> bytes | None:
        path = _rules_in(folder)
        seen = self._worktree.look(path)
        if seen is None or not stat.S_ISREG(seen.st_mode) or seen.st_size > _MAX_RULES_SIZE:
            return None
        return self._worktree.beginning(path, _MAX_RULES_SIZE)


def rule_files(worktree: Worktree, folders: Iterable[bytes]) -> RuleFiles:
    """The `.gitignore` files in these directories. (Git does not follow a link of that name.)"""
    paths = [_rules_in(folder) for folder in folders]
    found: RuleFiles = {}
    for path, seen in zip(paths, worktree.looks(paths), strict=True):
        if seen is None or stat.S_ISDIR(seen.st_mode) or stat.S_ISLNK(seen.st_mode):
            continue
        is_plain = stat.S_ISREG(seen.st_mode) and seen.st_size <= _MAX_RULES_SIZE
        found[path] = seen.st_ctime_ns if is_plain else ODD
    return found


def _rules_in(folder: bytes) -> bytes:
    return folder + b"/.gitignore" if folder else b".gitignore"


def _check_ignore(
    git: Git, paths: Sequence[bytes], meanwhile: Callable[[], None] = lambda: None
) -> set[bytes]:
    # check-ignore refuses literal pathspecs; after "./" no character of a name is special.
    asked = b"".join(b"./%s\0" % path for path in paths)
    git = git.bound(literal_pathspecs=False)
    asking = git.start("check-ignore", "-z", "--stdin", "--no-index", stdin=asked, ok=(0, 1))
    with side_by_side(asking):
        meanwhile()
        answer = asking.output()
    return {path[2:] for path in answer.split(b"\0")[:-1]}


# --- patterns of a project ---------------------------------------------------------------------------

STAGING_PREFIX = ".shadowsnap-restore-"
"""How the names of directories begin that a restore in progress makes. No rule may take them back: its own capture
at the end would hold them, and whatever goes back to that would leave them in the project."""
DEFAULT_EXCLUDES: tuple[str, ...] = (
    # version control
    ".git/", ".hg/", ".svn/", ".bzr/", "_darcs/", ".jj/", "CVS/",
    # dependencies
    "node_modules/", "bower_components/", "jspm_packages/", ".pnpm-store/", ".yarn/cache/", ".yarn/unplugged/",
    # virtual environments
    ".venv/", "venv/", "env/", ".virtualenv/", "virtualenv/", ".tox/", ".nox/", ".conda/",
    # build output
    "build/", "dist/", "target/", "out/", "_build/", ".next/", ".nuxt/", ".svelte-kit/", ".output/", ".gradle/",
    "bazel-*/", "cmake-build-*/", "CMakeFiles/", "*.egg-info/", ".eggs/", "DerivedData/", ".dart_tool/",
    # caches
    "__pycache__/", ".cache/", ".pytest_cache/", ".mypy_cache/", ".ruff_cache/", ".hypothesis/", ".parcel-cache/",
    ".turbo/", ".sass-cache/", ".npm/", ".ipynb_checkpoints/", ".nyc_output/", "htmlcov/", ".coverage",
    ".coverage.*", ".terraform/", ".vagrant/", ".direnv/",
    # compiled files
    "*.pyc", "*.pyo", "*.o", "*.obj", "*.a", "*.lib", "*.so", "*.so.*", "*.dylib", "*.dll", "*.exe", "*.class",
    "*.wasm", "*.pdb", "*.ko",
    # archives
    "*.zip", "*.tar", "*.tar.*", "*.tgz", "*.gz", "*.bz2", "*.xz", "*.zst", "*.7z", "*.rar", "*.jar", "*.war",
    "*.whl", "*.deb", "*.rpm", "*.iso", "*.dmg",
    # media
    "*.mp4", "*.mov", "*.avi", "*.mkv", "*.webm", "*.mp3", "*.wav", "*.flac", "*.ogg", "*.m4a", "*.psd",
    # logs, and leftovers of editors and systems
    "*.log", "*.swp", "*.swo", "*~", ".DS_Store", "Thumbs.db", "desktop.ini",
    # directories of a restore in progress
    f"{STAGING_PREFIX}*/",
)  # fmt: skip

DEFAULT_DIRECTORY_NAMES = frozenset(
    os.fsencode(pattern[:-1])
    for pattern in DEFAULT_EXCLUDES
    if pattern.endswith("/") and not set("*?[/") & set(pattern[:-1])
)
"""The excluded directories whose pattern is a plain name."""


def exclude_file(own: Iterable[str] = ()) -> bytes:
    """The exclude file of a project: the defaults, then its own patterns, which may take a default back."""
    header = f"# shadowsnap default excludes, version {VERSION}, and the project's own; this file is rewritten"
    lines = [header, *DEFAULT_EXCLUDES, *own]
    return "".join(f"{line}\n" for line in lines).encode("utf-8", "surrogateescape")


def project_patterns(
    workdir: Path, repository: UserRepository | None, settings: Settings, base: Path
) -> list[str]:
    """The exclude patterns of this project, apart from the defaults and its `.gitignore` files."""
    patterns = list(settings.excludes)
    if repository is not None:
        patterns += repository.exclude_lines() if repository.top == workdir else []
        patterns += _inherited(workdir, repository)
    if base.is_relative_to(workdir):
        store = base.relative_to(workdir).as_posix()
        patterns.append("/" + re.sub(r"([\\*?\[\]!# ])", r"\\\1", store) + "/")
    return patterns


def _inherited(workdir: Path, repository: UserRepository) -> list[str]:
    """The patterns of the `.gitignore` files above a project that is a subdirectory of a repository, outermost
    first, rewritten to be relative to the project."""
    inherited: list[str] = []
    ignored: dict[Path, bool] = {}
    folders = [folder for folder in reversed(workdir.parents) if folder.is_relative_to(repository.top)]
    for folder in folders:
        lines = repository.exclude_lines() if folder == repository.top else []
        inside = workdir.relative_to(folder).parts
        lines += _read_patterns(folder / ".gitignore")
        for line in lines[:_MAX_INHERITED_LINES]:
            if len(line) > _MAX_LINE_LENGTH:
                continue
            negated, pattern = line.startswith("!"), parts(line)
            for depth in range(1, len(inside) + 1):
                if [] in rests(pattern, inside[:depth]):
                    ignored[folder.joinpath(*inside[:depth])] = not negated
            inherited += _relative_to(inside, line, pattern)
    # If the repository ignores the project itself, its rules do not apply inside.
    return [] if any(ignored.values()) else inherited


def _relative_to(inside: tuple[str, ...], line: str, pattern: list[str]) -> list[str]:
    """One pattern, rewritten to be relative to a subdirectory."""
    if pattern[0] == "**" and len(pattern) == 2:
        return [line]
    negation, tail = "!" if line.startswith("!") else "", "/" if line.rstrip(" ").endswith("/") else ""
    return [f"{negation}/{'/'.join(rest)}{tail}" for rest in rests(pattern, inside) if rest]


def _read_patterns(path: Path) -> list[str]:
    """The patterns of an ignore file; none if it cannot be read."""
    return pattern_lines(_read(path, _MAX_RULES_SIZE) or b"")


def pattern_lines(data: bytes) -> list[str]:
    """The lines of an ignore file without comments, split as git splits them."""
    text = os.fsdecode(data.removeprefix(b"\xef\xbb\xbf"))
    lines = (line.removesuffix("\r") for line in text.split("\n"))
    return [line for line in lines if line.strip() and not line.startswith("#")]


# --- the user's repository ---------------------------------------------------------------------------

_MAX_TEXT_SIZE = 1 << 16
_MAX_REFS_SIZE = 64 << 20
_MAX_INDEX_SIZE = 512 << 20


@dataclass(frozen=True)
class UserRepository:
    """The git repository of the user, read as plain files. Git itself is never run in it."""

    top: Path
    git_dir: Path
    common_dir: Path

    def odd_files(self) -> dict[str, str]:
        """The files that decide what is tracked or ignored and cannot be read, with the reason: a FIFO, a device,
        or a file of absurd size."""
        sizes = {
            self.git_dir / "HEAD": _MAX_TEXT_SIZE,
            self.git_dir / "index": _MAX_INDEX_SIZE,
            self.git_dir / "commondir": _MAX_TEXT_SIZE,
            self.common_dir / "config": _MAX_RULES_SIZE,
            self.common_dir / "info" / "exclude": _MAX_RULES_SIZE,
        }
        found = {os.fspath(path): reading_problem(path, size) for path, size in sizes.items()}
        return {path: why for path, why in found.items() if why is not None}

    def exclude_lines(self) -> list[str]:
        return _read_patterns(self.common_dir / "info" / "exclude")

    def index_signature(self) -> list[int]:
        """Changes whenever the index file does; empty if there is none."""
        try:
            seen = os.stat(self.git_dir / "index")
        except OSError:
            return []
        return [seen.st_mtime_ns, seen.st_ctime_ns, seen.st_size, seen.st_ino]

    def tracked(self, workdir: Path) -> set[bytes] | None:
        """The tracked files below `workdir`, relative to it; None if the index cannot be read."""
        if not self.index_signature():
            return set()
        data = _read(self.git_dir / "index", _MAX_INDEX_SIZE)
        if data is None:
            return None
        try:
            paths = tracked_paths(data, lambda name: _read(self.git_dir / f"sharedindex.{name}", _MAX_INDEX_SIZE))
        except MalformedObject:
            return None
        if workdir == self.top:
            return paths
        inside = os.fsencode(workdir.relative_to(self.top).as_posix()) + b"/"
        return {path[len(inside) :] for path in paths if path.startswith(inside)}

    def head(self) -> tuple[str | None, str | None]:
        """The commit and the branch of HEAD, each None if it cannot be read."""
        text = _read_text(self.git_dir / "HEAD")
        if not text.startswith("ref: "):
            return (text or None), None
        ref = text[5:]
        if ".." in ref.split("/") or os.path.isabs(ref):
            return None, None
        commit = _read_text(self.git_dir / ref) or _read_text(self.common_dir / ref) or self._packed(ref)
        return (commit or None), ref.removeprefix("refs/heads/")

    def _packed(self, ref: str) -> str:
        lines = (_read(self.common_dir / "packed-refs", _MAX_REFS_SIZE) or b"").splitlines()
        wanted = os.fsencode(ref)
        return next((os.fsdecode(line[:40]) for line in lines if line[41:] == wanted), "")


def find_repository(workdir: Path) -> UserRepository | None:
    """The repository that this directory belongs to."""
    for top in (workdir, *workdir.parents):
        found = _repository_at(top)
        if found is not None:
            return found
    return None


def _repository_at(top: Path) -> UserRepository | None:
    dot_git = top / ".git"
    if not os.path.lexists(dot_git):
        return None
    git_dir = dot_git
    if dot_git.is_file():
        text = _read_text(dot_git)
        if not text.startswith("gitdir: "):
            return None
        git_dir = Path(os.path.normpath(top / text[8:]))
    if not os.path.exists(git_dir / "HEAD"):
        return None
    common = _read_text(git_dir / "commondir")
    return UserRepository(top, git_dir, Path(os.path.normpath(git_dir / common)) if common else git_dir)


def _read_text(path: Path) -> str:
    return os.fsdecode(_read(path, _MAX_TEXT_SIZE) or b"").strip()


def _read(path: Path, size: int) -> bytes | None:
    try:
        return read_bounded(path, size)
    except UnreadableFile:
        return None
