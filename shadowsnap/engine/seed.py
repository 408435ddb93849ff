"""The first capture of a git checkout: start from the person's index and objects.

Their git has hashed and compressed every tracked file already, and knows by stat data which
of them are unchanged. So their object files are shared with the store (hard links; small
ones are copied) and their index becomes the first stat cache. Nothing depends on their
repository afterwards, and nothing in it is written.

A blob of theirs is only taken if it has the size of the file: line ending conversion, `$Id$`
and encodings change the size. Filters may not, so where one is configured, and wherever
anything else is out of the ordinary, the files are read as in any other directory.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from shadowsnap.engine.borrow import borrowed_index
from shadowsnap.engine.person import PersonRepository
from shadowsnap.engine.rules import is_secret
from shadowsnap.engine.workspace import Workspace
from shadowsnap.engine.worktree import above
from shadowsnap.errors import DamagedObject, GitFailed
from shadowsnap.git.files import sync_directory
from shadowsnap.git.index import Index
from shadowsnap.git.objects import ObjectReader
from shadowsnap.git.runner import side_by_side
from shadowsnap.git.theirindex import TheirEntry, TheirIndex, Unfamiliar, read_their_index
from shadowsnap.git.trees import patch_tree
from shadowsnap.store.scancache import NEVER_ASKED, ScanCache

_WORTH_LINKING = 8 << 20
_ODD_SETTINGS = (b"partialclone", b"promisor", b"objectformat", b"attributesfile", b"refstorage")
_CONVERTING = (b"filter", b"working-tree-encoding")


def seeded_cache(space: Workspace) -> ScanCache | None:
    """A scan cache made from the person's repository; None to take the ordinary way."""
    repository = space.repository
    if repository is None or repository.top != space.project.workdir or not _is_plain(repository):
        return None
    shared: list[Path] = []
    copy = space.store.index_file(f"{space.project.id}.seed")
    cache = None
    try:
        theirs, as_of_ns = _their_index(space, repository, copy)
        if theirs.entries and not _converts(space, repository, theirs):
            cache = _grow(space, repository, theirs, as_of_ns, copy, shared)
    except (OSError, GitFailed, DamagedObject, Unfamiliar):
        pass  # whatever it is, the ordinary way works
    finally:
        copy.unlink(missing_ok=True)
        if cache is None:
            for path in shared:
                path.unlink(missing_ok=True)
    return cache


def _grow(
    space: Workspace,
    repository: PersonRepository,
    theirs: TheirIndex,
    as_of_ns: int,
    copy: Path,
    shared: list[Path],
) -> ScanCache:
    wanted = _wanted(space, theirs.entries)
    _share_packs(space, repository, shared)
    making = space.git.bound(index_file=copy).start("write-tree", "--missing-ok")
    with side_by_side(making):
        sizes = _sizes(space, {entry.id for entry in wanted})
        absent = {entry.id for entry in wanted} - sizes.keys()
        if _share_loose(space, repository, absent, shared):
            sizes |= _sizes(space, absent)
        if absent - sizes.keys():
            raise Unfamiliar("objects are missing")
        taken = [entry for entry in wanted if sizes.get(entry.id) == entry.size]
        whole = making.output().decode().strip()
    kept = {entry.path for entry in taken}
    dropped = [entry.path for entry in theirs.entries if entry.path not in kept] + theirs.others
    with ObjectReader(space.git) as reader:
        tree = patch_tree(
            whole,
            dict.fromkeys(dropped),
            lambda name: reader.read(name, b"tree"),
            lambda data: space.objects.write(b"tree", data),
        )
    index = Index(space.store.index_file(space.project.id)).plant([entry.raw for entry in taken], as_of_ns)
    return ScanCache(
        index,
        tree,
        directories=dict.fromkeys(sorted({b"", *above(kept)}), (0, 0)),
        # Theirs all the same: to be read even if an exclude matches.
        tracked=set(dropped),
        tracked_as_of=NEVER_ASKED,
        patterns=space.patterns,
        seeded={entry.path: (entry.mode, entry.changed_ns) for entry in taken},
    )


# --- whether it can be done ------------------------------------------------------------------


def _is_plain(repository: PersonRepository) -> bool:
    common = repository.common_dir
    if (common / "objects/info/alternates").exists() or (common / "shallow").exists():
        return False
    if any(name.endswith(".promisor") for name in _listed(common / "objects/pack")):
        return False
    places = [common / "config", repository.git_dir / "config.worktree", *_personal("config")]
    return not any(word in _lower(place) for place in places for word in _ODD_SETTINGS)


def _converts(space: Workspace, repository: PersonRepository, theirs: TheirIndex) -> bool:
    """Whether attributes may make the files differ from the blobs in a way that keeps the size."""
    tracked = [entry.path for entry in theirs.entries if entry.path.rpartition(b"/")[2] == b".gitattributes"]
    places = [space.project.workdir / os.fsdecode(path) for path in tracked]
    places += [repository.common_dir / "info/attributes", Path("/etc/gitattributes"), *_personal("attributes")]
    return any(word in _lower(place) for place in places for word in _CONVERTING)


def _personal(name: str) -> Iterator[Path]:
    """Where git looks for a person's own settings of this name."""
    try:
        home = Path.home()
    except RuntimeError:
        return
    yield home / f".git{name}"
    yield home / ".config" / "git" / name


def _lower(path: Path) -> bytes:
    try:
        return path.read_bytes().lower()
    except OSError:
        return b""


def _wanted(space: Workspace, entries: list[TheirEntry]) -> list[TheirEntry]:
    """Without what is left out for its name or size."""
    limit = space.settings.max_file_bytes
    if limit is not None:
        entries = [entry for entry in entries if entry.size <= limit]
    if not space.settings.include_secrets:
        entries = [entry for entry in entries if not is_secret(entry.path)]
    return entries


# --- index and objects -----------------------------------------------------------------------


def _their_index(space: Workspace, repository: PersonRepository, copy: Path) -> tuple[TheirIndex, int]:
    """Their entries, and the time up to which their stat data can be trusted. A copy of the file
    is left for git to make a tree from."""
    source = repository.git_dir / "index"
    seen = os.stat(source)
    data = source.read_bytes()
    copy.write_bytes(data)
    try:
        return read_their_index(data), seen.st_mtime_ns
    except Unfamiliar as problem:
        if problem.beyond_rewriting:
            raise
        with borrowed_index(space.store, repository, space.git) as theirs:
            theirs.run("update-index", "--index-version", "2", "--no-split-index", "--force-write-index")
            data = (theirs.git_dir / "index").read_bytes()
        copy.write_bytes(data)
        return read_their_index(data), seen.st_mtime_ns


def _share_packs(space: Workspace, repository: PersonRepository, shared: list[Path]) -> None:
    theirs, ours = repository.common_dir / "objects/pack", space.objects.directory / "pack"
    for name in _listed(theirs):
        pack = name.removesuffix(".idx") + ".pack"
        if name.endswith(".idx") and (theirs / pack).exists() and not (ours / name).exists():
            for each in (pack, name):  # the data before the index that announces it
                small = (theirs / each).stat().st_size < _WORTH_LINKING
                _share(theirs / each, ours / each, shared, by_copy=small)
    if shared and space.store.fsync:
        sync_directory(ours)


def _share_loose(space: Workspace, repository: PersonRepository, ids: set[bytes], shared: list[Path]) -> int:
    before = len(shared)
    for name in (object_id.hex() for object_id in ids):
        place = Path(name[:2], name[2:])
        source, target = repository.common_dir / "objects" / place, space.objects.directory / place
        if source.exists() and not target.exists():
            target.parent.mkdir(exist_ok=True)
            _share(source, target, shared)
    return len(shared) - before


def _share(source: Path, target: Path, shared: list[Path], *, by_copy: bool = False) -> None:
    """Make a file of theirs ours too: by a hard link, or where that is not wanted or not
    possible, by a copy."""
    temporary = target.with_name(f"tmp_seed_{os.getpid()}_{target.name}")
    try:
        try:
            if by_copy:
                _copy(source, temporary)
            else:
                os.link(source, temporary)
        except OSError:
            _copy(source, temporary)
        os.replace(temporary, target)
        shared.append(target)
    finally:
        temporary.unlink(missing_ok=True)


def _copy(source: Path, target: Path) -> None:
    """Copy a file; file systems that can share the blocks do so."""
    import shutil

    shutil.copyfile(source, target)
    os.chmod(target, 0o444)


def _sizes(space: Workspace, ids: set[bytes]) -> dict[bytes, int]:
    """The size of each of these blobs that the store has now."""
    asked = "".join(f"{name.hex()}\n" for name in ids).encode()
    if not asked:
        return {}
    answer = space.git.run("cat-file", "--batch-check=%(objectsize)", "--buffer", stdin=asked).splitlines()
    return {name: int(line) for name, line in zip(ids, answer, strict=True) if line.isdigit()}


def _listed(folder: Path) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []
