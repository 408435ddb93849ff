"""Checkpoints: parentless commits under one ref each. Recording, listing, finding them."""

from __future__ import annotations

import itertools
import json
import os
import re
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

from shadowsnap.deadline import Deadline
from shadowsnap.errors import (
    AmbiguousReference,
    DamagedObject,
    ForeignCheckpoint,
    GitFailed,
    MalformedLabel,
    MalformedObject,
    MalformedReference,
    NoSuchCheckpoint,
    UnsafeTree,
)
from shadowsnap.files import UnreadableFile, is_encodable, parse_json, read_bounded, read_json, write_json
from shadowsnap.git.objects import EMPTY_TREE, MAX_IN_MEMORY, LooseObjects, object_id
from shadowsnap.git.packs import NewObjects
from shadowsnap.git.reading import ObjectReader, comparable, read_many
from shadowsnap.git.refs import (
    create_ref,
    delete_refs,
    is_damaged_ref,
    list_refs,
    newest_ref,
    read_ref,
    read_refs,
    ref_exists,
    ref_folders,
    ref_names,
    set_ref,
)
from shadowsnap.git.repository import Git
from shadowsnap.git.trees import DIRECTORY, TreeReader
from shadowsnap.model import Checkpoint, Skipped
from shadowsnap.store.layout import Store
from shadowsnap.store.projects import Project, all_records, read_purged

_Otherwise = TypeVar("_Otherwise")

_FIELDS = ("refname", "objectname", "tree", "contents")
# The grammar of references. Compiled only when used: most hooks resolve no reference.
LAST = r"last(?:~([0-9]{1,9}))?"
NUMBER = r"([0-9]{1,6})(:after)?"
"""Of a turn or snapshot. Seven digits and more are an id."""
_HEX = r"[0-9a-fA-F]{7,40}|(?=[0-9]*[a-fA-F])[0-9a-fA-F]{4,6}"
_PLAIN = frozenset("abcdefghijklmnopqrstuvwxyz0123456789")
_LONGEST_KEY = 240
"""File systems take names of 255 bytes, and git adds `.lock`."""
_LONGEST_REASON = 1 << 16
_GRACE_SECONDS = 5.0
_TEXT_FACTS = frozenset({"before", "within", "prompt", "original_id", "git_head", "git_branch"})
_PATH_FACTS = frozenset({"empty_dirs", "absent", "named"})
_OCTAL = frozenset("01234567")


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
    message = _message(reason[:_LONGEST_REASON], {**body, "workdir": str(project.workdir), "ms": moment % 1000})
    who = f"shadowsnap <shadowsnap@localhost> {moment // 1000} +0000"
    commit = f"tree {tree}\nauthor {who}\ncommitter {who}\n\n".encode() + message
    commit_id = objects.write(b"commit", commit)
    ref = f"{project.refs}/{moment:013d}-{commit_id[:12]}"
    objects.flush()
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
    if len(found) == wanted and found[-1].scope != "tree":  # their changes refer to an older one
        found = _load(git, store, project)
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
    return _decode(project, ref, commit_id, header[5:45].decode("ascii", "replace"), message)


def find_checkpoint(store: Store, project: Project, ref: str, deadline: Deadline) -> Checkpoint:
    """The checkpoint of an id, or its first digits, or a label. (For numbers and `last` see `history`.)"""
    checkpoint = read_checkpoint(store, project, _resolve(store, project, ref), deadline)
    is_other = re.fullmatch(_HEX, ref) and len(ref) > 12 and not checkpoint.id.startswith(ref.lower())
    if is_other and checkpoint.id not in _replacements(store, project, ref.lower()):
        raise NoSuchCheckpoint(ref=ref, workdir=project.workdir)
    return checkpoint


def find_if_kept(store: Store, project: Project, checkpoint_id: str, deadline: Deadline) -> Checkpoint | None:
    """The checkpoint of an id; None if it was dropped."""
    try:
        return find_checkpoint(store, project, checkpoint_id, deadline)
    except NoSuchCheckpoint:
        return None


def paths_in_fact(checkpoint: Checkpoint, fact: str) -> list[bytes]:
    """The paths that a checkpoint lists in one of its facts; none if there is no such list."""
    paths = checkpoint.metadata.get(fact)
    return [os.fsencode(path) for path in paths if isinstance(path, str)] if isinstance(paths, list) else []


def files_of(store: Store, checkpoint: Checkpoint, deadline: Deadline) -> list[str]:
    """Every file that a checkpoint holds. Raises `UnsafeTree` for what it must not hold."""
    found = []
    with ObjectReader(store.git(deadline)) as reader:
        for path in TreeReader(checkpoint.tree, reader.tree).files_below(b""):
            deadline.check("listing files")
            found.append(os.fsdecode(path))
    return sorted(found)


def ref_of(store: Store, project: Project, checkpoint_id: str) -> str | None:
    """The ref of a checkpoint by its id; None if it was dropped."""
    names = ref_names(store.git_dir, project.refs)
    name = next((name for name in reversed(names) if name.endswith(f"-{checkpoint_id[:12]}")), None)
    return None if name is None else f"{project.refs}/{name}"


def newest_checkpoint(store: Store, project: Project, deadline: Deadline) -> Checkpoint | None:
    ref = newest_name(store, project)
    return read_checkpoint(store, project, ref, deadline) if ref else None


def delete_checkpoints(
    store: Store, project: Project, checkpoints: Iterable[Checkpoint], deadline: Deadline
) -> None:
    """Drop checkpoints with their pins, labels and attachments; every other id stays what it is."""
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
        raise AmbiguousReference(ref=digits, count=len(fitting), what="checkpoints", candidates=shown)
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
    return {new for old, new in read_purged(store, project.id).ids.items() if old.startswith(digits)}


def with_new_ids(checkpoint: Checkpoint, ids: Mapping[str, str]) -> Checkpoint:
    """A checkpoint whose facts name others by the ids that they have since a path was purged from them."""
    facts = checkpoint.metadata.items()
    metadata = {name: ids.get(value, value) if isinstance(value, str) else value for name, value in facts}
    return replace(checkpoint, metadata=metadata)


def _check_label(label: str) -> None:
    why = _unlabelable(label)
    if why is None and (label == "@" or label.isdigit() or re.fullmatch(f"{LAST}|{NUMBER}|{_HEX}", label)):
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
    return now if newest is None else max(now, moment_of(newest) + 1)


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
    labels, ids = _labels(store, project), read_purged(store, project.id).ids
    found = []
    for ref, commit, tree, message in rows:
        name = ref.decode()
        checkpoint = _decode(project, name, commit.decode(), tree.decode(), message)
        checkpoint = with_new_ids(checkpoint, ids) if ids else checkpoint
        pinned = name.rpartition("/")[2] in pins
        found.append(replace(checkpoint, pinned=pinned, label=labels.get(checkpoint.id)))
    return found


def _check_nothing_is_hidden(store: Store, project: Project, listed: set[str], newest: int | None) -> None:
    """Git leaves a ref out of a list if a power cut spoiled its file; then it has to be repaired first."""
    for name in ref_names(store.git_dir, project.refs)[::-1][:newest]:
        ref = f"{project.refs}/{name}"
        if ref not in listed and is_damaged_ref(store.git_dir, ref):  # else it came or went meanwhile
            raise DamagedObject(id=ref)


def _labels(store: Store, project: Project) -> dict[str, str]:
    return {of: label_of(key) for key, of in read_refs(store.git_dir, project.labels).items()}


def _decode(project: Project, ref: str, commit: str, tree: str, message: bytes) -> Checkpoint:
    subject, body = read_message(message)
    body.pop("ms", None)
    turn = body.pop("turn", None)
    return Checkpoint(
        id=commit,
        project=project.id,
        workdir=_text_of(body, "workdir", str(project.workdir)),
        created_at=datetime.fromtimestamp(moment_of(ref) / 1000, UTC),
        reason=_text_of(body, "reason", subject),
        kind=_text_of(body, "kind", "manual"),
        scope=_text_of(body, "scope", "tree"),
        session_id=_text_of(body, "session_id", None),
        turn=turn if isinstance(turn, int) else None,
        tool=_text_of(body, "tool", None),
        skipped=tuple(_skipped(body.pop("skipped", ()))),
        metadata={
            name: _without_unsafe_paths(name, value) for name, value in body.items() if _is_usable(name, value)
        },
        tree=tree,
        ref=ref,
    )


def read_message(message: bytes) -> tuple[str, dict[str, Any]]:
    """The subject of a checkpoint's commit, and its facts; none if they cannot be read."""
    subject, _, rest = message.decode("utf-8", "replace").partition("\n\n")
    try:
        body = parse_json(rest)
    except ValueError:
        body = None
    return subject, body if isinstance(body, dict) else {}


def _text_of(body: dict[str, Any], name: str, otherwise: _Otherwise) -> str | _Otherwise:
    """Remove and return a text fact. Any other type is ignored, because a commit may be crafted."""
    value = body.pop(name, None)
    return value if isinstance(value, str) else otherwise


def _skipped(rows: Any) -> Iterator[Skipped]:
    for row in rows if isinstance(rows, list) else ():
        if isinstance(row, list) and len(row) == 2 and is_encodable(row[0]) and isinstance(row[1], str):
            yield Skipped(row[0], row[1])


def _is_usable(name: str, value: Any) -> bool:
    """Whether a fact has the shape that we write it in."""
    if name in _TEXT_FACTS:
        return isinstance(value, str)
    if name in _PATH_FACTS:
        return isinstance(value, list) and all(map(is_encodable, value))
    if name == "modes":
        return isinstance(value, dict) and _are_modes(value)
    if name == "rules":
        return isinstance(value, dict) and all(map(is_encodable, (*value, *value.values())))
    if name == "excludes":
        own = value.get("own", []) if isinstance(value, dict) else None
        return isinstance(own, list) and all(map(is_encodable, own))
    return True


def _are_modes(modes: dict[str, Any]) -> bool:
    other = modes.get("other", {})
    bits = [modes.get(name, "0") for name in ("file", "exec", "dir")]
    if not isinstance(other, dict) or not all(map(is_encodable, other)):
        return False
    bits += other.values()
    return all(isinstance(each, str) and 0 < len(each) <= 4 and _OCTAL.issuperset(each) for each in bits)


def _without_unsafe_paths(name: str, value: Any) -> Any:
    """A fact without paths that lead out of the project, or into a repository: a restore makes directories and
    sets permission bits there. The rest of the fact stays."""
    if name in _PATH_FACTS:
        return [path for path in value if _is_safe(path)]
    if name == "rules":
        return {path: text for path, text in value.items() if _is_safe(path)}
    if name == "modes" and "other" in value:
        usual, other = dict(value), {path: bits for path, bits in value["other"].items() if _is_safe(path)}
        del usual["other"]
        return {**usual, "other": other} if other else usual
    return value


def _is_safe(path: str) -> bool:
    return "\0" not in path and {"", ".", "..", ".git"}.isdisjoint(path.removesuffix("/").lower().split("/"))


CHECKPOINTS = "refs/shadowsnap"
PINS = "refs/shadowsnap-pins"
LABELS = "refs/shadowsnap-labels"
ATTACHMENTS = "refs/shadowsnap-meta"


def attachment_of(checkpoint_ref: str) -> str:
    """The ref under which the attachments of a checkpoint are, if it has any."""
    return ATTACHMENTS + checkpoint_ref.removeprefix(CHECKPOINTS)


def checkpoint_of(attachment: str) -> str:
    """The ref of the checkpoint that an attachment belongs to."""
    return CHECKPOINTS + attachment.removeprefix(ATTACHMENTS)


def all_refs(git: Git) -> dict[str, str]:
    """Every ref of the store, whatever it is for, and what it points to."""
    return {ref.decode(): name.decode() for ref, name in list_refs(git, ("refname", "objectname"), "refs/")}


@dataclass(frozen=True)
class Inventory:
    refs: dict[str, str]
    """Every ref of the store and what it points to."""
    projects: dict[str, Project]
    checkpoints: dict[str, list[Checkpoint]]
    """By project, newest first."""

    @cached_property
    def labels(self) -> dict[str, str]:
        """The names of checkpoints, by their ids."""
        labelled = {ref: name for ref, name in self.refs.items() if ref.startswith(f"{LABELS}/")}
        return {name: label_of(ref.split("/", 3)[3]) for ref, name in labelled.items()}

    @property
    def attachments(self) -> dict[str, str]:
        """Refs of attachments, newest first."""
        found = [ref for ref in self.refs if ref.startswith(f"{ATTACHMENTS}/")]
        return {ref: self.refs[ref] for ref in sorted(found, key=moment_of, reverse=True)}


def take_inventory(store: Store, deadline: Deadline) -> Inventory:
    git = store.git(deadline)
    refs, records = all_refs(git), all_records(store)
    wanted = sorted((ref for ref in refs if ref.startswith(f"{CHECKPOINTS}/")), reverse=True)
    objects = read_many(git, {refs[ref] for ref in wanted})
    commits = {name: data for name, kind, data in objects if kind == b"commit"}
    found = Inventory(refs, {}, {})
    for ref in wanted:
        if refs[ref] not in commits:
            continue  # it is damaged
        _, _, identity, name = ref.split("/", 3)
        recorded = Project(identity, Path(str(records.get(identity, {}).get("workdir", ""))))
        project = found.projects.get(identity, recorded)
        checkpoint = decode_checkpoint(project, ref, refs[ref], commits[refs[ref]])
        if not project.workdir.is_absolute():
            project = Project(identity, Path(checkpoint.workdir))  # its record is lost
        found.projects[identity] = project
        pinned, label = f"{PINS}/{identity}/{name}" in refs, found.labels.get(checkpoint.id)
        found.checkpoints.setdefault(identity, []).append(replace(checkpoint, pinned=pinned, label=label))
    for identity, listed in found.checkpoints.items():
        if ids := read_purged(store, identity).ids:
            listed[:] = [with_new_ids(checkpoint, ids) for checkpoint in listed]
    return found


def moment_of(ref: str) -> int:
    """The milliseconds that a ref name begins with."""
    digits = ref.rpartition("/")[2].partition("-")[0]
    return int(digits) if digits.isdigit() else 0


def contents_of(
    store: Store, checkpoint: Checkpoint, paths: Iterable[str], deadline: Deadline
) -> dict[str, bytes]:
    """The bytes of those of the files that the checkpoint has; of a link, where it leads."""
    found = {}
    with ObjectReader(store.git(deadline)) as reader:
        lookup = TreeReader(checkpoint.tree, reader.tree)
        for path in paths:
            leaf = lookup.find(os.fsencode(path))
            if leaf is not None and leaf[0] != DIRECTORY:
                found[path] = reader.read(leaf[1], b"blob")
    return found


def contents_now(workdir: Path, paths: Iterable[str]) -> dict[str, bytes]:
    """The same of the files on disk."""
    found = {}
    for path in paths:
        file = workdir / path
        try:
            is_link = file.is_symlink()
            content = os.fsencode(os.readlink(file)) if is_link else read_bounded(file, MAX_IN_MEMORY)
        except (OSError, UnreadableFile):  # a directory, or a pipe that would be waited for
            continue
        if content is not None:
            found[path] = content
    return found


def touching(store: Store, listed: Iterable[Checkpoint], path: bytes, deadline: Deadline) -> list[Checkpoint]:
    """Those in which a path changed. Where there is nothing to compare with (the oldest, or named
    files alone), those that hold it. `listed` was counted for this path. At most one process."""
    with ObjectReader(store.git(deadline)) as reader:
        return [
            each
            for each in listed
            if each.files_changed or (each.files_changed is None and _holds(reader, each.tree, path))
        ]


def _holds(reader: ObjectReader, tree: str, path: bytes) -> bool:
    try:
        return TreeReader(tree, reader.tree).find(path) is not None
    except (DamagedObject, MalformedObject, UnsafeTree):
        return True  # unreadable: it may have held the path


# --- what each checkpoint changed against the one before it --------------------------------
# Counted by git once, then remembered: counting the lines of 500 checkpoints takes twenty times as long as listing
# them. The numbers follow from the two trees alone, so they stay right; the file they are kept in can be lost.

_MOST = 5_000
"""Number of comparisons that are kept; beyond it, only those of the newest listing stay."""
_ATTEMPTS = 40
"""Most runs of git where lost objects make it stop."""

Pair = tuple[str, str]
Numbers = tuple[int, int, int, int, int]
"""Files that differ, lines inserted and deleted, files added and deleted."""
NO_CHANGE: Numbers = (0, 0, 0, 0, 0)


def with_statistics(
    store: Store, project: Project, git: Git, newest_first: list[Checkpoint], path: bytes | None = None
) -> list[Checkpoint]:
    """Compare every checkpoint with the whole-directory one before it."""
    return _with_numbers(newest_first, count_pairs(store, project, git, _pairs(newest_first).values(), path))


def compared_at(git: Git, projects: Iterable[list[Checkpoint]], path: bytes) -> list[Checkpoint]:
    """The same for one path in several projects, each given newest first, with one process for all."""
    listed = list(projects)
    numbers = count_at(git, (pair for some in listed for pair in _pairs(some).values()), path)
    return [each for some in listed for each in _with_numbers(some, numbers)]


def _pairs(newest_first: list[Checkpoint]) -> dict[str, Pair]:
    """The trees that are compared for each checkpoint, by its ref; none for the oldest and for named files."""
    trees = [each for each in newest_first if each.scope == "tree"]
    return {new.ref: (old.tree, new.tree) for new, old in itertools.pairwise(trees)}


def _with_numbers(listed: list[Checkpoint], numbers: Mapping[Pair, Numbers]) -> list[Checkpoint]:
    pairs, result = _pairs(listed), []
    for checkpoint in listed:
        pair = pairs.get(checkpoint.ref)
        if pair is not None and pair in numbers:
            files, insertions, deletions, _, _ = numbers[pair]
            checkpoint = replace(checkpoint, files_changed=files, insertions=insertions, deletions=deletions)
        result.append(checkpoint)
    return result


def count_pairs(
    store: Store, project: Project, git: Git, pairs: Iterable[Pair], path: bytes | None = None
) -> dict[Pair, Numbers]:
    """What differs between pairs of trees, remembered unless it is for one path. Pairs whose trees are lost are
    left out."""
    wanted = dict.fromkeys(pairs)
    if path is not None:
        return count_at(git, wanted, path)
    remembered = _remembered(store, project)
    counted = count_at(git, (pair for pair in wanted if pair not in remembered))
    everything = remembered | {pair: numbers for pair, numbers in counted.items() if pair[0] != pair[1]}
    if everything != remembered:
        chosen = everything.keys() if len(everything) <= _MOST else everything.keys() & wanted.keys()
        record = {f"{old} {new}": everything[old, new] for old, new in chosen}
        with suppress(OSError):  # a store that cannot be written to can still be listed
            write_json(store.statistics_file(project.id), record)
    return {pair: numbers for pair, numbers in (everything | counted).items() if pair in wanted}


def _remembered(store: Store, project: Project) -> dict[Pair, Numbers]:
    found: dict[Pair, Numbers] = {}
    for name, row in (read_json(store.statistics_file(project.id)) or {}).items():
        old, _, new = name.partition(" ")
        try:
            files, insertions, deletions, added, deleted = map(int, row)
            found[old, new] = (files, insertions, deletions, added, deleted)
        except (TypeError, ValueError, OverflowError):
            continue  # damaged: it is counted again
    return found


def count_at(git: Git, pairs: Iterable[Pair], path: bytes = b"") -> dict[Pair, Numbers]:
    """Let git count what differs at a path, or below it. Pairs whose trees or files are lost are left out, and
    those that a checkpoint must not hold. In the order of the timeline, each tree is read once."""
    wanted = dict.fromkeys(pairs)
    numbers: dict[Pair, Numbers] = {pair: NO_CHANGE for pair in wanted if pair[0] == pair[1]}
    pending, attempts = [comparable(git, (pair for pair in wanted if pair not in numbers))], 0
    while pending and attempts < _ATTEMPTS:
        some = pending.pop(0)
        if not some:
            continue
        attempts += 1
        try:
            numbers |= _count_whole(git, some, path)
        except GitFailed:  # it stops at the first that it cannot read: the others can still be had
            half = len(some) // 2
            pending += [some[:half], some[half:]] if half else []
    return numbers


def _count_whole(git: Git, pairs: list[Pair], path: bytes) -> dict[Pair, Numbers]:
    asked = "".join(f"{old} {new}\n" for old, new in pairs).encode()
    limit: list[bytes] = [b"--", path] if path else []
    words = ("diff-tree", "--stdin", "-r", "--raw", "--numstat", "-z", "--no-renames", "--abbrev=4")
    answer = git.run(*words, *limit, stdin=asked)
    numbers: dict[Pair, Numbers] = {}
    current, at = ("", ""), 0
    while at < len(answer):
        if (
            answer[at + 40 : at + 41] == b" "
            and answer[at + 81 : at + 82] == b"\n"
            and b"\t" not in answer[at : at + 81]
        ):
            current = (answer[at : at + 40].decode(), answer[at + 41 : at + 81].decode())
            numbers[current] = NO_CHANGE
            at += 82
            continue
        end = answer.index(b"\0", at)
        files, insertions, deletions, added, deleted = numbers[current]
        if answer[at : at + 1] == b":":  # the raw form says whether a file came or went; its path follows
            status = answer[end - 1 : end]
            numbers[current] = (files, insertions, deletions, added + (status == b"A"), deleted + (status == b"D"))
            at = answer.index(b"\0", end + 1) + 1
            continue
        more, less, _ = answer[at:end].split(b"\t", 2)
        numbers[current] = (files + 1, insertions + _lines(more), deletions + _lines(less), added, deleted)
        at = end + 1
    return numbers


def _lines(number: bytes) -> int:
    return 0 if number == b"-" else int(number)  # "-": binary
