"""What is on disk, and what a snapshot must hold of it.

All of this is found out without shadowsnap: files are read here, and plain git is asked what is ignored.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import stat
import subprocess
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

STAGING = ".shadowsnap-restore-"

# Of shadowsnap's lists only what the edits of a soak can match: a second list that is written down here, so that
# the judge does not ask the accused.
DEFAULT_EXCLUDES = ("build/", "node_modules/", "*.log", "*~", f"{STAGING}*/")
SECRET_NAMES = (".env", "cert.pem", "x.key")

Settings = dict[str, Any]
"""Arguments of a manager: excludes, max_file_size_mb, include_secrets."""


class Entry(NamedTuple):
    """What is at one path. `content` is the blob id of a file's bytes or of a link's target."""

    kind: str
    bits: int = 0
    content: str = ""
    size: int = 0

    @property
    def leaf(self) -> tuple[str, str]:
        """Mode and id as `git ls-tree` prints them."""
        if self.kind == "link":
            return "120000", self.content
        return ("100755" if self.bits & 0o100 else "100644"), self.content


Manifest = dict[str, Entry]


def read_manifest(project: Path) -> Manifest:
    """Everything below a directory, except `.git` and what a restore left behind (see `leftovers`)."""
    return dict(_walk(os.fspath(project), ""))


def _walk(folder: str, below: str) -> Iterator[tuple[str, Entry]]:
    for item in sorted(os.scandir(folder), key=lambda item: item.name):
        if item.name == ".git" or item.name.startswith(STAGING):
            continue
        path, seen = below + item.name, item.stat(follow_symlinks=False)
        bits = stat.S_IMODE(seen.st_mode)
        if stat.S_ISDIR(seen.st_mode):
            yield path, Entry("dir", bits)
            yield from _walk(item.path, path + "/")
        elif stat.S_ISLNK(seen.st_mode):
            target = os.fsencode(os.readlink(item.path))
            yield path, Entry("link", 0, blob_id(target), len(target))
        elif stat.S_ISREG(seen.st_mode):
            data = Path(item.path).read_bytes()
            yield path, Entry("file", bits, blob_id(data), len(data))
        else:
            yield path, Entry("special", bits)


def blob_id(data: bytes) -> str:
    return hashlib.sha1(b"blob %d\0%b" % (len(data), data)).hexdigest()


def leftovers(project: Path) -> list[Path]:
    found = (Path(folder, name) for folder, names, _ in os.walk(project) for name in names)
    return [path for path in found if path.name.startswith(STAGING)]


def differences(old: Manifest, new: Manifest) -> list[str]:
    """One line per path that is not the same, for people."""
    paths = sorted(path for path in old.keys() | new.keys() if old.get(path) != new.get(path))
    return [f"{path!r}: {_shown(old.get(path))}, now {_shown(new.get(path))}" for path in paths]


def _shown(entry: Entry | None) -> str:
    if entry is None:
        return "absent"
    return f"{entry.kind} {entry.bits:o} {entry.content[:8]}".rstrip()


# --- what a snapshot must hold ---------------------------------------------------------------


@dataclass(frozen=True)
class Rules:
    """Every text that decides what is ignored, with paths relative to the top of the repository."""

    ignore_files: dict[str, bytes]
    info_exclude: bytes
    setting: tuple[str, ...]
    """The `excludes` setting. (Its patterns are not anchored in a soak: they mean the same from the top.)"""
    prefix: str
    """From the top of the repository to the project: "" or "pkg/"."""

    def ignored(self, paths: Iterable[str], folders: Iterable[str] = ()) -> set[str]:
        """Which of these paths plain git ignores, in a scratch copy of the rules. Not asked of the project
        itself: the rules may be those of an earlier state, and git may not hang on what lies there."""
        folders = list(folders)
        wanted = [*paths, *folders]
        if not wanted:
            return set()
        scratch = scratch_repository()
        try:
            for path in folders:  # a pattern may match directories only: git must see one
                above = Path(self.prefix + path)
                if not self.ignore_files.keys() & {above.as_posix(), *map(str, above.parents)}:
                    Path(scratch, above).mkdir(parents=True, exist_ok=True)
            for path, text in self.ignore_files.items():
                place = Path(scratch, path)
                place.parent.mkdir(parents=True, exist_ok=True)
                place.write_bytes(text)
            Path(scratch, ".git/info/exclude").write_bytes(self.info_exclude)
            lines = (*DEFAULT_EXCLUDES, *self.setting)
            Path(scratch, ".git/excludes").write_text("".join(f"{line}\n" for line in lines))
            done = subprocess.run(
                ["git", "-c", "core.excludesFile=.git/excludes", "check-ignore", "--no-index", "-z", "--stdin"],
                cwd=scratch, env=plain_environment(), capture_output=True, check=False,
                input=b"".join(os.fsencode(f"./{self.prefix}{path}") + b"\0" for path in wanted),
            )  # fmt: skip
            if done.returncode not in (0, 1):
                raise RuntimeError(f"git check-ignore: {done.stderr!r}")
        finally:
            shutil.rmtree(scratch)
        start = len(f"./{self.prefix}")
        return {os.fsdecode(path)[start:] for path in done.stdout.split(b"\0") if path}


@dataclass(frozen=True)
class State:
    """A directory at one moment, with everything that decides what a snapshot of it holds."""

    manifest: Manifest
    rules: Rules
    tracked: frozenset[str]
    settings: Settings
    ignored: frozenset[str] = field(default_factory=frozenset)
    """Files and directories that exist and are ignored (tracked ones among them)."""

    def must_hold(self, named: Collection[str] = ()) -> Manifest:
        """Every file that has to be in a checkpoint of this state."""
        wanted = {path: entry for path, entry in self.manifest.items() if entry.kind in ("file", "link")}
        left_out = self.ignored - self.tracked - set(named)
        wanted = {path: entry for path, entry in wanted.items() if path not in left_out}
        return {path: entry for path, entry in wanted.items() if self.why_skipped(path) is None}

    def must_list(self) -> dict[str, str]:
        """What has to be in `skipped`, and why."""
        found = {path: self.why_skipped(path) for path in self.manifest if path not in self.ignored}
        return {path: why for path, why in found.items() if why is not None}

    def why_skipped(self, path: str) -> str | None:
        entry = self.manifest[path]
        if entry.kind == "special":
            return "special"
        if entry.kind == "dir":
            return None
        if is_secret(path) and path not in self.tracked and not self.settings.get("include_secrets"):
            return "secret"
        return "too-large" if entry.kind == "file" and is_large(entry, self.settings) else None

    def would_hold(self, path: str) -> bool:
        """Whether a new plain file at this path would have been captured: so its absence is known."""
        return path not in self.rules.ignored([path])


def is_secret(path: str) -> bool:
    return path.rpartition("/")[2] in SECRET_NAMES


def is_large(entry: Entry, settings: Settings) -> bool:
    return bool(entry.size > settings.get("max_file_size_mb", 10) * 1024 * 1024)


def look(project: Path, top: Path, settings: Settings) -> State:
    """Read everything. The caller keeps the directory still."""
    manifest = read_manifest(project)
    prefix = "" if top == project else project.relative_to(top).as_posix() + "/"
    named_so = [prefix + path for path, entry in manifest.items() if entry.kind == "file" and _is_rules(path)]
    # git does not follow links here, and takes a directory of that name for no rules.
    named_so += [".gitignore"] if prefix and top.joinpath(".gitignore").is_file() else []
    exclude = top / ".git/info/exclude"
    rules = Rules(
        {path: top.joinpath(path).read_bytes() for path in named_so},
        exclude.read_bytes() if exclude.is_file() else b"",
        tuple(settings.get("excludes", ())),
        prefix,
    )
    folders = [path for path, entry in manifest.items() if entry.kind == "dir"]
    files = [path for path, entry in manifest.items() if entry.kind != "dir"]
    ignored = rules.ignored(files, folders)
    return State(manifest, rules, _tracked(project, top), settings, frozenset(ignored))


def _is_rules(path: str) -> bool:
    return path.rpartition("/")[2] == ".gitignore"


def _tracked(project: Path, top: Path) -> frozenset[str]:
    if not (top / ".git").is_dir():
        return frozenset()
    done = subprocess.run(
        ["git", "ls-files", "-z"], cwd=project, env=plain_environment(), capture_output=True, check=True
    )
    return frozenset(os.fsdecode(path) for path in done.stdout.split(b"\0") if path)


# --- git without anybody's settings ----------------------------------------------------------

_home: list[Path] = []


def use_home(scratch: Path) -> None:
    """Where scratch repositories are made, and the home directory of every process of this soak."""
    scratch.mkdir(parents=True)
    _home[:] = [scratch]


def plain_environment() -> dict[str, str]:
    foreign = ("GIT_", "SHADOWSNAP_", "XDG_")
    kept = {name: text for name, text in os.environ.items() if not name.startswith(foreign)}
    roles = [f"GIT_{role}_{what}" for role in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")]
    who = dict.fromkeys(roles, "soak@localhost")
    home = {"HOME": str(_home[0]), "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}
    return {**kept, **who, **home, "GIT_OPTIONAL_LOCKS": "0", "LC_ALL": "C.UTF-8"}


def scratch_repository() -> str:
    """An empty repository, made by hand because `git init` takes ten times as long."""
    number = os.urandom(6).hex()
    place = _home[0] / f"rules-{number}"
    for folder in ("objects", "refs/heads", "info"):
        (place / ".git" / folder).mkdir(parents=True)
    (place / ".git/HEAD").write_text("ref: refs/heads/main\n")
    (place / ".git/config").write_text("[core]\n\trepositoryformatversion = 0\n")
    return str(place)


def stamp_of_git(top: Path) -> dict[str, tuple[int, int, int]]:
    """What `.git` of the person looks like: mode, size and modification time of everything in it."""
    found: dict[str, tuple[int, int, int]] = {}
    for folder, _, names in os.walk(top / ".git"):
        for name in ("", *names):
            seen = os.lstat(os.path.join(folder, name))
            found[os.path.join(folder, name)] = (seen.st_mode, seen.st_size, seen.st_mtime_ns)
    return found
