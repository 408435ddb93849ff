"""Upkeep needs the store to itself for an instant, beside snapshots that never cease; and refs are packed
under the hands of those who read and create them."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from thorough import depth

from helpers import git
from shadowsnap.deadline import Deadline
from shadowsnap.errors import DeadlineExceeded
from shadowsnap.git.refs import create_ref, newest_ref, read_refs
from shadowsnap.store.locks import alone, if_free, locked


@contextmanager
def sharing_without_pause(lock: Path, holders: int) -> Iterator[list[int]]:
    """Threads that share the lock so that it is always held by some of them."""
    over, counts = threading.Event(), [0] * holders

    def hold(number: int) -> None:
        while not over.is_set():
            with locked(lock, "snapshot", Deadline(20), shared=True):
                counts[number] += 1
                over.wait(0.01 + 0.003 * number)

    threads = [threading.Thread(target=hold, args=(number,)) for number in range(holders)]
    for thread in threads:
        thread.start()
    try:
        yield counts
    finally:
        over.set()
        for thread in threads:
            thread.join()


def test_the_exclusive_lock_is_granted_although_the_lock_is_always_shared(tmp_path: Path) -> None:
    lock = tmp_path / "store.lock"
    with sharing_without_pause(lock, 6) as counts:
        for _ in range(20):
            with alone(lock, "upkeep", Deadline(20)):
                before = sum(counts)
                os.sched_yield()
                assert sum(counts) == before
        seen = sum(counts)
        while sum(counts) == seen:  # and they go on afterwards
            os.sched_yield()


def test_shared_locks_are_granted_while_upkeep_waits_for_a_long_snapshot(tmp_path: Path) -> None:
    lock, waits = tmp_path / "store.lock", []
    with locked(lock, "a long snapshot", Deadline(5), shared=True):
        waiting = threading.Thread(target=_wait_in_vain, args=(lock,))
        waiting.start()
        while waiting.is_alive():
            began = time.monotonic()
            with locked(lock, "a short snapshot", Deadline(5), shared=True):
                waits.append(time.monotonic() - began)
        waiting.join()
    assert len(waits) > 10
    assert max(waits) < 1.0


def _wait_in_vain(lock: Path) -> None:
    with pytest.raises(DeadlineExceeded), alone(lock, "upkeep", Deadline(0.8)):
        pass


def test_a_lock_is_taken_only_if_it_is_free(tmp_path: Path) -> None:
    lock = tmp_path / "upkeep.lock"
    with if_free(lock, "one") as first:
        assert first is not None
        with if_free(lock, "another") as second:
            assert second is None
    with if_free(lock, "one more") as third:
        assert third is not None


def test_a_reader_sees_every_ref_while_refs_are_packed(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q", "--bare", "store")
    store, prefix = tmp_path / "store", "refs/shadowsnap/p"
    tree = git(store, "hash-object", "-t", "tree", "-w", "/dev/null")
    commit = git(store, "commit-tree", tree, "-m", "x")
    over, created = threading.Event(), 0

    def pack() -> None:
        while not over.is_set():
            git(store, "pack-refs", "--all", "--prune")

    packing = threading.Thread(target=pack)
    packing.start()
    try:
        while created < depth(60, 300):
            # Every packing leaves the directory empty, and removes it.
            create_ref(store, f"{prefix}/{created:04d}", commit, fsync=False)
            created += 1
            for _ in range(10):
                assert len(read_refs(store, prefix)) == created
                assert newest_ref(store, prefix) == f"{prefix}/{created - 1:04d}"
    finally:
        over.set()
        packing.join()


def test_a_ref_is_created_although_its_directory_keeps_disappearing(tmp_path: Path) -> None:
    folder, over = tmp_path / "refs" / "shadowsnap" / "p", threading.Event()

    def remove_empty_directories() -> None:
        while not over.wait(0.0001):
            for path in (folder, folder.parent):
                try:
                    os.rmdir(path)
                except OSError:
                    pass  # not there, or not empty

    removing = threading.Thread(target=remove_empty_directories)
    removing.start()
    try:
        for number in range(3000):
            create_ref(tmp_path, f"refs/shadowsnap/p/{number}", "0" * 40, fsync=False)
            (folder / str(number)).unlink()
    finally:
        over.set()
        removing.join()
