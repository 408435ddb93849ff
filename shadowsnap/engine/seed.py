"""The first capture of a git checkout: start from the person's index and objects.

Their git has hashed and compressed every tracked file already, and knows by stat data which
of them are unchanged. So their object files are shared with the store (hard links; small
ones are copied) and their index becomes the first stat cache. Nothing depends on their
repository afterwards, and nothing in it is written. While we look at each file once, git does
the rest side by side: lists what is not tracked, makes the tree, tells the size of each blob.

A blob of theirs is only taken if it has the size of the file: line ending conversion changes the
size. Filters, encodings and `$Id$` may not, so where an attribute asks for one or a filter is set up,
and wherever anything else is out of the ordinary, the files are read as in any other directory.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from shadowsnap.config import config_file
from shadowsnap.engine.borrow import borrowed_index
from shadowsnap.engine.explore import UNTRACKED
from shadowsnap.engine.firstlook import FirstLook, look_at_files
from shadowsnap.engine.person import PersonRepository
from shadowsnap.engine.rules import secrets_among
from shadowsnap.engine.share import names_in, share_loose, share_packs
from shadowsnap.engine.workspace import Workspace
from shadowsnap.engine.worktree import above
from shadowsnap.errors import DamagedObject, GitFailed
from shadowsnap.git.bulk import blob_sizes
from shadowsnap.git.index import Index
from shadowsnap.git.reading import ObjectReader
from shadowsnap.git.runner import Git, side_by_side
from shadowsnap.git.theirindex import TheirIndex, Unfamiliar, read_their_index
from shadowsnap.git.trees import patch_tree
from shadowsnap.records import NamedTuple
from shadowsnap.store.scancache import NEVER_ASKED, ScanCache

_ODD_SETTINGS = (b"partialclone", b"promisor", b"objectformat", b"attributesfile", b"refstorage", b"include")
_CONVERTING = (b"filter", b"working-tree-encoding", b"ident")


class Seeded(NamedTuple):
    """What a first capture starts from."""

    cache: ScanCache
    files: FirstLook
    untracked: bytes | None
    """As git lists it; None if it has to be asked again."""


def seeded_cache(space: Workspace, began_ns: int) -> Seeded | None:
    """A scan cache made from the person's repository; None to take the ordinary way."""
    repository = space.repository
    if repository is None or repository.top != space.project.workdir or not _is_plain(repository):
        return None
    shared: list[Path] = []
    copy = space.store.index_file(f"{space.project.id}.seed")
    seeded = None
    try:
        theirs, as_of_ns = _their_index(space, repository)
        if theirs.paths and not _converts(space, repository, theirs):
            copy.write_bytes(theirs.data)
            seeded = _grow(space, repository, theirs, as_of_ns, began_ns, copy, shared)
    except (OSError, GitFailed, DamagedObject, Unfamiliar):
        pass  # whatever it is, the ordinary way works
    finally:
        copy.unlink(missing_ok=True)
        if seeded is None:
            for path in shared:
                path.unlink(missing_ok=True)
    return seeded


def _grow(
    space: Workspace,
    repository: PersonRepository,
    theirs: TheirIndex,
    as_of_ns: int,
    began_ns: int,
    copy: Path,
    shared: list[Path],
) -> Seeded:
    from concurrent.futures import ThreadPoolExecutor

    git = space.git.bound(index_file=copy)
    making = git.start("write-tree", "--missing-ok")
    with side_by_side(making), ThreadPoolExecutor(1) as aside:
        asked = aside.submit(_ask, space, git, repository, theirs, shared)
        files = look_at_files(space, theirs, as_of_ns, began_ns)
        unwanted = _unwanted(space, theirs)
        folders = above(theirs.paths)
        sizes, untracked = asked.result()
        dropped = unwanted | _unlike(space, repository, theirs, sizes, unwanted, shared)
        whole = making.output().decode().strip()
    for path in dropped:
        files.kinds.pop(path, None)
    dropped.update(theirs.others)
    with ObjectReader(space.git) as reader:
        tree = patch_tree(
            whole,
            dict.fromkeys(dropped),
            lambda name: reader.read(name, b"tree"),
            lambda data: space.objects.write(b"tree", data),
        )
    index = Index(space.store.index_file(space.project.id))
    index = index.plant(lambda size: theirs.blocks(dropped, size), as_of_ns)
    cache = ScanCache(
        index,
        tree,
        directories=dict.fromkeys(sorted({b"", *folders}), (0, 0)),
        # Theirs all the same: to be read even if an exclude matches.
        tracked=dropped - files.gone,
        tracked_as_of=NEVER_ASKED,
        patterns=space.patterns,
    )
    # To git, a submodule is not untracked; to us, its files are.
    return Seeded(cache, files, None if theirs.others else untracked)


# --- whether it can be done ------------------------------------------------------------------


def _is_plain(repository: PersonRepository) -> bool:
    common = repository.common_dir
    if (common / "objects/info/alternates").exists() or (common / "shallow").exists():
        return False
    if any(name.endswith(".promisor") for name in names_in(common / "objects/pack")):
        return False
    places = [common / "config", repository.git_dir / "config.worktree", Path("/etc/gitconfig")]
    texts = [_lower(place) for place in (*places, *_personal("config"))]
    return not any(_has_filters(text) or any(word in text for word in _ODD_SETTINGS) for text in texts)


def _has_filters(text: bytes) -> bool:
    """Whether a filter is set up: one that no attribute names any more may have made the files. (That of
    git-lfs, which many have, replaces a file by something of quite another size.)"""
    names = (part.partition(b"]")[0].strip(b' \t"') for part in text.split(b"[filter")[1:])
    return any(name != b"lfs" for name in names)


def _converts(space: Workspace, repository: PersonRepository, theirs: TheirIndex) -> bool:
    """Whether attributes may make the files differ from the blobs in a way that keeps the size."""
    folders = above(theirs.paths) | {b""}
    found = [folder + b"/.gitattributes" if folder else b".gitattributes" for folder in folders]
    there = {path for path, seen in zip(found, space.worktree.looks(found), strict=True) if seen is not None}
    if any(path.endswith(b".gitattributes") and path not in there for path in theirs.paths):
        return True  # what it said when the files were made is not said here any more
    places = [space.project.workdir / os.fsdecode(path) for path in there]
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
    yield Path(config_file()).parent.parent / "git" / name


def _lower(path: Path) -> bytes:
    try:
        return path.read_bytes().lower()
    except OSError:
        return b""


def _unwanted(space: Workspace, theirs: TheirIndex) -> set[bytes]:
    """What is left out for its name or size."""
    limit = space.settings.max_file_bytes
    unwanted = set()
    if limit is not None and max(theirs.sizes) > limit:
        unwanted = {path for path, size in zip(theirs.paths, theirs.sizes, strict=True) if size > limit}
    if not space.settings.include_secrets:
        unwanted.update(secrets_among(theirs.paths))
    return unwanted


# --- index and objects -----------------------------------------------------------------------


def _their_index(space: Workspace, repository: PersonRepository) -> tuple[TheirIndex, int]:
    """Their entries, and the time up to which their stat data can be trusted."""
    source = repository.git_dir / "index"
    seen = os.stat(source)
    try:
        return read_their_index(source.read_bytes()), seen.st_mtime_ns
    except Unfamiliar as problem:
        if problem.beyond_rewriting:
            raise
        with borrowed_index(space.store, repository, space.git) as theirs:
            theirs.run("update-index", "--index-version", "2", "--no-split-index", "--force-write-index")
            data = (theirs.git_dir / "index").read_bytes()
        return read_their_index(data), seen.st_mtime_ns


def _ask(
    space: Workspace, git: Git, repository: PersonRepository, theirs: TheirIndex, shared: list[Path]
) -> tuple[list[bytes], bytes]:
    """Make their packs ours, and return what git then says of the size of each blob, and what is
    untracked. One after the other: two at a time would keep the look at the files from a processor."""
    share_packs(space, repository, shared)
    return blob_sizes(space.git, theirs.ids), git.run(*UNTRACKED)


def _unlike(
    space: Workspace,
    repository: PersonRepository,
    theirs: TheirIndex,
    answers: list[bytes],
    unwanted: set[bytes],
    shared: list[Path],
) -> set[bytes]:
    """Paths whose blob has not the size of the file; shares the blobs that are loose."""
    sizes = [b"%d" % size for size in theirs.sizes]
    if answers == sizes:
        return set()
    rows = zip(theirs.paths, theirs.ids, sizes, answers, strict=True)
    odd = [row for row in rows if row[2] != row[3] and row[0] not in unwanted]
    absent = [name for _, name, _, answer in odd if not answer.isdigit()]
    if absent:
        share_loose(space, repository, absent, shared)
        found = dict(zip(absent, blob_sizes(space.git, absent), strict=True))
        if not all(answer.isdigit() for answer in found.values()):
            raise Unfamiliar("objects are missing")
        odd = [(path, name, size, found.get(name, answer)) for path, name, size, answer in odd]
    return {path for path, _, size, answer in odd if size != answer}
