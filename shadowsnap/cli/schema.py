"""What each command answers with --json.

The page `docs json` is made from this, and tests hold the answers of every command against it. A key has one type
and one meaning in every answer; the page says what it means.

Types: string, integer, number, boolean, moment (a string such as 2026-01-31T12:00:00+00:00), object (its keys
are not fixed), any, the name of a record, [T] for a list. T? may be null; a key that ends in ? may be missing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from shadowsnap import model, results
from shadowsnap.agents.handover import Handover
from shadowsnap.remote.lanes import Lane
from shadowsnap.remote.pull import PullReport
from shadowsnap.remote.push import PushReport

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


_HOOK: Keys = {
    "scope": "string", "paths": "[string]", "installed": "boolean", "current": "boolean",
    "consented": "boolean?", "protected": "boolean", "problem": "string", "last_run_at": "moment?",
    "agent_version": "string", "result": "string",
}  # fmt: skip

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
    "Agent": {"agent": "string", "path?": "string", **{f"{key}?": kind for key, kind in _HOOK.items()}},
    "Newest": {"name": "string?", "number": "integer?", "checkpoint_id": "string?"},
    "ChangedSince": {"files_changed": "integer?", "insertions": "integer?", "deletions": "integer?"},
    "Advice": {"what": "string", "advice": "string"},
    "Handover": _fields(Handover),
    "Lane": _fields(Lane),
    "LaneEntries": _fields(results.LaneEntries),
    "PullReport": _fields(PullReport),
    "RemoteStatus": {**_fields(results.RemoteStatus), "push_error": "string"},
    "ProjectStatus": _fields(results.ProjectStatus),
    "Trouble": _fields(results.Trouble),
    "Limit": _fields(results.Limit),
    "Settings": {"path": "string", "ignored": "[string]"},
    "Helper": {"pid": "integer", "started_at": "moment", "version": "string"},
    "Verdict": _fields(results.Verdict),
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
        "--now": {"checkpoints": "[Checkpoint]", **_fields(results.Reclaimed)},
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
    "doctor": {"": {"healthy": "boolean", **_fields(results.Checkup), "agents": "[Agent]"}},
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
            **_fields(results.PruneResult, verdicts=""),
            "applied": "boolean",
            "bytes_freed": "integer",
            "dropped": "[Verdict]",
            "kept_count": "integer",
        }
    },
    "pull": {"": {"pulled": "[PullReport]"}},
    "push": {"": _fields(PushReport)},
    "purge": {"": _fields(results.PurgeResult)},
    "export": {
        "--agent-trace": {"records": "[object]"},
        "--agent-trace -o": {"record_count": "integer", "file": "string"},
        "--git-notes": {"git_notes": "[object]"},
    },
    "fork": {"": {"forks": "[Fork]"}},
    "mcp": {"": {"tool_names": "[string]", "workdir": "string"}},
    "statusline": {"": {"agent": "string", **_HOOK, "text": "string"}},
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
            **_fields(results.StoreStatus),
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


def answers_markdown() -> str:
    """The answers of the commands and the records in them; what a key means stands below them on the page."""
    lines = []
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
    return "\n".join(lines)


def _listed(keys: Keys) -> list[str]:
    return [f"- `{key}`: {kind}" for key, kind in keys.items()]
