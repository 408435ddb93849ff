"""The judge: compares the store, read with plain git, and the disk with what the soak wrote down itself.

Each function returns findings. `lost` means that a file or a checkpoint cannot be had back, although shadowsnap
said otherwise; the rest are promises that were broken without such a loss.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from pathlib import Path

from soaking.manifest import (
    Entry,
    Manifest,
    State,
    differences,
    is_large,
    is_secret,
    plain_environment,
)
from soaking.workers import Reply

Tree = dict[str, tuple[str, str]]
"""Path to mode and blob, as `git ls-tree -r` has it."""


@dataclass(frozen=True)
class Finding:
    code: str
    text: str
    lost: bool = False


@dataclass
class Record:
    """A checkpoint that was reported, and the directory as the soak itself saw it in that moment."""

    id: str
    state: State
    tree: Tree
    named: frozenset[str]
    """Every path that a tool had named by then: the checkpoint knows which of them did not exist."""
    call: int
    """The number of the call that took it, by which its age is known."""
    pinned: bool = False


@dataclass
class Turn:
    """A turn that was begun and ended without a kill."""

    number: int | None
    session: str
    begin: Record
    end: Record
    straight: bool = True
    """Nothing was restored, undone or reverted since."""


@dataclass
class Store:
    """The store, through plain git."""

    git_dir: Path
    _read: set[str] = field(default_factory=set)

    def checkpoints(self, project: Path) -> dict[str, str]:
        """The checkpoints of a directory and their reasons, newest first, without those that add late files to
        the state before a turn: none of them is what a call found."""
        name = hashlib.sha256(os.fsencode(os.path.realpath(project))).hexdigest()[:16]
        listing = self._git("for-each-ref", "--sort=-refname",
                            "--format=%(objectname) %(contents:subject)%00%(contents:body)%00",
                            f"refs/shadowsnap/{name}")  # fmt: skip
        found: dict[str, str] = {}
        parts = os.fsdecode(listing).split("\0")
        for about, body in zip(parts[0::2], parts[1::2], strict=False):
            checkpoint, _, reason = about.strip("\n").partition(" ")
            if '"amends":' not in body:
                found[checkpoint] = reason
        return found

    def tree(self, checkpoint: str) -> Tree:
        rows = self._git("ls-tree", "-r", "-z", "--full-tree", checkpoint).split(b"\0")
        split = (os.fsdecode(row).partition("\t") for row in rows if row)
        return {path: (facts.split()[0], facts.split()[2]) for facts, _, path in split}

    def tree_id(self, checkpoint: str) -> str:
        return self._git("rev-parse", "--verify", checkpoint + "^{tree}").decode().strip()

    def damaged(self, blobs: Iterable[str]) -> list[str]:
        """Which of these cannot be read, or are not what their id says. Each is read once; at the end of
        the soak `git fsck` reads everything again."""
        wanted = sorted(set(blobs) - self._read)
        if not wanted:
            return []
        data = self._git("cat-file", "--batch", input="".join(f"{name}\n" for name in wanted).encode())
        bad = []
        for name in wanted:
            head, _, data = data.partition(b"\n")
            if not head.startswith(name.encode() + b" blob "):
                bad.append(name)
                continue
            size = int(head.split()[2])
            content, data = data[:size], data[size + 1 :]
            if hashlib.sha1(b"blob %d\0%b" % (size, content)).hexdigest() != name:
                bad.append(name)
        self._read |= set(wanted) - set(bad)
        return bad

    def fsck(self) -> str:
        done = subprocess.run(
            ["git", f"--git-dir={self.git_dir}", "fsck", "--full", "--strict", "--no-dangling"],
            env=plain_environment(), capture_output=True, text=True, check=False,
        )  # fmt: skip
        return "" if done.returncode == 0 else f"{done.stdout}{done.stderr}"

    def _git(self, *arguments: str, input: bytes = b"") -> bytes:
        done = subprocess.run(
            ["git", f"--git-dir={self.git_dir}", *arguments], env=plain_environment(), input=input,
            capture_output=True, check=False,
        )  # fmt: skip
        if done.returncode != 0:
            raise GitProblem(f"git {' '.join(arguments)}: {os.fsdecode(done.stderr).strip()}")
        return done.stdout


class GitProblem(Exception):
    """Plain git cannot read what has to be in the store."""


# --- snapshots -------------------------------------------------------------------------------


def judge_snapshot(store: Store, state: State, reply: Reply, tree: Tree, named: Collection[str]) -> list[Finding]:
    """Whether a checkpoint that was reported just now holds the directory as it is."""
    found, name = list[Finding](), f"{reply['id'][:8]} ({reply['status']})"
    must = state.must_hold(named)
    for path, entry in must.items():
        why = " ".join(why for why, yes in (("named", path in named), ("tracked", path in state.tracked)) if yes)
        what = f"{path!r}{f' ({why})' if why else ''}"
        if path not in tree:
            found.append(Finding("not captured", f"{what} is not in checkpoint {name}", lost=True))
        elif tree[path] != entry.leaf:
            text = f"{what} is {tree[path]} in checkpoint {name}, {entry.leaf} on disk"
            found.append(Finding("captured wrongly", text, lost=True))
    for path, leaf in tree.items():
        entry = state.manifest.get(path, Entry("absent"))
        if path in must:
            continue
        if entry.kind not in ("file", "link"):
            text = f"{path!r} is in checkpoint {name}, and {entry.kind} on disk"
            found.append(Finding("captured wrongly", text))
        elif leaf != entry.leaf:
            text = f"ignored {path!r} is {leaf} in checkpoint {name}, {entry.leaf} on disk"
            found.append(Finding("captured wrongly", text, lost=True))
        elif is_secret(path) and state.why_skipped(path) == "secret":
            found.append(Finding("secret captured", f"{path!r} is in checkpoint {name}"))
    damaged = store.damaged(leaf[1] for path, leaf in tree.items() if path in must)
    found += [Finding("damaged", f"blob {blob} of checkpoint {name}", lost=True) for blob in damaged]
    listed = {path.rstrip("/"): why for path, why in reply["skipped"]}
    for path, why in state.must_list().items():
        if path not in listed and path not in tree:
            found.append(Finding("skipped silently", f"{path!r} ({why}) is neither in {name} nor in its skipped"))
    return found


def judge_unchanged(earlier: Record, now: State) -> list[Finding]:
    """A checkpoint was reported again: what it holds must not have changed, permission bits included."""
    then, held = earlier.state.manifest, sorted({*earlier.tree, *_parents(earlier.tree)})
    return [
        Finding("unchanged, but it changed", f"{path!r}, checkpoint {earlier.id[:8]}", lost=True)
        for path in held if then.get(path) != now.manifest.get(path)
    ]  # fmt: skip


# --- restores --------------------------------------------------------------------------------


def judge_restore(record: Record, before: State, after: Manifest, chosen: Collection[str]) -> list[Finding]:
    """Whether the files are those of the checkpoint, as far as it holds them, and the rest is untouched."""
    then, tree, found = record.state.manifest, record.tree, list[Finding]()
    name = record.id[:8]

    def is_chosen(path: str) -> bool:
        return not chosen or any(path == each or path.startswith(each + "/") for each in chosen)

    def differs(path: str, code: str, want: Entry | None, lost: bool = False) -> None:
        text = "; ".join(differences({path: want} if want else {}, {path: after[path]} if path in after else {}))
        found.append(Finding(code, f"{text} (restore of {name})", lost))

    folders = _parents(tree)
    for path in (*tree, *sorted(folders)):
        if is_chosen(path) and path in then and after.get(path) != then[path]:
            differs(path, "restored wrongly", then[path], lost=True)
    if not chosen:
        above = _parents(then)
        for path, entry in then.items():
            empty = entry.kind == "dir" and path not in above and path not in record.state.ignored
            if empty and after.get(path) != entry:
                differs(path, "empty directory not restored", entry)

    others = [path for path, entry in before.manifest.items() if entry.kind != "dir" and path not in tree]
    now_folders = [path for path, entry in after.items() if entry.kind == "dir" and path not in then]
    ignored = record.state.rules.ignored([path for path in others if path not in then], now_folders)
    for path in others:
        old, new = before.manifest[path], after.get(path)
        gone = new is None or new.kind == "dir"
        if path in folders or _parents([path]) & tree.keys():
            continue  # a file where the checkpoint has a directory, or below one that was a file
        if not is_chosen(path):
            if new != old:
                differs(path, "untouched path changed", old, lost=gone)
        elif (path in then and then[path].kind != "dir") or (path in ignored and not _is_known(record, path)):
            if new != old:
                differs(path, "uncaptured path changed", old, lost=gone)
        elif path in then or _is_unsure(record, before, path):
            if new != old and not gone:
                differs(path, "uncaptured path changed", old)
        elif not gone:
            differs(path, "not deleted", None)
    for path, entry in before.manifest.items():
        other = path in tree and entry.kind != "dir" and not is_chosen(path) and after.get(path) != entry
        if other and not any(each.startswith(path + "/") for each in chosen):
            differs(path, "untouched path changed", entry, lost=True)
    for path in after.keys() - before.manifest.keys() - tree.keys() - folders - then.keys():
        differs(path, "appeared from nowhere", None)
    unknown = ignored | before.ignored  # what is ignored now was not looked at, and may stay
    stays = {path for path in now_folders if path in unknown or _is_below(path, unknown)}
    filled = _parents([*stays, *(path for path, entry in after.items() if entry.kind != "dir")])
    for path in now_folders if not chosen else ():
        if path not in filled | stays:
            differs(path, "directory left", None)
    return found


def _is_known(record: Record, path: str) -> bool:
    """Ignored then, but looked at: the checkpoint knows that it did not exist."""
    return path in record.named or path in record.state.tracked


def _is_unsure(record: Record, before: State, path: str) -> bool:
    """No promise says whether such a path goes or stays: it is one of the two, and not changed."""
    entry = before.manifest[path]
    settings = (record.state.settings, before.settings)
    return (
        path in before.ignored or _is_known(record, path) or entry.kind == "special" or is_secret(path)
        or any(is_large(entry, each) for each in settings) or record.state.rules != before.rules
        and before.why_skipped(path) is not None
    )  # fmt: skip


def judge_saved(trees: Iterable[Tree], before: Manifest, after: Manifest) -> list[Finding]:
    """Whether every file that was overwritten or deleted is in some checkpoint."""
    files = {path: entry for path, entry in before.items() if entry.kind in ("file", "link")}
    changed = [path for path, entry in files.items() if after.get(path) != entry]
    if not changed:
        return []
    trees = list(trees)
    return [
        Finding("overwritten without being saved", f"{path!r} is in no checkpoint as it was", lost=True)
        for path in changed if not any(tree.get(path) == before[path].leaf for tree in trees)
    ]  # fmt: skip


def judge_same(code: str, wanted: Manifest, found: Manifest) -> list[Finding]:
    text = differences(wanted, found)
    more = f" and {len(text) - 6} more" if len(text) > 6 else ""
    return [Finding(code, "; ".join(text[:6]) + more, lost=True)] if text else []


# --- reverts ---------------------------------------------------------------------------------


def judge_revert(turn: Turn, before: Manifest, after: Manifest, reply: Reply, keeps: bool) -> list[Finding]:
    """A revert takes out what its turn did and touches nothing else, except a file that the person renamed."""
    found, began, ended = list[Finding](), turn.begin.state.manifest, turn.end.state.manifest
    changed = {path for path in began.keys() | ended.keys() if began.get(path) != ended.get(path)}
    renamed = any(path in ended and path not in before for path in changed)
    reported = {path.rstrip("/") for path, _ in (*reply["conflicts"], *reply["kept"])}
    for path, old in before.items():
        new = after.get(path)
        if old.kind == "dir" or path in changed:
            continue
        if new is None or new.kind == "dir":
            found.append(Finding("revert deleted another file", repr(path)))
        elif new != old and not (renamed and ended.get(path) != old):
            found.append(Finding("revert changed another file", differences({path: old}, {path: new})[0]))
    for path, _ in reply["conflicts"] if keeps else ():
        if before.get(path) != after.get(path):
            found.append(Finding("revert changed a conflict", repr(path)))
    for path in changed if turn.straight else ():
        unedited = before.get(path) == ended.get(path)
        captured = _is_captured(turn.begin, path) and _is_captured(turn.end, path)
        if captured and unedited and after.get(path) != began.get(path) and path not in reported:
            wanted = {path: began[path]} if path in began else {}
            text = differences(wanted, {path: after[path]} if path in after else {})
            found.append(Finding("revert incomplete", text[0]))
    return found


def _is_captured(record: Record, path: str) -> bool:
    """The checkpoint holds this file, or knows that it did not exist."""
    entry = record.state.manifest.get(path)
    if entry is None:
        return record.state.would_hold(path) and not is_secret(path)
    return path in record.tree


def judge_plan(plan: Reply, done: Reply) -> list[Finding]:
    parts = [part for part in ("written", "deleted") if set(plan[part]) != set(done[part])]
    return [Finding("plan is not what was done", f"{part}: {plan[part]}, then {done[part]}") for part in parts]


# --- paths -----------------------------------------------------------------------------------


def _parents(paths: Iterable[str]) -> set[str]:
    found = set[str]()
    for path in paths:
        while "/" in path:
            path = path.rpartition("/")[0]
            found.add(path)
    return found


def _is_below(path: str, folders: Collection[str]) -> bool:
    return bool(_parents([path]) & set(folders))
