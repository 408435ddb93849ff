"""What a tool call may change: whether the tool writes, and which files and projects its input names.

Tool names differ between agents and new ones appear, so the table lists the tools that are known to read only.
Everything else counts as writing, every shell in particular: a snapshot is cheap, and a list of dangerous commands
is never complete.
"""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from shadowsnap.base import project_id
from shadowsnap.errors import PathRefused
from shadowsnap.files import is_encodable

# --- tools that only read ----------------------------------------------------------------------------

# Without "_", "-" and upper case.
_READ_ONLY = frozenset({
    # files and code
    "read", "readfile", "readfiles", "readmanyfiles", "readimage", "viewimage", "viewfile", "view", "notebookread",
    "fsread", "readcode", "ls", "list", "listdir", "listdirectory", "listfiles", "tree", "glob", "globfiles",
    "findfiles", "filesearch", "grep", "grepfiles", "grepsearch", "rg", "search", "searchfiles",
    "searchfilecontent", "searchcodebase", "codebasesearch", "semanticsearch", "codesearch", "analyze",
    "visionanalyze", "readlints", "listcodedefinitionnames", "listcodeusages", "getdiagnostics", "lsp", "showfile",
    # the web
    "webfetch", "websearch", "webextract", "googlewebsearch", "fetchwebpage", "fetchwebcontent",
    "fetchcopilotclidocumentation", "getinternaldocs",
    # talking and planning
    "todo", "todoread", "todowrite", "todolist", "writetodos", "updatetodo", "updateplan", "exitplanmode",
    "enterplanmode", "planmoderespond", "askuser", "askuserquestion", "askquestion", "askfollowupquestion",
    "question", "requestuserinput", "clarify", "attemptcompletion", "reportintent", "think", "thinking",
    "introspect", "sessionsearch", "skillslist", "skillview", "taskcreate", "taskget", "tasklist", "taskupdate",
    "toolsearch", "listmcpresources", "listmcpresourcestool", "listmcpresourcetemplates", "readmcpresource",
    "readmcpresourcetool", "fetchmcpresource", "accessmcpresource", "finalanswer", "transfertoagent",
    # the output of a command that is already running
    "bashoutput", "taskoutput", "readbash", "listbash", "readpowershell", "listpowershell",
})  # fmt: skip
# Goose puts the extension before the name. (Tools of MCP servers count as writing, whatever their names.)
_EXTENSIONS = ("developer__", "todo__", "analyze__")


def may_write(tool_name: str) -> bool:
    """Whether a tool may change files: every tool that is not known to read only."""
    name = tool_name.lower()
    for extension in _EXTENSIONS:
        name = name.removeprefix(extension)
    return _key(name) not in _READ_ONLY


def _key(name: object) -> str:
    """One spelling for `file_path`, `filePath` and `file-path`."""
    return str(name).replace("_", "").replace("-", "").lower()


# --- paths in a tool input ---------------------------------------------------------------------------

_FILE_KEYS = frozenset({
    "file", "files", "filename", "filenames", "filepath", "filepaths", "path", "paths", "notebookpath",
    "notebook", "absolutepath", "relativepath", "relativeworkspacepath", "targetfile", "targetpath",
    "oldpath", "newpath", "sourcepath", "destinationpath", "destination", "source", "dest", "src", "dst",
    "uri", "fileuri", "movepath",
})  # fmt: skip
_FOLDER_KEYS = frozenset({
    "cwd", "workdir", "workingdir", "workingdirectory", "directory", "dir", "dirpath", "folder",
})  # fmt: skip
_COMMAND_KEYS = frozenset({
    "command", "commands", "cmd", "commandline", "shellcommand", "script", "code", "input", "chars", "args",
    "arguments", "argv",
})  # fmt: skip
# Text that goes into a file, and may look like anything.
_CONTENT_KEYS = frozenset({
    "content", "contents", "filetext", "newstring", "oldstring", "newstr", "oldstr", "newtext", "oldtext",
    "newsource", "text", "search", "replace", "before", "after", "codeedit", "instruction", "instructions",
    "description", "prompt",
})  # fmt: skip
_PATCH_LINES = ("*** Add File: ", "*** Update File: ", "*** Delete File: ", "*** Move to: ")

_MAX_DEPTH = 8
_MAX_PATHS = 1000
_MAX_PATCH_LINES = 100_000


def named_files(tool_input: Any, *, windows: bool = os.name == "nt") -> list[str]:
    """The files that a tool input names, spelled as in the input, each once."""
    return _collect(_files_in(tool_input, _MAX_DEPTH), windows)


def named_folders(tool_input: Any, *, windows: bool = os.name == "nt") -> list[str]:
    """The directories in which a tool input asks a command to run."""
    pairs = tool_input.items() if isinstance(tool_input, dict) else ()
    found = (value for key, value in pairs if _key(key) in _FOLDER_KEYS and isinstance(value, str))
    return _collect(found, windows)


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
            name = _key(key)
            if name in _CONTENT_KEYS:
                continue
            if name == "changes" and isinstance(item, dict):  # {path: change}
                yield from (path for path in item if isinstance(path, str))
            yield from _files_in(item, depth - 1, name in _FILE_KEYS)


def _files_in_patch(text: str) -> Iterator[str]:
    at, count = text.find("*** "), 0
    while at >= 0 and count < _MAX_PATCH_LINES:
        if at == 0 or text[at - 1] in "\r\n":
            end = text.find("\n", at)
            line = text[at : end if end >= 0 else len(text)]
            for start in _PATCH_LINES:
                if line.startswith(start):
                    yield line[len(start) :].strip()
            count += 1
        at = text.find("\n*** ", at)
        at = at + 1 if at >= 0 else -1


def _collect(found: Iterator[str], windows: bool) -> list[str]:
    paths: dict[str, None] = {}
    for path in found:
        if len(path) > 4096:
            continue  # text under a key that usually holds a path
        path = plain_path(path, windows=windows)
        if not path or "\0" in path or any(len(name) > 255 for name in path.split("/")):
            continue
        if "://" not in path and is_encodable(path):
            paths[path] = None
        if len(paths) == _MAX_PATHS:
            break
    return list(paths)


def plain_path(path: str, *, windows: bool = os.name == "nt") -> str:
    """A path in the form of the system. Some agents write file URIs, or /c:/... on Windows."""
    if path[:7].lower() == "file://":
        path = unquote(path[7:])
        path = path if path.startswith("/") else path[path.find("/") :]  # file://localhost/...
    if windows and len(path) > 2 and path[0] in "/\\" and path[1].isalpha() and path[2] in ":|":
        path = f"{path[1]}:{path[3:]}"
    return path


# --- paths in a shell command ------------------------------------------------------------------------

# Limits for all commands of one tool input: characters, words that may be paths, and changes of directory.
_MAX_COMMAND = 1 << 16
_MAX_WORDS = 5000
_MAX_CHANGES = 100
_SEPARATORS = str.maketrans(dict.fromkeys("\t\r\n;&|<>()`", " "))
_QUOTES_TO_SPACES = str.maketrans("\"'", "  ")
_NO_QUOTES = str.maketrans("", "", "\"'")
# Stands for an escaped space while a command is split.
_SPACE = "\0"
_CHANGE_DIRECTORY = frozenset({"cd", "chdir", "pushd", "set-location", "sl"})
_VARIABLES = (("${HOME}", "~"), ("$HOME", "~"), ("${PWD}", "."), ("$PWD", "."))


def command_projects(tool_input: Any, cwd: str, base: Path | str) -> list[Path]:
    """The projects, outside `cwd`, of the existing paths that a shell command names: `rm -rf /other/src`,
    `cd ../other && make clean`. Never the home directory or the root, nor a directory that neither looks like a
    project nor was ever captured as one.

    A command is split into words leniently and in linear time, without a grammar. A word that is no path does not
    exist, and a path too many costs a snapshot.
    """
    projects: dict[Path, None] = {}
    checked: set[str] = set()
    folders: set[Path] = set()
    for path in _paths_outside(_words_in(tool_input), cwd):
        if path in checked:
            continue
        if len(checked) == _MAX_PATHS:
            break
        checked.add(path)
        if not os.path.lexists(path):
            continue
        for folder in {existing_folder(path), existing_folder(os.path.realpath(path))} - folders:
            folders.add(folder)
            project = project_root(str(folder), Path(base)) or _captured(folder, Path(base))
            if project is not None:
                projects[project] = None
    return list(projects)


def _words_in(tool_input: Any) -> Iterator[list[str]]:
    """The words of each command in a tool input, in each way of reading them."""
    left = _MAX_COMMAND
    for command in _commands_in(tool_input, _MAX_DEPTH, isinstance(tool_input, str)):
        command = command[:left]
        left -= len(command)
        if any(sign in command for sign in ("/", "\\", "..", "~")):  # otherwise no word leads out
            yield from _split(command)
        if not left:
            return


def _commands_in(value: Any, depth: int, is_command: bool = False) -> Iterator[str]:
    if isinstance(value, str):
        if is_command:
            # The text of a patch is the content of files.
            command, start, patch = value.partition("*** Begin Patch")
            yield (command + patch.rpartition("*** End Patch")[2] if start else value)[:_MAX_COMMAND]
    elif depth and isinstance(value, (list, tuple)):
        for item in value:
            yield from _commands_in(item, depth - 1, is_command)
    elif depth and isinstance(value, dict):
        for key, item in value.items():
            name = _key(key)
            if name not in _CONTENT_KEYS:
                yield from _commands_in(item, depth - 1, name in _COMMAND_KEYS)


def _paths_outside(commands: Iterable[list[str]], cwd: str) -> Iterator[str]:
    """The absolute form of everything in the words of commands that may be a path outside `cwd`."""
    inside = cwd.rstrip(os.sep) + os.sep
    seen: set[tuple[str, str]] = set()
    entered: dict[tuple[str, str], str] = {}
    for words in commands:
        here, after_cd = cwd, False
        for word in words:
            if (here != cwd or _may_lead_out(word)) and (here, word) not in seen:
                if len(seen) == _MAX_WORDS:
                    return
                seen.add((here, word))
                # After a `cd`, a path may still be relative to `cwd`: the `cd` may be in a subshell.
                for folder in dict.fromkeys((cwd, here)):
                    for spelling in _spellings(word):
                        path = absolute_path(spelling, folder)
                        if path != cwd and not path.startswith(inside):
                            yield path
            if after_cd and _is_path(word):
                if (here, word) not in entered and len(entered) < _MAX_CHANGES:
                    folder = absolute_path(word, here)
                    entered[here, word] = os.path.realpath(folder) if os.path.isdir(folder) else here
                here = entered.get((here, word), here)
                if here != cwd and not here.startswith(inside):
                    yield here
            after_cd = word.lower() in _CHANGE_DIRECTORY


def _may_lead_out(word: str) -> bool:
    """Whether a word may hold a path that leads out of the current directory."""
    if word[0] in "/\\~-$" or word[1:2] == ":" or word.startswith("file:"):
        return True
    return any(sign in word for sign in ("..", "=/", "=~", "=$"))


def _split(command: str) -> Iterator[list[str]]:
    """The words of a command, read in three ways: as a shell reads quotes, and without any, for scripts in
    quotes."""
    text = command
    if os.name != "nt":
        text = text.replace("\\\n", " ").replace("\\ ", _SPACE)
    for each in (_unquoted(text), text.translate(_NO_QUOTES), text.translate(_QUOTES_TO_SPACES)):
        yield [word.replace(_SPACE, " ") for word in each.translate(_SEPARATORS).split()]


def _unquoted(text: str) -> str:
    """The text without its quotes. Spaces inside them no longer separate words."""
    pieces, quote = [], ""
    for piece in text.replace('"', '\1"\1').replace("'", "\1'\1").split("\1"):
        if piece in ('"', "'") and quote in ("", piece):
            quote = "" if quote else piece
        else:
            pieces.append(piece.replace(" ", _SPACE) if quote else piece)
    return "".join(pieces)


def _spellings(word: str) -> Iterator[str]:
    """What may be a path in a word: `--dir=PATH`, `-CPATH`, `PATH:CONTAINER`, `$HOME/x`, `PATH/*.py`."""
    candidates = {word, word.partition("=")[2], word.partition(":")[0], word[2:] if word.startswith("-") else ""}
    for path in filter(None, candidates):
        path = plain_path(path)
        for variable, value in _VARIABLES:
            if path.startswith(variable):
                path = value + path[len(variable) :]
        wildcard = min((at for at in map(path.find, "*?[{$") if at >= 0), default=-1)
        path = path if wildcard < 0 else path[: path.rfind("/", 0, wildcard) + 1]
        if _is_path(path):
            yield path


def _is_path(path: str) -> bool:
    if path.startswith("~") and path[1:2] not in ("", "/", os.sep):
        return False  # the home of another user: to look it up may take long
    return 0 < len(path) <= 4096 and "\0" not in path and "://" not in path and is_encodable(path)


# --- projects to protect -----------------------------------------------------------------------------

_MARKERS = (
    ".git", "pyproject.toml", "package.json", "Cargo.toml", "go.mod", "Makefile", "pom.xml", ".hg", "Gemfile",
)  # fmt: skip


def project_root(path: str, base: Path) -> Path | None:
    """The nearest directory at or above a path that looks like a project. Never the home directory or one above
    it."""
    start = existing_folder(path)
    for folder in (start, *start.parents):
        if refusal(Path(os.path.realpath(folder)), base) is not None:
            return None
        if any(os.path.exists(folder / marker) for marker in _MARKERS):
            return folder
    return None


def _captured(path: Path, base: Path) -> Path | None:
    """The nearest directory at or above a path that was captured as a whole before: it has an index."""
    for folder in (path, *path.parents):
        real = os.path.realpath(folder)
        if refusal(Path(real), base) is not None:
            return None
        if os.path.exists(base / "store" / "indexes" / project_id(real)):
            return folder
    return None


def existing_folder(path: str) -> Path:
    """The nearest existing directory at or above a path."""
    folder = Path(path)
    while not os.path.isdir(folder) and folder != folder.parent:  # `Path.is_dir` raises for some names
        folder = folder.parent
    return folder


def absolute_path(path: str, cwd: str) -> str:
    return os.path.abspath(os.path.join(cwd, os.path.expanduser(path)))


# --- refused directories and paths -------------------------------------------------------------------

# Refused themselves, although a project may be below them.
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
    """Why this directory is not captured as a project; None if it may be."""
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


def _home() -> Path | None:
    try:
        return Path(os.path.realpath(Path.home()))
    except RuntimeError:  # it cannot be determined
        return None


def _is_system(workdir: Path) -> bool:
    if sys.platform == "win32":
        return len(workdir.parts) > 1 and workdir.parts[1].lower() in _WINDOWS_SYSTEM
    text = workdir.as_posix()
    return text in _BROAD or any(text == top or text.startswith(top + "/") for top in _SYSTEM)


def path_inside(workdir: Path, path: str | os.PathLike[str], *, absolute: bool = True) -> bytes:
    """A path relative to the project's root; raises `PathRefused` if it is outside. If the last component is a
    link, it is not followed."""
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


# --- summaries ---------------------------------------------------------------------------------------

_SUMMARY_KEYS = ("command", "cmd", "file_path", "filePath", "path", "notebook_path", "target_file", "input")
_SUMMARY_LENGTH = 200


def summary_of(tool_input: Any) -> str:
    """A short line about a tool call: its command, or its file."""
    text = tool_input
    if isinstance(tool_input, dict):
        values = (tool_input.get(key) for key in _SUMMARY_KEYS)
        text = next((value for value in values if isinstance(value, str)), "")
    if not isinstance(text, str):
        return ""
    return " ".join(text[: 4 * _SUMMARY_LENGTH].split())[:_SUMMARY_LENGTH]


_LONGEST_ID = 200


def bounded_id(text: str) -> str:
    """An id that came from an agent. A very long one is cut and completed by its digest: it is written into every
    checkpoint and printed in every list."""
    if len(text) <= _LONGEST_ID:
        return text
    return f"{text[:100]}-{hashlib.sha256(text.encode('utf-8', 'surrogatepass')).hexdigest()[:32]}"
