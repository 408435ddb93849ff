"""Importing: commits of another tool become checkpoints of the right project, with their dates,
reasons and trees.

In batches: the objects first, as one pack that is complete before it is among ours, then a ref
for each checkpoint. Whatever interrupts it, the next import goes on from there.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from shadowsnap import lightjson as json
from shadowsnap.deadline import Deadline
from shadowsnap.errors import (
    DamagedObject,
    DeadlineExceeded,
    GitFailed,
    LockTimeout,
    MalformedObject,
    NothingToImport,
    UnsafeTree,
)
from shadowsnap.files import UnreadableFile, read_bounded, remove_tree, sync_directory
from shadowsnap.git.objects import EMPTY_TREE, LooseObjects
from shadowsnap.git.reading import ObjectReader, missing_objects
from shadowsnap.git.refs import RefExists
from shadowsnap.git.repository import Git
from shadowsnap.git.trees import (
    DIRECTORY,
    EXECUTABLE,
    LINK,
    REGULAR,
    Leaf,
    TreeMatch,
    TreeSearch,
    name_problem,
    patch_tree,
    tree_entries,
)
from shadowsnap.model import ImportedItem, ImportReport
from shadowsnap.snapshot.tools import bounded_id
from shadowsnap.store.checkpoints import list_checkpoints, record_checkpoint
from shadowsnap.store.layout import (
    ARCHIVE,
    WORKDIR_MARKER,
    Store,
    archives,
    is_due,
    is_hermes_store,
    is_repository,
    is_shadow_repository,
    settle,
)
from shadowsnap.store.locks import locked
from shadowsnap.store.projects import Project, project_of, touch_record

Progress = Callable[[int, int, ImportedItem], None]
"""Called after each checkpoint: how many are done, of how many, and what became of it."""

_BATCH = 50
_LOCK_SECONDS = 60.0
_GITLINK = 0o160000
_MODES = (DIRECTORY, REGULAR, EXECUTABLE, LINK)
_AUTHOR = re.compile(rb"\nauthor [^\n]*> (-?\d+) [+-]\d{4}\n")
_TRAILER = re.compile(r"^Entire-[A-Za-z-]+: .*$", re.MULTILINE)
_SESSION = re.compile(r"^Entire-Session: (.+)$", re.MULTILINE)
_LATEST = 10**10


@dataclass(frozen=True)
class Original:
    """A commit of another tool."""

    id: str
    tree: str
    parents: tuple[str, ...]
    message: str
    moment: int
    """In milliseconds, made different for commits of the same second."""

    @property
    def reason(self) -> str:
        return _TRAILER.sub("", self.message).strip() or "checkpoint"

    @property
    def session_id(self) -> str | None:
        found = _SESSION.search(self.message)
        return bounded_id(found[1].strip()) if found else None


def import_from(
    store: Store, path: Path, deadline: Deadline, *, dry_run: bool = False, on_progress: Progress | None = None
) -> ImportReport:
    """Import everything that is found at a path."""
    sources = find_sources(store, path)
    if not sources:
        raise NothingToImport(path=path)
    run = _Run(store, deadline, dry_run, on_progress)
    try:
        run.take(sources)
    finally:
        _remove_stand_ins(sources)
    return run.report(str(path), sources)


def import_due(store: Store, deadline: Deadline) -> ImportReport | None:
    """Import the archives that were made on first use, as far as the time goes."""
    due = [archive for archive in archives(store.base) if is_due(archive)]
    if not due:
        return None
    run = _Run(store, deadline, False, None)
    sources: list[Source] = []
    for archive in due:
        found: list[Source] = []
        try:
            found = find_sources(store, archive)
            sources += found
            run.take(found)
        except (DeadlineExceeded, LockTimeout):
            break  # the next one goes on from here
        except (GitFailed, OSError) as problem:
            run.note_failure(archive, problem)  # it can still be tried by hand
        finally:
            _remove_stand_ins(found)
        settle(archive)
    return run.report(str(store.base), sources)


# --- one import ------------------------------------------------------------------------------


@dataclass
class _Run:
    store: Store
    deadline: Deadline
    dry_run: bool
    on_progress: Progress | None
    items: list[ImportedItem] = field(default_factory=list)
    total: int = 0

    def take(self, sources: Iterable[Source]) -> None:
        usable = []
        for source in sources:
            problem = source.problem or _unreadable(source)
            if problem:
                self._note(source, None, "failed", problem)
                continue
            with ObjectReader(source.git(self.store)) as reader:
                originals, broken = read_originals(reader, source)
            self.total += len(originals) + len(broken)
            for name in broken:
                self._note(source, None, "failed", f"commit {name[:12]} cannot be read")
            usable.append((source, originals))
        for source, originals in usable:
            self._take_source(source, originals)

    def note_failure(self, path: Path, problem: Exception) -> None:
        self._note(Source("", path, path), None, "failed", str(problem))

    def report(self, path: str, sources: list[Source]) -> ImportReport:
        counts = dict.fromkeys(("imported", "skipped", "failed"), 0)
        for item in self.items:
            counts[item.status] += 1
        layouts = tuple(sorted({source.layout for source in sources}))
        return ImportReport(path, layouts, items=tuple(self.items), applied=not self.dry_run, **counts)

    def _take_source(self, source: Source, originals: list[Original]) -> None:
        project = project_of(source.workdir)
        known = self._imported_before(project)
        due: list[Original] = []
        for original in originals:
            if original.id in known:
                self._note(source, original, "skipped", "it was imported before", known[original.id])
            elif not _holds_files(source, original):
                self._note(source, original, "skipped", "it was made with the repository and holds nothing")
            else:
                due.append(original)
        if self.dry_run:
            for original in due:
                self._note(source, original, "imported")
            return
        for at in range(0, len(due), _BATCH):
            self.deadline.check("importing checkpoints")
            self._take_batch(source, project, due[at : at + _BATCH])

    def _take_batch(self, source: Source, project: Project, originals: list[Original]) -> None:
        store, patience = self.store, Deadline(_LOCK_SECONDS)
        # Sharing the lock of the store: nobody removes the objects before their refs are there.
        with (
            locked(store.store_lock(), "import", patience, shared=True),
            locked(store.project_lock(project.id), "import", patience),
        ):
            trees = copy_trees(store, source, originals)
            for original in originals:
                tree = trees[original.id]
                if isinstance(tree, str):
                    self._note(source, original, "failed", tree)
                    continue
                try:
                    made = record_checkpoint(
                        store, project, tree.id, original.reason, _body(source, original, tree), original.moment
                    )
                except RefExists:
                    self._note(source, original, "skipped", "it was imported before")
                    continue
                self._note(source, original, "imported", checkpoint=made.id)
            touch_record(store, project)

    def _imported_before(self, project: Project) -> dict[str, str]:
        """Original id -> ours."""
        found = list_checkpoints(self.store, project, self.deadline, statistics=False)
        return {each.metadata["original_id"]: each.id for each in found if "original_id" in each.metadata}

    def _note(
        self, source: Source, original: Original | None, status: str, why: str = "", checkpoint: str | None = None
    ) -> None:
        about: dict[str, Any] = {"original_id": "", "workdir": source.workdir, "source": str(source.path)}
        if original is not None:
            when = datetime.fromtimestamp(original.moment / 1000, UTC)
            about |= {"original_id": original.id, "reason": original.reason, "created_at": when}
        self.items.append(ImportedItem(status, checkpoint_id=checkpoint, why=why, **about))
        if self.on_progress is not None:
            self.on_progress(len(self.items), max(self.total, len(self.items)), self.items[-1])


def _unreadable(source: Source) -> str:
    return "its objects are named by SHA-256" if any(len(tip) != 40 for tip in source.tips) else ""


def _holds_files(source: Source, original: Original) -> bool:
    """PraisonAI begins each repository with an empty commit, which is no state of the directory."""
    return source.layout != "praisonai" or bool(original.parents) or original.tree != EMPTY_TREE


def _body(source: Source, original: Original, tree: Tree) -> dict[str, Any]:
    return {
        "kind": "manual",
        "scope": "tree",
        "session_id": original.session_id,
        "skipped": [[os.fsdecode(path), why] for path, why in tree.left_out],
        "excludes": {"own": list(source.excludes)},
        "imported_from": source.layout,
        "original_id": original.id,
    }


# --- commits ---------------------------------------------------------------------------------


def read_originals(reader: ObjectReader, source: Source) -> tuple[list[Original], list[str]]:
    """The commits that the tips lead to, oldest first, and those that cannot be read."""
    found: dict[str, Original] = {}
    broken: list[str] = []
    stack = list(reversed(source.tips))
    while stack:
        name = stack.pop()
        if name in found or name in broken:
            continue
        original = _read_original(reader, name)
        if original is None:
            broken.append(name)
        elif source.layout != "entire" or original.session_id is not None:  # below lies the person's history
            found[name] = original
            stack += reversed(original.parents)
    oldest_first = list(reversed(found.values()))
    oldest_first.sort(key=lambda each: each.moment)
    return _told_apart(oldest_first), broken


def _read_original(reader: ObjectReader, name: str) -> Original | None:
    try:
        data = reader.read(name, b"commit")
    except DamagedObject:
        return None
    header, _, message = data.partition(b"\n\n")
    written = _AUTHOR.search(header + b"\n")
    seconds = min(max(int(written[1]), 0), _LATEST) if written else 0
    lines = header.decode("utf-8", "replace").splitlines()
    parents = tuple(line[7:] for line in lines if line.startswith("parent "))
    return Original(name, lines[0][5:], parents, message.decode("utf-8", "replace"), seconds * 1000)


def _told_apart(ordered: list[Original]) -> list[Original]:
    """Git counts in seconds: keep the order of commits within one."""
    result: list[Original] = []
    for original in ordered:
        last = result[-1].moment if result else -1
        result.append(replace(original, moment=max(original.moment, last + 1)))
    return result


# --- trees -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Tree:
    """A tree as we keep it: without what cannot be restored."""

    id: str
    left_out: tuple[tuple[bytes, str], ...] = ()


def copy_trees(store: Store, source: Source, originals: list[Original]) -> dict[str, Tree | str]:
    """Bring the trees of these commits into the store; for each its tree, or why there is none."""
    with _scratch(store) as scratch:
        git = source.git(store).bound(scratch_objects=scratch)
        results = _cleaned(git, originals)
        wanted = sorted({tree.id for tree in results.values() if isinstance(tree, Tree)} - {EMPTY_TREE})
        if not _packed(git, wanted):
            # One of them cannot be copied: each for itself, then.
            good = {name for name in wanted if _packed(git, [name])} | {EMPTY_TREE}
            for name, tree in results.items():
                if isinstance(tree, Tree) and tree.id not in good:
                    results[name] = "not everything in it can be read"
        _put_in_place(scratch / "pack", store.git_dir / "objects" / "pack")
    return results


@contextmanager
def _scratch(store: Store) -> Iterator[Path]:
    scratch = store.git_dir / f"scratch-import-{os.getpid()}"
    remove_tree(scratch)
    (scratch / "pack").mkdir(parents=True)
    try:
        yield scratch
    finally:
        remove_tree(scratch)


def _cleaned(git: Git, originals: list[Original]) -> dict[str, Tree | str]:
    assert git.scratch_objects is not None
    results: dict[str, Tree | str] = {}
    write = LooseObjects(git.scratch_objects, fsync=False).write
    with ObjectReader(git) as reader:

        def read(name: str) -> bytes:
            return reader.read(name, b"tree")

        search = TreeSearch(read, _is_odd)
        for original in originals:
            try:
                odd = search.find(original.tree)
                changes = {each.path: _instead(each) for each in odd}
                tree = patch_tree(original.tree, changes, read, lambda data: write(b"tree", data), _as_it_is)
                results[original.id] = Tree(tree, tuple(_left_out(odd)))
            except (DamagedObject, MalformedObject, UnsafeTree):
                results[original.id] = "its tree cannot be read"
    return results


def _as_it_is(data: bytes) -> dict[bytes, Leaf]:
    return dict(tree_entries(data))


def _is_odd(name: bytes, mode: int, _: str) -> bool:
    """What git would not have written, or what no file comes of."""
    if not name or b"/" in name:
        raise MalformedObject(what="a tree", why=f"it has an entry called {name!r}")
    return mode not in _MODES or name_problem(name) is not None


def _instead(odd: TreeMatch) -> Leaf | None:
    if name_problem(odd.path.rpartition(b"/")[2]) is not None or odd.mode & 0o170000 != 0o100000:
        return None
    return (EXECUTABLE if odd.mode & 0o100 else REGULAR, odd.id)


def _left_out(odd: list[TreeMatch]) -> Iterator[tuple[bytes, str]]:
    for each in odd:
        if _instead(each) is None:
            folder = each.mode in (_GITLINK, DIRECTORY)
            yield each.path + (b"/" if folder else b""), "repository" if each.mode == _GITLINK else "unstorable"


def _packed(git: Git, trees: list[str]) -> bool:
    """Write a pack of everything below these trees into the scratch directory."""
    assert git.scratch_objects is not None
    if not trees:
        return True
    asked = "".join(f"{name}\n" for name in trees).encode()
    folder = git.scratch_objects / "pack"
    name = ""
    try:
        words = ("pack-objects", "-q", "--revs", "--delta-base-offset", str(folder / "pack"))
        name = git.run(*words, stdin=asked).decode().strip()
        if name:  # packing copies what it finds; only indexing hashes each object
            checked, pack = folder / f"checked-{name}", folder / f"pack-{name}.pack"
            git.run("index-pack", "--strict", "-o", str(checked), str(pack))
            os.replace(checked, pack.with_suffix(".idx"))
    except GitFailed:
        for path in folder.glob(f"*{name}*") if name else ():
            path.unlink()
        return False
    return not missing_objects(git, trees)


def _put_in_place(source: Path, target: Path) -> None:
    """The index last: it is what makes a pack visible."""
    for path in sorted(source.glob("pack-*"), key=lambda path: path.suffix == ".idx"):
        os.replace(path, target / path.name)
    sync_directory(target)


_LONGEST_TEXT = 1 << 20
_WORKSPACE_NAME = re.compile(r"[0-9a-f]{12}")
_STAND_IN = "scratch-stand-in-"
_SHADOW_BRANCH = re.compile(r"refs/heads/entire/[0-9a-f]{4,40}(?:-([0-9a-f]{6}))?")
# Nothing may be fetched to complete what we read.
READ_ONLY = ("protocol.allow=never", "core.fsmonitor=false", "core.hooksPath=" + os.devnull)


@dataclass(frozen=True)
class Source:
    """One line of checkpoints of one directory."""

    layout: str
    path: Path
    """What is shown to the person."""
    git_dir: Path
    tips: tuple[str, ...] = ()
    workdir: str = ""
    excludes: tuple[str, ...] = ()
    """Patterns that kept files out of the checkpoints."""
    problem: str = ""
    """Why nothing can be imported from it."""

    def git(self, store: Store) -> Git:
        """Git that reads there. The work tree is ours, because theirs may be gone."""
        return store.git().bound(git_dir=self.git_dir, work_tree=store.base, config=READ_ONLY)


def find_sources(store: Store, path: Path) -> list[Source]:
    """Every source at a path: it may be one, or hold them, as the base of a tool or an archive does."""
    found: list[Source] = []
    for folder in _candidates(path):
        if is_hermes_store(folder):
            found += _hermes_store(store, folder)
        elif is_shadow_repository(folder):
            found.append(_hermes_directory(store, folder))
        elif _is_workspace(folder):
            found.append(_praisonai(store, folder))
    return found or list(_entire(store, path))


def _candidates(path: Path) -> Iterator[Path]:
    yield path
    for folder in _folders(path):
        yield folder
        if folder.name.startswith(ARCHIVE):
            yield from _folders(folder)


def _folders(path: Path) -> list[Path]:
    try:
        return sorted(folder for folder in path.iterdir() if folder.is_dir())
    except OSError:
        return []


# --- Hermes ----------------------------------------------------------------------------------


def _hermes_directory(store: Store, folder: Path) -> Source:
    source = Source("hermes-directory", folder, folder, excludes=_patterns(folder))
    workdir = _text(folder / WORKDIR_MARKER)
    if not _is_place(workdir):
        return replace(source, problem=f"{WORKDIR_MARKER} does not say which directory it is of")
    return _with_tips(store, replace(source, workdir=workdir), "refs/heads/")


def _hermes_store(store: Store, folder: Path) -> Iterator[Source]:
    git_dir = folder if is_repository(folder) else _stand_in(store, folder)
    whole = Source("hermes-store", folder, git_dir, excludes=_patterns(folder))
    try:
        refs = _refs(whole.git(store), "refs/hermes/")
    except GitFailed as problem:
        yield replace(whole, problem=str(problem))
        return
    for ref, tip in refs.items():
        name = ref.removeprefix("refs/hermes/")
        workdir = _json(folder / "projects" / f"{name}.json").get("workdir")
        source = replace(whole, path=folder / ref, tips=(tip,))
        if isinstance(workdir, str) and _is_place(workdir):
            yield replace(source, workdir=workdir)
        else:
            yield replace(source, problem=f"projects/{name}.json does not say which directory it is of")


def _stand_in(store: Store, folder: Path) -> Path:
    """A repository of ours with the packed refs and the objects of a store that lost its `refs/`: git would not
    read that one, and nothing is changed there."""
    made = Path(tempfile.mkdtemp(prefix=_STAND_IN, dir=store.git_dir))
    for inside in ("refs", "objects/info"):
        (made / inside).mkdir(parents=True)
    (made / "HEAD").write_bytes(b"ref: refs/heads/none\n")
    shutil.copyfile(folder / "packed-refs", made / "packed-refs")
    (made / "objects" / "info" / "alternates").write_bytes(os.fsencode(folder / "objects") + b"\n")
    return made


def _remove_stand_ins(sources: Iterable[Source]) -> None:
    for made in {source.git_dir for source in sources if source.git_dir.name.startswith(_STAND_IN)}:
        remove_tree(made)


# --- PraisonAI -------------------------------------------------------------------------------


def _is_workspace(folder: Path) -> bool:
    return bool(_WORKSPACE_NAME.fullmatch(folder.name)) and is_repository(folder / ".git")


def _praisonai(store: Store, folder: Path) -> Source:
    git_dir = folder / ".git"
    source = Source("praisonai", folder, git_dir, excludes=_patterns(git_dir))
    answer = source.git(store).run("config", "--file", str(git_dir / "config"), "core.worktree", ok=(0, 1))
    workdir = os.fsdecode(answer).removesuffix("\n")
    if not _is_place(workdir):
        return replace(source, problem="core.worktree does not say which directory it is of")
    return _with_tips(store, replace(source, workdir=workdir), "refs/heads/")


# --- Entire ----------------------------------------------------------------------------------


def _entire(store: Store, path: Path) -> Iterator[Source]:
    git_dir = common_dir(path)
    if git_dir is None:
        return
    whole = Source("entire", path, git_dir, excludes=_patterns(git_dir))
    worktrees = _worktrees(git_dir)
    for ref, tip in _refs(whole.git(store), "refs/heads/entire/").items():
        branch = _SHADOW_BRANCH.fullmatch(ref)
        if branch is None:
            continue  # other branches of the same tool hold no files
        source = replace(whole, path=git_dir / ref, tips=(tip,))
        workdir = worktrees.get(branch[1] or _worktree_key(""))
        if workdir is None:
            yield replace(source, problem="the worktree it is of does not exist any more")
        else:
            yield replace(source, workdir=workdir)


def common_dir(path: Path) -> Path | None:
    """The repository that a directory is the work tree of, or is itself."""
    git_dir = path if is_repository(path) else path / ".git"
    if git_dir.is_file():
        git_dir = path / _text(git_dir).removeprefix("gitdir: ")
    common = _text(git_dir / "commondir")
    git_dir = Path(os.path.normpath(git_dir / common)) if common else git_dir
    return git_dir if is_repository(git_dir) else None


def _worktrees(git_dir: Path) -> dict[str, str]:
    """The directory of each work tree, by what Entire calls it in names of branches."""
    found = {_worktree_key(""): str(git_dir.parent)} if git_dir.name == ".git" else {}
    for folder in _folders(git_dir / "worktrees"):
        pointer = _text(folder / "gitdir")
        if pointer:
            found[_worktree_key(folder.name)] = os.path.dirname(os.path.join(folder, pointer))
    return found


def _worktree_key(name: str) -> str:
    return hashlib.sha256(name.encode("utf-8", "surrogateescape")).hexdigest()[:6]


# --- reading ---------------------------------------------------------------------------------


def _with_tips(store: Store, source: Source, prefix: str) -> Source:
    git = source.git(store)
    try:
        tips = list(_refs(git, prefix).values())
        head = git.run("rev-parse", "--verify", "-q", "HEAD", ok=(0, 1)).decode().strip()
    except GitFailed as problem:
        return replace(source, problem=str(problem))
    return replace(source, tips=tuple(dict.fromkeys(filter(None, (head, *tips)))))


def _refs(git: Git, prefix: str) -> dict[str, str]:
    rows = git.run("for-each-ref", "--format=%(objectname) %(refname)", prefix).decode().splitlines()
    return {ref: name for name, _, ref in (row.partition(" ") for row in rows)}


def _patterns(git_dir: Path) -> tuple[str, ...]:
    lines = _text(git_dir / "info" / "exclude").splitlines()
    return tuple(line for line in lines if line.strip() and not line.startswith("#"))


def _is_place(workdir: str) -> bool:
    return os.path.isabs(workdir) and "\0" not in workdir


def _text(path: Path) -> str:
    """What a small file there says; nothing if it is not a regular one. It could be a pipe, or a device."""
    try:
        return os.fsdecode(read_bounded(path, _LONGEST_TEXT) or b"").removeprefix("\ufeff").strip()
    except UnreadableFile:
        return ""


def _json(path: Path) -> dict[str, object]:
    try:
        value = json.loads(_text(path))
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}
