"""Planning a restore: what is written, deleted and left alone to get from the files as they
are to a checkpoint, and what stands in the way. Nothing is changed here."""

from __future__ import annotations

import stat
from collections.abc import Collection, Sequence

from shadowsnap.git.reading import ObjectReader
from shadowsnap.git.trees import DIRECTORY, EXECUTABLE, REGULAR, Leaf, TreeReader
from shadowsnap.records import dataclass, field, replace
from shadowsnap.snapshot.capture import Capture
from shadowsnap.snapshot.states import Difference, Selection, State, mode_differences, tree_differences
from shadowsnap.snapshot.workspace import Workspace
from shadowsnap.snapshot.worktree import Worktree, parents

_NOT_CHOSEN = "it is in the way, and not among the chosen paths"


@dataclass
class Plan:
    """Every deed of a restore, in terms of paths."""

    write: dict[bytes, tuple[Leaf, int]] = field(default_factory=dict)
    """Files to put in place: git mode and object, permission bits."""
    delete: set[bytes] = field(default_factory=set)
    chmod: dict[bytes, int] = field(default_factory=dict)
    """Files whose bits alone differ."""
    make: dict[bytes, int] = field(default_factory=dict)
    """Directories that are missing, with their bits."""
    clear: set[bytes] = field(default_factory=set)
    """Directories to remove, which are empty once the deletions are done."""
    chmod_directories: dict[bytes, int] = field(default_factory=dict)
    stay: set[bytes] = field(default_factory=set)
    """Directories that stay even if they become empty."""
    kept: dict[bytes, str] = field(default_factory=dict)
    conflicts: dict[bytes, str] = field(default_factory=dict)
    unsaved: set[bytes] = field(default_factory=set)
    """Paths in the way, or about to appear where they are ignored, that the checkpoint taken
    before must include."""
    unsaved_directories: set[bytes] = field(default_factory=set)
    """Directories in the way without a file in them."""
    unseen: dict[bytes, tuple[Leaf, int]] = field(default_factory=dict)
    """What is in directories that cannot be looked into until their bits are changed: it must prove to be this
    already, else everything is put back."""
    appearing: list[bytes] = field(default_factory=list)
    """Files that come where nothing is."""
    appearing_directories: list[bytes] = field(default_factory=list)
    """The same of directories, with a slash."""
    hidden: set[bytes] = field(default_factory=set)
    """Directories that come where nothing is and are ignored there, with a slash: an undo must know."""

    @property
    def touched(self) -> set[bytes]:
        """The files that do not stay as they are."""
        return {*self.write, *self.delete, *self.chmod}

    @property
    def everything(self) -> set[bytes]:
        """The files and directories that do not stay as they are."""
        return self.touched | {*self.make, *self.clear, *self.chmod_directories}

    @property
    def empty(self) -> bool:
        return not (self.write or self.delete or self.chmod or self.make or self.clear or self.chmod_directories)


def plan_restore(capture: Capture, target: State, chosen: Selection) -> Plan:
    """How to get from the captured state to the target, of everything or below some paths."""
    space, current, plan = capture.space, State.of_capture(capture), Plan()
    differing = [
        item for item in tree_differences(space.git, current.tree, target.tree) if item.path in chosen
    ]
    if target.scope == "paths":
        differing = _of_named_paths(differing, target)
    with ObjectReader(space.git) as reader:
        lookup = TreeReader(target.tree, lambda name: reader.read(name, b"tree"))
        if not target.complete:
            target = _completed(target, current, lookup)
        for item in differing:
            if item.new is not None:
                plan.write[item.path] = (item.new, target.bits(item.path, item.new[0]))
        _plan_deletions(
            plan, capture, current, target, [item for item in differing if item.new is None], lookup
        )
        _plan_directories(plan, capture, current, target, chosen, lookup)
        modes = mode_differences(space.git, current, target, [item.path for item in differing])
        _plan_modes(plan, modes, target, chosen)
        _find_obstacles(plan, capture, [item.path for item in differing if item.old is None], chosen)
        _note_what_comes_unseen(plan, capture, current, target)
    _note_kept(plan, space, current, target, chosen)
    return plan


def _completed(target: State, current: State, lookup: TreeReader) -> State:
    """A state of files alone, with the permission bits and empty directories that are there now."""
    leaves = {path: lookup.find(path) for path in current.modes.other}
    bits = {path: (leaf, current.modes.other[path]) for path, leaf in leaves.items() if leaf is not None}
    other = {path: _as_executable(leaf[0], bits) for path, (leaf, bits) in bits.items()}
    bare = {path for path in current.bare if lookup.find(path) is None and not _file_above(path, lookup)}
    return replace(target, modes=replace(current.modes, other=other), bare=frozenset(bare))


def _as_executable(mode: int, bits: int) -> int:
    if mode == DIRECTORY:
        return bits
    return bits | (bits & 0o444) >> 2 if mode & 0o100 else bits & ~0o111


def _file_above(path: bytes, lookup: TreeReader) -> bool:
    found = (lookup.find(parent) for parent in parents(path))
    return any(leaf is not None and leaf[0] != DIRECTORY for leaf in found)


def add_what_a_crash_left(
    plan: Plan, capture: Capture, before: State, target: State, chosen: Selection
) -> None:
    """A restore that died may have left directories open that were closed, new ones closed, and
    some empty, where neither the target nor the choice of paths has a say. They get the bits they
    had, or those of the target if they are new; those that it emptied go."""
    emptied: set[bytes] = set()
    with ObjectReader(capture.space.git) as reader:
        was, comes = (
            TreeReader(state.tree, lambda name: reader.read(name, b"tree")) for state in (before, target)
        )
        for path, (bits, _) in capture.cache.directories.items():
            is_wanted = path in target.bare or _is_directory(comes.find(path))
            had_files = _is_directory(was.find(path))
            if not path or path in plan.make or (is_wanted and path in chosen):
                continue
            if had_files or path in before.bare:
                plan.chmod_directories[path] = before.bits(path, DIRECTORY)
            elif is_wanted:
                plan.chmod_directories[path] = target.bits(path, DIRECTORY)
            if had_files and not is_wanted and path in capture.bare:
                emptied.add(path)
            if plan.chmod_directories.get(path) == bits:
                del plan.chmod_directories[path]
    plan.clear |= _really_empty(capture.space.worktree, emptied | plan.clear, plan.delete)


def _of_named_paths(differing: list[Difference], target: State) -> list[Difference]:
    """A checkpoint of single paths knows nothing of others, unless they are in the way."""
    coming = {item.path for item in differing if item.new is not None}
    above = {parent for path in coming for parent in parents(path)}
    return [
        item
        for item in differing
        if item.path in coming
        or item.path in target.absent
        or item.path in above
        or any(parent in coming for parent in parents(item.path))
    ]


# --- deletions -------------------------------------------------------------------------------


def _plan_deletions(
    plan: Plan, capture: Capture, current: State, target: State, gone: list[Difference], lookup: TreeReader
) -> None:
    """Delete what the checkpoint knew not to exist; keep what it could not have known."""
    unknown: list[bytes] = []
    for item in gone:
        path = item.path
        why = _skipped_then(path, target)
        if path in target.absent or _replaced(path, plan, target, lookup):
            plan.delete.add(path)
        elif why is not None:
            plan.kept[path] = f"{why} at the checkpoint"
        else:
            unknown.append(path)
    # The folders are asked about later; if git is started at all, it can be asked now.
    folders = current.bare - target.bare if unknown else frozenset()
    ignored = capture.space.rules.remembered(
        ("ignored in", target.tree, target.patterns),
        [*unknown, *folders],
        lambda paths: ignored_then(capture.space, current, target, paths, folders),
    ).difference(folders)
    plan.delete.update(path for path in unknown if path not in ignored)
    plan.kept.update((path, "ignored at the checkpoint") for path in ignored)


def ignored_then(
    space: Workspace, current: State, target: State, paths: Sequence[bytes], folders: Collection[bytes] = ()
) -> set[bytes]:
    """Which of the paths, some of them folders, the ignore rules of the checkpoint match: deletions are
    decided under those, not under the rules of now."""
    if target.scope == "paths" or not paths:
        return set()
    with ObjectReader(space.git) as reader:
        then, now = (
            TreeReader(state.tree, lambda name: reader.read(name, b"tree")) for state in (target, current)
        )

        def rules_then(folder: bytes) -> bytes | None:
            path = folder + b"/.gitignore" if folder else b".gitignore"
            leaf = then.find(path)
            if leaf is not None:  # git reads rules from regular files only
                return reader.read(leaf[1], b"blob") if leaf[0] in (REGULAR, EXECUTABLE) else None
            if path in target.rules:
                return target.rules[path]
            # One that is itself ignored, and came or grew long since: the files it ignores now are left alone.
            return None if now.find(path) is not None else space.rules.text(folder)

        texts = {folder: rules_then(folder) for folder in {b"", *(up for path in paths for up in parents(path))}}
    return space.rules.ignored_under(texts, target.patterns, paths, folders)


def _replaced(path: bytes, plan: Plan, target: State, lookup: TreeReader) -> bool:
    """Whether the target has a file in place of a directory above this path, or a directory in
    place of the path itself."""
    above = any(parent in plan.write for parent in parents(path))
    return above or path in target.bare or lookup.find(path) is not None


def _skipped_then(path: bytes, target: State) -> str | None:
    if path in target.skipped:
        return target.skipped[path]
    return next((target.skipped[up + b"/"] for up in parents(path) if up + b"/" in target.skipped), None)


# --- directories and bits --------------------------------------------------------------------


def _plan_directories(
    plan: Plan, capture: Capture, current: State, target: State, chosen: Selection, lookup: TreeReader
) -> None:
    there = capture.directories
    needed = {parent for path in plan.write for parent in parents(path)}
    needed |= {path for path in target.bare if path in chosen}
    needed |= {parent for path in list(needed) for parent in parents(path)}
    plan.make = {path: target.bits(path, DIRECTORY) for path in needed if path not in there}
    then = target.bare | {
        parent for path in (*target.bare, *target.skipped) for parent in parents(path.rstrip(b"/"))
    }
    emptied = {parent for path in plan.delete for parent in parents(path)}
    above = {parent for path in current.bare if path in chosen for parent in parents(path)}
    plan.stay = {
        path for path in emptied | above | current.bare if path in then or _is_directory(lookup.find(path))
    }
    unknown = [path for path in current.bare if path in chosen and path not in plan.stay]
    in_the_way = {
        path for path in emptied.union(unknown) if any(up in plan.write for up in (path, *parents(path)))
    }
    if target.scope == "paths":
        plan.stay |= {path for path in emptied - in_the_way if path + b"/" not in target.absent}
        plan.clear = _really_empty(capture.space.worktree, in_the_way.intersection(unknown), plan.delete)
        return
    absent = {path for path in unknown if path + b"/" in target.absent}
    doubtful = [
        path
        for path in unknown
        if path not in in_the_way and path not in absent and not _skipped_then(path + b"/", target)
    ]
    ignored = capture.space.rules.remembered(
        ("ignored in", target.tree, target.patterns),
        doubtful,
        lambda paths: ignored_then(capture.space, current, target, paths, doubtful),
    )
    going = in_the_way.intersection(unknown).union(doubtful) - ignored | absent
    plan.clear = _really_empty(capture.space.worktree, going, plan.delete)


def _really_empty(worktree: Worktree, folders: set[bytes], deleted: set[bytes]) -> set[bytes]:
    """Those of the directories that hold nothing, captured or not, but what goes."""
    empty: set[bytes] = set()
    for folder in sorted(folders, reverse=True):  # what lies below comes first
        try:
            inside = [folder + b"/" + item.name for item in worktree.items(folder)]
        except OSError:
            continue
        if all(path in empty or path in deleted for path in inside):
            empty.add(folder)
    return empty


def _is_directory(leaf: Leaf | None) -> bool:
    return leaf is not None and leaf[0] == DIRECTORY


def _plan_modes(plan: Plan, differing: list[Difference], target: State, chosen: Selection) -> None:
    for item in differing:
        if item.path not in chosen or item.new is None:
            continue
        where = plan.chmod_directories if item.new[0] == DIRECTORY else plan.chmod
        where[item.path] = target.bits(item.path, item.new[0])


# --- obstacles -------------------------------------------------------------------------------


def _find_obstacles(plan: Plan, capture: Capture, appearing: list[bytes], chosen: Selection) -> None:
    """What is on disk, uncaptured, where the target wants something else. It must be saved
    first, and goes."""
    for path in [*appearing, *plan.make]:
        try:
            obstacle = _obstacle(capture.space.worktree, path)
        except PermissionError:
            closed = next((up for up in parents(path) if up in plan.chmod_directories), None)
            if closed is not None and plan.chmod_directories[closed] & 0o500 == 0o500:
                folder = (DIRECTORY, "")
                plan.unseen[path] = plan.write.pop(path) if path in plan.write else (folder, plan.make.pop(path))
            else:
                unseen = path.rpartition(b"/")[0] + b"/"
                plan.conflicts[unseen] = "it cannot be looked into, so what it holds cannot be saved first"
            continue
        if obstacle is None:
            plan.appearing += [path] if path not in plan.make else []
            plan.appearing_directories += [path + b"/"] if path in plan.make else []
        elif obstacle == (path, True) and path in plan.make:
            plan.unsaved_directories.add(path)  # there already, and ignored: its bits are to be saved
        elif obstacle[0] not in chosen:
            plan.conflicts[obstacle[0]] = _NOT_CHOSEN
        elif not obstacle[1]:
            if capture.known(obstacle[0]) is None:
                plan.unsaved.add(obstacle[0])
        else:
            _clear_directory(plan, capture, path, chosen)


def _note_what_comes_unseen(
    plan: Plan, capture: Capture, current: State, target: State
) -> None:
    """An undo must know that what comes now did not exist, although no capture would tell: it is ignored, by the
    rules of now or by those that come with it, or it comes into a directory that cannot be listed now."""
    rules, space, folders = capture.space.rules, capture.space, plan.appearing_directories
    coming = [*plan.appearing, *folders]
    ignored = rules.remembered("ignored now", coming, rules.ignored)
    ignored |= rules.remembered(
        ("ignored in", target.tree, target.patterns),
        coming,
        lambda paths: ignored_then(space, current, target, paths),
    )
    hidden = {path for path in plan.appearing if current.left_out(path) is not None}
    plan.unsaved |= (ignored.difference(folders) | hidden) - capture.absent
    plan.hidden = ignored.intersection(folders)


def _obstacle(worktree: Worktree, path: bytes) -> tuple[bytes, bool] | None:
    """The first thing on the way to a path that is not a directory, or whatever is at the path
    itself; and whether that is a directory."""
    for place in [*reversed([*parents(path)]), path]:
        seen = worktree.lstat(place)
        if seen is None:
            return None
        if place == path or not stat.S_ISDIR(seen.st_mode):
            return place, stat.S_ISDIR(seen.st_mode)
    return None


def _clear_directory(plan: Plan, capture: Capture, folder: bytes, chosen: Selection) -> None:
    """A directory makes way for a file: everything in it must be captured."""
    for path, item in capture.space.worktree.everything_below(folder):
        if item is None:
            plan.conflicts[path] = "it cannot be read, so it cannot be saved first"
        elif item.name.lower() == b".git":
            plan.conflicts[path] = "a repository would be lost with its directory"
        elif item.is_special:
            plan.conflicts[path] = "it is neither a file nor a link and cannot be saved"
        elif path not in chosen:
            plan.conflicts[path] = _NOT_CHOSEN
        elif capture.known(path) is None:
            plan.unsaved.add(path)
    plan.unsaved_directories |= _without_files(capture.space.worktree, folder) - capture.bare


def _without_files(worktree: Worktree, top: bytes) -> set[bytes]:
    """The directories at and below one that no file lies in, however deep."""
    folders: set[bytes] = set()
    full: set[bytes] = set()
    stack = [top]
    while stack:
        folder = stack.pop()
        folders.add(folder)
        try:
            items = list(worktree.items(folder))
        except OSError:
            continue  # told as a conflict
        stack += [folder + b"/" + item.name for item in items if item.is_directory]
        if not all(item.is_directory for item in items):
            full.update((folder, *parents(folder)))
    return folders - full


# --- what is left alone ----------------------------------------------------------------------


def _note_kept(plan: Plan, space: Workspace, current: State, target: State, chosen: Selection) -> None:
    """Report what is there and was not, or is not, captured."""
    for path, why in target.skipped.items():
        name = path.rstrip(b"/")
        if name in chosen and path not in plan.write and _is_there(space.worktree, name):
            plan.kept.setdefault(path, f"{why} at the checkpoint")
    if target.scope == "tree":
        for path, why in current.skipped.items():
            if path.rstrip(b"/") in chosen and path not in plan.unsaved:
                plan.kept.setdefault(path, f"{why} now")


def _is_there(worktree: Worktree, path: bytes) -> bool:
    try:
        return worktree.lstat(path) is not None
    except PermissionError:
        return True  # as far as anyone can tell
