"""Ignore rules: the patterns of a project, and asking git which paths they match.

Git reads the `.gitignore` files itself, so it must not meet one that it would wait for or choke on: a FIFO, a
device, a file of gigabytes. Where there is such a file, the other rules are laid out in a directory of our own
and git is asked there. The same way it is asked about the rules of a checkpoint.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from shadowsnap.deadline import Deadline
from shadowsnap.errors import DeadlineExceeded, MalformedObject
from shadowsnap.files import UnreadableFile, read_bounded, reading_problem, remove_tree
from shadowsnap.git.repository import Git
from shadowsnap.records import dataclass
from shadowsnap.settings import Settings, parts, rests
from shadowsnap.snapshot.worktree import Worktree, parents
from shadowsnap.store.layout import Store

SHARE_OF_TIME = 0.4
"""Of the time that is left, for a question to git that a hostile project could make last for ever."""
# Of rules above the project, so many lines count, and none that is longer than a path can be. What the others
# would leave out is captured.
_MOST_INHERITED, _LONGEST_LINE = 5000, 4096
MOST_RULES = 1 << 20
"""A longer `.gitignore` is not read for its rules."""
ODD, UNSETTLED = -1, 0
"""In place of the time of a rule file: git must not open it; it may have changed since it was looked at."""

RuleFiles = dict[bytes, int]
"""The `.gitignore` files of a project, and when each last changed."""


class IgnoreRules:
    """Which paths the ignore rules of now match."""

    def __init__(self, git: Git, worktree: Worktree, store: Store, project: str, patterns: Sequence[str]) -> None:
        self.git = git
        self._worktree = worktree
        self._scratch = store.git_dir / f"scratch-rules-{project}-{os.getpid()}"
        self._patterns = patterns
        self.files: RuleFiles = {}
        """Those that were on the way to any path that was asked about."""
        self._known: dict[object, dict[bytes, bool]] = {}
        self.is_too_slow = False
        """Whether git could not answer in time: it is not asked again."""

    @contextmanager
    def within(self, deadline: Deadline) -> Iterator[None]:
        """Inside, git has to answer by this deadline."""
        before, self.git = self.git, self.git.bound(deadline=deadline)
        try:
            yield
        finally:
            self.git = before

    def ignored(self, paths: Sequence[bytes], folders: Collection[bytes] = ()) -> set[bytes]:
        """Which of the paths are ignored, whether they are captured or not; `folders` are those of them that
        are directories. No path may lie behind a link."""
        if not paths:
            return set()
        above = {b"", *(parent for path in paths for parent in parents(path))}
        self.files.update(rule_files(self._worktree, above))
        if not any(self.files.get(_rules_in(folder)) == ODD for folder in above):
            return _ask(self.git, paths)
        texts = {folder: self._text(folder) for folder in above}
        return self.ignored_under(texts, self._patterns, paths, folders)

    def ignored_under(
        self,
        texts: Mapping[bytes, bytes | None],
        patterns: Sequence[str],
        paths: Sequence[bytes],
        folders: Collection[bytes],
    ) -> set[bytes]:
        """Which of the paths are ignored under these rules: the text of the `.gitignore` in each directory,
        and the patterns of the project."""
        remove_tree(self._scratch)
        try:
            (self._scratch / ".git").mkdir(parents=True)
            for folder, text in texts.items():
                if text is not None:
                    place = self._scratch / os.fsdecode(folder) / ".gitignore"
                    with suppress(OSError):  # a path that is too long here: its rules are not had
                        place.parent.mkdir(parents=True, exist_ok=True)
                        place.write_bytes(text)
            for folder in set(folders).intersection(paths):  # some patterns match directories only
                with suppress(OSError):  # one that is called .gitignore, or too long a path
                    Path(self._scratch, os.fsdecode(folder)).mkdir(parents=True, exist_ok=True)
            excludes = self._scratch / ".git" / "patterns"
            excludes.write_bytes(exclude_file(patterns))
            git = self.git.bound(work_tree=self._scratch, config=(f"core.excludesFile={excludes}",))
            return _ask(git, paths)
        finally:
            remove_tree(self._scratch)

    def remembered(
        self, question: object, paths: Sequence[bytes], ask: Callable[[Sequence[bytes]], set[bytes]]
    ) -> set[bytes]:
        """The answer for each path; each is asked once, since a plan may be made twice. Where git cannot say so in
        time, the answer is yes."""
        known = self._known.setdefault(question, {})
        new = [path for path in paths if path not in known]
        if new:
            yes = self._in_time(new, ask)
            known.update((path, path in yes) for path in new)
        return {path for path in paths if known[path]}

    def _in_time(self, paths: Sequence[bytes], ask: Callable[[Sequence[bytes]], set[bytes]]) -> set[bytes]:
        """The answer; if rules take too long, all of the paths. For a restore that is the safe one: what may have
        been ignored is kept."""
        if not self.is_too_slow:
            try:
                with self.within(self.git.deadline.part(SHARE_OF_TIME)):
                    return ask(paths)
            except DeadlineExceeded:
                self.is_too_slow = True
        return set(paths)

    def text(self, folder: bytes) -> bytes | None:
        """The rules in a directory; None if there are none that git would read."""
        return self._text(folder) if rule_files(self._worktree, [folder]) else None

    def _text(self, folder: bytes) -> bytes | None:
        path = _rules_in(folder)
        seen = self._worktree.look(path)
        if seen is None or not stat.S_ISREG(seen.st_mode) or seen.st_size > MOST_RULES:
            return None
        return self._worktree.beginning(path, MOST_RULES)


def rule_files(worktree: Worktree, folders: Iterable[bytes]) -> RuleFiles:
    """The `.gitignore` files in these directories. (Git follows no link of that name.)"""
    paths = [_rules_in(folder) for folder in folders]
    found: RuleFiles = {}
    for path, seen in zip(paths, worktree.looks(paths), strict=True):
        if seen is None or stat.S_ISDIR(seen.st_mode) or stat.S_ISLNK(seen.st_mode):
            continue
        is_plain = stat.S_ISREG(seen.st_mode) and seen.st_size <= MOST_RULES
        found[path] = seen.st_ctime_ns if is_plain else ODD
    return found


def _rules_in(folder: bytes) -> bytes:
    return folder + b"/.gitignore" if folder else b".gitignore"


def _ask(git: Git, paths: Sequence[bytes]) -> set[bytes]:
    # This one command refuses literal pathspecs; behind "./" nothing in a name is magic.
    asked = b"".join(b"./%s\0" % path for path in paths)
    git = git.bound(literal_pathspecs=False)
    answer = git.run("check-ignore", "-z", "--stdin", "--no-index", stdin=asked, ok=(0, 1))
    return {path[2:] for path in answer.split(b"\0")[:-1]}


# --- patterns of a project ---------------------------------------------------------------------


def project_patterns(
    workdir: Path, repository: PersonRepository | None, settings: Settings, base: Path
) -> list[str]:
    """The exclude patterns that hold for this project only, on top of the defaults."""
    patterns = list(settings.excludes)
    if repository is not None:
        patterns += repository.exclude_lines() if repository.top == workdir else []
        patterns += _inherited(workdir, repository)
    if base.is_relative_to(workdir):
        patterns.append("/" + _escaped(base.relative_to(workdir).as_posix()) + "/")
    return patterns


def _escaped(path: str) -> str:
    return re.sub(r"([\\*?\[\]!# ])", r"\\\1", path)


def _inherited(workdir: Path, repository: PersonRepository) -> list[str]:
    """Patterns of the .gitignore files above a project that is a subdirectory of a repository,
    outermost first, turned into patterns relative to the project."""
    inherited: list[str] = []
    ignored: dict[Path, bool] = {}
    folders = [folder for folder in reversed(workdir.parents) if folder.is_relative_to(repository.top)]
    for folder in folders:
        lines = repository.exclude_lines() if folder == repository.top else []
        inside = workdir.relative_to(folder).parts
        lines += read_patterns(folder / ".gitignore")
        for line in lines[:_MOST_INHERITED]:
            if len(line) > _LONGEST_LINE:
                continue
            negated, pattern = line.startswith("!"), parts(line)
            for depth in range(1, len(inside) + 1):
                if [] in rests(pattern, inside[:depth]):
                    ignored[folder.joinpath(*inside[:depth])] = not negated
            inherited += _moved_down(line, pattern, inside)
    # If the project itself is ignored up there, their rules are not about it.
    return [] if any(ignored.values()) else inherited


def _moved_down(line: str, parts: list[str], inside: tuple[str, ...]) -> list[str]:
    """One pattern as seen from a directory below."""
    if parts[0] == "**" and len(parts) == 2:
        return [line]
    negation, tail = "!" if line.startswith("!") else "", "/" if line.rstrip(" ").endswith("/") else ""
    return [f"{negation}/{'/'.join(rest)}{tail}" for rest in rests(parts, inside) if rest]


VERSION = 1
"""Goes up when the patterns change: a checkpoint remembers under which it was taken."""

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
    # logs and what editors and systems leave
    "*.log", "*.swp", "*.swo", "*~", ".DS_Store", "Thumbs.db", "desktop.ini",
    # our own work in progress
    ".shadowsnap-restore-*/",
)  # fmt: skip


def exclude_file(own: Iterable[str] = ()) -> bytes:
    """The excludes of a project: the defaults, and its own, which may take a default back."""
    about = f"# shadowsnap default excludes, version {VERSION}, and the project's own; this file is rewritten"
    lines = [about, *DEFAULT_EXCLUDES, *own]
    return "".join(f"{line}\n" for line in lines).encode("utf-8", "surrogateescape")


def default_directory_names() -> frozenset[str]:
    """The excluded directories that are named without a wildcard or a path."""
    names = (pattern[:-1] for pattern in DEFAULT_EXCLUDES if pattern.endswith("/"))
    return frozenset(name for name in names if not set("*?[/") & set(name))


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
        found = {os.fspath(path): reading_problem(path, most) for path, most in looked_at.items()}
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
        from shadowsnap.git.index import tracked_paths

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
            return read_bounded(path, most)
        except UnreadableFile:
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
        return pattern_lines(read_bounded(path, _MOST_PATTERNS))
    except UnreadableFile:
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
