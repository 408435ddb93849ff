"""Pushing a project's lane: one pack of what is new, then the manifest of the next number.

A push is complete once its manifest is stored, which is written only if its number is free. The state that the
lane will have then is noted before, so the next push completes or discards an interrupted one. A lane has one
writer. If another one wrote the next manifest (a copied machine, a restored backup), this project goes on with a
new lane, whose parent is the old one.

With `sync`, projects with unpushed work wait in a queue for a background process, of which a store has at most
one. It pushes what is due, pauses at least 30 seconds between two rounds, and ends when nothing is due soon. A
push that fails is tried again after a pause that doubles each time.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from shadowsnap.deadline import Deadline, step
from shadowsnap.errors import GitFailed, NoRemote, NoSuchProject, RemoteFailed, ShadowsnapError
from shadowsnap.files import read_json, remove_tree, scratch_folder
from shadowsnap.git.objects import LooseObjects
from shadowsnap.git.repository import Git
from shadowsnap.model import Record
from shadowsnap.remote.carrier import Contents, add_commit, forget_older_pushes, read_contents, write_carrier
from shadowsnap.remote.checking import STREAMED
from shadowsnap.remote.git_storage import GitStorage, head_message
from shadowsnap.remote.lanes import identity_of, new_identity, remote_of, storage_of
from shadowsnap.remote.manifest import (
    LONGEST_CHAIN,
    MOST_BYTES,
    Manifest,
    Sealer,
    digest_of,
    head_folder,
    head_name,
    head_with_content,
    lane_folder,
    manifest_name,
    manifest_number,
    pack_name,
)
from shadowsnap.remote.storage import Storage, TooLarge
from shadowsnap.settings import Settings, settings_from_text
from shadowsnap.store.lanes import (
    OwnLane,
    Remote,
    Waiting,
    folder,
    forget_removal,
    lane_lock,
    machine_name,
    new_lane,
    own_key,
    queue_lock,
    read_own_lane,
    read_queue,
    read_removal,
    read_waiting,
    remove_waiting,
    shown_url,
    write_own_lane,
    write_waiting,
)
from shadowsnap.store.layout import Store, open_store
from shadowsnap.store.locks import if_free, locked
from shadowsnap.store.projects import Project, project_of

_LONGEST_GENERATION = 256
"""Pushes of one generation, before everything is sent again."""
_MANY_DROPPED = 32
_NEWEST_TREES = 8
"""Acknowledged trees that a pack is compared with; each makes packing slower."""
_CHUNK = 1 << 20
_MOST_READ_BACK = 4 << 20
"""A pack up to this size is read back whole; of a larger one, only the size is checked."""
_PACKING = (*STREAMED, "pack.threads=1", "pack.windowMemory=128m")
EVERY_SECONDS = 30.0
_LONGEST_WAIT_SECONDS = 150.0
"""The background process does not wait longer than this; the next turn starts another one."""
_LONGEST_REST = 3600.0


@dataclass(frozen=True)
class PushReport(Record):
    """What a push did. `status`: `pushed`, or `up-to-date` if the remote had everything."""

    json_names = {
        "remote": "remote_name",
        "number": "manifest_number",
        "checkpoints": "checkpoint_count",
        "turns": "turn_count",
    }

    status: str
    lane: str
    remote: str
    number: int
    bytes: int = 0
    """Bytes that this push sent."""
    checkpoints: int = 0
    turns: int = 0
    notes: tuple[str, ...] = ()


def push(store: Store, project: Project, deadline: Deadline) -> PushReport:
    """Bring the lane of a project up to date at its remote."""
    remote = remote_of(store, project)
    waiting = read_waiting(store, project.id)
    folder(store).mkdir(mode=0o700, parents=True, exist_ok=True)
    with locked(lane_lock(store, project.id), "push", deadline):
        storage = storage_of(store, project)
        kind = ChainPush if remote.plain and isinstance(storage, GitStorage) else Push
        report = kind(store, project, remote, storage, deadline).run()
    if waiting is not None:
        remove_waiting(store, waiting)
    return report


def own_lane(store: Store, project: Project, deadline: Deadline) -> OwnLane:
    """The lane of a project on this machine, which is begun if there is none."""
    known = read_own_lane(store, project.id)
    if known is not None:
        return known
    identity = identity_of(store, project.workdir, deadline) or new_identity(project.workdir)
    lane = new_lane(identity)
    write_own_lane(store, project.id, lane)
    return lane


def readable_note(remote: Remote) -> str:
    """A warning about what can be read in a plain lane."""
    also = ", and the conversations" if remote.conversations else ""
    return (
        f"{shown_url(remote.url)} is not encrypted: who can read there can read the files of every checkpoint,"
        f" what was asked in each turn, the path of the directory and the name of this machine{also}"
    )


class Push:
    """One push of one project."""

    def __init__(
        self, store: Store, project: Project, remote: Remote, storage: Any, deadline: Deadline
    ) -> None:
        self._store = store
        self._project = project
        self._remote = remote
        self._deadline = deadline
        self._sealer = Sealer(() if remote.plain else remote.recipients)
        self._storage: Storage = storage
        self._sending = folder(store) / f"{project.id}.sending"
        remove_tree(self._sending)  # left by an interrupted push
        self._notes: list[str] = []
        self._removal = ""
        self._lane = own_lane(store, project, deadline)

    def run(self) -> PushReport:
        if not self._remote.plain and not self._remote.recipients:
            raise RemoteFailed(url=self._remote.url, why="it has neither recipients nor --plain: add it again")
        self._settle_pending()
        # Read before the checkpoints, which may be removed meanwhile.
        self._removal = read_removal(self._store, self._project.id)
        is_gone = self._is_anything_gone()
        for _ in range(2):
            report = self._push(anew=is_gone)
            if report is not None:
                return report
            self._go_on_as_new_lane("another machine wrote to this lane")
        raise RemoteFailed(url=self._remote.url, why="others keep writing to this lane")

    # --- the state of the remote ----------------------------------------------------------------------

    def _settle_pending(self) -> None:
        """Complete or discard an interrupted push, depending on whether its manifest arrived."""
        pending = self._lane.pending
        if not pending:
            return
        there = self._remote_digest(int(pending["number"]))
        if there == pending["digest"]:
            self._acknowledge()
        elif there:
            self._go_on_as_new_lane("another machine wrote to this lane")
        else:
            self._forget_pending()

    def _forget_pending(self) -> None:
        packs = self._lane.pending["packs"][-1:]
        self._storage.delete([pack_name(self._lane.lane, pack) for pack in packs])
        self._save_lane(pending={})

    def _is_anything_gone(self) -> bool:
        """Whether a part of what was pushed is gone from the remote, so that everything has to be sent again. If
        the last manifest is another machine's, a new lane is begun."""
        if not self._lane.number:
            return False
        there = self._remote_digest(self._lane.number)
        if there and there != self._lane.digest:
            self._go_on_as_new_lane("its last manifest is not the one that this machine wrote")
            return False
        is_gone = not there or not self._is_whole()
        if is_gone:
            self._notes.append("what was pushed before is gone from the remote, so everything was pushed again")
        return is_gone

    def _is_whole(self) -> bool:
        """Whether every file of this generation is at the remote: without one of them, the lane is unreadable."""
        lane = self._lane
        names = {item.name for item in self._storage.items(lane_folder(lane.lane))}
        manifests = (manifest_name(lane.lane, number) for number in range(lane.first, lane.number + 1))
        return names.issuperset(manifests) and names.issuperset(pack_name(lane.lane, pack) for pack in lane.packs)

    def _remote_digest(self, number: int) -> str:
        """The digest of the manifest that the remote has under a number; empty if it has none."""
        there = self._manifest(number)
        return "" if there is None else digest_of(there)

    def _manifest(self, number: int) -> bytes | None:
        try:
            return self._storage.get(manifest_name(self._lane.lane, number), MOST_BYTES)
        except TooLarge:
            return b""

    def _go_on_as_new_lane(self, why: str) -> None:
        """Leave the lane to the other writer, and begin a new one."""
        old = self._lane
        new = new_lane(old.identity, old.lane if old.number else old.parent)
        self._lane = replace(new, readable_named=old.readable_named)
        self._notes.append(f"{why}; this project goes on as lane {new.lane}")
        write_own_lane(self._store, self._project.id, self._lane)

    # --- sending --------------------------------------------------------------------------------------

    def _push(self, *, anew: bool) -> PushReport | None:
        """Send what is new; None if another machine wrote the next manifest first."""
        # Under the shared lock, no listed object is reclaimed before it is packed.
        busy = locked(self._store.store_lock(), "push", self._deadline, shared=True)
        with busy, scratch_folder(self._store.git_dir, "push", inside="objects/pack") as scratch:
            contents = self._contents()
            anew = anew or self._needs_new_generation(contents)
            objects = LooseObjects(scratch / "objects", fsync=False)
            carrier, blobs = write_carrier(objects, contents, self._lane)
            if carrier == self._lane.carrier and not anew:
                self._remove_older()
                self._write_head()
                return self._report("up-to-date", contents, 0)
            git = self._store.git(self._deadline).bound(scratch_objects=scratch / "objects", config=_PACKING)
            pack = self._pack(git, scratch, contents, carrier, blobs, anew=anew)
        try:
            return self._send(pack, contents, carrier, blobs, anew=anew)
        finally:
            remove_tree(pack.parent)

    def _contents(self) -> Contents:
        conversations = self._remote.conversations
        contents = read_contents(self._store, self._project, self._deadline, conversations=conversations)
        if not contents.checkpoints:
            raise NoSuchProject(workdir=self._project.workdir)
        return contents

    def _needs_new_generation(self, contents: Contents) -> bool:
        """Whether the next push begins a generation, which needs nothing older: because a person removed
        something, or much was dropped since the last one began."""
        lane = self._lane
        if not lane.number:
            return True
        if self._removal:
            return True
        dropped = lane.dropped + len({*lane.checkpoints} - {*contents.checkpoints.values()})
        length = lane.number + 1 - lane.first
        is_long = length >= min(_LONGEST_GENERATION, LONGEST_CHAIN)
        return is_long or dropped >= max(_MANY_DROPPED, len(contents.checkpoints))

    def _pack(
        self, git: Git, scratch: Path, contents: Contents, carrier: str, blobs: tuple[str, ...], *, anew: bool
    ) -> Path:
        """Write an encrypted pack of everything that the remote does not have; returns its path."""
        current = list(contents.checkpoints.values())
        known = set() if anew else {*self._lane.checkpoints}
        wanted = [carrier, *(commit for commit in current if commit not in known), *contents.attachments.values()]
        without = [commit for commit in current if commit in known][-_NEWEST_TREES:]
        without += [] if anew else [blob for blob in self._lane.blobs if blob in {*blobs}]
        lines = [*wanted, *(f"^{each}" for each in without)]
        asked = "".join(f"{line}\n" for line in lines).encode()
        pack = scratch / "new.pack"
        _write_pack(git, asked, pack)
        step("push:packed")
        target = self._sending / "pack"
        target.parent.mkdir(mode=0o700)
        self._sealer.seal_file(pack, target)
        return target

    def _send(
        self, pack: Path, contents: Contents, carrier: str, blobs: tuple[str, ...], *, anew: bool
    ) -> PushReport | None:
        lane = self._lane
        digest, size = _digest_of_file(pack), pack.stat().st_size
        number = lane.number + 1
        manifest = Manifest(
            lane=lane.lane,
            number=number,
            first=number if anew else lane.first,
            previous=lane.digest,
            at=round(time.time(), 3),
            carrier=carrier,
            pack=digest,
            pack_bytes=size,
            turns=contents.turns,
            checkpoints=len(contents.checkpoints),
            newest=contents.newest,
            key="" if self._remote.plain else own_key(self._store, self._project.id),
        )
        data = self._sealer.seal(manifest.encoded())
        packs = (*(() if anew else lane.packs), digest)
        total = size + (0 if anew else lane.bytes)
        self._note_pending(contents, carrier, digest_of(data), anew=anew, blobs=blobs, packs=packs, bytes=total)
        head = head_name(lane.lane, number, contents.newest, contents.turns, total)
        remark = head_message(head, self._sealer.seal(self._head_content())) if self._storage.keeps_heads else ""
        step("push:noted")
        self._storage.put_file(pack_name(lane.lane, digest), pack)
        self._read_back(pack_name(lane.lane, digest), digest, size)
        step("push:sent")
        self._storage.put_new(manifest_name(lane.lane, number), data, remark)
        step("push:manifest")
        there = self._manifest(number)
        if there is None:
            raise RemoteFailed(url=self._storage.url, why="the manifest that was written cannot be read back")
        if there != data:
            self._storage.delete([pack_name(lane.lane, digest)])
            return None
        self._acknowledge()
        return self._report("pushed", contents, size + len(data))

    def _note_pending(
        self, contents: Contents, carrier: str, digest: str, *, anew: bool, **more: Any
    ) -> None:
        """Note the state that the lane will have once this push is complete."""
        lane, checkpoints = self._lane, list(contents.checkpoints.values())
        number, gone = lane.number + 1, len({*lane.checkpoints} - {*checkpoints})
        pending = {
            "number": number,
            "first": number if anew else lane.first,
            "digest": digest,
            "carrier": carrier,
            "checkpoints": checkpoints,
            "dropped": 0 if anew else lane.dropped + gone,
            "turns": contents.turns,
            "newest": contents.newest,
            "removal": self._removal if anew else "",
        }
        self._save_lane(pending={**pending, **more})

    def _head_content(self) -> bytes:
        """The content of the head: what `lanes` shows besides the numbers."""
        identity, parent = self._lane.identity, self._lane.parent
        about = {"machine": machine_name(), "name": identity.name, "origin": identity.origin, "parent": parent}
        shown = {name: value for name, value in about.items() if value}
        return json.dumps(shown, separators=(",", ":")).encode("ascii")

    def _read_back(self, name: str, digest: str, size: int) -> None:
        if size <= _MOST_READ_BACK:
            try:
                there = self._storage.get(name, size)
            except TooLarge:
                there = b""
            sound = there is not None and digest_of(there) == digest
        else:
            sound = self._storage.size(name) == size
        if not sound:
            raise RemoteFailed(url=self._storage.url, why="what was sent is not what is there now")

    # --- afterwards -----------------------------------------------------------------------------------

    def _acknowledge(self) -> None:
        """The pending manifest arrived: make its state the lane's, remove what is left of an earlier generation,
        and write the head."""
        pending, old = self._lane.pending, self._lane
        names = ("number", "first", "digest", "carrier", "bytes", "dropped", "turns", "newest")
        facts: dict[str, Any] = {name: pending[name] for name in names}
        facts |= {name: tuple(pending[name]) for name in ("checkpoints", "blobs", "packs")}
        begins = bool(old.number) and pending["first"] == pending["number"]
        self._save_lane(pending={}, pushed_at=time.time(), stale=begins or old.stale, **facts)
        forget_removal(self._store, self._project.id, pending.get("removal", ""))
        step("push:acknowledged")
        self._remove_older()
        self._write_head()
        step("push:cleaned")

    def _write_head(self) -> None:
        """Write the head for `lanes`. It is derived from the manifest, so a failure here is only noted."""
        lane = self._lane
        if self._storage.keeps_heads:
            return
        head = head_name(lane.lane, lane.number, lane.newest, lane.turns, lane.bytes)
        try:
            there = [item.name for item in self._storage.items(head_folder(lane.lane))]
            current = [name for name in there if name == head or name.startswith(f"{head}/")][:1]
            if not current:
                data = self._sealer.seal(self._head_content())
                current = [head_with_content(head, data) if self._storage.reads_slowly else head]
                self._storage.put(current[0], data)
            self._storage.delete([name for name in there if name not in current])
        except RemoteFailed as problem:
            self._notes.append(f"lanes may show an older state: {problem}")

    def _remove_older(self) -> None:
        """Remove what is older than this generation. If that fails, the next push tries again."""
        lane = self._lane
        if not lane.stale:
            return
        kept = {pack_name(lane.lane, pack) for pack in lane.packs}
        packs = pack_name(lane.lane, "")
        try:
            names = [item.name for item in self._storage.items(lane_folder(lane.lane))]
            old = [name for name in names if (number := manifest_number(name)) is not None and number < lane.first]
            self._storage.delete([*old, *(name for name in names if name.startswith(packs) and name not in kept)])
            self._storage.finish()
        except RemoteFailed as problem:
            self._notes.append(f"older packs are still at the remote: {problem}")
        else:
            self._save_lane(stale=False)

    def _save_lane(self, **changes: Any) -> None:
        self._lane = replace(self._lane, **changes)
        write_own_lane(self._store, self._project.id, self._lane)

    def _report(self, status: str, contents: Contents, sent: int) -> PushReport:
        lane = self._lane
        if self._remote.plain and not lane.readable_named:
            self._notes.append(readable_note(self._remote))
            self._save_lane(readable_named=True)
        sizes = (len(contents.checkpoints), contents.turns)
        return PushReport(status, lane.lane, self._remote.name, lane.number, sent, *sizes, tuple(self._notes))


class ChainPush(Push):
    """A push to a plain lane on a git server (see `carrier`): one commit on top of the last, with a lease."""

    _storage: GitStorage

    def _remote_digest(self, number: int) -> str:
        tip, lane = self._storage.tip(self._lane.lane), self._lane
        return "" if tip == lane.digest and number != lane.number else tip

    def _is_whole(self) -> bool:
        return True  # a server has all that a ref leads to

    def _forget_pending(self) -> None:
        self._save_lane(pending={})

    def _push(self, *, anew: bool) -> PushReport | None:
        lane, store = self._lane, self._store
        expected = "" if anew else lane.digest
        kept = folder(store) / f"{self._project.id}.chain"
        # Held during the push: git reads the objects as it sends them.
        with locked(store.store_lock(), "push", self._deadline, shared=True):
            contents = self._contents()
            anew = anew or self._needs_new_generation(contents) or not (kept / f"{lane.digest}.json").exists()
            if anew:
                remove_tree(kept)
            (kept / "pack").mkdir(mode=0o700, parents=True, exist_ok=True)
            git = store.git(self._deadline).bound(scratch_objects=kept)
            objects = LooseObjects(kept, fsync=store.fsync)
            size = _size_on_disk(git, contents) if anew else lane.bytes
            head = head_name(lane.lane, lane.number + 1, contents.newest, contents.turns, size)
            added = add_commit(git, objects, contents, lane, head_message(head, self._head_content()), anew=anew)
            if added is None:
                return self._report("up-to-date", contents, 0)
            commit, anew = added
            objects.flush()  # the next push builds on them
            self._note_pending(contents, commit, commit, anew=anew, blobs=(), packs=(), bytes=lane.bytes)
            step("push:noted")
            sent = self._storage.replace(git, lane.lane, expected, commit)
        step("push:manifest")
        if sent is None:
            return None
        self._acknowledge()
        self._save_lane(bytes=sent + (0 if anew else lane.bytes))
        forget_older_pushes(kept, commit)
        return self._report("pushed", contents, sent)

    def _remove_older(self) -> None:
        """Do nothing: the ref leads to the new generation only."""


def _size_on_disk(git: Git, contents: Contents) -> int:
    """About how many bytes a new generation takes at the server, which alone knows it exactly."""
    tips = "".join(f"{commit}\n" for commit in contents.checkpoints.values()).encode()
    return int(git.run("rev-list", "--objects", "--disk-usage", "--stdin", stdin=tips))


def _write_pack(git: Git, asked: bytes, target: Path) -> None:
    """Write a thin pack, with deltas against what the remote has. (Without `--shallow`, git would look for their
    bases in parents only, and checkpoints have none.)"""
    words = ("pack-objects", "-q", "--revs", "--thin", "--shallow", "--delta-base-offset", "--stdout")
    with git.conversation(*words) as process, target.open("wb") as file:
        assert process.stdin is not None and process.stdout is not None
        process.stdin.write(asked)
        process.stdin.close()
        while piece := process.stdout.read(_CHUNK):
            file.write(piece)
        status = process.wait()
    if status != 0:
        raise GitFailed(command="pack-objects", status=status, stderr="the pack of a lane could not be written")


def _digest_of_file(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


# --- in the background ---------------------------------------------------------------------------------------


def push_queue(
    store: Store,
    settings: Settings,
    sleep: Callable[[float], None] = time.sleep,
    now: Callable[[], float] = time.time,
) -> int:
    """Push everything in the queue that is due; how many pushes succeeded. Returns at once if another process is
    doing that."""
    done = 0
    while _due_soon(store, now()):
        with if_free(queue_lock(store), "pushing") as lock:
            if lock is None:
                return done
            while waiting := _due_soon(store, now()):
                rest = min(_seconds_left(each, now()) for each in waiting)
                pause = max(rest, _last_round(store) + EVERY_SECONDS - now())
                if pause > 0:
                    sleep(min(pause, _LONGEST_WAIT_SECONDS))
                _begin_round(store, now())
                for each in read_queue(store):
                    if _seconds_left(each, now()) <= 0:
                        done += _push(store, settings, each, now)
        # The queue is read again: something may have been added before the lock was released.
    return done


def _due_soon(store: Store, now: float) -> list[Waiting]:
    return [each for each in read_queue(store) if _seconds_left(each, now) <= _LONGEST_WAIT_SECONDS]


def _seconds_left(waiting: Waiting, now: float) -> float:
    """Seconds until a push is due. It is due now if that is longer than any pause, because the clock was set
    back."""
    left = waiting.due - now
    return left if left <= _LONGEST_REST else 0.0


def _push(store: Store, settings: Settings, waiting: Waiting, now: Callable[[], float]) -> bool:
    workdir = (read_json(store.project_file(waiting.project)) or {}).get("workdir")
    try:
        if not isinstance(workdir, str):
            raise NoSuchProject(workdir=waiting.project)
        push(store, project_of(workdir), Deadline(settings.upkeep_deadline))
    except (NoRemote, NoSuchProject):
        remove_waiting(store, waiting)  # the remote or the project was removed
        return False
    except (ShadowsnapError, OSError) as problem:
        attempts = waiting.attempts + 1
        rest = min(_LONGEST_REST, EVERY_SECONDS * 2**attempts)
        write_waiting(store, replace(waiting, attempts=attempts, due=now() + rest, error=str(problem)[:500]))
        return False
    return True


def _marker(store: Store) -> Path:
    return folder(store) / "last-round"


def _last_round(store: Store) -> float:
    try:
        return min(float(_marker(store).read_text("ascii")), time.time())
    except (OSError, ValueError):
        return 0.0


def _begin_round(store: Store, now: float) -> None:
    _marker(store).write_text(f"{now}\n", "ascii")


def main(arguments: list[str]) -> int:
    settings = settings_from_text(arguments[0])
    if hasattr(os, "nice"):
        os.nice(10)
    push_queue(open_store(settings), settings)
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
