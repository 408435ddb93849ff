"""Which tools of an agent may write, and which files their input names.

Names of tools differ from agent to agent and new ones come along, so this is a list of tools
that are known to read only: everything else counts as writing, every shell in particular. A
snapshot is cheap; a list of dangerous commands leaks.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from shadowsnap.errors import PathRefused
from shadowsnap.files import is_encodable
from shadowsnap.records import Any

TYPE_CHECKING = False
if TYPE_CHECKING:  # imported for annotations only
    from collections.abc import Iterator

_READ_ONLY = frozenset({
    # files and code
    "read", "readfile", "readmanyfiles", "readimage", "viewimage", "viewfile", "view", "notebookread",
    "fsread", "readcode", "ls", "list", "listdir", "listdirectory", "listfiles", "tree", "glob", "globfiles",
    "findfiles", "filesearch", "grep", "grepfiles", "grepsearch", "search", "searchfiles",
    "searchfilecontent", "codebasesearch", "semanticsearch", "codesearch", "analyze", "readlints",
    "listcodedefinitionnames", "listcodeusages", "getdiagnostics", "lsp", "showfile",
    # the web
    "webfetch", "websearch", "webextract", "googlewebsearch", "fetchwebpage", "fetchcopilotclidocumentation",
    "getinternaldocs",
    # talking and planning
    "todo", "todoread", "todowrite", "todolist", "writetodos", "updatetodo", "updateplan", "exitplanmode",
    "enterplanmode", "planmoderespond", "askuser", "askuserquestion", "askfollowupquestion", "question",
    "clarify", "attemptcompletion", "reportintent", "think", "thinking", "introspect", "sessionsearch",
    "toolsearch", "listmcpresources", "listmcpresourcestool", "readmcpresource", "readmcpresourcetool",
    "finalanswer", "transfertoagent",
    # looking at a command that runs already
    "bashoutput", "taskoutput", "readbash", "listbash", "readpowershell", "listpowershell",
})  # fmt: skip
# Goose says which extension a tool is of. (Tools of MCP servers are not known, whatever they are called.)
_EXTENSIONS = ("developer__",)

_FILE_KEYS = frozenset({
    "file", "files", "filename", "filenames", "filepath", "filepaths", "path", "paths", "notebookpath",
    "notebook", "absolutepath", "relativepath", "relativeworkspacepath", "targetfile", "targetpath",
    "oldpath", "newpath", "sourcepath", "destinationpath", "destination", "source", "dest", "src", "dst",
    "uri", "fileuri", "movepath",
})  # fmt: skip
_FOLDER_KEYS = frozenset({
    "cwd", "workdir", "workingdir", "workingdirectory", "directory", "dir", "dirpath", "folder",
})  # fmt: skip
# What goes into a file: text that may look like anything.
_CONTENT_KEYS = frozenset({
    "content", "contents", "filetext", "newstring", "oldstring", "newstr", "oldstr", "newtext", "oldtext",
    "newsource", "text", "search", "replace", "before", "after", "codeedit", "instruction", "instructions",
    "description", "prompt",
})  # fmt: skip
_PATCH_LINES = ("*** Add File: ", "*** Update File: ", "*** Delete File: ", "*** Move to: ")

_DEPTH = 8
_MOST = 1000
_MOST_LINES = 100_000
_LONGEST_ID = 200


def may_write(tool_name: str) -> bool:
    name = tool_name.lower()
    for extension in _EXTENSIONS:
        name = name.removeprefix(extension)
    return _squeezed(name) not in _READ_ONLY


def named_files(tool_input: Any, *, windows: bool = os.name == "nt") -> list[str]:
    """The files that a tool input names, as it names them, each once."""
    return _collected(_files_in(tool_input, _DEPTH), windows)


def named_folders(tool_input: Any, *, windows: bool = os.name == "nt") -> list[str]:
    """The directories in which a tool input asks a command to run."""
    pairs = tool_input.items() if isinstance(tool_input, dict) else ()
    found = (value for key, value in pairs if _squeezed(key) in _FOLDER_KEYS and isinstance(value, str))
    return _collected(found, windows)


def plain_path(path: str, *, windows: bool = os.name == "nt") -> str:
    """A path as the system knows it: some agents write file URIs, or /c:/... on Windows."""
    if path[:7].lower() == "file://":
        from urllib.parse import unquote

        path = unquote(path[7:])
        path = path if path.startswith("/") else path[path.find("/") :]  # file://localhost/...
    if windows and len(path) > 2 and path[0] in "/\\" and path[1].isalpha() and path[2] in ":|":
        path = f"{path[1]}:{path[3:]}"
    return path


def bounded_id(text: str) -> str:
    """An id that came from an agent. A very long one is cut and completed by its digest: it is
    written into every checkpoint and printed in every list."""
    if len(text) <= _LONGEST_ID:
        return text
    import hashlib  # here: it takes a hook 3 ms, and hardly any id is that long

    return f"{text[:100]}-{hashlib.sha256(text.encode('utf-8', 'surrogatepass')).hexdigest()[:32]}"


# --- looking through an input ----------------------------------------------------------------


def _files_in(value: Any, depth: int, is_file: bool = False) -> Iterator[str]:
    if isinstance(value, str):
        yield from _files_in_patch(value)
        if is_file:
            yield value
    elif depth and isinstance(value, (list, tuple)):
        for item in value:
            yield from _files_in(item, depth - 1, is_file)
    elif depth and isinstance(value, dict):
        for key, item in value.items():
            name = _squeezed(key)
            if name in _CONTENT_KEYS:
                continue
            if name == "changes" and isinstance(item, dict):  # {path: what is done to it}
                yield from (path for path in item if isinstance(path, str))
            yield from _files_in(item, depth - 1, name in _FILE_KEYS)


def _files_in_patch(text: str) -> Iterator[str]:
    at, looked_at = text.find("*** "), 0
    while at >= 0 and looked_at < _MOST_LINES:
        if at == 0 or text[at - 1] in "\r\n":
            end = text.find("\n", at)
            line = text[at : end if end >= 0 else len(text)]
            for start in _PATCH_LINES:
                if line.startswith(start):
                    yield line[len(start) :].strip()
            looked_at += 1
        at = text.find("\n*** ", at)
        at = at + 1 if at >= 0 else -1


def _collected(found: Iterator[str], windows: bool) -> list[str]:
    paths: dict[str, None] = {}
    for path in found:
        if len(path) > 4096:
            continue  # a whole text under a key that usually holds a path
        path = plain_path(path, windows=windows)
        if not path or "\0" in path or any(len(name) > 255 for name in path.split("/")):
            continue
        if "://" not in path and is_encodable(path):
            paths[path] = None
        if len(paths) == _MOST:
            break
    return list(paths)


def _squeezed(name: object) -> str:
    """`file_path`, `filePath` and `file-path` are one name."""
    return str(name).replace("_", "").replace("-", "").lower()


_MARKERS = (
    ".git", "pyproject.toml", "package.json", "Cargo.toml", "go.mod", "Makefile", "pom.xml", ".hg", "Gemfile",
)  # fmt: skip


class Place:
    """A directory to protect before a tool runs, and the files in it that the tool names."""

    def __init__(self, workdir: Path, *, whole: bool = True) -> None:
        self.workdir = workdir
        self.whole = whole
        """False: a directory that just happens to hold a named file. It may be anything
        (~/Downloads), so only the file is captured."""
        self.files: list[str] = []

    def holds(self, path: str) -> bool:
        try:
            path_inside(Path(os.path.realpath(self.workdir)), path)
        except PathRefused:
            return False
        return True

    def is_refused(self, base: Path) -> bool:
        return refusal(Path(os.path.realpath(self.workdir)), base) is not None


def places_to_protect(tool_input: Any, cwd: str, roots: Iterable[str], base: Path) -> list[Place]:
    """The project an agent works in comes first, then every other one that it may write to:
    further roots, directories that a command is to run in, projects of named files."""
    folders = [cwd, *roots, *(_absolute(folder, cwd) for folder in named_folders(tool_input))]
    projects = dict.fromkeys(project_root(folder, base) or existing_folder(folder) for folder in folders)
    places = [Place(project) for project in projects]
    for file in named_files(tool_input):
        path = _absolute(file, cwd)
        _protect(places, path, base)
        if os.path.islink(path):  # written through, most likely
            _protect(places, os.path.realpath(path), base)
    return places


def _protect(places: list[Place], path: str, base: Path) -> None:
    if ".git" in Path(path).parts or Path(path).is_relative_to(base):
        return  # neither is ever captured
    # Of a directory that a tool names, everything may be ignored, and there may be a lot of it
    # (node_modules): it is covered as part of its project or not at all.
    folder = os.path.isdir(path) and not os.path.islink(path)
    holding = [place for place in places if place.holds(path)]
    place = next((place for place in holding if not place.is_refused(base)), None)
    # An agent that was started in the home directory works in the projects below it.
    project = project_root(path, base) if place is None else None
    if place is None and project is None and holding:
        place = holding[0]
    if place is None:
        if folder and project is None:
            return
        place = Place(project or existing_folder(os.path.dirname(path)), whole=project is not None)
        places.append(place)
    if not folder:
        place.files.append(path)


def project_root(path: str, base: Path) -> Path | None:
    """The nearest directory at or above a path that looks like the root of a project; never at
    or above the home directory."""
    start = existing_folder(path)
    for folder in (start, *start.parents):
        if refusal(Path(os.path.realpath(folder)), base) is not None:
            return None
        if any(os.path.exists(folder / marker) for marker in _MARKERS):
            return folder
    return None


def existing_folder(path: str) -> Path:
    """The nearest directory at or above a path that is there."""
    folder = Path(path)
    while not os.path.isdir(folder) and folder != folder.parent:  # `Path.is_dir` raises for some names
        folder = folder.parent
    return folder


def first_name(places: Sequence[Place]) -> str:
    """What the first named file is called, for a reason that says something."""
    return next((os.path.basename(file) for place in places for file in place.files), "")


def _absolute(path: str, cwd: str) -> str:
    return os.path.abspath(os.path.join(cwd, os.path.expanduser(path)))


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


_SUMMARY_LENGTH = 200


def summary_of(tool_input: Any) -> str:
    """What a tool was about, in one short line: its command, its file, or its first text."""
    if isinstance(tool_input, str):
        text = tool_input
    elif isinstance(tool_input, dict):
        known = ("command", "cmd", "file_path", "filePath", "path", "notebook_path", "target_file", "input")
        values = [tool_input[name] for name in known if isinstance(tool_input.get(name), str)]
        text = values[0] if values else ""
    else:
        return ""
    return " ".join(text[: 4 * _SUMMARY_LENGTH].split())[:_SUMMARY_LENGTH]
