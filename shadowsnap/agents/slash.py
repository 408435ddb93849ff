"""/rollback for any chat program: one line of text in, one answer out.

It uses the numbers and references of the timeline. Nothing here raises, asks or prints. What only reads writes
nothing, so it works on a read-only store and inside a sandbox.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from shadowsnap.cli.tables import (
    change_lines,
    check_captured,
    conflicting_turn,
    describe_state,
    patch_lines,
    result_counts,
    result_title,
    timeline_lines,
    turn_number,
    turn_of,
)
from shadowsnap.cli.text import count, cut, safe
from shadowsnap.cli.ui import Ink
from shadowsnap.errors import NoSuchProject, ShadowsnapError, UnsafeTree, WrongUsage
from shadowsnap.manager import CheckpointManager
from shadowsnap.model import Checkpoint, Diff, Entry, Now, RestoreResult
from shadowsnap.store.conversations import spoken_messages

HELP = """\
/rollback                  the timeline: what was asked, and what each turn changed
/rollback N                bring everything back to before turn N (of a snapshot: to it)
/rollback N FILE...        bring back only these files; quote names with spaces
/rollback N --chat         bring back the conversation up to turn N, and leave the files
/rollback N --both         bring back files and conversation (--files is what it does without)
/rollback diff N           what turn N did; diff N @ compares with the files as they are now
/rollback diff N M         what differs between two states
/rollback turn N           take out what turn N did, and keep everything else
/rollback session [ID]     the same for all turns of a session (the last one)
/rollback undo             take back the last thing that happened, a turn or a rollback
/rollback redo             take the last undo back
/rollback pin N [NAME]     keep the state before turn N for good, under a name
/rollback help             this"""

_LISTED = 20
_WIDTH = 100
_MOST_LINES = 200
_MOST_PATHS = 30
_LONGEST_LINE = 1000
_LONGEST_ABOUT = 60
_PLAIN = Ink(False)
_PARTS = {"--files": (True, False), "--chat": (False, True), "--both": (True, True)}
"""Whether files and conversation are brought back."""


@dataclass(frozen=True)
class Answer:
    """What /rollback answers: `str(answer)` is the text, the rest is for programs."""

    text: str
    action: str
    """`list`, `restore`, `turn`, `session`, `diff`, `undo`, `redo`, `pin`, `help` or `error`."""
    ok: bool = True
    entries: tuple[Entry, ...] = ()
    result: RestoreResult | None = None
    diff: Diff | None = None
    checkpoint: Checkpoint | None = None
    error: Exception | None = None

    def __str__(self) -> str:
        return self.text

    def to_dict(self) -> dict[str, Any]:
        record: dict[str, Any] = {"action": self.action, "ok": self.ok, "text": self.text}
        parts = {"restored": self.result, "diff": self.diff, "checkpoint": self.checkpoint}
        record |= {name: part.to_dict() for name, part in parts.items() if part is not None}
        if self.action == "list":
            record["entries"] = [entry.to_dict() for entry in self.entries]
        if isinstance(self.error, ShadowsnapError):
            record["error"] = self.error.to_dict()
        elif self.error is not None:
            record["error"] = {"type": type(self.error).__name__, "message": str(self.error), "hint": ""}
        return record


class RollbackCommand:
    """/rollback in one conversation about one project."""

    def __init__(self, manager: CheckpointManager, working_dir: str | os.PathLike[str]) -> None:
        self.manager = manager
        self.working_dir = working_dir

    def run(self, line: str = "") -> Answer:
        """Answer a line, with or without /rollback at its beginning."""
        try:
            return self._run(split_line(line))
        except ShadowsnapError as problem:
            hint = f"\nhint: {problem.hint}" if problem.hint else ""
            return Answer(f"{safe(str(problem))}{safe(hint, keep=chr(10))}", "error", ok=False, error=problem)
        except Exception as problem:  # it must not end the chat program
            text = f"this did not work: {safe(str(problem)) or type(problem).__name__}"
            return Answer(text, "error", ok=False, error=problem)

    def is_command(self, line: str) -> bool:
        """Whether all of a line is a command of this grammar whose numbers and files exist: a sentence that
        merely begins with `rollback` belongs to the model."""
        try:
            words = split_line(line)
        except WrongUsage:
            return False
        if not words:
            return True
        if words[0] in ("undo", "redo", "help", "list"):
            return len(words) == 1
        if words[0] == "session":
            return len(words) <= 2
        if words[0] in ("turn", "diff", "pin"):
            return 2 <= len(words) <= 3 and all(self._is_state(word) for word in words[1:2])
        rest = [word for word in words[1:] if word not in _PARTS]
        return self._is_state(words[0]) and all(self._is_file(word, words[0]) for word in rest)

    def _is_state(self, word: str) -> bool:
        try:
            self.manager.get(self.working_dir, word)
        except (ShadowsnapError, OSError):
            return False
        return True

    def _is_file(self, word: str, ref: str) -> bool:
        path = self._relative(word).rstrip("/")
        if os.path.lexists(os.path.join(self.working_dir, path)):
            return True
        try:
            files = self.manager.files(self.working_dir, ref)
        except (ShadowsnapError, OSError):
            return False
        return any(file == path or file.startswith(f"{path}/") for file in files)

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

    def _list(self, words: list[str]) -> Answer:
        _expect_end(words)
        try:
            entries = self.manager.timeline(self.working_dir)
            now = self._now()
        except NoSuchProject:
            return Answer("no history yet: the first snapshot is taken before an agent first writes", "list")
        shown = entries[:_LISTED]
        lines = timeline_lines(shown, now, _WIDTH, _PLAIN)
        if len(entries) > _LISTED:
            lines.append(f"({len(entries) - _LISTED} more; their numbers work too)")
        lines.append("back to before turn N: /rollback N   look first: /rollback diff N   more: /rollback help")
        return Answer("\n".join(lines), "list", entries=tuple(shown))

    def _now(self) -> Now | None:
        try:
            return self.manager.now(self.working_dir)
        except UnsafeTree:
            return None  # a restore says why; the rest of the timeline is not affected

    def _restore(self, words: list[str]) -> Answer:
        words, files, chat = _split_parts(words)
        target = self.manager.get(self.working_dir, words[0])
        paths = [self._relative(word) for word in words[1:]]
        if paths and not files:
            raise _usage_error("--chat leaves all files alone, so none can be named")
        if paths:
            check_captured(self.manager, self.working_dir, target, words[0], paths)
        result = self.manager.restore(self.working_dir, target.id, paths, conversation=chat, files=files)
        name, about = describe_state(words[0], target, self.manager.timeline(self.working_dir))
        what = f"{name} ({cut(about, _LONGEST_ABOUT)})" if about else name
        if not files:
            return Answer(f"{_conversation(result)}, at {what}", "restore", result=result)
        answer = _restore_answer("restore", f"back to {what}", result)
        return replace(answer, text=f"{answer.text}\n{_conversation(result)}") if result.conversation else answer

    def _turn(self, words: list[str]) -> Answer:
        if len(words) != 1:
            raise _usage_error("/rollback turn needs the number of a turn; the list has them")
        number = turn_number(self.manager, self.working_dir, words[0])
        return _revert_answer("turn", "took out", self.manager.revert(self.working_dir, turn=number))

    def _session(self, words: list[str]) -> Answer:
        _expect_end(words[1:])
        session = words[0] if words else self._last_session()
        return _revert_answer("session", "took out", self.manager.revert(self.working_dir, session_id=session))

    def _undo(self, words: list[str]) -> Answer:
        _expect_end(words)
        result = self.manager.undo(self.working_dir)
        return _revert_answer("undo", "took back", result, "redo")

    def _redo(self, words: list[str]) -> Answer:
        _expect_end(words)
        result = self.manager.redo(self.working_dir)
        return _revert_answer("redo", "brought back", result)

    def _diff(self, words: list[str]) -> Answer:
        if not 1 <= len(words) <= 2:
            raise _usage_error("/rollback diff needs the number of a turn, or two states")
        first, second, what = words[0], words[1] if len(words) == 2 else "@", ""
        if len(words) == 1:
            target = self.manager.get(self.working_dir, first)
            entry = turn_of(first, target, self.manager.timeline(self.working_dir))
            if entry is not None and entry.after is not None:
                second, what = entry.after, f"what turn {entry.number} did"
        diff = self.manager.diff(self.working_dir, first, None if second == "@" else second)
        what = what or f"from {first} to {'the files as they are now' if second == '@' else second}"
        if not diff:
            return Answer(f"{what}: no difference", "diff", diff=diff)
        *paths, total = change_lines(diff.changes, _WIDTH, _PLAIN)
        lines = [f"{what}:", *_first_lines(paths, _MOST_PATHS, "path"), total]
        patch = [_cut_line(each) for each in patch_lines(diff.text, _PLAIN)] if diff.text else []
        lines += _first_lines(patch, _MOST_LINES, "line")
        return Answer("\n".join(lines), "diff", diff=diff)

    def _pin(self, words: list[str]) -> Answer:
        if not words:
            raise _usage_error("/rollback pin needs the number of a turn")
        target = self.manager.get(self.working_dir, words[0])
        name = " ".join(words[1:])
        if name:  # first: a name that is refused must not leave a pin behind
            self.manager.label(self.working_dir, target.id, name)
        pinned = self.manager.pin(self.working_dir, target.id)
        state, _ = describe_state(words[0], target, self.manager.timeline(self.working_dir))
        called = f" as {safe(name)}" if name else ""
        return Answer(f"{state} is kept for good{called}", "pin", checkpoint=pinned)

    def _help(self, words: list[str]) -> Answer:
        return Answer(HELP, "help")

    def _last_session(self) -> str:
        for entry in self.manager.timeline(self.working_dir):
            if entry.session_id:
                return entry.session_id
        raise _usage_error("no turn belongs to a session")

    def _relative(self, path: str) -> str:
        if not os.path.isabs(path):
            return path
        folder, name = os.path.split(path)
        return os.path.relpath(os.path.join(os.path.realpath(folder), name), os.path.realpath(self.working_dir))


def split_line(line: str) -> list[str]:
    """The words of a line, without /rollback itself."""
    lexer = shlex.shlex(str(line or ""), posix=True, punctuation_chars=False)
    lexer.whitespace_split, lexer.commenters = True, ""
    if os.name == "nt":
        lexer.escape = ""  # a backslash belongs to a path there
    try:
        words = list(lexer)
    except ValueError as problem:
        raise _usage_error(f"a quotation mark is missing: {problem}") from None
    if words and words[0].lower() in ("/rollback", "rollback"):
        del words[0]
    return words


def _split_parts(words: list[str]) -> tuple[list[str], bool, bool]:
    """Split off --files, --chat or --both: the other words, and whether files and conversation are restored."""
    given = {word for word in words if word in _PARTS}
    if len(given) > 1:
        raise _usage_error(f"{' and '.join(sorted(given))} cannot stand together")
    rest = [word for word in words if word not in _PARTS]
    if not rest:
        raise _usage_error("back to which turn? /rollback lists their numbers")
    files, chat = _PARTS[given.pop()] if given else (True, False)
    return rest, files, chat


def _conversation(result: RestoreResult) -> str:
    """A line about the restored conversation, which the calling program has to load."""
    number = spoken_messages(result.conversation.data)
    return "the conversation as it was" + ("" if number is None else f", with {count(number, 'message')}")


def _expect_end(words: list[str]) -> None:
    if words:
        raise _usage_error(f"{words[0]!r} does not belong there")


def _usage_error(why: str) -> WrongUsage:
    return WrongUsage(why=why, hint="/rollback help")


def _restore_answer(action: str, what: str, result: RestoreResult, back: str = "undo") -> Answer:
    if not result.written and not result.deleted:
        return Answer(_with_note("nothing to do: the files are already like that", result), action, result=result)
    lines = [f"{what}: {result_counts(result)}"]
    lines += _first_lines([f"  wrote    {safe(path)}" for path in result.written], _MOST_PATHS, "path")
    lines += _first_lines([f"  deleted  {safe(path)}" for path in result.deleted], _MOST_PATHS, "path")
    lines += _first_lines(
        [f"  kept     {safe(kept.path)} ({kept.why})" for kept in result.kept], _MOST_PATHS, "path"
    )
    lines.append(f"to take it back: /rollback {back}")
    return Answer(_with_note("\n".join(lines), result), action, result=result)


def _revert_answer(action: str, verb: str, result: RestoreResult, back: str = "undo") -> Answer:
    """The answer after a turn or a session was taken out of the files, or brought back."""
    text = cut(result_title(verb, result), _LONGEST_ABOUT + 20)
    conflicts = [f"  conflict {safe(each.path)} ({each.why}), left as it is" for each in result.conflicts]
    conflicts, number = _first_lines(conflicts, _MOST_PATHS, "path"), conflicting_turn(result)
    hints = [f"look at it: /rollback diff {number}   go back to before all of it: /rollback {number}"]
    if conflicts and not (result.written or result.deleted):
        lines = [text, *conflicts, *(hints if number else ())]
        return Answer("\n".join(lines), action, ok=False, result=result)
    answer = _restore_answer(action, text, result, back)
    return replace(answer, text="\n".join([*conflicts, answer.text, *(hints if number else ())]))


def _with_note(text: str, result: RestoreResult) -> str:
    return f"{text}\nnote: {safe(result.note)}" if result.note else text


def _cut_line(line: str) -> str:
    """Cut a line: a file may be one line of megabytes."""
    left = len(line) - _LONGEST_LINE
    return line if left <= 0 else f"{line[:_LONGEST_LINE]} ... and {count(left, 'more character')}"


def _first_lines(lines: list[str], most: int, noun: str) -> list[str]:
    """The first `most` lines, and how many are left out."""
    if len(lines) <= most:
        return lines
    return [*lines[:most], f"  ... and {count(len(lines) - most, f'more {noun}')}"]
