"""Checkpoints: parentless commits under one ref each. Recording, listing, finding them."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterable, Mapping, Sequence

from shadowsnap import lightjson as json
from shadowsnap.errors import (
    AmbiguousReference,
    DamagedObject,
    ForeignCheckpoint,
    MalformedLabel,
    MalformedReference,
    NoSuchCheckpoint,
)
from shadowsnap.git.deadline import Deadline
from shadowsnap.git.newobjects import NewObjects
from shadowsnap.git.objects import EMPTY_TREE, LooseObjects, object_id
from shadowsnap.git.reading import ObjectReader
from shadowsnap.git.refs import (
    create_ref,
    delete_refs,
    is_spoiled,
    list_refs,
    newest_ref,
    read_ref,
    read_refs,
    ref_exists,
    ref_folders,
    ref_names,
    set_ref,
)
from shadowsnap.git.runner import Git
from shadowsnap.model import Checkpoint, Skipped
from shadowsnap.moments import datetime, timezone
from shadowsnap.records import Any, replace
from shadowsnap.store.atomic import read_json
from shadowsnap.store.layout import Store
from shadowsnap.store.projects import Project

_FIELDS = ("refname", "objectname", "tree", "contents")
# As text: a hook has no use for them, and no time to compile them.
_LAST = r"last(?:~(\d{1,9}))?"
_HEX = r"[0-9a-fA-F]{4,40}"
_NUMBER = r"[0-9]{1,3}"
"""A place in a list, to whoever has one in front of them."""
_PLAIN = frozenset("abcdefghijklmnopqrstuvwxyz0123456789")
_LONGEST_KEY = 240
_GRACE_SECONDS = 5.0
"""File systems take names of 255 bytes, and git adds `.lock`."""


def record_checkpoint(
    store: Store, project: Project, tree: str, reason: str, body: dict[str, Any], moment: int | None = None,
    objects: LooseObjects | NewObjects | None = None,
) -> Checkpoint:  # fmt: skip
    """Write the commit, beside other new `objects` if there are any, and its ref. From here on the
    checkpoint exists. The moment, in milliseconds, is now unless it is given; just the same checkpoint
    of the same moment is refused (`RefExists`)."""
    objects = objects or store.objects
    moment = _next_moment(store, project) if moment is None else moment
    if tree == EMPTY_TREE:
        objects.write(b"tree", b"")  # git knows it unasked, but fsck and repack want it there
    message = _message(reason, {**body, "workdir": str(project.workdir), "ms": moment % 1000})
    who = f"shadowsnap <shadowsnap@localhost> {moment // 1000} +0000"
    commit = f"tree {tree}\nauthor {who}\ncommitter {who}\n\n".encode() + message
    commit_id = objects.write(b"commit", commit)
    ref = f"{project.refs}/{moment:013d}-{commit_id[:12]}"
    objects.settle()
    create_ref(store.git_dir, ref, commit_id, fsync=store.fsync)
    return _decode(project, ref, commit_id, tree, message)


def list_checkpoints(
    store: Store, project: Project, deadline: Deadline, limit: int | None = None, *, statistics: bool = True,
    path: bytes | None = None,
) -> list[Checkpoint]:  # fmt: skip
    """Newest first, with what each changed against the one before it (of one path, if given). At
    most three processes."""
    wanted = None if limit is None else limit + 1
    git = store.git(deadline)
    found = _load(git, store, project, newest=wanted)
    if not statistics:
        return found[:limit]
    if len(found) == wanted and found[-1].scope != "tree":  # what they changed is told against an older one
        found = _load(git, store, project)
    from shadowsnap.store.statistics import with_statistics

    return with_statistics(store, project, git, found, path)[:limit]


def newest_name(store: Store, project: Project) -> str | None:
    """The ref of the newest checkpoint."""
    return newest_ref(store.git_dir, project.refs)


def read_checkpoint(
    store: Store, project: Project, ref: str, deadline: Deadline, remembered: str = ""
) -> Checkpoint:
    """One checkpoint by its ref; without a process as long as its commit is loose, or remembered
    by the caller."""
    commit_id = read_ref(store.git_dir, ref)
    if commit_id is None:
        if ref_exists(store.git_dir, ref):
            raise DamagedObject(id=ref)
        raise NoSuchCheckpoint(ref=ref.rpartition("-")[2], workdir=project.workdir)  # deleted just now
    commit = remembered.encode()
    if object_id(b"commit", commit) != commit_id:
        commit = _commit(store, commit_id, deadline)
    pinned = ref_exists(store.git_dir, f"{project.pins}/{ref.rpartition('/')[2]}")
    label = _labels(store, project).get(commit_id)
    return replace(decode_checkpoint(project, ref, commit_id, commit), pinned=pinned, label=label)


def text_to_remember(store: Store, checkpoint: Checkpoint) -> str:
    """With this, `read_checkpoint` need not look for the commit. (The checkpoint exists by now: that the
    time ran out meanwhile must not make a failure of it.)"""
    return _commit(store, checkpoint.id, Deadline(_GRACE_SECONDS)).decode()


def _commit(store: Store, commit_id: str, deadline: Deadline) -> bytes:
    with ObjectReader(store.git(deadline)) as reader:
        return reader.read(commit_id, b"commit")


def decode_checkpoint(project: Project, ref: str, commit_id: str, commit: bytes) -> Checkpoint:
    """The checkpoint that a commit is, without what other refs say about it (pin, label)."""
    header, _, message = commit.partition(b"\n\n")
    return _decode(project, ref, commit_id, header[5:45].decode(), message)


def find_checkpoint(store: Store, project: Project, ref: str, deadline: Deadline) -> Checkpoint:
    """The checkpoint that a hash prefix, `last`, `last~N` or a label names."""
    checkpoint = read_checkpoint(store, project, _resolve(store, project, ref), deadline)
    is_other = re.fullmatch(_HEX, ref) and len(ref) > 12 and not checkpoint.id.startswith(ref.lower())
    if is_other and checkpoint.id not in _replacements(store, project, ref.lower()):
        raise NoSuchCheckpoint(ref=ref, workdir=project.workdir)
    return checkpoint


def files_of(store: Store, checkpoint: Checkpoint, deadline: Deadline) -> list[str]:
    """Every file that a checkpoint holds."""
    listed = store.git(deadline).run("ls-tree", "-r", "-z", "--name-only", checkpoint.tree)
    return [os.fsdecode(path) for path in listed.split(b"\0")[:-1]]


def newest_checkpoint(store: Store, project: Project, deadline: Deadline) -> Checkpoint | None:
    ref = newest_name(store, project)
    return read_checkpoint(store, project, ref, deadline) if ref else None


def delete_checkpoints(
    store: Store, project: Project, checkpoints: Iterable[Checkpoint], deadline: Deadline
) -> None:
    """Drop checkpoints with their pins, labels and attachments; every other id stays what it is."""
    from shadowsnap.store.tips import ATTACHMENTS  # a snapshot needs none of it

    names = {checkpoint.ref.rpartition("/")[2]: checkpoint.id for checkpoint in checkpoints}
    ids = set(names.values())
    refs = [f"{project.refs}/{name}" for name in names]
    refs += [f"{project.pins}/{name}" for name in read_refs(store.git_dir, project.pins) if name in names]
    refs += [
        f"{project.labels}/{key}" for key, of in read_refs(store.git_dir, project.labels).items() if of in ids
    ]
    attached = f"{ATTACHMENTS}/{project.id}"
    refs += [f"{attached}/{name}" for name in ref_names(store.git_dir, attached) if name in names]
    delete_refs(store.git(deadline), refs)


def set_pinned(
    store: Store, project: Project, checkpoint: Checkpoint, deadline: Deadline, *, pinned: bool
) -> Checkpoint:
    ref = f"{project.pins}/{checkpoint.ref.rpartition('/')[2]}"
    git = store.git(deadline)
    if pinned:
        set_ref(git, ref, checkpoint.id)
    elif ref_exists(store.git_dir, ref):
        delete_refs(git, [ref])
    return replace(checkpoint, pinned=pinned)


def set_label(
    store: Store, project: Project, checkpoint: Checkpoint, deadline: Deadline, *, label: str | None
) -> Checkpoint:
    """Give a checkpoint its one name, taking that name from any other."""
    git = store.git(deadline)
    if label is not None:
        _check_label(label)
    key = None if label is None else _label_key(label)
    if key is not None:
        set_ref(git, f"{project.labels}/{key}", checkpoint.id)
    labelled = read_refs(store.git_dir, project.labels).items()
    delete_refs(git, [f"{project.labels}/{old}" for old, of in labelled if of == checkpoint.id and old != key])
    return replace(checkpoint, label=label)


# --- references ----------------------------------------------------------------------------


def _resolve(store: Store, project: Project, ref: str) -> str:
    names = ref_names(store.git_dir, project.refs)[::-1]
    if last := re.fullmatch(_LAST, ref):
        back = int(last[1] or 0)
        if back >= len(names):
            raise NoSuchCheckpoint(ref=ref, workdir=project.workdir)
        return f"{project.refs}/{names[back]}"
    if not _unlabelable(ref):
        labelled = read_refs(store.git_dir, project.labels).get(_label_key(ref))
        for name in names:
            if labelled and name.endswith(f"-{labelled[:12]}"):
                return f"{project.refs}/{name}"
    if not re.fullmatch(_HEX, ref):
        problem = MalformedReference if _unlabelable(ref) else NoSuchCheckpoint
        raise problem(ref=ref, workdir=project.workdir)
    return f"{project.refs}/{_by_hash(store, project, ref.lower(), names)}"


def _by_hash(store: Store, project: Project, digits: str, names: Sequence[str]) -> str:
    fitting = [name for name in names if name.rpartition("-")[2].startswith(digits[:12])]
    if not fitting:  # what they named may have been recorded anew
        ends = tuple(f"-{new[:12]}" for new in _replacements(store, project, digits))
        fitting = [name for name in names if name.endswith(ends)]
    if len(fitting) == 1:
        return fitting[0]
    if fitting:
        shown = ", ".join(name.rpartition("-")[2] for name in fitting[:5])
        raise AmbiguousReference(ref=digits, count=len(fitting), candidates=shown)
    for other in ref_folders(store.git_dir, "refs/shadowsnap"):
        if other != project.id and any(
            name.rpartition("-")[2].startswith(digits[:12])
            for name in ref_names(store.git_dir, f"refs/shadowsnap/{other}")
        ):
            where = (read_json(store.project_file(other)) or {}).get("workdir", other)
            raise ForeignCheckpoint(ref=digits, other=where, workdir=project.workdir)
    raise NoSuchCheckpoint(ref=digits, workdir=project.workdir)


def _replacements(store: Store, project: Project, digits: str) -> set[str]:
    """The checkpoints that took the place of those whose ids begin so, when a path was purged from them."""
    from shadowsnap.store.purged import read_purged  # only a reference that is not found needs it

    return {new for old, new in read_purged(store, project.id).ids.items() if old.startswith(digits)}


def with_new_ids(checkpoint: Checkpoint, ids: Mapping[str, str]) -> Checkpoint:
    """A checkpoint whose facts name others by the ids that they have since a path was purged from them."""
    facts = checkpoint.metadata.items()
    told = {name: ids.get(value, value) if isinstance(value, str) else value for name, value in facts}
    return replace(checkpoint, metadata=told)


def _check_label(label: str) -> None:
    why = _unlabelable(label)
    if why is None and any(re.fullmatch(kind, label) for kind in (_LAST, _HEX, _NUMBER)):
        why = "it reads like a reference of another kind"
    if why is not None:
        raise MalformedLabel(label=label, why=why)


def _unlabelable(text: str) -> str | None:
    if not text or len(text) > 100:
        return "it must have 1 to 100 characters"
    if text.startswith("-"):
        return "it must not start with '-'"
    if not text.isprintable() or text != text.strip():
        return "it has characters that cannot be typed back"
    if len(_label_key(text)) > _LONGEST_KEY:
        return "it is too long to be stored"
    return None


def _label_key(label: str) -> str:
    """A label as one component of a ref name. Capitals are escaped: some file systems take them
    for small letters."""
    return "".join(c if c in _PLAIN else "".join(f"_{byte:02x}" for byte in c.encode()) for c in label)


def label_of(key: str) -> str:
    return re.sub(
        r"((?:_[0-9a-f]{2})+)", lambda m: bytes.fromhex(m[1].replace("_", "")).decode("utf-8", "replace"), key
    )


# --- commits -------------------------------------------------------------------------------


def _next_moment(store: Store, project: Project) -> int:
    """Now in milliseconds, but later than every other checkpoint of the project, also when the
    clock was set back."""
    now = time.time_ns() // 10**6
    newest = newest_ref(store.git_dir, project.refs)
    return now if newest is None else max(now, _moment(newest) + 1)


def _moment(ref: str) -> int:
    digits = ref.rpartition("/")[2].partition("-")[0]
    return int(digits) if digits.isdigit() else 0


def _message(reason: str, body: dict[str, Any]) -> bytes:
    words = "".join(c if c.isprintable() else " " for c in reason).split()
    subject = " ".join(words)[:200] or "checkpoint"
    facts = {key: value for key, value in body.items() if value not in (None, [], {}, "")}
    if subject != reason:
        facts["reason"] = reason
    return f"{subject}\n\n{json.dumps(facts, sort_keys=True, separators=(',', ':'))}\n".encode()


def _load(git: Git, store: Store, project: Project, newest: int | None = None) -> list[Checkpoint]:
    rows = list_refs(git, _FIELDS, project.refs, newest=newest)
    _check_nothing_is_hidden(store, project, {row[0].decode() for row in rows}, newest)
    pins = read_refs(store.git_dir, project.pins)
    labels, ids = _labels(store, project), _new_ids(store, project)
    found = []
    for ref, commit, tree, message in rows:
        name = ref.decode()
        checkpoint = _decode(project, name, commit.decode(), tree.decode(), message)
        checkpoint = with_new_ids(checkpoint, ids) if ids else checkpoint
        pinned = name.rpartition("/")[2] in pins
        found.append(replace(checkpoint, pinned=pinned, label=labels.get(checkpoint.id)))
    return found


def _check_nothing_is_hidden(store: Store, project: Project, listed: set[str], newest: int | None) -> None:
    """Git leaves a ref out of a list if a power cut spoiled its file; then it has to be mended first."""
    for name in ref_names(store.git_dir, project.refs)[::-1][:newest]:
        ref = f"{project.refs}/{name}"
        if ref not in listed and is_spoiled(store.git_dir, ref):  # else it came or went meanwhile
            raise DamagedObject(id=ref)


def _new_ids(store: Store, project: Project) -> dict[str, str]:
    from shadowsnap.store.purged import read_purged

    return read_purged(store, project.id).ids


def _labels(store: Store, project: Project) -> dict[str, str]:
    return {of: label_of(key) for key, of in read_refs(store.git_dir, project.labels).items()}


def _decode(project: Project, ref: str, commit: str, tree: str, message: bytes) -> Checkpoint:
    subject, _, rest = message.decode("utf-8", "replace").partition("\n\n")
    try:
        body = json.loads(rest)
    except ValueError:
        body = {}
    if not isinstance(body, dict):
        body = {}
    take = body.pop
    take("ms", None)
    return Checkpoint(
        id=commit,
        project=project.id,
        workdir=take("workdir", str(project.workdir)),
        created_at=datetime.fromtimestamp(_moment(ref) / 1000, timezone.utc),
        reason=take("reason", subject),
        kind=take("kind", "manual"),
        scope=take("scope", "tree"),
        session_id=take("session_id", None),
        turn=take("turn", None),
        tool=take("tool", None),
        skipped=tuple(Skipped(path, why) for path, why in take("skipped", ())),
        metadata=body,
        tree=tree,
        ref=ref,
    )
