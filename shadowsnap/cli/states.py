"""States in words: which entry of the timeline a reference means, and what it is called."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from shadowsnap.cli.text import cut_path, one_line, safe
from shadowsnap.errors import NotCaptured
from shadowsnap.manager import CheckpointManager
from shadowsnap.model import Checkpoint, Diff, Entry

AFTER = ":after"
_SHORT_PATH = 30


def entry_of(word: str, target: Checkpoint, entries: Sequence[Entry]) -> Entry | None:
    """The turn or snapshot that a reference means; None if it is another state."""
    number = word.removesuffix(AFTER)
    numbered = [entry for entry in entries if entry.number is not None]
    if number.isascii() and number.isdigit():
        return next((entry for entry in numbered if entry.number == int(number)), None)
    return next((entry for entry in numbered if entry.state == target.id), None)


def state_in_words(word: str, target: Checkpoint, entries: Sequence[Entry]) -> tuple[str, str]:
    """What a state is called, and what it is about: `before turn 3`, `clean the project up`."""
    entry = entry_of(word, target, entries)
    if entry is None:
        return f"state {target.short_id}", one_line(target.reason)
    about = one_line(entry.prompt or entry.reason)
    if entry.kind == "snapshot":
        return f"snapshot {entry.number}", about
    place = "the end of turn" if word.endswith(AFTER) else "before turn"
    return f"{place} {entry.number}", about


def diff_of_entry(manager: CheckpointManager, workdir: str | os.PathLike[str], entry: Entry) -> Diff | None:
    """What an entry changed, up to now if it is running; None if one of its two states is not known."""
    if entry.before is None or (entry.after is None and entry.status != "running"):
        return None
    if manager.get(workdir, entry).scope != "tree":
        return None
    return manager.diff(workdir, entry.before, entry.after)


def check_held(
    manager: CheckpointManager,
    workdir: str | os.PathLike[str],
    target: Checkpoint,
    word: str,
    paths: Sequence[str],
) -> None:
    """A named file that a state does not hold because it was not captured is an error, and never passed over."""
    state = f"turn {word}" if word.isdigit() and target.kind in ("turn", "turn-end") else word
    skipped = {item.path: item.why for item in target.skipped}
    named = {os.path.normpath(path): path for path in paths}
    for path in named:
        if path in skipped:
            raise NotCaptured(state=state, path=path, why=skipped[path])
    for kept in manager.restore(workdir, target.id, paths, dry_run=True).kept:
        if kept.path in named:
            raise NotCaptured(state=state, path=kept.path, why=kept.why)


def short_path(workdir: Path | str) -> str:
    """A directory for a sentence."""
    return cut_path(tilde(workdir), _SHORT_PATH)


def tilde(workdir: Path | str) -> str:
    """A directory as people write it, with ~ for the home directory."""
    home, text = os.path.expanduser("~"), safe(str(workdir))
    return f"~{text[len(home) :]}" if text == home or text.startswith(home + os.sep) else text
