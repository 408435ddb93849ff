"""A ref that a power cut emptied or spoiled heals by itself at the next call."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from restoring import checkpoint

from helpers import git, manifest
from shadowsnap import Checkpoint, CheckpointManager

DAMAGE = {
    "empty": b"",
    "zeroed": bytes(41),
    "half zeroed": b"0123456789abcdef" + bytes(25),
    "cut short": b"0123456789",
    "garbage": b"\xfe\xed garbage \x00\x01\n" * 3,
    "an object that is not there": b"1234567890" * 4 + b"\n",
    "text": b"ref: refs/heads/nowhere\n",
}
damaged = pytest.mark.parametrize("damage", DAMAGE.values(), ids=list(DAMAGE))


class History:
    """Three checkpoints, and what the files were at each; oldest first."""

    def __init__(self, base: Path, project: Path) -> None:
        self.base, self.project = base, project
        manager = CheckpointManager(base=base, background_upkeep=False, fsync=False)
        self.taken: list[Checkpoint] = []
        self.states = []
        for number in range(3):
            (project / "README.md").write_text(f"version {number}\n")
            (project / f"file-{number}").write_text("made\n")
            self.taken.append(checkpoint(manager, project))
            self.states.append(manifest(project))

    def file(self, which: int) -> Path:
        return self.base / "store" / self.taken[which].ref


@pytest.fixture
def packed(base: Path, project: Path) -> History:
    """Every ref is in packed-refs, too."""
    history = History(base, project)
    git(base / "store", "pack-refs", "--all")
    return history


@pytest.fixture
def loose(base: Path, project: Path) -> History:
    """The name of a ref ends in the first twelve digits of its commit: that is all there is to go by."""
    history = History(base, project)
    assert not (base / "store" / "packed-refs").exists()
    for each in history.taken:
        assert each.ref.endswith(f"-{each.id[:12]}")
    return history


def spoil(history: History, which: int, damage: bytes) -> None:
    file = history.file(which)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(damage)


def listed(manager: CheckpointManager, history: History) -> None:
    found = manager.list_checkpoints(history.project)
    assert [each.id for each in found] == [each.id for each in reversed(history.taken)]


def got(manager: CheckpointManager, history: History) -> None:
    for each in history.taken:
        assert manager.get(history.project, each.id).id == each.id
        assert manager.get(history.project, each.short_id).tree == each.tree


def restored(manager: CheckpointManager, history: History) -> None:
    for each, state in zip(history.taken, history.states, strict=True):
        manager.restore(history.project, each.id)
        assert manifest(history.project) == state


def compared(manager: CheckpointManager, history: History) -> None:
    for number, each in enumerate(history.taken[:2]):
        changes = manager.diff(history.project, each.id, history.taken[2].id).changes
        assert {"README.md", *(f"file-{later}" for later in range(number + 1, 3))} == {it.path for it in changes}


def found_as_the_last(manager: CheckpointManager, history: History) -> None:
    assert manager.get(history.project, "last").id == history.taken[-1].id


def unchanged(manager: CheckpointManager, history: History) -> None:
    outcome = manager.ensure_checkpoint(history.project)
    assert (outcome.status, outcome.checkpoint and outcome.checkpoint.id) == ("unchanged", history.taken[-1].id)


CALLS = [listed, got, restored, compared, found_as_the_last, unchanged]


@damaged
@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("which", [0, 2], ids=["oldest", "newest"])
@pytest.mark.each_value
def test_a_spoiled_ref_has_its_value_in_packed_refs(
    packed: History, call: Callable[[CheckpointManager, History], None], which: int, damage: bytes
) -> None:
    spoil(packed, which, damage)
    call(CheckpointManager(base=packed.base, background_upkeep=False, fsync=False), packed)


@damaged
@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("which", [0, 2], ids=["oldest", "newest"])
@pytest.mark.each_value
def test_a_spoiled_ref_has_its_value_in_its_name(
    loose: History, call: Callable[[CheckpointManager, History], None], which: int, damage: bytes
) -> None:
    spoil(loose, which, damage)
    call(CheckpointManager(base=loose.base, background_upkeep=False, fsync=False), loose)


@damaged
@pytest.mark.parametrize("call", [listed, got, restored])
@pytest.mark.each_value
def test_all_refs_may_be_spoiled_at_once(
    loose: History, call: Callable[[CheckpointManager, History], None], damage: bytes
) -> None:
    for which in range(3):
        spoil(loose, which, damage)
    call(CheckpointManager(base=loose.base, background_upkeep=False, fsync=False), loose)


@damaged
def test_after_a_call_git_finds_the_refs_in_order(loose: History, damage: bytes) -> None:
    spoil(loose, 0, damage)
    listed(CheckpointManager(base=loose.base, background_upkeep=False, fsync=False), loose)
    rows = git(loose.base / "store", "for-each-ref", "--format=%(objectname)", "refs/shadowsnap/").splitlines()
    assert sorted(rows) == sorted(each.id for each in loose.taken)


@damaged
def test_a_new_checkpoint_does_not_bury_a_spoiled_one(packed: History, damage: bytes) -> None:
    spoil(packed, 2, damage)
    manager = CheckpointManager(base=packed.base, background_upkeep=False, fsync=False)
    (packed.project / "README.md").write_text("version 3\n")
    new = checkpoint(manager, packed.project)
    found = [each.id for each in manager.list_checkpoints(packed.project)]
    assert found == [new.id, *(each.id for each in reversed(packed.taken))]


def test_a_deleted_checkpoint_does_not_come_back(loose: History) -> None:
    """Its commit is still in the store for a while; without a ref it is no checkpoint."""
    manager = CheckpointManager(base=loose.base, background_upkeep=False, fsync=False)
    manager.delete(loose.project, loose.taken[0].id)
    spoil(loose, 1, b"")
    assert [each.id for each in manager.list_checkpoints(loose.project)] == [
        loose.taken[2].id, loose.taken[1].id,
    ]  # fmt: skip
