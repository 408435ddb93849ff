"""What tests share: real git, exact pictures of a tree, a sealed environment, an unprivileged child."""

from __future__ import annotations

import contextlib
import os
import pickle
import shutil
import signal
import stat
import subprocess
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, TypeVar

ROOT = Path(__file__).resolve().parent.parent.parent
T = TypeVar("T")


# --- real git ---------------------------------------------------------------------------------------


def git(cwd: str | bytes | Path, *args: str | bytes | Path, stdin: bytes = b"") -> str:
    """Run git as a person would; its stdout without the last newline. Undecodable bytes are surrogates."""
    done = subprocess.run(["git", *args], cwd=cwd, input=stdin, capture_output=True, check=False)
    if done.returncode != 0:
        raise AssertionError(f"git {args} in {cwd!r} failed ({done.returncode}): {os.fsdecode(done.stderr)}")
    return os.fsdecode(done.stdout).removesuffix("\n")


def unpack(store: Path) -> None:
    """Make a file of its own of every object in a repository's packs, so that a test can damage just one."""
    for pack in (store / "objects" / "pack").glob("*.pack"):
        packed = pack.read_bytes()
        for path in pack.parent.glob(f"{pack.stem}.*"):
            path.unlink()
        git(store, "unpack-objects", "-q", stdin=packed)


def loose_object(store: Path, name: str) -> Path:
    """The file of its own that holds an object, which is unpacked for that."""
    unpack(store)
    return store / "objects" / name[:2] / name[2:]


# --- exact pictures of a tree -----------------------------------------------------------------------

TYPES = {
    stat.S_IFREG: "file",
    stat.S_IFDIR: "dir",
    stat.S_IFLNK: "link",
    stat.S_IFIFO: "fifo",
    stat.S_IFSOCK: "socket",
    stat.S_IFCHR: "device",
    stat.S_IFBLK: "device",
}

Entry = tuple[str, int, bytes | None]


def manifest(path: str | bytes | Path) -> dict[bytes, Entry]:
    """Relative path -> (type, permission bits, bytes or link target) of everything below `path`.

    Directories are included; anything called `.git` is not. Links have no permission bits of their own.
    """
    return {name: _entry(full, st) for name, full, st in _walk(os.fsencode(path), without=b".git")}


def snapshot_dotgit(path: str | bytes | Path) -> dict[bytes, tuple[str, int, bytes | None, int]]:
    """Everything in `path/.git` (a directory or a file), with its mtime: equal only if nobody wrote there.

    Directories count too: their mtime betrays a temporary file that came and went.
    """
    dotgit = os.path.join(os.fsencode(path), b".git")
    st = os.lstat(dotgit)
    found = {b".": (*_entry(dotgit, st), st.st_mtime_ns)}
    if stat.S_ISDIR(st.st_mode):
        for name, full, st in _walk(dotgit):
            found[name] = (*_entry(full, st), st.st_mtime_ns)
    return found


def _walk(top: bytes, without: bytes | None = None) -> Iterator[tuple[bytes, bytes, os.stat_result]]:
    pending = [b""]
    while pending:
        parent = pending.pop()
        for basename in sorted(os.listdir(os.path.join(top, parent))):
            if basename == without:
                continue
            name = os.path.join(parent, basename)
            full = os.path.join(top, name)
            st = os.lstat(full)
            yield name, full, st
            if stat.S_ISDIR(st.st_mode):
                pending.append(name)


def _entry(full: bytes, st: os.stat_result) -> Entry:
    kind = TYPES.get(stat.S_IFMT(st.st_mode), "other")
    if kind == "link":
        return kind, 0, os.readlink(full)
    content = Path(os.fsdecode(full)).read_bytes() if kind == "file" else None
    return kind, stat.S_IMODE(st.st_mode), content


def remove_tree(top: str | Path) -> None:
    """Remove a tree although tests closed some of its directories, or made paths longer than the system takes."""
    os.chmod(top, 0o700)
    for _, directories, _, folder in os.fwalk(top):
        for name in directories:
            if not stat.S_ISLNK(os.lstat(name, dir_fd=folder).st_mode):
                os.chmod(name, 0o700, dir_fd=folder)  # before os.fwalk goes in
    shutil.rmtree(top)


def spread_directories(top: str | Path) -> None:
    """Let ext4 place what is made in a directory far from it, where no earlier run has just deleted its files."""
    if shutil.which("chattr"):
        # Fails on other file systems, which do without.
        subprocess.run(["chattr", "+T", top], stderr=subprocess.DEVNULL, check=False)


# --- a sealed environment ---------------------------------------------------------------------------

FOREIGN_PREFIXES = ("GIT_", "XDG_", "SHADOWSNAP_")

GITCONFIG = """\
[user]
    name = A Person
    email = person@example.invalid
[init]
    defaultBranch = main
[commit]
    gpgSign = false
[gc]
    auto = 0
[protocol "file"]
    allow = always
[safe]
    directory = *
"""


@contextlib.contextmanager
def sealed_environment(home: Path) -> Iterator[None]:
    """Everything that leads to the real home, store or git configuration leads below `home` instead."""
    saved = dict(os.environ)
    gitconfig = home / ".gitconfig"
    gitconfig.write_text(GITCONFIG)
    sealed = {name: value for name, value in saved.items() if not name.startswith(FOREIGN_PREFIXES)}
    sealed |= {
        "HOME": str(home),
        "USERPROFILE": str(home),
        "APPDATA": str(home / "AppData" / "Roaming"),
        "LOCALAPPDATA": str(home / "AppData" / "Local"),
        "XDG_STATE_HOME": str(home / ".local" / "state"),
        "XDG_CONFIG_HOME": str(home / ".config"),
        "XDG_CACHE_HOME": str(home / ".cache"),
        "XDG_DATA_HOME": str(home / ".local" / "share"),
        "GIT_CONFIG_GLOBAL": str(gitconfig),
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_TERMINAL_PROMPT": "0",
        "SHADOWSNAP_RESIDENT": "false",  # but in its own tests: no process stays behind
    }
    _replace_environment(sealed)
    try:
        yield
    finally:
        _replace_environment(saved)


def _replace_environment(wanted: dict[str, str]) -> None:
    # pytest sets and removes its own variables while a test runs; those are not ours to put back.
    for name in set(os.environ) - set(wanted):
        if not name.startswith("PYTEST_"):
            del os.environ[name]
    for name, value in wanted.items():
        if name != "PYTEST_CURRENT_TEST" and os.environ.get(name) != value:
            os.environ[name] = value


def real_places() -> list[Path]:
    """Where shadowsnap would write without the seal. Call it before the environment is sealed."""
    home = Path.home()
    places = [
        home / ".local" / "state" / "shadowsnap",
        home / ".config" / "shadowsnap",
        home / "Library" / "Application Support" / "shadowsnap",
    ]
    if os.environ.get("SHADOWSNAP_HOME"):
        places.append(Path(os.environ["SHADOWSNAP_HOME"]))
    for variable in ("XDG_STATE_HOME", "XDG_CONFIG_HOME", "LOCALAPPDATA"):
        if os.environ.get(variable):
            places.append(Path(os.environ[variable]) / "shadowsnap")
    return places


def fingerprint(places: Iterable[Path]) -> dict[Path, int | None]:
    """mtime of each place and of its direct children; None for what does not exist."""
    found: dict[Path, int | None] = {}
    for place in places:
        children = place.iterdir() if place.is_dir() else ()
        for path in (place, *children):
            found[path] = path.lstat().st_mtime_ns if os.path.lexists(path) else None
    return found


def differences(before: dict[Path, int | None], after: dict[Path, int | None]) -> list[Path]:
    return sorted(path for path in before.keys() | after.keys() if before.get(path) != after.get(path))


# --- an unprivileged child --------------------------------------------------------------------------


def call_unprivileged(function: Callable[..., T], *args: Any, owning: Iterable[Path]) -> T:
    """Call `function(*args)` in a forked child that is not root, and return or raise what it did.

    Root may read and write everything, so a test about permissions means nothing under root. If we are
    root, the child becomes `nobody` and the trees in `owning` are given to it for that time; otherwise the
    child stays who we are. Results and exceptions travel pickled; what the child changes in memory is lost.
    """
    if not hasattr(os, "fork"):
        return function(*args)
    if os.geteuid() == 0:
        for tree in owning:
            _give_to_nobody(tree)
    readable, writable = os.pipe()
    with warnings.catch_warnings():
        # The test runner has threads; none of them matters to a child that only calls and exits.
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        _child(function, args, writable)
    os.close(writable)
    try:
        with open(readable, "rb") as pipe:
            answer = pipe.read()
    except BaseException:  # a timeout: do not leave the child behind
        os.kill(child, signal.SIGKILL)
        raise
    finally:
        _, status = os.waitpid(child, 0)
        if os.geteuid() == 0:
            for tree in owning:
                _take_back(tree)
    if not answer:
        raise AssertionError(f"the unprivileged child died: exit code {os.waitstatus_to_exitcode(status)}")
    value, error, trace = pickle.loads(answer)
    if error is not None:
        raise error from AssertionError("in the unprivileged child:\n" + trace)
    return value


def _child(function: Callable[..., Any], args: tuple[Any, ...], writable: int) -> None:
    try:
        try:
            if os.geteuid() == 0:
                _become_nobody()
            answer = pickle.dumps((function(*args), None, ""))
        except BaseException as error:
            answer = _pickled_error(error)
        with open(writable, "wb") as pipe:
            pipe.write(answer)
    finally:
        os._exit(0)


def _pickled_error(error: BaseException) -> bytes:
    trace = "".join(traceback.format_exception(error))
    try:
        answer = pickle.dumps((None, error, trace))
        pickle.loads(answer)
    except Exception:  # an error that does not survive pickling is told as text
        answer = pickle.dumps((None, RuntimeError(f"{type(error).__name__}: {error}"), trace))
    return answer


def _become_nobody() -> None:
    import pwd

    user = pwd.getpwnam("nobody")
    _keep_imports_reachable()
    os.setgroups([])
    os.setgid(user.pw_gid)
    os.setuid(user.pw_uid)


def _keep_imports_reachable() -> None:
    """Let later imports work although the interpreter may live below a directory that only root may enter.

    A path through /proc/self/fd starts at the directory that is already open, so the permissions of the
    directories above it do not count.
    """
    if not os.path.isdir("/proc/self/fd"):
        return
    doors = {}
    for prefix in {str(ROOT), sys.prefix, sys.base_prefix, sys.exec_prefix, sys.base_exec_prefix}:
        doors[prefix] = f"/proc/self/fd/{os.open(prefix, os.O_RDONLY)}"

    def through_door(path: str) -> str:
        for prefix in sorted(doors, key=len, reverse=True):
            if path == prefix or path.startswith(prefix + os.sep):
                return doors[prefix] + path[len(prefix) :]
        return path

    sys.path[:] = [through_door(entry) for entry in sys.path]
    for module in list(sys.modules.values()):
        where = getattr(module, "__path__", None)
        if isinstance(where, list):
            where[:] = [through_door(entry) for entry in where]


def _give_to_nobody(tree: Path) -> None:
    import pwd

    user = pwd.getpwnam("nobody")
    for parent in tree.resolve().parents:
        st = parent.stat()
        if st.st_uid == os.geteuid() and parent.is_relative_to(_temporary_root()):
            parent.chmod(stat.S_IMODE(st.st_mode) | 0o011)
    for path in (os.fsencode(tree), *(full for _, full, _ in _walk(os.fsencode(tree)))):
        st = os.lstat(path)
        if st.st_uid == os.geteuid():
            os.chown(path, user.pw_uid, user.pw_gid, follow_symlinks=False)
            if not stat.S_ISLNK(st.st_mode):
                os.chmod(path, stat.S_IMODE(st.st_mode))  # chown drops setuid and setgid bits


def _take_back(tree: Path) -> None:
    """What `nobody` owned or made is root's again: a store that belongs to another user is not opened."""
    import pwd

    user = pwd.getpwnam("nobody")
    for path in (os.fsencode(tree), *(full for _, full, _ in _walk(os.fsencode(tree)))):
        st = os.lstat(path)
        if st.st_uid == user.pw_uid:
            os.chown(path, 0, 0, follow_symlinks=False)
            if not stat.S_ISLNK(st.st_mode):
                os.chmod(path, stat.S_IMODE(st.st_mode))


def _temporary_root() -> Path:
    """The directory that conftest.py made for this run; nothing above it is ours to open up."""
    return Path(os.environ["PYTEST_DEBUG_TEMPROOT"]).resolve()


def wait_until(done: Callable[[], bool], seconds: float = 60) -> None:
    """For what a process does that is nobody's child."""
    end = time.monotonic() + seconds
    while not done():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.05)
