"""Nothing in the store depends on files elsewhere, also where an earlier version had linked them."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from helpers import git, manifest
from shadowsnap import CheckpointManager


@pytest.fixture
def manager(base: Path) -> CheckpointManager:
    return CheckpointManager(base=base, background_upkeep=False, fsync=False)


def link_to_elsewhere(base: Path, elsewhere: Path, suffixes: tuple[str, ...] = (".pack", ".idx")) -> list[Path]:
    """As earlier versions did: the object files of the store are those of another repository."""
    (base / "store" / "own-objects").unlink()
    objects = base / "store" / "objects"
    linked = [path for path in objects.rglob("*") if path.is_file() and path.suffix in suffixes]
    elsewhere.mkdir()
    for path in linked:
        os.link(path, elsewhere / path.name)
    return [elsewhere / path.name for path in linked]


def spoil(path: Path) -> None:
    path.chmod(0o600)
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0xFF
    with open(path, "r+b") as file:  # the same file, so that every other name of it is spoiled too
        file.write(data)


@pytest.mark.parametrize("loose", [False, True])
def test_what_is_written_elsewhere_does_not_change_the_store(
    manager: CheckpointManager, base: Path, project: Path, tmp_path: Path, loose: bool
) -> None:
    first = manager.snapshot(project).checkpoint
    assert first is not None
    before = manifest(project)
    if loose:
        store = base / "store"
        for pack in list((store / "objects" / "pack").glob("*.pack")):
            data = pack.read_bytes()
            for path in pack.parent.glob(f"{pack.stem}.*"):
                path.unlink()
            git(store, "unpack-objects", "-q", stdin=data)
        git(store, "prune-packed")
    elsewhere = link_to_elsewhere(base, tmp_path / "elsewhere", ("",) if loose else (".pack", ".idx"))
    assert elsewhere
    another = CheckpointManager(base=base, background_upkeep=False, fsync=False)
    assert another.list_checkpoints(project)
    for path in elsewhere:
        assert path.stat().st_nlink == 1
        spoil(path)
    (project / "README.md").write_text("spoiled\n")
    shutil.rmtree(project / "src")
    another.restore(project, first.id)
    assert manifest(project) == before
    assert another.doctor().healthy


def test_doctor_names_linked_objects_and_replaces_them(
    manager: CheckpointManager, base: Path, project: Path, tmp_path: Path
) -> None:
    manager.snapshot(project)
    elsewhere = link_to_elsewhere(base, tmp_path / "elsewhere")
    (base / "store" / "own-objects").touch()
    assert [finding.code for finding in manager.doctor().findings] == ["object-shared"]
    assert [finding.code for finding in manager.doctor(repair=True).repaired] == ["object-shared"]
    assert manager.doctor().findings == ()
    assert all(path.stat().st_nlink == 1 for path in elsewhere)


def test_an_index_that_names_other_objects_than_its_pack_holds_is_found(
    manager: CheckpointManager, base: Path, project: Path
) -> None:
    """Both are sound by themselves: only reading the objects tells."""
    import hashlib

    first = manager.snapshot(project).checkpoint
    assert first is not None
    before = manifest(project)
    (index,) = (base / "store" / "objects" / "pack").glob("*.idx")
    data = bytearray(index.read_bytes())
    count = int.from_bytes(data[8 + 255 * 4 : 8 + 256 * 4], "big")
    offsets = 8 + 256 * 4 + 24 * count
    rows = [bytes(data[offsets + 4 * at : offsets + 4 * at + 4]) for at in range(count)]
    data[offsets : offsets + 4 * count] = b"".join(reversed(rows))
    data[-20:] = hashlib.sha1(bytes(data[:-20]), usedforsecurity=False).digest()
    index.chmod(0o600)
    index.write_bytes(data)
    checkup = CheckpointManager(base=base, fsync=False).doctor()
    assert "pack-damaged" in {finding.code for finding in checkup.findings}
    manager.doctor(repair=True)
    assert manager.doctor().healthy
    (project / "README.md").write_text("spoiled\n")
    CheckpointManager(base=base, fsync=False).restore(project, first.id)
    assert manifest(project) == before


def test_nothing_is_taken_from_the_persons_objects(
    manager: CheckpointManager, base: Path, project: Path
) -> None:
    """A wrong blob of the same size in their repository, under the right name, is not believed."""
    git(project, "init", "-q")
    git(project, "add", "-A")
    git(project, "commit", "-qm", "first")
    name = git(project, "rev-parse", "HEAD:README.md")
    wrong = git(project, "hash-object", "-w", "--stdin", stdin=b"# A prodigy\n")
    objects = project / ".git" / "objects"
    target = objects / name[:2] / name[2:]
    target.chmod(0o600)
    target.write_bytes((objects / wrong[:2] / wrong[2:]).read_bytes())
    before = manifest(project)
    checkpoint = manager.snapshot(project).checkpoint
    assert checkpoint is not None
    held = manager.contents(project, checkpoint.id, ["README.md"])["README.md"]
    assert held == (project / "README.md").read_bytes()
    objects = [path for path in (base / "store" / "objects").rglob("*") if path.is_file()]
    assert all(path.stat().st_nlink == 1 for path in objects)
    (project / "README.md").write_text("spoiled\n")
    manager.restore(project, checkpoint.id)
    assert manifest(project) == before
