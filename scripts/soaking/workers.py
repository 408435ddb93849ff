"""The processes that use shadowsnap for the stories. Each does what it is asked, one thing at a time, until it is
killed in the middle of something. The second half of this file is what runs in such a process."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

if __name__ != "__main__":
    from soaking.manifest import plain_environment

_HANGS_AFTER = 180.0

Reply = dict[str, Any]


class Died(Exception):
    """A worker ended by itself, or hangs: both must not be."""


class Worker:
    """One process, started when it is needed and again after it was killed."""

    def __init__(self, base: Path, errors: Path) -> None:
        self._base = base
        self._errors = errors
        self._process: subprocess.Popen[bytes] | None = None
        self._rest = b""

    def ask(self, command: Reply, kill_after: float | None = None) -> Reply | None:
        """The answer; None if the process was killed before there was one."""
        process = self._running()
        assert process.stdin is not None and process.stdout is not None
        process.stdin.write(json.dumps(command).encode() + b"\n")
        process.stdin.flush()
        end = time.monotonic() + (_HANGS_AFTER if kill_after is None else kill_after)
        while b"\n" not in self._rest:
            left = end - time.monotonic()
            if left <= 0 or not select.select([process.stdout], [], [], left)[0]:
                self.kill()
                if kill_after is None:
                    raise Died(f"no answer after {_HANGS_AFTER:g} s")
                return None
            more = os.read(process.stdout.fileno(), 1 << 16)
            if not more:
                self.kill()
                raise Died(self._errors.read_text()[-3000:])
            self._rest += more
        line, _, self._rest = self._rest.partition(b"\n")
        answer: Reply = json.loads(line)
        return answer

    def kill(self) -> None:
        """Only this process: what it started goes on, as after a kill in life."""
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process, self._rest = None, b""

    def start(self) -> None:
        self._running()

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            with open(self._errors, "ab") as errors:
                self._process = subprocess.Popen(
                    [sys.executable, "-m", "soaking.workers", str(self._base)], env=process_environment(),
                    stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors,
                )  # fmt: skip
            # It says when everything is imported, so that a kill hits work and not the start of Python.
            assert self._process.stdout is not None
            if self._process.stdout.readline() != b"ready\n":
                raise Died(self._errors.read_text()[-3000:])
        return self._process


def process_environment() -> dict[str, str]:
    """For processes that use the shadowsnap of this checkout."""
    scripts = Path(__file__).resolve().parent.parent
    return {**plain_environment(), "PYTHONPATH": os.pathsep.join((str(scripts), str(scripts.parent)))}


# --- inside such a process -------------------------------------------------------------------


class Server:
    """Managers with different settings, some of them watching, and the stages that are open."""

    def __init__(self, base: str) -> None:
        self._base = base
        self._managers: dict[str, Any] = {}
        self._stages: dict[str, Any] = {}

    def answer(self, command: Reply) -> Reply:
        began = time.perf_counter()
        try:
            answer = getattr(self, "do_" + command["do"])(command, self._manager(command), command["project"])
        except Exception as problem:  # the story judges which errors are right
            answer = {"raised": type(problem).__name__, "text": str(problem)}
        return {"ms": round(1000 * (time.perf_counter() - began), 2), **answer}

    def _manager(self, command: Reply) -> Any:
        from shadowsnap import CheckpointManager

        wanted = {"settings": command["settings"], "watch": command.get("watch"), "base": command.get("base")}
        key = json.dumps([wanted, command.get("which", 0)], sort_keys=True)
        if key not in self._managers:
            settings = {**command["settings"]}
            settings["excludes"] = tuple(settings.get("excludes", ()))
            self._managers[key] = CheckpointManager(
                base=command.get("base") or self._base, max_snapshots=KEPT, background_upkeep=False, **settings
            )
        if command.get("watch"):
            self._managers[key].watch(command["project"])
        return self._managers[key]

    def do_ensure(self, command: Reply, manager: Any, project: str) -> Reply:
        if command["session"] is not None:
            manager.new_turn(session_id=command["session"], prompt=command["reason"])
        if command.get("tool"):
            return _outcome(manager.before_tool("write_file", {"path": command["paths"][0]}, cwd=project))
        return _outcome(manager.ensure_checkpoint(project, command["reason"], command["paths"]))

    def do_end_turn(self, command: Reply, manager: Any, project: str) -> Reply:
        found = [_outcome(outcome) for outcome in manager.end_turn()]
        mine = [outcome for outcome in found if outcome["workdir"] == project]
        return mine[0] if mine else {"status": "none", "id": None, "error": None, "skipped": []}

    def do_restore(self, command: Reply, manager: Any, project: str) -> Reply:
        more = {"dry_run": True} if command.get("dry_run") else {}
        return _result(manager.restore(project, command["ref"], command["paths"], **more))

    def do_undo(self, command: Reply, manager: Any, project: str) -> Reply:
        return _result(manager.undo(project))

    def do_redo(self, command: Reply, manager: Any, project: str) -> Reply:
        return _result(manager.redo(project))

    def do_revert(self, command: Reply, manager: Any, project: str) -> Reply:
        return _result(manager.revert(project, dry_run=command["dry_run"], **command["what"]))

    def do_stage_begin(self, command: Reply, manager: Any, project: str) -> Reply:
        stage = manager.stage(project, edit_id=command["reason"], session_id=command["session"], risk_tier="low")
        self._stages[project] = stage.__enter__()
        return {"status": "begun", "id": stage.before.id}

    def do_stage_commit(self, command: Reply, manager: Any, project: str) -> Reply:
        checkpoint = self._stages.pop(project).commit(command["reason"])
        return {"status": "taken", "id": checkpoint.id, "error": None, "skipped": _pairs(checkpoint.skipped)}

    def do_stage_discard(self, command: Reply, manager: Any, project: str) -> Reply:
        return _result(self._stages.pop(project).discard())

    def do_prune(self, command: Reply, manager: Any, project: str) -> Reply:
        result = manager.prune(reclaim=command["reclaim"])
        return {"status": result.status, "error": repr(result.error) if result.error else None}

    def do_pin(self, command: Reply, manager: Any, project: str) -> Reply:
        return {"id": manager.pin(project, command["ref"]).id}

    def do_doctor(self, command: Reply, manager: Any, project: str) -> Reply:
        checkup = manager.doctor()
        findings = [f"{each.code} {each.subject}" for each in checkup.findings]
        return {"healthy": checkup.healthy, "findings": findings}


KEPT = 12
"""Turns that pruning leaves of each project, for every manager of a soak."""


def _outcome(outcome: Any) -> Reply:
    checkpoint = outcome.checkpoint
    return {
        "status": outcome.status,
        "id": checkpoint.id if checkpoint else None,
        "turn": getattr(checkpoint, "turn", None),
        "workdir": str(checkpoint.workdir) if checkpoint else None,
        "error": repr(outcome.error) if outcome.error else None,
        "skipped": _pairs(outcome.skipped),
    }


def _result(result: Any) -> Reply:
    return {
        "written": list(result.written), "deleted": list(result.deleted), "kept": _pairs(result.kept),
        "conflicts": _pairs(result.conflicts), "undo_id": result.undo_id,
    }  # fmt: skip


def _pairs(items: Any) -> list[list[str]]:
    return [[item.path, item.why] for item in items]


def serve(base: str) -> None:
    import shadowsnap

    _ = shadowsnap.CheckpointManager
    server, answers = Server(base), os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # whatever else is printed does not mix with the answers
    answers.write("ready\n")
    for line in sys.stdin:
        answers.write(json.dumps(server.answer(json.loads(line))) + "\n")


if __name__ == "__main__":
    serve(sys.argv[1])
