"""What is remembered between captures comes back whole, or is forgotten."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shadowsnap import CheckpointManager, Settings
from shadowsnap.git.index import Entry, Index
from shadowsnap.git.objects import EMPTY_BLOB, EMPTY_TREE
from shadowsnap.git.trees import REGULAR
from shadowsnap.store.layout import Store, open_store
from shadowsnap.store.projects import Project, project_of
from shadowsnap.store.stat_cache import Modes, ScanCache, forget_cache, load_cache, save_cache


@pytest.fixture
def store(base: Path) -> Store:
    return open_store(Settings(base=base))


@pytest.fixture
def known(project: Path) -> Project:
    return project_of(project)


@pytest.fixture
def remembered(store: Store, known: Project) -> ScanCache:
    """A cache with something in every field, saved."""
    entry = Entry.of(REGULAR, EMPTY_BLOB, os.stat(known.workdir))
    index = Index(store.index_file(known.id)).write({b"%02d" % n: entry for n in range(20)})
    cache = ScanCache(
        index=index,
        tree="a" * 40,
        modes=Modes(0o640, 0o750, 0o700, {b"x": 0o600, b"\xff": 0o4755}),
        directories={b"": (0o755, 5), b"d": (0o700, 7), b"d/new\nline": (0o755, 0), b"\xff": (0o755, 1)},
        bare={b"d"},
        ignored_directories={b"node_modules"},
        named={b"build/\xff"},
        tracked={b"out/x"},
        tracked_as_of=[1, 2, 3],
        unsettled={b"hot"},
        as_of_ns=1234,
        clock=-17,
        skipped={b"big"},
        rules={b"a/.gitignore": 17},
        found_under=[1, ["*.x", "\udcff"], 5, False],
        newest={"ref": "refs/x", "state": "y"},
    )
    save_cache(store, known, cache)
    return cache


def same(one: ScanCache, other: ScanCache) -> bool:
    """Equal in everything but the object that reads the index."""
    fields = set(vars(one)) - {"index", "saved"}
    return one.index.checksum == other.index.checksum and all(
        getattr(one, field) == getattr(other, field) for field in fields
    )


def is_empty(cache: ScanCache, but_for: frozenset[bytes] = frozenset()) -> bool:
    """Whether nothing is known, but for what tools named: no file tells that, so it is kept if it can be."""
    return len(cache.index) == 0 and same(cache, ScanCache(Index(cache.index.path), named=set(but_for)))


def still_read(remembered: ScanCache, damaged: str) -> frozenset[bytes]:
    return frozenset() if damaged == ".json" else frozenset(remembered.named)


def files(store: Store) -> dict[str, Path]:
    """The three pieces by the end of their names."""
    return {path.suffix: path for path in (store.git_dir / "indexes").iterdir()}


# --- there and back ---------------------------------------------------------------------------------


def test_everything_that_was_remembered_comes_back(store: Store, known: Project, remembered: ScanCache) -> None:
    assert same(load_cache(store, known), remembered)
    assert list(load_cache(store, known).directories) == sorted(remembered.directories)


def test_without_a_last_capture_nothing_is_remembered(store: Store, known: Project) -> None:
    assert is_empty(load_cache(store, known))


def test_projects_do_not_share_what_they_remember(store: Store, tmp_path: Path, remembered: ScanCache) -> None:
    assert is_empty(load_cache(store, project_of(tmp_path)))


def test_an_unchanged_cache_is_not_written_again(store: Store, known: Project, remembered: ScanCache) -> None:
    before = {name: path.stat().st_ino for name, path in files(store).items()}
    save_cache(store, known, load_cache(store, known))
    assert {name: path.stat().st_ino for name, path in files(store).items()} == before
    assert before.keys() == {"", ".json", ".dirs"}


def test_what_is_forgotten_is_gone(store: Store, known: Project, remembered: ScanCache) -> None:
    forget_cache(store, known)
    assert files(store) == {}
    assert is_empty(load_cache(store, known))
    forget_cache(store, known)


# --- damage -----------------------------------------------------------------------------------------

DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda data: b"",
    "cut short": lambda data: data[:-7],
    "cut at a row": lambda data: data[: data.rindex(b"\0", 0, -1) + 1] if b"\0" in data[:-1] else b"{}",
    "zeros": lambda data: bytes(len(data)),
    "zeros in the middle": lambda data: data[:60] + bytes(20) + data[80:],
    "longer": lambda data: data + b"x\0",
    "another": lambda data: b"something else",
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES.keys())
@pytest.mark.parametrize("piece", ["", ".json", ".dirs"])
def test_a_damaged_piece_is_forgotten_with_the_rest(
    store: Store, known: Project, remembered: ScanCache, piece: str, damage: Callable[[bytes], bytes]
) -> None:
    remembered = load_cache(store, known)
    path = files(store)[piece]
    path.write_bytes(damage(path.read_bytes()))
    assert is_empty(load_cache(store, known), still_read(remembered, piece))
    anew = replace(remembered, index=remembered.index.write({}), saved=b"")
    save_cache(store, known, anew)
    assert same(load_cache(store, known), anew)


@pytest.mark.parametrize("piece", ["", ".json", ".dirs"])
def test_a_lost_piece_is_forgotten_with_the_rest(
    store: Store, known: Project, remembered: ScanCache, piece: str
) -> None:
    files(store)[piece].unlink()
    assert is_empty(load_cache(store, known), still_read(remembered, piece))


@given(data=st.data())
def test_no_field_of_the_small_file_can_break_the_reading(
    store: Store, known: Project, remembered: ScanCache, data: st.DataObject
) -> None:
    path = store.git_dir / "indexes" / f"{known.id}.json"
    sound = json.loads(remembered.saved)
    field = data.draw(st.sampled_from(sorted(sound)))
    odd = data.draw(st.sampled_from([None, 1, -1, "x", [], {}, [1], {"a": 1}, [[1]], {"file": "zz"}, True]))
    if data.draw(st.booleans()):
        path.write_text(json.dumps({**sound, field: odd}))
    else:
        path.write_text(json.dumps({name: value for name, value in sound.items() if name != field}))
    cache = load_cache(store, known)
    assert len(cache.index) in (0, len(remembered.index))


def test_pieces_of_two_captures_are_not_taken_for_one(store: Store, known: Project, remembered: ScanCache) -> None:
    """A process that died between the index and the rest."""
    entry = Entry.of(REGULAR, EMPTY_BLOB, os.stat(known.workdir))
    remembered.index.write({b"more": entry})
    assert is_empty(load_cache(store, known), frozenset(remembered.named))


def test_another_version_is_forgotten(store: Store, known: Project, remembered: ScanCache) -> None:
    path = files(store)[".json"]
    path.write_text(json.dumps({**json.loads(path.read_bytes()), "version": 99}))
    assert is_empty(load_cache(store, known), frozenset(remembered.named))


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES.keys())
@pytest.mark.parametrize("piece", ["", ".json", ".dirs"])
@pytest.mark.each_value
def test_a_snapshot_over_a_damaged_cache_is_as_good_as_any(
    base: Path, project: Path, piece: str, damage: Callable[[bytes], bytes]
) -> None:
    manager = CheckpointManager(base=base, fsync=False)
    (project / "hollow").mkdir(mode=0o700)
    first = manager.ensure_checkpoint(project).checkpoint
    path = base / "store" / "indexes" / f"{project_of(project).id}{piece}"
    path.write_bytes(damage(path.read_bytes()))
    manager.new_turn()
    again = manager.ensure_checkpoint(project)
    assert again.status == "unchanged", again.error
    assert first is not None and again.checkpoint is not None and again.checkpoint.id == first.id
    assert len(load_cache(open_store(Settings(base=base)), project_of(project)).index) > 0  # it is mended
    (project / "README.md").write_text("changed")
    manager.new_turn()
    assert manager.ensure_checkpoint(project).status == "taken"
    assert [found.files_changed for found in manager.list_checkpoints(project)] == [1, None]


# --- permission bits --------------------------------------------------------------------------------

bits = st.integers(1, 0o7777)


names = st.binary(min_size=1, max_size=9).filter(lambda name: 0 not in name)


@given(st.builds(Modes, bits, bits, bits, st.dictionaries(names, st.integers(0, 0o7777))))
def test_permission_bits_come_back_from_json(modes: Modes) -> None:
    assert Modes.from_json(json.loads(json.dumps(modes.to_json()))) == modes


def test_bits_that_are_not_told_are_the_usual_ones() -> None:
    assert Modes.from_json({}) == Modes(0o644, 0o755, 0o755)
    assert Modes().usual(REGULAR) == 0o644 and Modes().usual(0o100755) == 0o755


def test_an_empty_cache_stands_for_the_empty_tree(tmp_path: Path) -> None:
    assert ScanCache(Index(tmp_path / "none")).tree == EMPTY_TREE
