"""Which tools of an agent may write, and which files their input names.

Names of tools differ from agent to agent and new ones come along, so this is a list of tools
that are known to read only: everything else counts as writing, every shell in particular. A
snapshot is cheap; a list of dangerous commands leaks.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:  # a hook has no time for imports that only say what is what
    from collections.abc import Iterator
    from typing import Any

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
    if "*** " not in text:
        return
    for line in text.splitlines():
        for start in _PATCH_LINES:
            if line.startswith(start):
                yield line[len(start) :].strip()


def _collected(found: Iterator[str], windows: bool) -> list[str]:
    paths: dict[str, None] = {}
    for path in found:
        if not path or "\0" in path or len(path) > 4096 or any(len(name) > 255 for name in path.split("/")):
            continue  # a whole text under a key that usually holds a path
        path = plain_path(path, windows=windows)
        if "://" not in path:
            paths[path] = None
        if len(paths) == _MOST:
            break
    return list(paths)


def _squeezed(name: object) -> str:
    """`file_path`, `filePath` and `file-path` are one name."""
    return str(name).replace("_", "").replace("-", "").lower()
