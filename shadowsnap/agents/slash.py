"""/rollback for any chat program: one line of text in, one answer out.

The numbers that a person types mean the list as it was last shown to them, whatever checkpoints
came in since. Nothing here raises, asks or prints.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

from shadowsnap.cli.tables import change_lines, described, patch_lines, rows
from shadowsnap.cli.text import ago, count, safe
from shadowsnap.cli.ui import Ink
from shadowsnap.errors import NoSuchCheckpoint, NoSuchProject, ShadowsnapError, WrongUsage
from shadowsnap.files import read_json, write_json
from shadowsnap.manager import CheckpointManager
from shadowsnap.model import Checkpoint, Diff, RestoreResult
from shadowsnap.records import dataclass, replace
from shadowsnap.store.projects import project_of

HELP = """\
/rollback                  list the checkpoints
/rollback N                bring everything back to checkpoint N (a number from the list, or an id)
/rollback N FILE...        bring back only these files; quote names with spaces
/rollback N --chat         bring back the conversation up to checkpoint N, and leave the files
/rollback N --both         bring back files and conversation (--files is what it does without)
/rollback diff N           what changed since checkpoint N
/rollback diff N M         what changed from checkpoint N to M
/rollback turn N           take out what turn N did, and keep everything else
/rollback session [ID]     the same for all turns of a session (the last one)
/rollback undo             take the last rollback back
/rollback redo             take the last undo back
/rollback pin N [NAME]     keep checkpoint N for good, under a name
/rollback help             this"""

_LISTED = 20
_WIDTH = 100
_MOST_LINES = 200
_MOST_PATHS = 30
_LONGEST_LINE = 1000
_NUMBER_DIGITS = 3
_PLAIN = Ink(False)
_PARTS = {"--files": (True, False), "--chat": (False, True), "--both": (True, True)}
"""Whether files and conversation are brought back."""


@dataclass(frozen=True)
class Answer:
    """What /rollback says: `str(answer)` is the text, the rest is for programs."""

    text: str
    action: str
    """`list`, `restore`, `turn`, `session`, `diff`, `undo`, `redo`, `pin`, `help` or `error`."""
    ok: bool = True
    checkpoints: tuple[Checkpoint, ...] = ()
    """What the numbers mean from now on, if this is a list."""
    result: RestoreResult | None = None
    diff: Diff | None = None
    checkpoint: Checkpoint | None = None
    error: Exception | None = None

    def __str__(self) -> str:
        return self.text

    def to_dict(self) -> dict[str, Any]:
        told = {"action": self.action, "ok": self.ok, "text": self.text}
        parts = {"result": self.result, "diff": self.diff, "checkpoint": self.checkpoint}
        found: dict[str, Any] = {name: part.to_dict() for name, part in parts.items() if part is not None}
        if self.action == "list":
            found["checkpoints"] = [each.to_dict() for each in self.checkpoints]
        if isinstance(self.error, ShadowsnapError):
            found["error"] = self.error.to_dict()
        elif self.error is not None:
            found["error"] = {"type": type(self.error).__name__, "message": str(self.error), "hint": ""}
        return {**told, **found}


class RollbackCommand:
    """/rollback in one conversation about one project."""

    def __init__(self, manager: CheckpointManager, working_dir: str | os.PathLike[str]) -> None:
        self.manager = manager
        self.working_dir = working_dir
        self.shown: list[str] = []
        """The ids of the list as last shown. A host that answers each line from a new process
        keeps them in between."""

    def run(self, line: str = "") -> Answer:
        """Do what the line says: all of it, or what follows /rollback."""
        try:
            return self._run(_words(line))
        except ShadowsnapError as problem:
            hint = f"\nhint: {problem.hint}" if problem.hint else ""
            return Answer(f"{safe(str(problem))}{safe(hint, keep=chr(10))}", "error", ok=False, error=problem)
        except Exception as problem:  # a chat program must not die of it
            text = f"this did not work: {safe(str(problem)) or type(problem).__name__}"
            return Answer(text, "error", ok=False, error=problem)

    def _run(self, words: list[str]) -> Answer:
        verbs: dict[str, Callable[[list[str]], Answer]] = {
            "list": self._list,
            "diff": self._diff,
            "turn": self._turn,
            "session": self._session,
            "undo": self._undo,
            "redo": self._redo,
            "pin": self._pin,
            "help": self._help,
        }
        if not words:
            return self._list([])
        return verbs[words[0]](words[1:]) if words[0] in verbs else self._restore(words)

    # --- the deeds ---------------------------------------------------------------------------

    def _list(self, words: list[str]) -> Answer:
        _no_more(words)
        try:
            found = self.manager.list_checkpoints(self.working_dir, limit=_LISTED + 1)
        except NoSuchProject:
            return Answer("no checkpoints yet: one is taken before an agent first writes", "list")
        listed = found[:_LISTED]
        self.shown = [each.id for each in listed]
        lines = rows(list(enumerate(listed, 1)), _WIDTH, _PLAIN)
        if len(found) > _LISTED:
            lines.append(f"(the newest {_LISTED}; older ones by their id)")
        lines.append("to go back: /rollback N   to look first: /rollback diff N   more: /rollback help")
        return Answer("\n".join(lines), "list", checkpoints=tuple(listed))

    def _restore(self, words: list[str]) -> Answer:
        words, files, chat = _parts_wanted(words)
        target = self._checkpoint(words[0])
        paths = [self._relative(word) for word in words[1:]]
        if paths and not files:
            raise _wrong("--chat leaves all files alone, so none can be named")
        result = self.manager.restore(self.working_dir, target.id, paths, conversation=chat, files=files)
        what = f"checkpoint {target.short_id} ({ago(target.created_at)}: {described(target)})"
        if not files:
            return Answer(f"{_said(result)}, at {what}", "restore", result=result)
        answer = _restored("restore", f"back to {what}", result, "undo")
        return replace(answer, text=f"{answer.text}\n{_said(result)}") if result.conversation else answer

    def _turn(self, words: list[str]) -> Answer:
        if len(words) != 1 or not (words[0].isascii() and words[0].isdigit()):
            raise _wrong("/rollback turn needs the number of a turn; the list tells it")
        result = self.manager.revert(self.working_dir, turn=int(words[0]))
        return _reverted("turn", f"turn {int(words[0])}", result)

    def _session(self, words: list[str]) -> Answer:
        _no_more(words[1:])
        session = words[0] if words else self._last_session()
        result = self.manager.revert(self.working_dir, session_id=session)
        return _reverted("session", f"session {session}", result)

    def _undo(self, words: list[str]) -> Answer:
        _no_more(words)
        return _restored("undo", "the last rollback is undone", self.manager.undo(self.working_dir), "redo")

    def _redo(self, words: list[str]) -> Answer:
        _no_more(words)
        return _restored("redo", "the undone rollback is done again", self.manager.redo(self.working_dir), "undo")

    def _diff(self, words: list[str]) -> Answer:
        if not 1 <= len(words) <= 2:
            raise _wrong("/rollback diff needs one checkpoint or two")
        first = self._checkpoint(words[0])
        second = self._checkpoint(words[1]) if len(words) == 2 else None
        diff = self.manager.diff(self.working_dir, first.id, second.id if second else None)
        other = second.short_id if second else "the files as they are now"
        if not diff:
            return Answer(f"no difference between {first.short_id} and {other}", "diff", diff=diff)
        lines = [f"from {first.short_id} to {other}:"]
        *paths, total = change_lines(diff.changes, _WIDTH, _PLAIN)
        lines += [*_cut(paths, _MOST_PATHS, "path"), total]
        patch = [_short(each) for each in patch_lines(diff.text, _PLAIN)] if diff.text else []
        lines += _cut(patch, _MOST_LINES, "line")
        return Answer("\n".join(lines), "diff", diff=diff)

    def _pin(self, words: list[str]) -> Answer:
        if not words:
            raise _wrong("/rollback pin needs a checkpoint")
        target = self._checkpoint(words[0])
        name = " ".join(words[1:])
        if name:  # first: a name that is refused must not leave a pin behind
            self.manager.label(self.working_dir, target.id, name)
        pinned = self.manager.pin(self.working_dir, target.id)
        called = f" as {safe(name)}" if name else ""
        return Answer(f"{pinned.short_id} is kept for good{called}", "pin", checkpoint=pinned)

    def _help(self, words: list[str]) -> Answer:
        return Answer(HELP, "help")

    # --- what a word means -------------------------------------------------------------------

    def _checkpoint(self, word: str) -> Checkpoint:
        if word.isascii() and word.isdigit() and len(word) <= _NUMBER_DIGITS:
            if not self.shown:
                self._list([])
            if not 1 <= int(word) <= len(self.shown):
                problem = NoSuchCheckpoint(ref=word, workdir=os.fspath(self.working_dir))
                problem.hint = f"the list has the numbers 1 to {len(self.shown)}: /rollback" if self.shown else ""
                raise problem
            word = self.shown[int(word) - 1]
        return self.manager.get(self.working_dir, word)

    def _last_session(self) -> str:
        for each in self.manager.list_checkpoints(self.working_dir):
            if each.session_id:
                return each.session_id
        raise _wrong("no checkpoint belongs to a session")

    def _relative(self, path: str) -> str:
        if not os.path.isabs(path):
            return path
        folder, name = os.path.split(path)
        return os.path.relpath(os.path.join(os.path.realpath(folder), name), os.path.realpath(self.working_dir))


def _words(line: str) -> list[str]:
    lexer = shlex.shlex(str(line or ""), posix=True, punctuation_chars=False)
    lexer.whitespace_split, lexer.commenters = True, ""
    if os.name == "nt":
        lexer.escape = ""  # a backslash belongs to a path there
    try:
        words = list(lexer)
    except ValueError as problem:
        raise _wrong(f"a quotation mark is missing: {problem}") from None
    if words and words[0].lower() in ("/rollback", "rollback"):
        del words[0]
    return words


def _parts_wanted(words: list[str]) -> tuple[list[str], bool, bool]:
    """What is left of the words, and whether files and conversation are meant."""
    given = {word for word in words if word in _PARTS}
    if len(given) > 1:
        raise _wrong(f"{' and '.join(sorted(given))} cannot stand together")
    rest = [word for word in words if word not in _PARTS]
    if not rest:
        raise _wrong("which checkpoint? The list tells their numbers")
    files, chat = _PARTS[given.pop()] if given else (True, False)
    return rest, files, chat


def _said(result: RestoreResult) -> str:
    """How the conversation comes back: the program that asked has to take it up."""
    number = result.conversation.message_count
    return "the conversation as it was" + ("" if number is None else f", with {count(number, 'message')}")


def _no_more(words: list[str]) -> None:
    if words:
        raise _wrong(f"{words[0]!r} does not belong there")


def _wrong(why: str) -> WrongUsage:
    problem = WrongUsage(why=why)
    problem.hint = "/rollback help"
    return problem


def _restored(action: str, what: str, result: RestoreResult, back: str) -> Answer:
    if not result.written and not result.deleted:
        text = "nothing to do: the files are already like that"
        return Answer(_with_note(text, result), action, result=result)
    lines = [f"{what}: {count(len(result.written), 'path')} written, {len(result.deleted)} deleted"]
    lines += _cut([f"  wrote    {safe(path)}" for path in result.written], _MOST_PATHS, "path")
    lines += _cut([f"  deleted  {safe(path)}" for path in result.deleted], _MOST_PATHS, "path")
    lines += _cut([f"  kept     {safe(kept.path)} ({kept.why})" for kept in result.kept], _MOST_PATHS, "path")
    lines.append(f"to take it back: /rollback {back}")
    return Answer(_with_note("\n".join(lines), result), action, result=result)


def _reverted(action: str, work: str, result: RestoreResult) -> Answer:
    disputed = [f"  disputed {safe(each.path)} ({each.why}), left as it is" for each in result.conflicts]
    answer = _restored(action, f"what {safe(work)} did is taken out", result, "undo")
    return replace(answer, text="\n".join([*_cut(disputed, _MOST_PATHS, "path"), answer.text]))


def _with_note(text: str, result: RestoreResult) -> str:
    return f"{text}\nnote: {safe(result.note)}" if result.note else text


def _short(line: str) -> str:
    """A file may be one line of megabytes."""
    left = len(line) - _LONGEST_LINE
    return line if left <= 0 else f"{line[:_LONGEST_LINE]} ... and {count(left, 'more character')}"


def _cut(lines: list[str], most: int, noun: str) -> list[str]:
    """At most so many lines; the last one says how many are missing."""
    if len(lines) <= most:
        return lines
    return [*lines[:most], f"  ... and {count(len(lines) - most, f'more {noun}')}"]


def read_shown(manager: CheckpointManager, workdir: Path) -> list[str]:
    record = read_json(_file(manager, workdir)) or {}
    shown = record.get("shown")
    return [each for each in shown if isinstance(each, str)] if isinstance(shown, list) else []


def write_shown(manager: CheckpointManager, workdir: Path, shown: list[str]) -> None:
    if shown != read_shown(manager, workdir):
        write_json(_file(manager, workdir), {"workdir": str(workdir), "shown": shown})


def _file(manager: CheckpointManager, workdir: Path) -> Path:
    return manager.settings.resolved_base() / "shown" / f"{project_of(workdir).id}.json"
