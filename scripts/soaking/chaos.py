"""What goes on in the same store beside the stories, without being judged file by file.

Two agents work in one directory at the same time, one of them watching. What a snapshot between their writes must
hold is not known, so other things are judged: no operation may find the store damaged, none may end in an error
that is not one of shadowsnap's own, and at the end `git fsck` finds every object. A pruner drops and repacks
again and again, a reader looks at everything. Hooks run in a directory of their own, where every one of them must
leave the files safe, whatever happens to the resident helper meanwhile. All of them are killed from time to time,
and rest in between: the stories are what counts."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROLES = ("agent", "watcher", "pruner", "reader", "hooks")
_DAMAGE = ("DamagedObject", "MalformedObject", "GitFailed", "StoreUnusable", "CheckpointsLost")


@dataclass
class Chaos:
    """The processes, as the main process sees them."""

    top: Path
    environment: dict[str, str]
    chance: random.Random
    kills: int = 0
    problems: list[str] = field(default_factory=list)
    _running: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    def keep_running(self) -> None:
        for role in ROLES:
            process = self._running.get(role)
            if process is not None and process.poll() is not None:
                self.problems.append(f"{role} died: {self._errors(role).read_text()[-2000:]}")
            if process is None or process.poll() is not None:
                self._running[role] = self._start(role)

    def kill_one(self) -> None:
        role = self.chance.choice(sorted(self._running))
        self._kill(role)
        self.kills += 1

    def stop(self) -> None:
        for role in list(self._running):
            self._kill(role)

    def facts(self) -> list[dict[str, Any]]:
        lines = (line for role in ROLES if self._record(role).exists() for line in self._record(role).open("rb"))
        return [json.loads(line) for line in lines]

    def _kill(self, role: str) -> None:
        process = self._running.pop(role)
        process.kill()
        process.wait()

    def _start(self, role: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "soaking.chaos", role]
        command += map(str, (self.top / "base", self.top / "chaos", self._record(role)))
        with open(self._errors(role), "wb") as errors:
            return subprocess.Popen(
                command, env=self.environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                stderr=errors,
            )  # fmt: skip

    def _record(self, role: str) -> Path:
        return self.top / f"chaos-{role}.jsonl"

    def _errors(self, role: str) -> Path:
        return self.top / f"chaos-{role}.err"


# --- inside such a process -------------------------------------------------------------------


class Role:
    def __init__(self, base: str, project: str, record: str) -> None:
        from shadowsnap import CheckpointManager
        from soaking.workers import KEPT

        self.manager = CheckpointManager(base=base, max_snapshots=KEPT, background_upkeep=False)
        self.project = Path(project)
        self._record = record

    def note(self, **facts: Any) -> None:
        """One write, so that a kill leaves whole lines only."""
        descriptor = os.open(self._record, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            os.write(descriptor, json.dumps(facts).encode() + b"\n")
        finally:
            os.close(descriptor)

    def attempt(self, what: str, operation: Any, *arguments: Any, **more: Any) -> Any:
        from shadowsnap import ShadowsnapError

        try:
            return operation(*arguments, **more)
        except ShadowsnapError as problem:  # refused, nothing to undo, changed meanwhile: all of it may be
            self.note_error(what, problem)
            return None

    def note_error(self, what: str, problem: BaseException) -> None:
        kind = type(problem).__name__
        self.note(**{"damage" if kind in _DAMAGE else "trouble": f"{what}: {kind}: {problem}"})


class Agent(Role):
    watches = False

    def run(self) -> None:
        self.project.mkdir(exist_ok=True)
        while True:
            if self.watches:
                self.manager.watch(self.project)
            self._edit()
            self.manager.new_turn(session_id=f"chaos {os.getpid()}")
            outcome = self.manager.ensure_checkpoint(self.project, "chaos")
            if outcome.error is not None:
                self.note_error("snapshot", outcome.error)
            self.note(done="snapshot")
            if random.random() < 0.3:
                self.attempt("back", random.choice([self._restore, self._undo, self._redo]))
            time.sleep(random.uniform(0.3, 1.2))

    def _restore(self) -> None:
        target = random.choice(self.manager.list_checkpoints(self.project))
        self.manager.restore(self.project, target.id)
        self.note(done="restore")

    def _undo(self) -> None:
        self.manager.undo(self.project)
        self.note(done="undo")

    def _redo(self) -> None:
        self.manager.redo(self.project)

    def _edit(self) -> None:
        for _ in range(random.randint(1, 5)):
            path = self.project / f"d{random.randint(0, 4)}" / f"f{random.randint(0, 8)}"
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
                content = random.Random(random.randint(0, 40))  # few different ones: what one drops another needs
                path.write_bytes(content.randbytes(random.choice([0, 300, 4000, 30000])))
                if random.random() < 0.3:
                    path.unlink()
            except OSError:
                pass  # a restore of the other agent took the directory away
        if random.random() < 0.03:  # so many that they are written as a pack
            for number in range(130):
                (self.project / f"many{number}").write_text(f"{random.randint(0, 5)} {number}\n")


class Watcher(Agent):
    watches = True


class Pruner(Role):
    def run(self) -> None:
        while True:
            how = random.choice(["always", "when-it-pays", "never"])
            result = self.attempt("prune", self.manager.prune, reclaim=how)
            if result is not None:
                self.note(done="prune", dropped=len(result.dropped))
                if result.error is not None:
                    self.note_error("prune", result.error)
            time.sleep(random.uniform(0.5, 3))


class Reader(Role):
    def run(self) -> None:
        while True:
            self.attempt("status", self.manager.status)
            found = self.attempt("list", self.manager.list_checkpoints, self.project) or []
            if len(found) > 1:
                self.attempt("diff", self.manager.diff, self.project, found[-1].id, found[0].id)
            self.note(done="look")
            time.sleep(random.uniform(1, 3))


class Hooks(Agent):
    """The hooks of an agent, as processes. The helper that does their work is killed and stopped at any moment."""

    def __init__(self, base: str, project: str, record: str) -> None:
        super().__init__(base, f"{project}-hooked", record)
        self._base = base
        self._environment = {**os.environ, "SHADOWSNAP_HOME": base}

    def run(self) -> None:
        self.project.mkdir(exist_ok=True)
        while True:
            self._edit()
            harm = threading.Timer(random.uniform(0, 0.6), self._harm_helper)
            harm.start()
            self._hook()
            harm.join()
            now = self.manager.now(self.project)
            if now.files_changed != 0:
                self.note(damage=f"hooks: {now.files_changed} files are not safe after a hook")
            self.note(done="hook")
            time.sleep(random.uniform(0, 0.5))

    def _hook(self) -> None:
        event = {
            "session_id": "soak", "prompt_id": str(time.time()), "cwd": str(self.project),
            "hook_event_name": "PreToolUse", "tool_name": "Bash", "tool_input": {"command": "make"},
        }  # fmt: skip
        words = [sys.executable, "-m", "shadowsnap", "hook", "claude"]
        done = subprocess.run(
            words, input=json.dumps(event).encode(), env=self._environment, capture_output=True, check=False
        )
        if (done.returncode, done.stdout, done.stderr) != (0, b"", b""):
            self.note(damage=f"hooks: {done}")

    def _harm_helper(self) -> None:
        from shadowsnap.hook import client
        from shadowsnap.hook.server import running_helper

        helper = running_helper(self._base)
        if helper is None:
            if random.random() < 0.3:  # so that the next hook starts one again
                Path(self._base, client.RECORD).unlink(missing_ok=True)
            return
        self.note(done="look at the helper")
        try:
            chance = random.random()
            if chance < 0.1:
                os.kill(helper.pid, signal.SIGKILL)
            elif chance < 0.2:
                os.kill(helper.pid, signal.SIGSTOP)
                time.sleep(random.uniform(0, 1.5))
                os.kill(helper.pid, signal.SIGCONT)
        except ProcessLookupError:
            pass


if __name__ == "__main__":
    roles: list[Any] = [Agent, Watcher, Pruner, Reader, Hooks]
    dict(zip(ROLES, roles, strict=True))[sys.argv[1]](*sys.argv[2:]).run()
