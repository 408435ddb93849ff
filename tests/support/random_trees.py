"""Random trees with nasty names and types, and random changes to them, for property-based tests."""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Mapping
from typing import Any

from hypothesis import strategies as st

Node = tuple[str, bytes, int] | tuple[str, bytes] | tuple[str, dict[bytes, Any], int]
"""("file", content, bits), ("link", target) or ("dir", children, bits)."""
Change = tuple[str, int, Any]
"""What to do, to which of the paths that exist then, and with what."""

NASTY_NAMES = (
    b"plain", b"with space", b" leading", b"trailing ", b"new\nline", b"tab\there", b'quo"te', b"quo'te",
    b"back\\slash", b"-dash", b"--", b":colon", b":(glob)x", b":!x", b"report[1].dat", b"report1.dat", b"star*",
    b"what?", b"{a,b}", b"#hash", b"!bang", b"\xff\xfe", b"\xc3(", b"caf\xc3\xa9", b"cafe\xcc\x81", b"$Id$",
    b"%41", b"...", b"..x", b"a", b"A", b"b", b"n" * 255, b"{}", b"&;|", b"\x01\x7f", b".hidden", b"@", b"HEAD",
    b"con", b".gitattributes", b".gitmodules.x", b".gitignore.x",
)  # fmt: skip

# The last character keeps a random name from matching an exclude or looking like a secret.
_random_names = st.binary(min_size=1, max_size=12).map(
    lambda raw: b"r" + raw.replace(b"/", b"_").replace(b"\0", b"_") + b"_"
)
names = st.one_of(st.sampled_from(NASTY_NAMES), _random_names)

contents = st.one_of(
    st.sampled_from([
        b"", b"line\n", b"crlf\r\nmixed\n\r", b"$Id$\n", b"\0\0binary\xff", "ünï\n".encode("utf-16"), b"a" * 5000,
        b"* text eol=crlf ident\n",
    ]),
    st.binary(max_size=60),
)  # fmt: skip

FILE_BITS = (0o644, 0o644, 0o600, 0o640, 0o755, 0o700, 0o444, 0o555, 0o400, 0o664, 0o777)
DIRECTORY_BITS = (0o755, 0o755, 0o755, 0o700, 0o750, 0o555, 0o500, 0o775)

links = st.tuples(
    st.just("link"),
    st.sampled_from([b"a", b"missing", b"..", b".", b"/dev/null", b"/nowhere/at all", b"a/b", b"\xff", b"plain"]),
)


def _nodes(names: st.SearchStrategy[bytes], contents: st.SearchStrategy[bytes]) -> st.SearchStrategy[Node]:
    files = st.tuples(st.just("file"), contents, st.sampled_from(FILE_BITS))

    def directories(below: st.SearchStrategy[Node]) -> st.SearchStrategy[Node]:
        children = st.dictionaries(names, below, max_size=4)
        return st.tuples(st.just("dir"), children, st.sampled_from(DIRECTORY_BITS))

    return st.recursive(st.one_of(files, files, links), directories, max_leaves=6)


def _changes(
    names: st.SearchStrategy[bytes], contents: st.SearchStrategy[bytes], nodes: st.SearchStrategy[Node]
) -> st.SearchStrategy[list[Change]]:
    which = st.integers(0, 1000)
    change = st.one_of(
        st.tuples(st.just("write"), which, contents),
        st.tuples(st.just("chmod"), which, st.sampled_from(FILE_BITS)),
        st.tuples(st.just("delete"), which, st.none()),
        st.tuples(st.just("rename"), which, st.tuples(which, names)),
        st.tuples(st.just("swap"), which, nodes),
        st.tuples(st.just("add"), which, st.tuples(names, nodes)),
    )
    return st.lists(change, min_size=1, max_size=7)


nodes = _nodes(names, contents)
trees: st.SearchStrategy[dict[bytes, Node]] = st.dictionaries(names, nodes, max_size=7)
changes = _changes(names, contents, nodes)

# --- trees of which some is ignored, secret or too large --------------------------------------------

LARGE = 4000
_wild_names = st.sampled_from([
    b"a", b"b", b"a", b"b", b"keep", b"x.log", b"build", b"node_modules", b".env", b"id_rsa", b".gitignore",
    b".gitignore", b"c.log",
])  # fmt: skip
_RULES = (b"a", b"b/", b"*", b"!keep", b"/b", b"a/b", b"!x.log", b"*.log", b"!build/", b"c*", b"!.gitignore")
_rules = st.lists(st.sampled_from(_RULES), max_size=3).map(lambda lines: b"".join(line + b"\n" for line in lines))
_wild_contents = st.one_of(_rules, _rules, st.sampled_from([b"", b"text\n", b"x" * (LARGE + 1)]))
wild_nodes = _nodes(_wild_names, _wild_contents)
wild_trees: st.SearchStrategy[dict[bytes, Node]] = st.dictionaries(_wild_names, wild_nodes, max_size=6)
wild_changes = _changes(_wild_names, _wild_contents, wild_nodes)


def build(top: bytes, tree: Mapping[bytes, Node]) -> None:
    """Make a tree below a directory that exists."""
    for name, node in tree.items():
        _make(os.path.join(top, name), node)


def mutate(top: bytes, wanted: list[Change]) -> None:
    """Change a tree on disk. Directories that nobody may write to are opened for the time of the change."""
    for kind, which, what in wanted:
        paths = all_paths(top)
        if kind == "add":
            places = [top, *(path for path in paths if _is_directory(path))]
            name, node = what
            path = os.path.join(places[which % len(places)], name)
            if not os.path.lexists(path):
                with _Opened(os.path.dirname(path)):
                    _make(path, node)
        elif paths:
            _change(top, kind, paths[which % len(paths)], what)


def all_paths(top: bytes) -> list[bytes]:
    """Everything in a tree but a repository that was made in it."""
    found = []
    for parent, folders, others in os.walk(top):
        folders[:] = [name for name in folders if name != b".git"]
        found += [os.path.join(parent, name) for name in (*folders, *others)]
    return sorted(found)


# --- single changes ---------------------------------------------------------------------------------


def _change(top: bytes, kind: str, path: bytes, what: Any) -> None:
    with _Opened(os.path.dirname(path)):
        if kind == "write":
            if _is_file(path):
                _write(path, what, stat.S_IMODE(os.lstat(path).st_mode))
        elif kind == "chmod":
            if not os.path.islink(path):
                os.chmod(path, what | 0o500 if _is_directory(path) else what)
        elif kind == "delete":
            _delete(path)
        elif kind == "swap":
            _delete(path)
            _make(path, what)
        elif kind == "rename":
            _rename(top, path, *what)


def _rename(top: bytes, path: bytes, which: int, name: bytes) -> None:
    places = [top, *(place for place in all_paths(top) if _is_directory(place))]
    new = os.path.join(places[which % len(places)], name)
    if os.path.lexists(new) or (new + b"/").startswith(path + b"/"):
        return
    with _Opened(os.path.dirname(new)), _Opened(path):  # moving a directory writes to it
        os.rename(path, new)


class _Opened:
    """A directory that can be written to, until it is closed again (if it still is there)."""

    def __init__(self, folder: bytes) -> None:
        self._folder = folder
        self._bits: int | None = None

    def __enter__(self) -> None:
        if _is_directory(self._folder):
            self._id = os.lstat(self._folder).st_ino
            self._bits = stat.S_IMODE(os.lstat(self._folder).st_mode)
            os.chmod(self._folder, self._bits | 0o700)

    def __exit__(self, *_: object) -> None:
        if self._bits is not None and _is_directory(self._folder) and os.lstat(self._folder).st_ino == self._id:
            os.chmod(self._folder, self._bits)


def _make(path: bytes, node: Node) -> None:
    if node[0] == "link":
        os.symlink(node[1], path)
    elif node[0] == "file":
        _write(path, node[1], node[2])
    else:
        os.mkdir(path)
        build(path, node[1])
        os.chmod(path, node[2])


def _write(path: bytes, content: bytes, bits: int) -> None:
    if os.path.lexists(path):
        os.chmod(path, 0o600)
    with open(path, "wb") as file:
        file.write(content)
    os.chmod(path, bits)


def _delete(path: bytes) -> None:
    if not _is_directory(path):
        os.unlink(path)
        return
    for parent, folders, _ in os.walk(path):
        os.chmod(parent, 0o700)
        for name in folders:
            if not os.path.islink(os.path.join(parent, name)):
                os.chmod(os.path.join(parent, name), 0o700)
    shutil.rmtree(path)


def _is_directory(path: bytes) -> bool:
    return os.path.isdir(path) and not os.path.islink(path)


def _is_file(path: bytes) -> bool:
    return os.path.isfile(path) and not os.path.islink(path)
