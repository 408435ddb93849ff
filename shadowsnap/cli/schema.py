"""What each command answers with --json.

The page `docs json` is made from this, and a test holds the answers of every command against it. A key has one
meaning and one type in every answer.

Types: string, integer, number, boolean, moment (a string such as 2026-01-31T12:00:00+00:00), object (its keys
are not fixed), any, the name of a record, [T] for a list. T? may be null; a key that ends in ? may be missing.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from typing import Any

from shadowsnap import model, results
from shadowsnap.agents.handover import Handover
from shadowsnap.remote.lanes import Lane
from shadowsnap.remote.pull import PullReport
from shadowsnap.remote.push import PushReport
from shadowsnap.upkeep import clear, prune, reclaim, retention, status

Keys = Mapping[str, str]

_PLAIN_TYPES = {
    "str": "string",
    "int": "integer",
    "float": "number",
    "bool": "boolean",
    "datetime": "moment",
    "EntryKind": "string",
    "EntryStatus": "string",
    "OutcomeStatus": "string",
    "Exception": "Error",
    "ShadowsnapError": "Error",
    "dict[str, Any]": "object",
    "dict[str, str]": "object",
    "Any": "any",
}


def _type_of(annotation: str) -> str:
    inner, optional = annotation.removesuffix(" | None"), annotation.endswith(" | None")
    many = re.fullmatch(r"tuple\[(.+), \.\.\.\]", inner)
    if many:
        return f"[{_type_of(many[1])}]"
    words = r"(?!Project|Store|Remote)\w*(?:Status|Kind|Severity|State)"
    if inner.startswith("Literal[") or re.fullmatch(words, inner):
        inner = "str"  # one of a few words
    return _PLAIN_TYPES.get(inner, inner) + ("?" if optional else "")


def _fields(kind: type[model._Record], **other: str) -> dict[str, str]:
    """The keys of a record as `to_dict` has them; `other` says where it differs from the annotations."""
    annotations: dict[str, str] = {}
    for each in reversed(kind.__mro__):
        annotations.update({name: str(value) for name, value in vars(each).get("__annotations__", {}).items()})
    names: tuple[str, ...] = kind.__match_args__  # type: ignore[attr-defined]  # the fields of a dataclass
    keys = {kind.json_names.get(name, name): _type_of(annotations[name]) for name in names}
    if "error" in keys:
        del keys["error"]
        keys["error?"] = "Error"
    keys |= other
    return {key: value for key, value in keys.items() if value}


RECORDS: dict[str, Keys] = {
    "Error": {"type": "string", "message": "string", "hint": "string"},
    "Checkpoint": {"short_id": "string", **_fields(model.Checkpoint)},
    "Entry": _fields(model.Entry),
    "Now": _fields(model.Now, patch=""),
    "Project": {"workdir": "string", "protected": "boolean", "protection": "string"},
    "Timeline": {"workdir": "string", "entries?": "[Entry]", "checkpoints?": "[Checkpoint]", "more": "integer"},
    "Probe": _fields(results.Probe),
    "Fork": _fields(results.Fork),
    "BlamedLine": {
        "line": "integer", "number": "integer?", "who": "string", "agent": "string?", "prompt": "string?",
    },
    "Skipped": _fields(model.Skipped),
    "Change": _fields(model.Change),
    "Diff": _fields(model.Diff),
    "Kept": _fields(model.Kept),
    "Conflict": {**_fields(model.Kept), "ours?": "string?", "theirs?": "string?"},
    "RestoreResult": _fields(model.RestoreResult, conversation="Conversation?", conflicts="[Conflict]"),
    "Conversation": _fields(model.Conversation),
    "ToolCall": {"tool": "string?", "about": "string"},
    "Session": _fields(model.Session),
    "SessionTurn": _fields(model.SessionTurn),
    "TurnPlace": _fields(model.TurnPlace),
    "EditOutcome": _fields(model.EditOutcome),
    "Here": {
        "workdir": "string",
        "protected": "boolean",
        "protection": "string",
        "since": "moment?",
        "agents": "[Agent]",
        "newest": "Newest?",
        "changed_since": "ChangedSince?",
        "not_captured": "[Skipped]",
        "turn_count": "integer",
        "snapshot_count": "integer",
        "verified_at": "moment?",
        "remote": "RemoteStatus?",
    },
    "Agent": {
        "agent": "string",
        "installed?": "boolean",
        "consented?": "boolean?",
        "last_run_at?": "moment?",
        "result?": "string",
        "path?": "string",
        "scope?": "string",
        "current?": "boolean",
    },
    "Newest": {"name": "string?", "number": "integer?", "checkpoint_id": "string?"},
    "ChangedSince": {"files_changed": "integer?", "insertions": "integer?", "deletions": "integer?"},
    "Advice": {"what": "string", "advice": "string"},
    "Handover": _fields(Handover),
    "Lane": _fields(Lane),
    "LaneEntries": _fields(results.LaneEntries),
    "PullReport": _fields(PullReport),
    "RemoteStatus": {**_fields(results.RemoteStatus), "push_error": "string"},
    "ProjectStatus": _fields(status.ProjectStatus),
    "Trouble": _fields(status.Trouble),
    "Limit": _fields(status.Limit),
    "Settings": {"path": "string", "ignored": "[string]"},
    "Helper": {"pid": "integer", "started_at": "moment", "version": "string"},
    "Verdict": _fields(retention.Verdict),
    "Finding": _fields(results.Finding),
    "ImportedItem": _fields(results.ImportedItem),
    "ClearedItem": _fields(results.ClearedItem),
    "SettingsFile": {"path": "string", "change": "string", "why_kept": "string", "patch": "string"},
    "Offer": {"word": "string", "about": "string"},
}

_RESTORE: Keys = {**RECORDS["RestoreResult"], "dry_run": "boolean", "undo?": "string"}
_CLEAR = _fields(results.ClearReport)
_LIST: dict[str, Keys] = {
    "": {
        "project": "Project", "now": "Now?", "entries": "[Entry]", "more": "integer",
        "pulled_timelines?": "[LaneEntries]",
    },
    "--checkpoints": {"project": "Project", "checkpoints": "[Checkpoint]", "more": "integer"},
    "--all-projects": {"timelines": "[Timeline]"},
}
_SETTINGS: Keys = {"agent": "string", "dry_run": "boolean", "settings_files": "[SettingsFile]"}

ANSWERS: dict[str, dict[str, Keys]] = {
    "bisect": {"": {"number": "integer?", "kind": "string?", "prompt": "string?", "agent": "string?",
                    "name": "string?", **_fields(results.Bisection, culprit="Probe?", probes="[Probe]",
                                                 candidates="[Probe]")}},
    "blame": {"": {"lines": "[BlamedLine]"}},
    "cat": {"": {"path": "string", "checkpoint_id": "string", "content": "string"}},
    "clear": {"": _CLEAR},
    "clear-legacy": {"": _CLEAR},
    "completion": {"": {"shell": "string", "script": "string"}, "offer": {"offers": "[Offer]"}},
    "delete": {
        "": {"checkpoints": "[Checkpoint]"},
        "--now": {"checkpoints": "[Checkpoint]", **_fields(reclaim.Reclaimed)},
    },
    "demo": {
        "": {
            "ok": "boolean",
            "prompts": "[string]",
            "calls": "[string]",
            "lost": "[string]",
            "picture": "[string]",
            "entries": "[Entry]",
            "patch": "string",
            "hook_ms": "[number]",
            "snapshot_ms": "[number]",
            "seconds": "number",
            "directory": "string?",
        }
    },
    "diff": {"": {**_fields(model.Diff), "from_id": "string?"}},
    "docs": {"": {"topics": "object"}, "TOPIC": {"topic": "string", "text": "string"}},
    "doctor": {"": {"healthy": "boolean", **_fields(results.Checkup)}},
    "help": {"": {"help": "string"}},
    "hook": {},
    "import": {"": _fields(results.ImportReport)},
    "install": {"": _SETTINGS},
    "label": {"": {"checkpoint": "Checkpoint"}},
    "lanes": {"": {"lanes": "[Lane]"}},
    "list": _LIST,
    "log": _LIST,
    "ls": {"": {"checkpoint_id": "string", "files": "[string]"}},
    "pin": {"": {"checkpoints": "[Checkpoint]"}},
    "prune": {
        "": {
            **_fields(prune.PruneResult, verdicts=""),
            "applied": "boolean",
            "bytes_freed": "integer",
            "dropped": "[Verdict]",
            "kept_count": "integer",
        }
    },
    "pull": {"": {"pulled": "[PullReport]"}},
    "push": {"": _fields(PushReport)},
    "purge": {"": _fields(clear.PurgeResult)},
    "export": {
        "--agent-trace": {"records": "[object]"},
        "--agent-trace -o": {"record_count": "integer", "file": "string"},
        "--git-notes": {"git_notes": "[object]"},
    },
    "fork": {"": {"forks": "[Fork]"}},
    "mcp": {"": {"tool_names": "[string]", "workdir": "string"}},
    "statusline": {
        "": {
            "agent": "string", "scope": "string", "paths": "[string]", "installed": "boolean",
            "current": "boolean", "consented": "boolean?", "protected": "boolean", "problem": "string",
            "last_run_at": "moment?",
            "agent_version": "string", "result": "string", "text": "string",
        }
    },
    "helper": {"": {"helper": "Helper?", "stopped": "boolean"}},
    "verify": {"": _fields(results.Verification)},
    "redo": {"": _RESTORE},
    "report": {"": {"file": "string", "bytes": "integer", "turn_count": "integer", "cut": "[string]"}},
    "remote": {
        "": {"remote": "RemoteStatus"},
        "list": {"remotes": "[RemoteStatus]"},
        "keygen": {"public_key": "string", "path": "string"},
    },
    "restore": {"": _RESTORE},
    "resume": {"": {**_fields(results.Resumed, conversation=""), "handover": "Handover?", "dry_run?": "boolean"}},
    "revert": {"": _RESTORE},
    "rollback": {
        "": {
            "action": "string",
            "ok": "boolean",
            "text": "string",
            "entries?": "[Entry]",
            "restored?": "RestoreResult",
            "diff?": "Diff",
            "checkpoint?": "Checkpoint",
            "error?": "Error",
        }
    },
    "sessions": {
        "": {"sessions": "[Session]", "more": "integer"},
        "show": {"session": "Session"},
        "show --chat": {"conversation": "Conversation?", "messages": "integer?"},
        "show --chat -o": {"path": "string", "messages": "integer?", "session_id": "string?"},
    },
    "show": {
        "": {
            "entry": "Entry",
            "changes": "[Change]",
            "files": "[string]",
            "tools": "[ToolCall]",
            "not_taken_back": "[string]",
            "patch?": "string",
        },
        "of a state": {"checkpoint": "Checkpoint", "changes": "[Change]", "files": "[string]"},
        "--chat": {"conversation": "Conversation?", "messages": "integer?"},
        "--chat -o": {"path": "string", "messages": "integer?", "session_id": "string?"},
    },
    "snap": {"": {**_fields(model.Outcome, checkpoint=""), "checkpoint?": "Checkpoint", "protected": "boolean"}},
    "status": {
        "": {"here": "Here", "enabled": "boolean", "troubles": "[Advice]"},
        "--store": {
            **_fields(status.StoreStatus),
            "total_bytes": "integer",
            "checkpoint_count": "integer",
            "settings": "Settings",
            "agents": "[Agent]",
            "hooks": "[object]",
            "helper": "Helper?",
        },
    },
    "ui": {},
    "undo": {"": _RESTORE},
    "uninstall": {"": _SETTINGS},
    "unpin": {"": {"checkpoints": "[Checkpoint]"}},
}

EVERYWHERE: Keys = {"schema": "integer"}
"""What every answer has."""
INSTEAD: dict[str, Keys] = {
    "an error": {"error": "Error"},
    "the person declined": {"cancelled": "boolean"},
    "--version": {"version": "string"},
    "--help": {"help": "string"},
}
"""What any command may answer instead."""


# --- holding an answer against it --------------------------------------------------------------------


def problems(command: str, answer: Mapping[str, Any]) -> list[str]:
    """What is wrong with an answer; nothing if it fits one of the forms of its command."""
    forms = [*ANSWERS.get(command, {}).values(), *INSTEAD.values()]
    found = [list(_problems({**EVERYWHERE, **keys}, answer, "")) for keys in forms]
    return min(found, key=len, default=["there is no such command"])


def _problems(keys: Keys, value: Mapping[str, Any], place: str) -> Iterator[str]:
    known = {key.removesuffix("?"): kind for key, kind in keys.items()}
    yield from (f"{place}{key} is not documented" for key in value if key not in known)
    yield from (f"{place}{key} is missing" for key in keys if not key.endswith("?") and key not in value)
    for key, kind in known.items():
        if key in value:
            yield from _wrong(kind, value[key], f"{place}{key}")


_CHECKS: dict[str, Callable[[Any], bool]] = {
    "string": lambda value: isinstance(value, str),
    "integer": lambda value: isinstance(value, int) and not isinstance(value, bool),
    "number": lambda value: isinstance(value, (int, float)) and not isinstance(value, bool),
    "boolean": lambda value: isinstance(value, bool),
    "object": lambda value: isinstance(value, dict),
    "any": lambda value: True,
    "moment": lambda value: isinstance(value, str) and datetime.fromisoformat(value).tzinfo is not None,
}


def _wrong(kind: str, value: Any, place: str) -> Iterator[str]:
    if kind.endswith("?") and value is None:
        return
    kind = kind.removesuffix("?")
    if kind.startswith("["):
        if not isinstance(value, list):
            yield f"{place} is no list"
            return
        for at, each in enumerate(value):
            yield from _wrong(kind[1:-1], each, f"{place}[{at}]")
    elif kind in _CHECKS:
        if not _CHECKS[kind](value):
            yield f"{place} is no {kind}: {value!r}"
    elif not isinstance(value, dict):
        yield f"{place} is no {kind}: {value!r}"
    else:
        yield from _problems(RECORDS[kind], value, f"{place}.")


# --- what a key means --------------------------------------------------------------------------------

MEANINGS = {
    "about": "what a tool call or a word is about",
    "action": "what /rollback did: its word, `restore`, or `error`",
    "advice": "what to do about it",
    "after": "the id of the checkpoint after a turn",
    "agent": "the name of an agent, such as `claude`",
    "agent_version": "the version of an agent, if its input ever had it",
    "agents": "agents that have the hook, or whose hook ran here",
    "applied": "whether it was done; a plan is not",
    "at": "when it happened",
    "attachments_bytes": "what kept conversations take in the store",
    "attachments_dropped": "refs of conversations that were dropped",
    "attempts": "how often a push failed since the last that succeeded",
    "bad": "the first bad state; null for the files as they are now",
    "base": "the directory of the store",
    "before": "the id of the checkpoint before a turn",
    "began": "when a turn of a session began",
    "began_at": "when an entry began",
    "branch": "the branch of a worktree or of a checkout",
    "bytes": "a size in bytes",
    "bytes_after": "the size of the store afterwards",
    "bytes_alone": "what dropping this project alone would free",
    "bytes_before": "the size of the store before",
    "bytes_freed": "what was freed on the disk",
    "calls": "tool calls of the demo",
    "cancelled": "true: the person declined, and nothing was changed",
    "candidates": "states one of which is the culprit, if some could not be tested",
    "captured_at": "when the state of a lane was captured",
    "change": "what happened to a settings file: `wrote`, `changed`, `removed`, `unchanged`",
    "changed_since": "how the files differ from the newest known state",
    "changes": "what differs, one record for each path",
    "checkpoint": "one checkpoint",
    "checkpoint_count": "how many checkpoints",
    "checkpoint_id": "the id of a checkpoint",
    "checkpoint_ids": "ids of checkpoints",
    "checkpoints": "checkpoints, newest first",
    "cleared_items": "what was cleared, one by one",
    "code": "the kind of a finding",
    "command": "what to type to go on with a conversation; null: its agent cannot",
    "commit": "the commit of the person's repository that a state is based on",
    "commit_here": "the commit of the checkout here",
    "complete": "whether everything was reclaimed",
    "conditions": "whether a remote refuses to overwrite what must be new",
    "conflicts": "paths that were left alone because others changed the same",
    "consented": "whether the agent may run the hook; null: it never asks, or that is not known",
    "content": "the text of a file; bytes that are no text are escaped surrogates",
    "contents_left": "contents that something else still holds",
    "conversation": "a conversation that is kept with a checkpoint",
    "conversation_state": "`kept`, `dropped`, `none`, or why there is none",
    "conversations": "whether kept conversations are pushed",
    "created_at": "when a checkpoint or project was made",
    "culprit": "what led to the first bad state",
    "current": "whether the hook starts this very program",
    "cut": "what was left out of a report to keep it small",
    "data": "what the host handed over: messages, another JSON value, or text",
    "deleted": "paths that were deleted, or would be",
    "deletions": "lines that went; null: binary or not known",
    "diff": "what differs between two states",
    "directory": "where the demo was kept",
    "dropped": "checkpoints that went, or would go, and why",
    "dry_run": "whether nothing was to be changed",
    "edit_id": "the id of a stage",
    "edits": "stages of a session",
    "enabled": "whether snapshots are taken at all",
    "encrypted": "whether a lane is encrypted",
    "ended": "when a session or a turn of it ended",
    "ended_at": "when an entry ended",
    "entries": "entries of the timeline, newest first",
    "entry": "one entry of the timeline",
    "error": "what went wrong",
    "exceeded": "whether a limit is exceeded",
    "exists": "whether the directory is there",
    "exit_code": "the exit code of a command; null if it took too long",
    "facts": "more about a finding",
    "failed_count": "how many failed",
    "failures": "what failed lately",
    "file": "the file that was written",
    "file_count": "how many files",
    "files": "paths of files",
    "files_added": "how many files came",
    "files_changed": "how many files differ",
    "files_deleted": "how many files went",
    "findings": "what is not as it should be",
    "forked_from": "the project, checkpoint and entry that a fork began with",
    "forks": "the directories that were made",
    "from_id": "the id of the older checkpoint; null: no checkpoint holds that state as a whole",
    "git_notes": "authorship notes of commits",
    "good": "the last good state",
    "healthy": "whether nothing is left that fails or is lost",
    "help": "the text of the help",
    "here": "the directory in which the command runs",
    "handover": "what became of the conversation; null: the lane carries none",
    "hint": "what to do about an error",
    "helper": "the process that does the work of hooks faster; null: none runs",
    "hook_ms": "milliseconds that each hook took",
    "hooks": "lines of the hook log, newest first",
    "id": "an id",
    "ids": "old ids and the new ones",
    "ignored": "settings that were ignored, and why",
    "imported_count": "how many were imported",
    "imported_items": "checkpoints of another tool, one by one",
    "insertions": "lines that came; null: binary or not known",
    "installed": "whether the hook is in the agent's settings",
    "intact_count": "checkpoints of which nothing is lost",
    "keep": "whether a checkpoint stays",
    "kept": "paths that were left alone, and why",
    "kept_count": "checkpoints that stay",
    "kind": "of an entry: `turn`, `edits`, `snapshot` or `restore`; otherwise what it comes from",
    "label": "the name that was given",
    "lane": "the id of a lane: one project on one machine",
    "lanes": "the lanes at a remote, the one with the newest state first",
    "last_prune": "when the limits were last kept",
    "last_run_at": "when the hook last ran here",
    "last_touch": "when a project was last used",
    "layouts": "layouts of older tools that were found",
    "legacy_bytes": "what archives of older tools take",
    "limit": "the limit; 0: none",
    "limits": "limits, and how far they are used",
    "line": "the number of a line",
    "lines": "the lines of a file",
    "lost": "files that the demo lost",
    "machine": "the name of a machine",
    "manifest_number": "how many times a lane was pushed",
    "meaning": "what a finding means",
    "message": "an error in words",
    "message_count": "how many messages there were",
    "messages": "messages of people and agents",
    "metadata": "further facts of a checkpoint",
    "missing": "what a state does not have although it was there, and why",
    "more": "how many are not listed",
    "name": "what something is called: a limit, or a state such as `the end of turn 3`",
    "near": "whether a limit is nearly reached",
    "new_directory": "whether the directory is a new one",
    "newest": "the newest state that is known of the files",
    "newest_at": "when the newest checkpoint was taken",
    "not_captured": "what a snapshot would leave out now, and why",
    "not_taken_back": "what a turn may have done outside the directory: no rollback takes that back",
    "note": "something to know",
    "notes": "things to know",
    "now": "the files as they are now, against the newest known state",
    "number": "the number of a turn or snapshot; null: it has none",
    "offers": "words that fit",
    "ok": "whether it worked",
    "origin": "where a project is cloned from",
    "original_id": "the id in the other tool",
    "ours": "the text as it is now",
    "parent": "the session that this one came from",
    "parent_lane": "the lane that this one was resumed from",
    "patch": "a unified diff",
    "path": "a path: of a file in the project, or of a file that was written",
    "paths": "the paths that are meant",
    "pending_bytes": "what upkeep will free later",
    "picture": "the timeline as people see it, line by line",
    "pid": "the id of a process",
    "pinned": "whether it is kept whatever the limits say",
    "pinned_count": "how many are pinned",
    "place": "whether a directory is `here`, `gone` or `unreachable`",
    "places": "the directories that a turn wrote to",
    "plain": "whether a remote is not encrypted",
    "probes": "the states that the command ran in",
    "problem": "why a hook does not protect; empty if nothing speaks against it",
    "problem_count": "how many problems",
    "problems": "the first of the problems",
    "project": "the directory, and whether it is protected; of a lane, the name of its project",
    "project_id": "the id of a project",
    "project_name": "the name of a project",
    "projects": "the projects of the store",
    "prompt": "what the person asked, without secrets",
    "prompts": "what was asked",
    "protected": "of a snapshot: the state before this turn is safe; of a directory: a hook is there and works",
    "protection": "the same in words",
    "public_key": "what others encrypt with",
    "pulled": "the lanes that were pulled",
    "pulled_timelines": "what happened to this project on other machines, as far as it was pulled",
    "push_error": "why the last push in the background failed; empty if it did not",
    "pushed_at": "when a lane was last pushed",
    "readable": "whether the names of a lane could be read",
    "reason": "what it was taken for, or why",
    "recipients": "the public keys that a remote is encrypted for",
    "reclaimed": "whether the bytes are gone from the disk",
    "record_count": "how many records were written",
    "records": "Agent Trace records",
    "redacted": "how many secrets were taken out",
    "ref": "the ref in the store",
    "remote": "the remote of a project, and what it does not have yet",
    "remote_name": "the name of a remote",
    "remotes": "the remotes of all projects",
    "repair": "what mends a finding",
    "repaired": "what was mended",
    "restored": "what a restore, undo, redo or revert did",
    "result": "what came of the last run of a hook: `taken`, `unchanged`, `failed` ...",
    "reverted": "whether a turn was taken back",
    "risk_tier": "the risk that the host named",
    "schema": "the version of this format: 2",
    "scope": "of a checkpoint: `tree` or `paths`; of a hook: `user` or `project`",
    "script": "the completion script",
    "seconds": "how long it took",
    "session": "one session",
    "session_id": "the id of a session",
    "sessions": "sessions, newest first",
    "set_aside": "where things are that could not be saved",
    "settings": "the settings file, and what in settings was ignored",
    "settings_files": "settings files of an agent",
    "severity": "`error`, `warning` or `info`",
    "sha256": "of the conversation as it is kept",
    "shell": "the shell",
    "short_id": "the first 8 digits of an id",
    "since": "since when it has been protected, or not protected",
    "skipped": "what is not captured, and why",
    "skipped_count": "how many were skipped",
    "snapshot_count": "snapshots of the timeline",
    "snapshot_ms": "milliseconds that each snapshot took",
    "source": "where an import comes from",
    "started": "when a session began",
    "started_at": "when a process began",
    "state_name": "what a state is in its own timeline, such as `the end of turn 3`",
    "status": "what became of it; the values are those of the record",
    "stopped": "whether the helper was ended",
    "store_bytes": "the size of the store",
    "subject": "what it is about",
    "target": "the checkpoint that was gone to",
    "text": "text to show",
    "theirs": "the text before the turn",
    "timelines": "the timelines of every project",
    "times": "how often",
    "to_id": "the id of the newer checkpoint; null: the files as they are now",
    "tool": "the name of a tool",
    "tool_names": "what a model may call",
    "tools": "the tool calls of a turn",
    "topic": "the name of a page",
    "topics": "pages and their titles",
    "total_bytes": "the size of the store with archives",
    "tree": "the git tree of a checkpoint",
    "troubles": "what is wrong here, and what mends it",
    "turn": "the number of a turn",
    "turn_count": "turns of the timeline",
    "turns": "turns; of a lane, how many there are",
    "type": "the name of an error",
    "uncaptured": "what the newest checkpoints left out",
    "undo": "the command that takes it back",
    "undo_id": "the id of the checkpoint of what was there before",
    "unpushed_count": "checkpoints that the remote does not have",
    "unpushed_since": "when the oldest of them was taken",
    "unreachable_bytes": "what upkeep will free",
    "url": "the address of a remote",
    "used": "how far a limit is used; null: not known",
    "verdict": "`good`, `bad`, `skipped` or `untested`",
    "verified": "whether what was restored is what the checkpoint says",
    "verified_at": "when the newest checkpoint was last verified",
    "version": "the version of shadowsnap",
    "warnings": "what needs attention",
    "what": "what it is, in words",
    "who": "`turn`, `person` or `before`",
    "why": "why",
    "why_kept": "why a settings file was left as it is",
    "word": "a word that fits",
    "workdir": "the directory of a project",
    "written": "paths that were written, or would be",
}


def all_keys() -> Iterator[tuple[str, str, str]]:
    """Where a key occurs, the key, and its type without the question mark."""
    for name, keys in RECORDS.items():
        yield from ((name, key.removesuffix("?"), kind.removesuffix("?")) for key, kind in keys.items())
    for command, forms in (*ANSWERS.items(), ("any", INSTEAD), ("every", {"": EVERYWHERE})):
        for keys in forms.values():
            yield from ((command, key.removesuffix("?"), kind.removesuffix("?")) for key, kind in keys.items())


_WITHOUT = {
    "hook": "It answers in the way that its agent wants; see `docs hooks`.",
    "ui": "It is for people, on a terminal; see `docs ui`.",
}


def markdown() -> str:
    """The page `docs json`."""
    lines = [_HEAD]
    for command, forms in ANSWERS.items():
        lines.append(f"### {command}\n")
        if not forms:
            lines.append(f"{_WITHOUT[command]}\n")
        for form, keys in forms.items():
            lines += [f"`{command} {form}`:\n" if form else f"`{command}`:\n", *_listed(keys), ""]
    lines.append("### Instead\n")
    lines.append("Any command may answer with one of these instead.\n")
    for form, keys in INSTEAD.items():
        lines += [f"{form}:\n", *_listed(keys), ""]
    lines.append("## Records\n")
    for name, keys in RECORDS.items():
        lines += [f"### {name}\n", *_listed(keys), ""]
    lines += ["## Keys\n", "| key | meaning |", "|---|---|"]
    used = {key for _, key, _ in all_keys()}
    lines += [f"| `{key}` | {MEANINGS[key]} |" for key in sorted(used)]
    return "\n".join(lines) + "\n"


def _listed(keys: Keys) -> list[str]:
    shown = [f"`{key}`: {kind}" for key, kind in keys.items()]
    return [f"- {each}" for each in shown]


_HEAD = """\
# JSON answers

With `--json`, stdout is one object on one line, and nothing else is printed. It is ASCII: a byte in a name that
is no text is an escaped surrogate. Each key has one meaning in every answer; the table at the end has them all.
New keys may be added within the same `"schema"`; if a key is removed, or means something else, the number changes.

Types: string, integer, number, boolean, moment (as in `2026-01-31T12:00:00+00:00`), object (its keys are not
fixed), any, the name of a record, or [T] for a list. T? may be null. A key that ends in ? may be missing.

## Commands

Every answer has `"schema": 2`.
"""
