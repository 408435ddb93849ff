"""Importing: commits of other tools become checkpoints of the right project, with their dates, reasons and trees.

They are imported in batches: first the objects, as one pack that is complete before it is moved into the store,
then a ref for each checkpoint. After an interruption, the next import goes on from there.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from shadowsnap.deadline import NO_DEADLINE, Deadline
from shadowsnap.errors import (
    DamagedObject,
    DeadlineExceeded,
    GitFailed,
    LockTimeout,
    MalformedObject,
    NothingToImport,
    TreeTooLarge,
    UnsafeTree,
)
from shadowsnap.files import UnreadableFile, parse_json, read_bounded, scratch_folder, sync_directory
from shadowsnap.git.objects import EMPTY_TREE, LooseObjects, is_object_id
from shadowsnap.git.reading import ObjectReader, missing_objects, object_sizes, problem_of_link
from shadowsnap.git.refs import RefExists, refs_below
from shadowsnap.git.repository import Git
from shadowsnap.git.trees import (
    DIRECTORY,
    EXECUTABLE,
    GITLINK,
    LINK,
    REGULAR,
    Leaf,
    ReadTree,
    TreeMatch,
    TreeSearch,
    entry_problem,
    name_problem,
    patch_tree,
    tree_entries,
)
from shadowsnap.results import ImportedItem, ImportReport
from shadowsnap.snapshot.tools import bounded_id
from shadowsnap.store.checkpoints import list_checkpoints, record_checkpoint
from shadowsnap.store.layout import (
    ARCHIVE,
    MOST_REFS,
    WORKDIR_MARKER,
    Store,
    archives,
    is_due,
    is_hermes_store,
    is_repository,
    is_shadow_repository,
    settle,
)
from shadowsnap.store.projects import Project, locked_project, note_writes, project_of, touch_record

Progress = Callable[[int, int, ImportedItem], None]
"""Called after each checkpoint with the number that are done, the total, and the result of this one."""

# Git must not fetch objects that are missing.
READ_ONLY = ("protocol.allow=never", "core.fsmonitor=false", "core.hooksPath=" + os.devnull)
_BATCH = 50
_LOCK_SECONDS = 60.0
_LATEST_DATE_SECONDS = 10**10
_LARGEST_COMMIT = 16 << 20
_LARGEST_TREE = 64 << 20
_LONGEST_MESSAGE = 1 << 15
_MOST_LEFT_OUT = 10_000
_AUTHOR = re.compile(rb"\nauthor [^\n]*> (-?\d{1,18}) [+-]\d{4}\n")
_TRAILER = re.compile(r"^Entire-[A-Za-z-]+: .*$", re.MULTILINE)
_SESSION = re.compile(r"^Entire-Session: (.+)$", re.MULTILINE)
_LONGEST_TEXT = 1 << 20
_TIP = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
_PACKED_REF = re.compile(r"([0-9a-f]{40,64}) (refs/[^/\s]+)/([^/\s]+)")
_WORKSPACE_NAME = re.compile(r"[0-9a-f]{12}")
_SHADOW_BRANCH = re.compile(r"refs/heads/entire/[0-9a-f]{4,40}(?:-([0-9a-f]{6}))?")


def import_from(
    store: Store,
    path: Path,
    deadline: Deadline,
    *,
    most_bytes: int | None = None,
    dry_run: bool = False,
    on_progress: Progress | None = None,
) -> ImportReport:
    """Import all checkpoints found at a path, without files of more than `most_bytes`."""
    sources = _find_sources(store, path)
    if not sources:
        raise NothingToImport(path=path)
    run = _Import(store, deadline, most_bytes, dry_run, on_progress)
    run.take(sources)
    return run.report(str(path), sources)


def import_due(store: Store, deadline: Deadline, most_bytes: int | None = None) -> ImportReport | None:
    """Import the archives that were made on first use, until the deadline."""
    due = [archive for archive in archives(store.base) if is_due(archive)]
    if not due:
        return None
    sources: list[_Source] = []
    run = _Import(store, deadline, most_bytes)
    for archive in due:
        try:
            found = _find_sources(store, archive)
            sources += found
            run.take(found)
        except (DeadlineExceeded, LockTimeout):
            break  # the next import goes on from here
        except (GitFailed, OSError) as problem:
            run.note(_Source("", archive, archive), "failed", str(problem))  # it can still be imported by hand
        settle(archive)
    return run.report(str(store.base), sources)


@dataclass(frozen=True)
class _Source:
    """The checkpoints of one directory in another tool."""

    layout: str
    path: Path
    """The path in messages."""
    git_dir: Path
    tips: tuple[str, ...] = ()
    workdir: str = ""
    excludes: tuple[str, ...] = ()
    """Patterns that kept files out of the checkpoints."""
    writes: Mapping[str, tuple[str, float]] = field(default_factory=dict)
    """The digest and time that the tool noted of each file that its agent wrote."""
    problem: str = ""
    """Why nothing can be imported from it."""

    def refs_git(self, store: Store) -> Git:
        """Git for the refs of the source, with the configuration of that repository. The work tree is the base,
        because that of the tool may be gone."""
        return store.git(NO_DEADLINE).bound(git_dir=self.git_dir, work_tree=store.base, config=READ_ONLY)


@dataclass(frozen=True)
class _Original:
    """A commit of another tool."""

    id: str
    tree: str
    parents: tuple[str, ...]
    message: str
    moment: int
    """In milliseconds, different for commits of the same second."""

    @property
    def reason(self) -> str:
        return _TRAILER.sub("", self.message).strip() or "checkpoint"

    @property
    def session_id(self) -> str | None:
        found = _SESSION.search(self.message)
        return bounded_id(found[1].strip()) if found else None


@dataclass(frozen=True)
class _Tree:
    """A tree without the entries that cannot be restored."""

    id: str
    left_out: tuple[tuple[bytes, str], ...] = ()


@dataclass
class _Import:
    """An import that is under way."""

    store: Store
    deadline: Deadline
    most_bytes: int | None = None
    """Larger files are left out."""
    dry_run: bool = False
    on_progress: Progress | None = None
    items: list[ImportedItem] = field(default_factory=list)
    total: int = 0

    def _objects_git(self, source: _Source) -> Git:
        """Git for the objects of a source, with our configuration. That of the source is not trusted, and may be
        damaged: in a partial clone, git would fetch missing objects."""
        return self.store.git(self.deadline).bound(
            borrowed_objects=source.git_dir / "objects", work_tree=self.store.base, config=READ_ONLY
        )

    def take(self, sources: Iterable[_Source]) -> None:
        usable = []
        for source in sources:
            if source.problem:
                self.note(source, "failed", source.problem)
                continue
            if any(len(tip) != 40 for tip in source.tips):
                self.note(source, "failed", "its objects are named by SHA-256")
                continue
            with ObjectReader(self._objects_git(source)) as reader:
                originals, unusable = _read_originals(reader, source)
            self.total += len(originals) + len(unusable)
            for name, why in unusable.items():
                self.note(source, "failed", f"commit {name[:12]} {why}")
            usable.append((source, originals))
        for source, originals in usable:
            self._take_source(source, originals)

    def report(self, path: str, sources: list[_Source]) -> ImportReport:
        counts = dict.fromkeys(("imported", "skipped", "failed"), 0)
        for item in self.items:
            counts[item.status] += 1
        layouts = tuple(sorted({source.layout for source in sources}))
        return ImportReport(path, layouts, items=tuple(self.items), applied=not self.dry_run, **counts)

    def _take_source(self, source: _Source, originals: list[_Original]) -> None:
        project = project_of(source.workdir)
        listed = list_checkpoints(self.store, project, self.deadline, statistics=False)
        known = {each.metadata["original_id"]: each.id for each in listed if "original_id" in each.metadata}
        due: list[_Original] = []
        for original in originals:
            # PraisonAI begins each repository with an empty commit, which is no state of the directory.
            is_empty = source.layout == "praisonai" and not original.parents and original.tree == EMPTY_TREE
            if original.id in known:
                self.note(source, "skipped", "it was imported before", original, known[original.id])
            elif is_empty:
                self.note(source, "skipped", "it was made with the repository and holds nothing", original)
            elif self.dry_run:
                self.note(source, "imported", original=original)
            else:
                due.append(original)
        for start in range(0, len(due), _BATCH):
            self.deadline.check("importing checkpoints")
            self._take_batch(source, project, due[start : start + _BATCH])
        if source.writes and not self.dry_run:
            with locked_project(self.store, project, "import", Deadline(_LOCK_SECONDS)):
                note_writes(self.store, project, source.writes)

    def _take_batch(self, source: _Source, project: Project, originals: list[_Original]) -> None:
        # The shared lock of the store keeps upkeep from removing the objects before their refs are there.
        with locked_project(self.store, project, "import", Deadline(_LOCK_SECONDS)):
            trees = _copy_trees(self.store, self._objects_git(source), originals, self.most_bytes)
            for original in originals:
                tree = trees[original.id]
                if isinstance(tree, str):
                    self.note(source, "failed", tree, original)
                    continue
                body = {
                    "kind": "manual",
                    "scope": "tree",
                    "session_id": original.session_id,
                    "skipped": [[os.fsdecode(path), why] for path, why in tree.left_out],
                    "excludes": {"own": list(source.excludes)},
                    "imported_from": source.layout,
                    "original_id": original.id,
                }
                try:
                    made = record_checkpoint(self.store, project, tree.id, original.reason, body, original.moment)
                except RefExists:
                    self.note(source, "skipped", "it was imported before", original)
                    continue
                self.note(source, "imported", original=original, checkpoint=made.id)
            touch_record(self.store, project)

    def note(
        self,
        source: _Source,
        status: str,
        why: str = "",
        original: _Original | None = None,
        checkpoint: str | None = None,
    ) -> None:
        """Add the result of a commit, or why a source could not be read."""
        about: dict[str, Any] = {"original_id": "", "workdir": source.workdir, "source": str(source.path)}
        if original is not None:
            created_at = datetime.fromtimestamp(original.moment / 1000, UTC)
            about |= {"original_id": original.id, "reason": original.reason, "created_at": created_at}
        self.items.append(ImportedItem(status, checkpoint_id=checkpoint, why=why, **about))
        if self.on_progress is not None:
            self.on_progress(len(self.items), max(self.total, len(self.items)), self.items[-1])


# --- commits ---------------------------------------------------------------------------------


def _read_originals(reader: ObjectReader, source: _Source) -> tuple[list[_Original], dict[str, str]]:
    """The commits below the tips, oldest first, and why others cannot be used."""
    found: dict[str, _Original] = {}
    unusable: dict[str, str] = {}
    stack = list(reversed(source.tips))
    while stack:
        name = stack.pop()
        if name in found or name in unusable:
            continue
        original = _read_original(reader, name)
        if isinstance(original, str):
            unusable[name] = original
        elif source.layout != "entire" or original.session_id is not None:  # below is the user's own history
            found[name] = original
            stack += reversed(original.parents)
    oldest_first = list(reversed(found.values()))
    oldest_first.sort(key=lambda each: each.moment)
    result: list[_Original] = []
    for original in oldest_first:
        # Git counts in seconds: keep the order of commits within one.
        earliest = result[-1].moment + 1 if result else 0
        result.append(replace(original, moment=max(original.moment, earliest)))
    return result, unusable


def _read_original(reader: ObjectReader, name: str) -> _Original | str:
    """A commit, or why it cannot be used."""
    if (reader.size(name) or 0) > _LARGEST_COMMIT:
        return "is too large"
    try:
        data = reader.read(name, b"commit")
    except DamagedObject:
        return "cannot be read"
    header, _, message = data.partition(b"\n\n")
    lines = header.decode("utf-8", "replace").split("\n")
    tree = lines[0].removeprefix("tree ")
    parents = tuple(line[7:] for line in lines if line.startswith("parent "))
    written = _AUTHOR.search(header + b"\n")
    if lines[0] == tree or not all(map(is_object_id, (tree, *parents))):
        return "is not one that git would write"
    seconds = min(max(int(written[1]), 0), _LATEST_DATE_SECONDS) if written else 0
    return _Original(name, tree, parents, _bounded_text(message), seconds * 1000)


def _bounded_text(message: bytes) -> str:
    """A message; of a long one the beginning, and the end with the trailers."""
    if len(message) > 2 * _LONGEST_MESSAGE:
        message = message[:_LONGEST_MESSAGE] + b"\n[...]\n" + message[-_LONGEST_MESSAGE:]
    return message.decode("utf-8", "replace")


# --- trees -----------------------------------------------------------------------------------


def _copy_trees(
    store: Store, git: Git, originals: list[_Original], most_bytes: int | None
) -> dict[str, _Tree | str]:
    """Copy the trees of these commits into the store. Returns for each commit its tree, or why it has none."""
    with scratch_folder(store.git_dir, "import", inside="pack") as scratch:
        packs = scratch / "pack"
        git = git.bound(scratch_objects=scratch)
        results = _clean_trees(git, scratch, originals, most_bytes)
        wanted = sorted({tree.id for tree in results.values() if isinstance(tree, _Tree)} - {EMPTY_TREE})
        if not _pack(git, packs, wanted):
            # At least one of them cannot be copied, so each is tried alone.
            copied = {name for name in wanted if _pack(git, packs, [name])} | {EMPTY_TREE}
            for name, tree in results.items():
                if isinstance(tree, _Tree) and tree.id not in copied:
                    results[name] = "not everything in it can be read"
        target = store.git_dir / "objects" / "pack"
        for path in sorted(packs.glob("pack-*"), key=lambda path: path.suffix == ".idx"):
            os.replace(path, target / path.name)  # the index last, because it makes the pack visible
        sync_directory(target)
    return results


def _clean_trees(
    git: Git, scratch: Path, originals: list[_Original], most_bytes: int | None
) -> dict[str, _Tree | str]:
    """The trees of commits without entries that cannot be restored."""
    results: dict[str, _Tree | str] = {}
    objects = LooseObjects(scratch, fsync=False)
    with ObjectReader(git) as reader:

        def read(name: str) -> bytes:
            if (reader.size(name) or 0) > _LARGEST_TREE:
                raise DamagedObject(id=name)
            return reader.read(name, b"tree")

        def write(data: bytes) -> str:
            return objects.write(b"tree", data)

        unusable = _unusable_contents(git, reader, read, [original.tree for original in originals], most_bytes)
        search = TreeSearch(
            read, lambda name, mode, child: _is_unusable_entry(name, mode) or (mode, child) in unusable
        )
        for original in originals:
            try:
                odd = search.find(original.tree)
                changes = {each.path: _replacement(each, unusable) for each in odd}
                left_out = tuple(_left_out(odd, unusable))
                if len(left_out) > _MOST_LEFT_OUT:
                    results[original.id] = f"more than {_MOST_LEFT_OUT:,} of its files cannot be kept"
                    continue
                tree = patch_tree(original.tree, changes, read, write, lambda data: dict(tree_entries(data)))
                results[original.id] = _Tree(tree, left_out)
            except TreeTooLarge as problem:
                results[original.id] = str(problem)
            except (DamagedObject, MalformedObject, UnsafeTree):
                results[original.id] = "its tree cannot be read"
    return results


def _unusable_contents(
    git: Git, reader: ObjectReader, read: ReadTree, trees: Iterable[str], most_bytes: int | None
) -> dict[Leaf, str]:
    """The entries below these trees, as mode and object id, that are too large or not a valid link, with the
    reason. The sizes are read before any content: a small object can expand to gigabytes."""
    found: set[Leaf] = set()

    def collect(_: bytes, mode: int, child: str) -> bool:
        if mode != DIRECTORY:
            found.add((mode, child))
        return False

    search = TreeSearch(read, collect)
    for tree in trees:
        with suppress(DamagedObject, MalformedObject):
            search.explore(tree)
    sizes = object_sizes(git, sorted({child for mode, child in found if mode != GITLINK}))
    unusable: dict[Leaf, str] = {}
    for mode, child in found:
        size = sizes.get(child)
        if size is None:
            continue  # it is missing; copying fails
        if most_bytes is not None and size > most_bytes:
            unusable[mode, child] = "too-large"
        elif mode == LINK:
            with suppress(DamagedObject):
                if problem_of_link(reader, child) is not None:
                    unusable[mode, child] = "unstorable"
    return unusable


def _is_unusable_entry(name: bytes, mode: int) -> bool:
    """Whether an entry is not one that git would write, or cannot become a file."""
    if not name or b"/" in name:
        raise MalformedObject(what="a tree", why=f"it has an entry called {name[:80]!r}")
    return entry_problem(name, mode) is not None


def _replacement(odd: TreeMatch, unusable: Mapping[Leaf, str]) -> Leaf | None:
    """A regular file with unusual permission bits becomes a normal one; other unusable entries are left out."""
    is_named_badly = name_problem(odd.path.rpartition(b"/")[2]) is not None
    if is_named_badly or odd.mode & 0o170000 != 0o100000 or (odd.mode, odd.id) in unusable:
        return None
    return (EXECUTABLE if odd.mode & 0o100 else REGULAR, odd.id)


def _left_out(odd: list[TreeMatch], unusable: Mapping[Leaf, str]) -> Iterator[tuple[bytes, str]]:
    for each in odd:
        if _replacement(each, unusable) is None:
            is_folder = each.mode in (GITLINK, DIRECTORY)
            why = "repository" if each.mode == GITLINK else unusable.get((each.mode, each.id), "unstorable")
            yield each.path + (b"/" if is_folder else b""), why


def _pack(git: Git, folder: Path, trees: list[str]) -> bool:
    """Write a pack of everything below these trees; False if not all of it can be read."""
    if not trees:
        return True
    names = "".join(f"{name}\n" for name in trees).encode()
    name = ""
    try:
        words = ("pack-objects", "-q", "--revs", "--delta-base-offset", str(folder / "pack"))
        name = git.run(*words, stdin=names).decode().strip()
        if name:  # packing copies what it finds; only indexing hashes each object
            checked, pack = folder / f"checked-{name}", folder / f"pack-{name}.pack"
            git.run("index-pack", "--strict", "--no-rev-index", "-o", str(checked), str(pack))
            os.replace(checked, pack.with_suffix(".idx"))
    except GitFailed:
        for path in folder.glob(f"*{name}*") if name else ():
            path.unlink()
        return False
    return not missing_objects(git, trees)


# --- finding sources -------------------------------------------------------------------------


def _find_sources(store: Store, path: Path) -> list[_Source]:
    """Every source at a path, which may be one itself, or contain some, as the base of a tool or an archive."""
    found: list[_Source] = []
    for folder in _candidates(path):
        if is_hermes_store(folder):
            found += _hermes_store_sources(folder)
        elif is_shadow_repository(folder):
            found.append(_hermes_directory_source(store, folder))
        elif _WORKSPACE_NAME.fullmatch(folder.name) and is_repository(folder / ".git"):
            found.append(_praisonai_source(store, folder))
    return found or list(_entire_sources(store, path))


def _candidates(path: Path) -> Iterator[Path]:
    yield path
    for folder in _folders(path):
        yield folder
        if folder.name.startswith(ARCHIVE):
            yield from _folders(folder)


def _hermes_store_sources(folder: Path) -> Iterator[_Source]:
    """Hermes: one repository with a ref for each directory."""
    common = _Source("hermes-store", folder, folder, excludes=_patterns(folder))
    tips = _tips(folder, "refs/hermes")
    if not tips:
        yield replace(common, problem="all its refs are lost: only git can find its commits")
    for project, tip in tips.items():
        source = replace(common, path=folder / "refs" / "hermes" / project, tips=(tip,))
        record = f"projects/{project}.json"
        if tip:
            workdir = _json(folder / record).get("workdir")
            source = replace(source, writes=_hermes_writes(_json(folder / "ledgers" / f"{project}.json"), workdir))
            yield _of_workdir(source, workdir, record)
        else:
            yield replace(source, problem="its ref is damaged")


def _tips(folder: Path, prefix: str) -> dict[str, str]:
    """The tips of the refs right below a prefix; empty for a damaged ref that is not packed. Read without git,
    which needs a complete repository."""
    found = {}
    for line in _text(folder / "packed-refs", MOST_REFS).splitlines():
        packed = _PACKED_REF.fullmatch(line)
        if packed and packed[2] == prefix:
            found[packed[3]] = packed[1]
    with suppress(OSError):
        for loose in (folder / prefix).iterdir():
            tip = _text(loose)
            if _TIP.fullmatch(tip):
                found[loose.name] = tip
            elif not loose.name.endswith(".lock"):
                found.setdefault(loose.name, "")
    return dict(sorted(found.items()))


def _hermes_writes(ledger: dict[str, Any], workdir: object) -> dict[str, tuple[str, float]]:
    """The digest and time of each file that Hermes wrote, by path within the project."""
    found = {}
    for path, entry in ledger.items():
        inside = path.removeprefix(f"{workdir}{os.sep}")
        digest, moment = (entry.get("sha256"), entry.get("ts")) if isinstance(entry, dict) else (None, None)
        if inside != path and isinstance(digest, str) and isinstance(moment, (int, float)):
            found[inside] = (digest, float(moment))
    return found


def _hermes_directory_source(store: Store, folder: Path) -> _Source:
    """Hermes, earlier: a repository for each directory."""
    source = _Source("hermes-directory", folder, folder, excludes=_patterns(folder))
    source = _of_workdir(source, _text(folder / WORKDIR_MARKER), WORKDIR_MARKER)
    if is_repository(folder):
        return _with_branches(store, source)
    tips = tuple(filter(None, _tips(folder, "refs/heads").values()))
    return replace(source, tips=tips, problem=source.problem or ("" if tips else "git cannot read it"))


def _praisonai_source(store: Store, folder: Path) -> _Source:
    git_dir = folder / ".git"
    source = _Source("praisonai", folder, git_dir, excludes=_patterns(git_dir))
    answer = source.refs_git(store).run("config", "--file", str(git_dir / "config"), "core.worktree", ok=(0, 1))
    return _with_branches(store, _of_workdir(source, os.fsdecode(answer).removesuffix("\n"), "core.worktree"))


def _of_workdir(source: _Source, workdir: object, marker: str) -> _Source:
    if isinstance(workdir, str) and os.path.isabs(workdir) and "\0" not in workdir:
        return replace(source, workdir=workdir)
    return replace(source, problem=f"{marker} does not name the directory of these checkpoints")


def _with_branches(store: Store, source: _Source) -> _Source:
    if source.problem:
        return source
    git = source.refs_git(store)
    try:
        tips = refs_below(git, "refs/heads/").values()
        head = git.run("rev-parse", "--verify", "-q", "HEAD", ok=(0, 1)).decode().strip()
    except GitFailed as problem:
        return replace(source, problem=str(problem))
    return replace(source, tips=tuple(dict.fromkeys(filter(None, (head, *tips)))))


def _entire_sources(store: Store, path: Path) -> Iterator[_Source]:
    """Entire: shadow branches in the user's repository."""
    git_dir = common_dir(path)
    if git_dir is None:
        return
    common = _Source("entire", path, git_dir, excludes=_patterns(git_dir))
    worktrees = _worktrees(git_dir)
    for ref, tip in refs_below(common.refs_git(store), "refs/heads/entire/").items():
        branch = _SHADOW_BRANCH.fullmatch(ref)
        if branch is None:
            continue  # other branches of the same tool hold no files
        source = replace(common, path=git_dir / ref, tips=(tip,))
        workdir = worktrees.get(branch[1] or _worktree_key(""))
        if workdir is None:
            yield replace(source, problem="its worktree does not exist any more")
        else:
            yield replace(source, workdir=workdir)


def common_dir(path: Path) -> Path | None:
    """The repository that a directory is a work tree of, or is itself."""
    git_dir = path if is_repository(path) else path / ".git"
    if git_dir.is_file():
        git_dir = path / _text(git_dir).removeprefix("gitdir: ")
    common = _text(git_dir / "commondir")
    git_dir = Path(os.path.normpath(git_dir / common)) if common else git_dir
    return git_dir if is_repository(git_dir) else None


def _worktrees(git_dir: Path) -> dict[str, str]:
    """The directory of each work tree, by its key in Entire's branch names."""
    found = {_worktree_key(""): str(git_dir.parent)} if git_dir.name == ".git" else {}
    for folder in _folders(git_dir / "worktrees"):
        pointer = _text(folder / "gitdir")
        if pointer:
            found[_worktree_key(folder.name)] = os.path.dirname(os.path.join(folder, pointer))
    return found


def _worktree_key(name: str) -> str:
    return hashlib.sha256(name.encode("utf-8", "surrogateescape")).hexdigest()[:6]


def _patterns(git_dir: Path) -> tuple[str, ...]:
    lines = _text(git_dir / "info" / "exclude").splitlines()
    return tuple(line for line in lines if line.strip() and not line.startswith("#"))


def _folders(path: Path) -> list[Path]:
    try:
        return sorted(folder for folder in path.iterdir() if folder.is_dir())
    except OSError:
        return []


def _text(path: Path, most: int = _LONGEST_TEXT) -> str:
    """The text of a small file; empty if it is not a regular file. It could be a pipe, or a device."""
    try:
        return os.fsdecode(read_bounded(path, most) or b"").removeprefix("\ufeff").strip()
    except UnreadableFile:
        return ""


def _json(path: Path) -> dict[str, Any]:
    """The object in a small JSON file; empty if there is none."""
    try:
        value = parse_json(_text(path) or "{}")
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}
