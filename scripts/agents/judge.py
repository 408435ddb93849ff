"""Judges what came of a story: the timeline, the files, the conversation."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stage import Failed, Manifest, Stage, manifest

_PATIENCE = 15.0


@dataclass(frozen=True)
class Expected:
    """A turn as the story knows it."""

    prompt: str
    before: Manifest
    status: str = "done"


def judge_timeline(stage: Stage, project: Path, expected: list[Expected]) -> None:
    """Every turn is there, once, with its prompt and how it ended. (The hook for a stop may still be running.)"""
    wanted = [each.status for each in expected]
    end = time.monotonic() + _PATIENCE
    turns = stage.turns(project)
    while [turn["status"] for turn in turns] != wanted and time.monotonic() < end:
        time.sleep(0.5)
        turns = stage.turns(project)
    if [turn["status"] for turn in turns] != wanted:
        raise Failed(f"turns {[(turn['prompt'], turn['status']) for turn in turns]}, expected {wanted}")
    for turn, each in zip(turns, expected, strict=True):
        if stage.program.tells_prompt and (turn["prompt"] or "").strip().strip('"') != each.prompt:
            raise Failed(f"turn {turn['number']} has the prompt {turn['prompt']!r} instead of {each.prompt!r}")
        if turn["agent"] != stage.program.name:
            raise Failed(f"turn {turn['number']} is by {turn['agent']!r}")


def judge_files(stage: Stage, project: Path, expected: list[Expected]) -> None:
    """The state before each turn comes back exactly, and undo takes that back exactly."""
    now = manifest(project)
    for turn, each in zip(stage.turns(project), expected, strict=True):
        number = str(turn["number"])
        if each.before == now:
            continue  # nothing to restore, so that undo would take back a turn
        for command, wanted in ((["restore", number, "--yes"], each.before), (["undo", "--yes"], now)):
            done = stage.shadowsnap(project, *command)
            if manifest(project) != wanted:
                raise Failed(
                    f"{command[0]} {number}: {difference(wanted, manifest(project))}; {done.stderr[-200:]}"
                )


def judge_one_session(stage: Stage, project: Path) -> None:
    sessions = {turn["session_id"] for turn in stage.turns(project)}
    if len(sessions) != 1 or None in sessions:
        raise Failed(f"the turns belong to the sessions {sorted(map(str, sessions))}")


def judge_revert(stage: Stage, project: Path, expected: Expected) -> None:
    """Taking the only turn out is without conflict and gives the state before it."""
    now = manifest(project)
    answer = stage.shadowsnap(project, "revert", "1", "--yes")
    if answer.returncode or manifest(project) != expected.before:
        raise Failed(
            f"revert: {difference(expected.before, manifest(project))}; {(answer.stdout + answer.stderr)[-200:]}"
        )
    stage.shadowsnap(project, "undo", "--yes")
    if manifest(project) != now:
        raise Failed(f"undo of the revert: {difference(now, manifest(project))}")


def judge_conversation(stage: Stage, project: Path, expected: list[Expected], answers: list[str]) -> None:
    """What is kept with a turn is what was said before its prompt."""
    for at, (turn, each) in enumerate(zip(stage.turns(project), expected, strict=True)):
        kept = stage.asked(project, "show", str(turn["number"]), "--chat")
        text = json.dumps(kept.get("conversation") or "", ensure_ascii=False)
        if "error" in kept and at > 0:
            raise Failed(f"turn {turn['number']}: {kept['error']['message']}")
        if each.prompt in text:
            raise Failed(f"the conversation before turn {turn['number']} has its prompt already")
        for earlier, answer in zip(expected[:at], answers, strict=False):
            if earlier.prompt not in text or answer not in text:
                raise Failed(
                    f"the conversation before turn {turn['number']} lacks {earlier.prompt!r} or its answer"
                )


def difference(wanted: Manifest, found: Manifest) -> str:
    parts = [f"{name} is missing" for name in wanted if name not in found]
    parts += [f"{name} should not be there" for name in found if name not in wanted]
    parts += [f"{name} differs" for name in wanted if name in found and wanted[name] != found[name]]
    return ", ".join(parts) or "no difference"


@dataclass(frozen=True)
class Settings:
    """The files of a home that an installation may touch, as they were at one moment."""

    files: dict[str, bytes]

    @classmethod
    def of(cls, home: Path, names: tuple[str, ...]) -> Settings:
        return cls({name: (home / name).read_bytes() for name in names if (home / name).is_file()})


def judge_settings(before: Settings, installed: Settings, used: Settings, after: Settings, ours: list[str]) -> str:
    """The settings after uninstalling are those of before, byte for byte. Of a file that the agent itself changed
    meanwhile, exactly our part is gone. Returns which of them the agent changed."""
    changed = [name for name in used.files if used.files[name] != installed.files.get(name)]
    for name in sorted({*before.files, *used.files, *after.files}):
        found = after.files.get(name)
        if name not in changed:
            if found != before.files.get(name):
                raise Failed(f"{name} is not as it was")
        elif name not in ours:
            if found != used.files[name]:
                raise Failed(f"{name} was changed, and it is the agent's alone")
        elif found is None or b"shadowsnap" in found:
            raise Failed(f"{name} is gone, or still has a part of ours")
        elif name.endswith(".json") and _pruned(json.loads(found)) != _pruned(json.loads(used.files[name])):
            raise Failed(f"{name} lost more than our part")
    return ", ".join(changed)


def _pruned(value: Any) -> Any:
    """A JSON value without our hooks, and without what is empty then."""
    if isinstance(value, dict):
        if "shadowsnap" in str(value.get("command", "")):
            return None
        kept = {key: _pruned(each) for key, each in value.items()}
        kept = {key: each for key, each in kept.items() if each not in (None, [], {})}
        return None if set(kept) <= {"matcher"} else kept
    if isinstance(value, list):
        return [each for each in map(_pruned, value) if each not in (None, [], {})]
    return value
