"""Which directories are too broad to be snapshotted, and which paths are a project's own."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from shadowsnap.errors import PathRefused

# Refused themselves, though a project may well lie below them.
_BROAD = {
    "/usr", "/usr/local", "/usr/src", "/var", "/var/www", "/var/tmp", "/opt", "/srv", "/home", "/mnt", "/media",
    "/tmp", "/Users", "/Volumes", "/private", "/private/tmp", "/private/var", "/Applications",
}  # fmt: skip
# Refused with everything below.
_SYSTEM = (
    "/bin", "/sbin", "/boot", "/dev", "/etc", "/lib", "/lib32", "/lib64", "/libx32", "/proc", "/run", "/sys",
    "/usr/bin", "/usr/sbin", "/usr/lib", "/usr/lib64", "/usr/libexec", "/usr/include", "/usr/share", "/var/lib",
    "/var/log", "/var/cache", "/var/run", "/System", "/Library", "/private/etc",
)  # fmt: skip
_WINDOWS_SYSTEM = ("windows", "program files", "program files (x86)", "programdata")


def refusal(workdir: Path, base: Path) -> str | None:
    """Why this directory is not snapshotted as a whole; None if it is."""
    home = _home()
    if workdir == Path(workdir.anchor):
        return "it is the root of the file system"
    if home is not None and workdir == home:
        return "it is the home directory"
    if home is not None and home.is_relative_to(workdir):
        return "it holds the home directory"
    if workdir.is_relative_to(base):
        return "it belongs to the shadowsnap store"
    if ".git" in workdir.parts:
        return "it lies inside a .git directory"
    if _is_system(workdir):
        return "it is a system directory"
    return None


def path_inside(workdir: Path, path: str | os.PathLike[str], *, absolute: bool = True) -> bytes:
    """A path as the project knows it, relative to its root; raises if it is not the project's.
    The last part is not followed if it is a link."""
    given = os.fspath(path)
    if not given or "\0" in given:
        raise PathRefused(path=given, why="it is not a path")
    if os.path.isabs(given) and not absolute:
        raise PathRefused(path=given, why="got absolute path, expected one relative to the project")
    joined = os.path.join(workdir, given)
    folder, name = os.path.split(joined.rstrip(os.sep) if joined.strip(os.sep) else joined)
    if name in ("", os.curdir, os.pardir):
        folder, name = joined, ""
    resolved = Path(os.path.realpath(folder), name)
    if not resolved.is_relative_to(workdir):
        raise PathRefused(path=given, why="it escapes the working directory")
    inside = resolved.relative_to(workdir)
    if any(part.lower() == ".git" for part in inside.parts):
        raise PathRefused(path=given, why="it lies inside a .git directory")
    return b"" if inside == Path() else os.fsencode(inside.as_posix())


def _home() -> Path | None:
    try:
        return Path(os.path.realpath(Path.home()))
    except RuntimeError:  # no home can be found
        return None


def _is_system(workdir: Path) -> bool:
    if sys.platform == "win32":
        return len(workdir.parts) > 1 and workdir.parts[1].lower() in _WINDOWS_SYSTEM
    text = workdir.as_posix()
    return text in _BROAD or any(text == top or text.startswith(top + "/") for top in _SYSTEM)
