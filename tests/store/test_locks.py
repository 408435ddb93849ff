"""Locks hold between threads and processes, and end with whoever held them."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from shadowsnap.deadline import NO_DEADLINE, Deadline
from shadowsnap.errors import LockTimeout, StoreUnusable
from shadowsnap.store.locks import if_free, locked, try_lock, unlock

HOLD = """
import sys
from pathlib import Path
from shadowsnap.deadline import NO_DEADLINE
from shadowsnap.store.locks import locked

path, shared = sys.argv[1:]
with locked(Path(path), "a long errand", NO_DEADLINE, shared=shared == "shared"):
    print("held", flush=True)
    sys.stdin.readline()
"""


@contextmanager
def another_process_holding(path: Path, how: str = "alone") -> Iterator[subprocess.Popen[str]]:
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(path), how], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with holder:
        assert holder.stdout is not None and holder.stdout.readline() == "held\n"
        yield holder
        holder.kill()


def can_be_had(path: Path, *, shared: bool = False) -> bool:
    try:
        with locked(path, "asking", Deadline(0.02), shared=shared):
            return True
    except LockTimeout:
        return False


def in_another_thread(function: Callable[[], object]) -> object:
    answers: list[object] = []
    thread = threading.Thread(target=lambda: answers.append(function()))
    thread.start()
    thread.join()
    return answers[0]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "locks" / "0123456789abcdef.lock"


# --- who keeps whom out -----------------------------------------------------------------------------


def test_one_process_keeps_another_out(path: Path) -> None:
    with another_process_holding(path) as holder:
        assert not can_be_had(path) and not can_be_had(path, shared=True)
        holder.communicate("enough\n")
        assert can_be_had(path)


def test_one_thread_keeps_another_out(path: Path) -> None:
    with locked(path, "here", NO_DEADLINE):
        assert in_another_thread(lambda: can_be_had(path)) is False
        assert in_another_thread(lambda: can_be_had(path, shared=True)) is False
    assert in_another_thread(lambda: can_be_had(path)) is True


def test_those_who_share_keep_only_those_out_who_do_not(path: Path) -> None:
    with another_process_holding(path, "shared"), another_process_holding(path, "shared"):
        assert can_be_had(path, shared=True)
        assert in_another_thread(lambda: can_be_had(path, shared=True)) is True
        assert not can_be_had(path)
    assert can_be_had(path)


def test_two_locks_have_nothing_to_do_with_each_other(path: Path) -> None:
    with another_process_holding(path):
        assert can_be_had(path.with_name("other.lock"))


def test_everyone_gets_a_turn_and_only_one_at_a_time(path: Path) -> None:
    inside, turns, most = 0, 0, 0

    def take_turns() -> None:
        nonlocal inside, turns, most
        for _ in range(20):
            with locked(path, "turn", NO_DEADLINE):
                inside += 1
                most = max(most, inside)
                turns += 1
                os.sched_yield()
                inside -= 1

    threads = [threading.Thread(target=take_turns) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (turns, most) == (160, 1)


# --- the end of it ----------------------------------------------------------------------------------


def test_a_killed_holder_holds_nothing(path: Path) -> None:
    with another_process_holding(path) as holder:
        holder.send_signal(signal.SIGKILL)
        holder.wait()
        assert can_be_had(path)


def test_an_error_inside_ends_the_lock(path: Path) -> None:
    with pytest.raises(KeyError), locked(path, "failing", NO_DEADLINE):
        raise KeyError
    assert can_be_had(path)


def test_a_leftover_lock_file_is_no_lock(path: Path) -> None:
    path.parent.mkdir(parents=True)
    path.write_text("process 1 (snapshot, since long ago)")
    assert can_be_had(path)


def test_a_child_that_was_forked_meanwhile_does_not_keep_the_lock(path: Path) -> None:
    """A host that forks workers in one thread while another takes a snapshot."""
    readable, writable = os.pipe()
    with locked(path, "forking", NO_DEADLINE), warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
        if child == 0:
            os.close(writable)
            os.read(readable, 1)  # lives until we are done
            os._exit(0)
    os.close(readable)
    try:
        assert can_be_had(path)
    finally:
        os.close(writable)
        os.waitpid(child, 0)


def test_no_file_stays_open(path: Path) -> None:
    assert can_be_had(path) and can_be_had(path, shared=True)
    with locked(path, "here", NO_DEADLINE):
        before = len(os.listdir("/proc/self/fd"))
        assert not can_be_had(path) and not can_be_had(path, shared=True)
        assert len(os.listdir("/proc/self/fd")) == before


# --- waiting ----------------------------------------------------------------------------------------


def test_giving_up_names_the_holder_and_what_it_does(path: Path) -> None:
    with another_process_holding(path) as holder:
        with pytest.raises(LockTimeout) as caught, locked(path, "asking", Deadline(0.05)):
            pytest.fail("it is held")
        message = str(caught.value)
    assert re.fullmatch(
        rf"waited 0\.\d s for the 0123456789abcdef lock, which is held by process {holder.pid} "
        r"\(a long errand, since \d{4}-\d\d-\d\d \d\d:\d\d:\d\d\)",
        message,
    )


def test_a_long_name_of_the_holder_does_not_stay_behind_a_short_one(path: Path) -> None:
    with locked(path, "x" * 200, NO_DEADLINE):
        pass
    with locked(path, "\udcff short", NO_DEADLINE):
        assert path.read_text("utf-8").startswith(f"process {os.getpid()} (? short, since ")
        assert "xxx" not in path.read_text("utf-8")


def test_who_waits_gets_the_lock_when_it_is_free(path: Path) -> None:
    with another_process_holding(path) as holder:
        waiting = threading.Thread(target=lambda: holder.communicate("enough\n"))
        waiting.start()
        with locked(path, "waiting", Deadline(60)):
            waiting.join()


def test_a_lock_that_is_free_is_had_although_the_time_is_over(path: Path) -> None:
    with locked(path, "late", Deadline(1e-9)):
        assert path.exists()


def test_a_lock_is_had_only_if_it_is_free(path: Path) -> None:
    with if_free(path, "upkeep") as first:
        assert first is not None
        with if_free(path, "upkeep") as second:
            assert second is None
        assert not can_be_had(path)
    assert can_be_had(path)


# --- the system's part ------------------------------------------------------------------------------


def test_a_lock_belongs_to_one_opening_of_the_file(path: Path) -> None:
    path.parent.mkdir(parents=True)
    one, other = (os.open(path, os.O_RDWR | os.O_CREAT) for _ in range(2))
    try:
        assert try_lock(one, shared=False)
        assert not try_lock(other, shared=False) and not try_lock(other, shared=True)
        unlock(one)
        assert try_lock(other, shared=True) and try_lock(one, shared=True)
    finally:
        os.close(one)
        os.close(other)


@pytest.mark.skipif(sys.platform == "win32", reason="permission bits")
def test_a_store_that_nobody_may_write_in_is_named(tmp_path: Path, as_user: Callable[..., object]) -> None:
    locks = tmp_path / "base" / "store" / "locks"
    locks.mkdir(parents=True)
    locks.chmod(0o500)

    def lock() -> None:
        with (
            pytest.raises(StoreUnusable, match=f"the store at {re.escape(str(tmp_path / 'base'))} cannot be used"),
            locked(locks / "store.lock", "an errand", NO_DEADLINE),
        ):
            pass

    as_user(lock)
