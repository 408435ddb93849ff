"""The state of a project's files, from a checkpoint or from a capture, and what differs between two states."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import NamedTuple

from shadowsnap.errors import (
    GitFailed,
    UnsafeTree,
)
from shadowsnap.git.objects import EMPTY_TREE
from shadowsnap.git.process import Process
from shadowsnap.git.reading import ObjectReader, check_comparable, check_contents
from shadowsnap.git.repository import Git, side_by_side
from shadowsnap.git.trees import (
    DIRECTORY,
    EXECUTABLE,
    LINK,
    MANY_DIRECTORIES,
    REGULAR,
    Leaf,
    TreeReader,
    entry_problem,
    path_problem,
    tree_changes,
)
from shadowsnap.model import Change, Checkpoint
from shadowsnap.snapshot.capture import Capture
from shadowsnap.snapshot.workspace import Workspace
from shadowsnap.snapshot.worktree import folders_above, parents
from shadowsnap.store.stat_cache import Modes

_PATCH = ("diff-tree", "-r", "-p", "--no-renames", "--no-color", "--no-ext-diff", "--no-textconv")
_LIST = ("diff-tree", "-r", "-z", "--raw", "--numstat", "--no-renames", "--no-abbrev")

_LineCounts = tuple[int | None, int | None]


@dataclass(frozen=True)
class State:
    """A tree, and what a tree cannot represent."""

    tree: str
    modes: Modes
    bare: frozenset[bytes]
    """Directories without captured files."""
    skipped: dict[bytes, str]
    absent: frozenset[bytes]
    """Paths that did not exist. With a slash: missing directories above them."""
    scope: str
    patterns: tuple[str, ...]
    """The exclude patterns of the project, without the defaults."""
    rules: dict[bytes, bytes]
    """The `.gitignore` files that were not captured, with their text."""
    complete: bool = True
    """False for a checkpoint of another tool, which records no permission bits and no empty directories."""

    @classmethod
    def of_checkpoint(cls, checkpoint: Checkpoint) -> State:
        facts = checkpoint.metadata
        return cls(
            tree=checkpoint.tree,
            modes=Modes.from_json(facts.get("modes", {})),
            bare=_paths(facts.get("empty_dirs", ())),
            skipped={os.fsencode(item.path): item.why for item in checkpoint.skipped},
            absent=_paths(facts.get("absent", ())),
            scope=checkpoint.scope,
            patterns=tuple(facts.get("excludes", {}).get("own", ())),
            rules={os.fsencode(path): os.fsencode(text) for path, text in facts.get("rules", {}).items()},
            complete="modes" in facts,
        )

    @classmethod
    def of_capture(cls, capture: Capture) -> State:
        return cls(
            tree=capture.tree(),
            modes=capture.modes,
            bare=frozenset(capture.bare),
            skipped=dict(capture.skipped),
            absent=frozenset(capture.absent),
            scope=capture.scope,
            patterns=tuple(capture.space.patterns),
            rules=capture.hidden_rules(),
        )

    def left_out(self, path: bytes) -> str | None:
        """Why a path, or a directory above it, was skipped; None if it was not."""
        candidates = (path, *(parent + b"/" for parent in parents(path)))
        return next((self.skipped[each] for each in candidates if each in self.skipped), None)

    def bits(self, path: bytes, mode: int) -> int:
        """The permission bits of a path with this git mode."""
        usual = self.modes.directory if mode == DIRECTORY else self.modes.usual(mode)
        return self.modes.other.get(path, usual)


def _paths(names: Iterable[str]) -> frozenset[bytes]:
    return frozenset(os.fsencode(name) for name in names)


def open_tree(reader: ObjectReader, tree: str) -> TreeReader:
    return TreeReader(tree, reader.tree)


def ignored_by_checkpoint(
    space: Workspace, current: State, target: State, paths: Sequence[bytes], folders: Collection[bytes] = ()
) -> set[bytes]:
    """The paths that the ignore rules of the checkpoint match; `folders` are those that are directories.
    Deletions are decided under these rules, not under the rules of now. Where it is not known what a `.gitignore`
    said then, paths count that are ignored with its present text, or without it: that may take an exclude back."""
    if target.scope == "paths" or not paths:
        return set()

    def ask(new: Sequence[bytes]) -> set[bytes]:
        texts, unknown = _rules_then(space, current, target, new)
        found = space.rules.ignored_under(texts, target.patterns, new, folders)
        if unknown:
            texts |= dict.fromkeys(unknown)
            found |= space.rules.ignored_under(texts, target.patterns, new, folders)
        return found

    return space.rules.remembered(("ignored in", target.tree, target.patterns), paths, ask)


def _rules_then(
    space: Workspace, current: State, target: State, paths: Iterable[bytes]
) -> tuple[dict[bytes, bytes | None], set[bytes]]:
    """The text of the `.gitignore` in every directory above the paths, as it was at the checkpoint, and the
    directories where that is not known and the present text stands for it."""
    unknown: set[bytes] = set()
    with ObjectReader(space.git) as reader:
        then, now = open_tree(reader, target.tree), open_tree(reader, current.tree)

        def text(folder: bytes) -> bytes | None:
            path = folder + b"/.gitignore" if folder else b".gitignore"
            leaf = then.find(path)
            if leaf is not None:  # git reads rules from regular files only
                return reader.read(leaf[1], b"blob") if leaf[0] in (REGULAR, EXECUTABLE) else None
            if path in target.rules:
                return target.rules[path]
            if now.find(path) is not None:
                return None
            # It is itself ignored, and appeared, or grew too long to be recorded, since then: what it ignores now
            # is left alone.
            found = space.rules.text(folder)
            if found is not None:
                unknown.add(folder)
            return found

        return {folder: text(folder) for folder in {b"", *folders_above(paths)}}, unknown


class Selection:
    """The paths that an operation is limited to, with everything below them unless `exact`. An empty one selects
    everything."""

    def __init__(self, paths: Iterable[bytes] = (), *, exact: bool = False) -> None:
        self.paths = frozenset(paths)
        self.exact = exact

    def __bool__(self) -> bool:
        """Whether there is a limit at all."""
        return bool(self.paths)

    def __contains__(self, path: bytes) -> bool:
        chosen = self.paths
        if not chosen or path in chosen or b"" in chosen:
            return True
        return not self.exact and any(parent in chosen for parent in parents(path))


# --- which files differ ------------------------------------------------------------------------------


class Difference(NamedTuple):
    """A path that differs: its old and new entry, None where there is none."""

    path: bytes
    old: Leaf | None
    new: Leaf | None

    @property
    def status(self) -> str:
        if self.old is None:
            return "added"
        if self.new is None:
            return "deleted"
        return "typechange" if _file_type(self.old) != _file_type(self.new) else "modified"


def _file_type(leaf: Leaf) -> int:
    return leaf[0] & 0o170000


def tree_differences(git: Git, old: str, new: str, new_tree: TreeReader | None = None) -> list[Difference]:
    """Every file that differs between two trees. Raises `UnsafeTree` for what a checkpoint must not contain. A
    reader of the new tree is used, if there is one."""
    if old == new:
        return []
    with ObjectReader(git) as reader:
        rows = tree_changes(old, new_tree or TreeReader(new, reader.tree), MANY_DIRECTORIES)
    if rows is not None:
        return [Difference(*row) for row in rows]
    check_comparable(git, [(old, new)])
    answer = git.run("diff-tree", "-r", "-z", "--raw", "--no-renames", "--no-abbrev", old, new)
    found = _parse_raw(answer.split(b"\0")[:-1])
    _check_entries(found)
    return found


def _parse_raw(parts: list[bytes]) -> list[Difference]:
    """The output of `--raw -z`, split at every NUL."""
    found = []
    for meta, path in zip(parts[0::2], parts[1::2], strict=True):
        old_mode, new_mode, old_id, new_id, _ = meta[1:].split(b" ")
        found.append(Difference(path, _leaf(old_mode, old_id), _leaf(new_mode, new_id)))
    return found


def _leaf(mode: bytes, name: bytes) -> Leaf | None:
    return (int(mode, 8), name.decode()) if int(mode, 8) else None


def _check_entries(differing: list[Difference]) -> None:
    """Refuse what git says of trees that it read itself, as `parse_tree` does for those that we read."""
    paths: set[bytes] = set()
    for item in differing:
        why = path_problem(item.path) or ("there are two of that name" if item.path in paths else None)
        if why is None and item.new is not None:
            why = entry_problem(item.path.rpartition(b"/")[2], item.new[0])
        if why is not None:
            raise UnsafeTree(name=os.fsdecode(item.path), why=why)
        paths.add(item.path)


def mode_differences(git: Git, old: State, new: State, changed: Iterable[bytes]) -> list[Difference]:
    """Files and directories in both states that differ in permission bits only. `changed` paths are left out."""
    if not (old.complete and new.complete):
        return []
    candidates = old.modes.other.keys() | new.modes.other.keys()
    if _usual_bits(old.modes) != _usual_bits(new.modes):
        check_comparable(git, [(EMPTY_TREE, new.tree)])
        candidates |= set(git.run("ls-tree", "-r", "-t", "-z", "--name-only", new.tree).split(b"\0")[:-1])
    candidates -= set(changed)
    if not candidates:
        return []
    found = []
    with ObjectReader(git) as reader:
        before, after = open_tree(reader, old.tree), open_tree(reader, new.tree)
        for path in sorted(candidates):
            was = before.find(path) or ((DIRECTORY, "") if path in old.bare else None)
            now = after.find(path) or ((DIRECTORY, "") if path in new.bare else None)
            if was is None or now is None or was[0] != now[0] or now[0] == LINK:
                continue
            if old.bits(path, was[0]) != new.bits(path, now[0]):
                found.append(Difference(path, was, now))
    return found


def _usual_bits(modes: Modes) -> tuple[int, int, int]:
    return modes.file, modes.executable, modes.directory


# --- a diff for people -------------------------------------------------------------------------------


def compare(
    git: Git,
    old: State,
    new: State,
    paths: Sequence[bytes],
    patches: PatchReader | None = None,
    *,
    contents: bool = True,
) -> tuple[tuple[Change, ...], str]:
    """The changes between two states and their patch, of everything or below some paths. `patches` answers for
    one pair of states after the other, and for everything. Without `contents`, only which files differ: for states
    whose files cannot all be read."""
    chosen = Selection(paths)
    if not contents:
        differing, counts, text = _names_only(git, old, new, paths)
    elif patches is None:
        differing, counts, text = _diff(git, old, new, paths)
    else:
        differing, counts, text = patches.read(old.tree, new.tree)
    left_out = {item.path: why for item in differing if (why := _why_left_out(item, old, new))}
    if left_out:
        text = _without_contents(left_out, text)
    changes = [
        Change(os.fsdecode(item.path), "modified", None, None)
        if item.path in left_out
        else _change(item, counts.get(item.path, (0, 0)))
        for item in differing
    ]
    for item in mode_differences(git, old, new, [item.path for item in differing]):
        if item.path in chosen:
            changes.append(_change(item, (0, 0)))
            text += _mode_text(item, old, new)
    if old.complete and new.complete and old.scope == new.scope:
        added, deleted = new.bare - old.bare, old.bare - new.bare
        changes += [Change(os.fsdecode(path) + "/", "added") for path in added if path in chosen]
        filled = {parent for change in changes for parent in parents(os.fsencode(change.path))}
        changes += [Change(os.fsdecode(path) + "/", "deleted") for path in deleted - filled if path in chosen]
    return tuple(sorted(changes, key=lambda change: change.path)), text


def _diff(
    git: Git, old: State, new: State, paths: Sequence[bytes]
) -> tuple[list[Difference], dict[bytes, _LineCounts], str]:
    """The files that differ, the lines added and removed in each, and the patch."""
    if old.tree == new.tree:
        return [], {}, ""
    wanted, chosen = Selection(paths), [path for path in paths if path]
    limits = [b"--", *chosen] if chosen and len(chosen) == len(paths) else []
    check_comparable(git, [(old.tree, new.tree)])
    listed = git.start(*_LIST, old.tree, new.tree, *limits)
    text = git.start(*_PATCH, old.tree, new.tree, *limits)
    with side_by_side(listed, text):
        parts = listed.output().split(b"\0")[:-1]
        # First two parts for each file, the first of which begins with a colon; then one part with its line
        # counts.
        end = next((at for at in range(0, len(parts), 2) if not parts[at].startswith(b":")), len(parts))
        rows = (row.split(b"\t", 2) for row in parts[end:])
        counts = {path: (_line_count(added), _line_count(removed)) for added, removed, path in rows}
        differing = [item for item in _parse_raw(parts[:end]) if item.path in wanted]
        _check_entries(differing)
        check_contents(git, _contents(differing))
        return differing, counts, text.output().decode("utf-8", "surrogateescape")


def _contents(differing: Iterable[Difference]) -> set[str]:
    return {leaf[1] for item in differing for leaf in (item.old, item.new) if leaf is not None}


def _names_only(
    git: Git, old: State, new: State, paths: Sequence[bytes]
) -> tuple[list[Difference], dict[bytes, _LineCounts], str]:
    wanted = Selection(paths)
    differing = [item for item in tree_differences(git, old.tree, new.tree) if item.path in wanted]
    note = "not compared: some of the content is lost\n"
    text = "".join(f"{patch_header(item.path)}\n{note}" for item in differing)
    return differing, {item.path: (None, None) for item in differing}, text


class PatchReader:
    """Patches of many pairs of trees from one git process. In place of lines beyond the limits, of one file or of
    a whole patch in bytes, stands a line that counts them; it begins with a backslash, as no other line does
    except the one about a missing line end."""

    def __init__(self, git: Git, most: int, most_of_a_file: int) -> None:
        self._git = git
        self._most = most
        self._most_of_a_file = most_of_a_file
        self._stack = ExitStack()
        self._process: Process | None = None

    def __enter__(self) -> PatchReader:
        self._objects = ObjectReader(self._git).__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()
        self._objects.__exit__(None, None, None)

    def read(self, old: str, new: str) -> tuple[list[Difference], dict[bytes, _LineCounts], str]:
        """The files that differ, the lines added and removed in each, and the patch."""
        if old == new:
            return [], {}, ""
        rows = tree_changes(old, TreeReader(new, self._objects.tree), MANY_DIRECTORIES)
        differing = tree_differences(self._git, old, new) if rows is None else [Difference(*row) for row in rows]
        check_contents(self._git, _contents(differing))
        paths = {patch_header(item.path).encode(): item.path for item in differing}
        counts: dict[bytes, _LineCounts] = {}
        kept: list[bytes] = []
        total = left_out = size = more = less = 0
        header, inside = b"", False
        for line in self._lines(old, new):
            if line.startswith(b"diff --git "):
                kept += _left_out_line(left_out)
                header, inside, size, left_out = line.removesuffix(b"\n"), False, 0, 0
                more, less = (number or 0 for number in counts.get(paths.get(header, b""), (0, 0)))
            elif not header:
                continue  # the names of the trees
            elif line.startswith(b"@@"):
                inside = True
            elif inside:
                more, less = more + line.startswith(b"+"), less + line.startswith(b"-")
            is_binary = not inside and line.startswith(b"Binary files ")
            if header in paths:
                counts[paths[header]] = (None, None) if is_binary else (more, less)
            if inside and (size + len(line) > self._most_of_a_file or total + len(line) > self._most or left_out):
                left_out += 1
            else:
                kept.append(line)
                size, total = size + len(line), total + len(line)
        kept += _left_out_line(left_out)
        return differing, counts, b"".join(kept).decode("utf-8", "surrogateescape")

    def _lines(self, old: str, new: str) -> Iterator[bytes]:
        if self._process is None:
            self._process = self._stack.enter_context(self._git.conversation(*_PATCH, "--stdin"))
        assert self._process.stdin is not None and self._process.stdout is not None
        try:
            # git repeats a line that names no object, and flushes what it has printed. No line of a patch is that.
            self._process.stdin.write(f"{old} {new}\nend\n".encode())
            self._process.stdin.flush()
            while (line := self._process.stdout.readline()) != b"end\n":
                if not line:
                    raise BrokenPipeError
                yield line
        except OSError:
            self._stack.close()  # git died of this pair; the next one gets a new process
            self._process = None
            raise GitFailed(command="diff-tree", status=-1, stderr="it ended early") from None


def _left_out_line(count: int) -> list[bytes]:
    return [b"\\ %d more lines are left out\n" % count] if count else []


_GIT, _PERMISSIONS = "diff --git ", "diff --permissions "
SECTION = re.compile(r"(?m)^(?=diff --(?:git|permissions) )")
"""Where the patch of a file begins."""


def split_patch(text: str) -> dict[str, str]:
    """The parts of a patch by their first lines, `patch_header` of the path. A file that became a link has two
    parts, which are joined."""
    parts: dict[str, str] = {}
    for part in re.split(SECTION, text):
        header, _, rest = part.partition("\n")
        if header:
            header = header.replace(_PERMISSIONS, _GIT, 1)
            parts[header] = parts.get(header, "") + rest
    return parts


def part_of(parts: Mapping[str, str], path: str) -> str:
    """The part of a patch that is about a path; empty if there is none."""
    return parts.get(patch_header(os.fsencode(path).rstrip(b"/")), "")


def _line_count(number: bytes) -> int | None:
    return None if number == b"-" else int(number)


def _why_left_out(item: Difference, old: State, new: State) -> str | None:
    """Why a file that existed in both states is captured in one of them only."""
    if item.old is None or item.new is None:
        return (old if item.old is None else new).left_out(item.path)
    return None


def _without_contents(left_out: dict[bytes, str], text: str) -> str:
    """The patch with a note in place of files that were not captured: they were neither added nor deleted."""
    headers = {f"{patch_header(path)}\n": why for path, why in left_out.items()}
    sections = re.split(SECTION, text)
    lines = ((section, section[: section.find("\n") + 1]) for section in sections)
    return "".join(
        f"{header}not captured: {headers[header]}\n" if header in headers else section for section, header in lines
    )


def _change(item: Difference, counts: _LineCounts) -> Change:
    slash = "/" if (item.new or item.old or (0, ""))[0] == DIRECTORY else ""
    return Change(os.fsdecode(item.path) + slash, item.status, *counts)


def _mode_text(item: Difference, old: State, new: State) -> str:
    assert item.old is not None and item.new is not None
    kind = _file_type(item.new)
    before, after = old.bits(item.path, item.old[0]), new.bits(item.path, item.new[0])
    # Git knows the executable bit only. It refuses a section with other bits, and skips one that it does not know.
    is_known = kind != stat.S_IFDIR and (before ^ after) & 0o100
    header = patch_header(item.path) if is_known else patch_header(item.path).replace(_GIT, _PERMISSIONS, 1)
    return f"{header}\nold mode {kind | before:06o}\nnew mode {kind | after:06o}\n"


def patch_header(path: bytes) -> str:
    """The line with which the patch of a file begins."""
    return f"{_GIT}{quoted(b'a/' + path)} {quoted(b'b/' + path)}"


def quoted(name: bytes) -> str:
    """A name as git writes it where it stands for itself: in a patch, in the porcelain of blame."""
    escapes = zip(b'\a\b\t\n\v\f\r"\\', 'abtnvfr"\\', strict=True)
    plain = {byte: chr(byte) for byte in range(32, 127)} | {byte: f"\\{letter}" for byte, letter in escapes}
    text = "".join(plain.get(byte, f"\\{byte:03o}") for byte in name)
    return text if text.encode() == name else f'"{text}"'
