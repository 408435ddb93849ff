"""A store with known content, and ways to damage it for real."""

from __future__ import annotations

import os
import shutil
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from helpers import git, loose_object, manifest
from shadowsnap import CheckpointManager
from shadowsnap.model import Checkpoint


@dataclass
class Kept:
    """Two checkpoints of a project, how its files looked at each, and where all that lies."""

    manager: CheckpointManager
    base: Path
    project: Path
    old: Checkpoint
    new: Checkpoint
    pictures: dict[str, dict[bytes, tuple[str, int, bytes | None]]]

    @property
    def store(self) -> Path:
        return self.base / "store"

    @property
    def id(self) -> str:
        return self.old.project

    @property
    def refs(self) -> Path:
        return self.store / "refs" / "shadowsnap" / self.id

    def object(self, name: str) -> Path:
        """The file that holds one object and nothing else."""
        return loose_object(self.store, name)

    def blob(self, path: str, checkpoint: Checkpoint | None = None) -> str:
        return git(self.store, "rev-parse", f"{(checkpoint or self.old).id}:{path}")

    def change(self, name: str = "README.md", content: str = "something else\n") -> None:
        (self.project / name).write_text(content)

    def assert_restores(self, checkpoint: Checkpoint) -> None:
        """It brings back every byte, name and permission bit."""
        CheckpointManager(base=self.base, fsync=False).restore(self.project, checkpoint.id)
        assert manifest(self.project) == self.pictures[checkpoint.id]


def keep(base: Path, project: Path, **settings: object) -> Kept:
    manager = CheckpointManager(base=base, fsync=False, background_upkeep=False, **settings)
    old = manager.ensure_checkpoint(project, "first").checkpoint
    assert old is not None
    pictures = {old.id: manifest(project)}
    (project / "README.md").write_text("# Changed\n")
    (project / "src" / "new.py").write_text("new = 1\n")
    (project / "empty").unlink()
    manager.new_turn()
    new = manager.ensure_checkpoint(project, "second").checkpoint
    assert new is not None and new.id != old.id
    pictures[new.id] = manifest(project)
    manager.new_turn()
    return Kept(manager, base, project, old, new, pictures)


def packed(base: Path, project: Path) -> Kept:
    """The same, with everything in one pack."""
    kept = keep(base, project)
    git(kept.store, "repack", "-q", "-a", "-d")
    git(kept.store, "prune-packed")
    assert pack_of(kept).exists()
    return kept


def pack_of(kept: Kept) -> Path:
    (pack,) = (kept.store / "objects" / "pack").glob("*.pack")
    return pack


def flip(path: Path, at: int, length: int = 1) -> None:
    """Change bytes on disk, as a bad sector does."""
    os.chmod(path, 0o600)
    data = bytearray(path.read_bytes())
    for place in range(at, at + length):
        data[place] ^= 0xFF
    path.write_bytes(data)


def truncate(path: Path, size: int = 0) -> None:
    os.chmod(path, 0o600)
    os.truncate(path, size)


def unfitting(path: Path) -> None:
    """An object that unpacks well and is not what its name says."""
    os.chmod(path, 0o600)
    path.write_bytes(zlib.compress(b"blob 5\0wrong"))


def offset_of(kept: Kept, name: str) -> int:
    """Where an object lies in the pack."""
    rows = git(kept.store, "verify-pack", "-v", pack_of(kept).with_suffix(".idx")).splitlines()
    return next(int(row.split()[4]) for row in rows if row.startswith(name))


Damage = Callable[[Kept], None]


# --- what can be made good in full: no checkpoint is lost --------------------------------------------


def aged(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()
    os.utime(path, (1_600_000_000, 1_600_000_000))
    return path


def index_lock(kept: Kept) -> None:
    aged(kept.store / "index.lock")
    aged(kept.store / "indexes" / f"{kept.id}.lock")


def ref_locks(kept: Kept) -> None:
    aged(kept.refs / f"{kept.old.ref.rpartition('/')[2]}.lock")
    aged(kept.store / "refs" / "shadowsnap-pins" / kept.id / f"{kept.old.ref.rpartition('/')[2]}.lock")


def packed_refs_lock(kept: Kept) -> None:
    aged(kept.store / "packed-refs.lock")


def config_lock(kept: Kept) -> None:
    aged(kept.store / "config.lock")
    aged(kept.store / "HEAD.lock")


def no_refs(kept: Kept) -> None:
    shutil.rmtree(kept.store / "refs")


def no_checkpoint_refs(kept: Kept) -> None:
    shutil.rmtree(kept.store / "refs" / "shadowsnap")


def no_refs_of_project(kept: Kept) -> None:
    shutil.rmtree(kept.refs)


def no_head(kept: Kept) -> None:
    (kept.store / "HEAD").unlink()


def empty_head(kept: Kept) -> None:
    (kept.store / "HEAD").write_bytes(b"")


def no_config(kept: Kept) -> None:
    (kept.store / "config").unlink()


def garbage_config(kept: Kept) -> None:
    (kept.store / "config").write_bytes(b"[core\n\0\0\0")


def config_of_another(kept: Kept) -> None:
    git(kept.store, "config", "core.autocrlf", "true")
    git(kept.store, "config", "core.repositoryFormatVersion", "99")


def no_attributes(kept: Kept) -> None:
    (kept.store / "info" / "attributes").unlink()


def file_for_folder(kept: Kept) -> None:
    shutil.rmtree(kept.store / "journal")
    (kept.store / "journal").write_text("not a folder")


def folder_for_lock(kept: Kept) -> None:
    path = kept.store / "locks" / f"{kept.id}.lock"
    path.unlink()
    path.mkdir()


def empty_format(kept: Kept) -> None:
    (kept.store / "format").write_bytes(b"")


def dangling_ref(kept: Kept) -> None:
    (kept.refs / f"9999999999999-{'1' * 12}").write_text("1" * 40 + "\n")


def dangling_packed_ref(kept: Kept) -> None:
    git(kept.store, "pack-refs", "--all")
    line = f"{'1' * 40} refs/shadowsnap/{kept.id}/9999999999999-{'1' * 12}\n"
    with open(kept.store / "packed-refs", "a") as file:
        file.write(line)


def empty_ref(kept: Kept) -> None:
    (kept.refs / f"9999999999999-{'2' * 12}").write_bytes(b"")


def garbage_ref(kept: Kept) -> None:
    (kept.refs / f"9999999999999-{'3' * 12}").write_bytes(b"\0" * 41)


def strange_ref(kept: Kept) -> None:
    (kept.refs / "zzz~").write_text(kept.old.id + "\n")


def garbage_over_packed_ref(kept: Kept) -> None:
    git(kept.store, "pack-refs", "--all")
    kept.refs.mkdir(exist_ok=True)
    (kept.store / kept.new.ref).write_bytes(b"")


def garbage_in_packed_refs(kept: Kept) -> None:
    git(kept.store, "pack-refs", "--all")
    with open(kept.store / "packed-refs", "ab") as file:
        file.write(b"what is this\n")


def cut_packed_refs(kept: Kept) -> None:
    git(kept.store, "pack-refs", "--all")
    with open(kept.store / "packed-refs", "ab") as file:
        file.write(b"1" * 40 + b" refs/shadowsnap/" + kept.id.encode())


def garbage_index(kept: Kept) -> None:
    (kept.store / "indexes" / kept.id).write_bytes(b"not an index at all")


def flipped_index(kept: Kept) -> None:
    flip(kept.store / "indexes" / kept.id, 60, 8)


def empty_index(kept: Kept) -> None:
    truncate(kept.store / "indexes" / kept.id)


def garbage_record(kept: Kept) -> None:
    (kept.store / "projects" / f"{kept.id}.json").write_bytes(b'{"workdir": "/')


def list_for_record(kept: Kept) -> None:
    (kept.store / "projects" / f"{kept.id}.json").write_text("[1, 2]")


def empty_record(kept: Kept) -> None:
    (kept.store / "projects" / f"{kept.id}.json").write_bytes(b"")


def no_record(kept: Kept) -> None:
    (kept.store / "projects" / f"{kept.id}.json").unlink()


def folder_for_record(kept: Kept) -> None:
    path = kept.store / "projects" / f"{kept.id}.json"
    path.unlink()
    path.mkdir()


def folder_for_index(kept: Kept) -> None:
    path = kept.store / "indexes" / kept.id
    path.unlink()
    path.mkdir()


def garbage_journal(kept: Kept) -> None:
    (kept.store / "journal" / f"{kept.id}.json").write_bytes(b'{"open": nul')


def strange_journal(kept: Kept) -> None:
    (kept.store / "journal" / f"{kept.id}.json").write_text('{"open": 5, "undo": {"a": 1}, "redo": "x"}')


def log_of(kept: Kept) -> Path:
    return kept.base / "log" / f"{kept.id}.jsonl"


def no_log(kept: Kept) -> None:
    log_of(kept).unlink()


def no_logs(kept: Kept) -> None:
    shutil.rmtree(kept.base / "log")


def empty_log(kept: Kept) -> None:
    truncate(log_of(kept))


def garbage_in_log(kept: Kept) -> None:
    """The first line is garbage, the others are as they were."""
    first, *others = log_of(kept).read_bytes().splitlines(keepends=True)
    log_of(kept).write_bytes(b"\0" * (len(first) - 1) + b"\n" + b"".join(others))


def folder_for_log(kept: Kept) -> None:
    log_of(kept).unlink()
    log_of(kept).mkdir()


def file_for_logs(kept: Kept) -> None:
    shutil.rmtree(kept.base / "log")
    (kept.base / "log").write_text("not a folder")


def empty_blob_that_is_on_disk(kept: Kept) -> None:
    truncate(kept.object(kept.blob("data.bin")))


def cut_blob_that_is_on_disk(kept: Kept) -> None:
    truncate(kept.object(kept.blob("data.bin")), 9)


def wrong_blob_that_is_on_disk(kept: Kept) -> None:
    unfitting(kept.object(kept.blob("data.bin")))


def no_blob_that_is_on_disk(kept: Kept) -> None:
    kept.object(kept.blob("data.bin")).unlink()


def empty_newest_tree(kept: Kept) -> None:
    truncate(kept.object(kept.new.tree))


def no_newest_tree(kept: Kept) -> None:
    kept.object(kept.new.tree).unlink()


WHOLE: dict[Damage, str] = {
    index_lock: "lock-stale",
    ref_locks: "lock-stale",
    packed_refs_lock: "lock-stale",
    config_lock: "lock-stale",
    no_refs: "refs-lost",
    no_checkpoint_refs: "refs-lost",
    no_refs_of_project: "refs-lost",
    no_head: "file-damaged",
    empty_head: "file-damaged",
    no_config: "file-damaged",
    garbage_config: "file-damaged",
    config_of_another: "file-damaged",
    no_attributes: "file-damaged",
    file_for_folder: "folder-replaced",
    folder_for_lock: "lock-replaced",
    empty_format: "file-damaged",
    dangling_ref: "ref-dangling",
    dangling_packed_ref: "ref-dangling",
    empty_ref: "ref-damaged",
    garbage_ref: "ref-damaged",
    strange_ref: "ref-strange",
    garbage_over_packed_ref: "ref-damaged",
    garbage_in_packed_refs: "packed-refs-damaged",
    cut_packed_refs: "packed-refs-damaged",
    garbage_index: "cache-damaged",
    flipped_index: "cache-damaged",
    empty_index: "cache-damaged",
    folder_for_index: "cache-damaged",
    garbage_record: "record-damaged",
    list_for_record: "record-damaged",
    empty_record: "record-damaged",
    no_record: "record-damaged",
    folder_for_record: "record-damaged",
    garbage_journal: "journal-damaged",
    strange_journal: "journal-damaged",
    no_log: "log-lost",
    no_logs: "log-lost",
    empty_log: "log-lost",
    garbage_in_log: "log-damaged",
    folder_for_log: "log-damaged",
    file_for_logs: "log-damaged",
    empty_blob_that_is_on_disk: "object-damaged",
    cut_blob_that_is_on_disk: "object-damaged",
    wrong_blob_that_is_on_disk: "object-damaged",
    no_blob_that_is_on_disk: "checkpoint-incomplete",
    empty_newest_tree: "object-damaged",
    no_newest_tree: "ref-dangling",
}
"""Damage -> what the doctor calls it."""
