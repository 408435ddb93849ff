"""The command line of scripts/soak."""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from soaking.records import Record
from soaking.verify import Judgement, verify


@dataclass
class Crew:
    """The processes, and who takes the place of one that was killed."""

    top: Path
    agents: int
    running: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    kills: int = 0
    deaths: list[str] = field(default_factory=list)
    """Those that ended by themselves, which none should."""

    @property
    def names(self) -> list[str]:
        return [*(f"agent{number}" for number in range(self.agents)), "pruner", "reader"]

    def record(self, name: str) -> Record:
        return Record(self.top / f"{name}.jsonl")

    def project(self, name: str) -> Path:
        return self.top / "projects" / name

    def keep_running(self) -> None:
        for name in self.names:
            process = self.running.get(name)
            if process is not None and process.poll() is not None:
                self.deaths.append((self.top / f"{name}.err").read_text()[-2000:])
            if process is None or process.poll() is not None:
                self.running[name] = self._start(name)

    def kill(self, name: str) -> None:
        process = self.running.pop(name)
        process.kill()  # only this one: git processes that it started go on, as in life
        process.wait()
        self.kills += 1

    def _start(self, name: str) -> subprocess.Popen[bytes]:
        arguments = [name.rstrip("0123456789"), self.top / "base", self.project(name), self.top / f"{name}.jsonl"]
        environment = {**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parent.parent)}
        with open(self.top / f"{name}.err", "wb") as errors:
            return subprocess.Popen(
                [sys.executable, "-m", "soaking.agents", *map(str, arguments)], env=environment,
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=errors,
            )  # fmt: skip


def main(argv: Sequence[str]) -> int:
    options = _parser().parse_args(argv)
    top = Path(tempfile.mkdtemp(prefix="soak-", dir=options.scratch))
    crew = Crew(top, options.agents)
    print(f"{options.minutes:g} minutes, {options.agents} agents, in {top}", flush=True)
    _soak(crew, options.minutes * 60, options.kill_every)
    print("verifying every checkpoint ...", flush=True)
    agents = [name for name in crew.names if name.startswith("agent")]
    judgement = verify(top / "base", [(crew.project(name), crew.record(name)) for name in agents])
    figures = _figures(crew, judgement, options.minutes)
    print(json.dumps(figures, indent=1))
    sound = judgement.sound and not crew.deaths and not figures["problems"]
    print(f"lost: {len(judgement.lost) + len(judgement.differing)}", flush=True)
    if sound and not options.keep:
        shutil.rmtree(top)
    return 0 if sound else 1


def _soak(crew: Crew, seconds: float, kill_every: float) -> None:
    end = time.monotonic() + seconds
    try:
        while time.monotonic() < end:
            crew.keep_running()
            time.sleep(random.uniform(0.2, 2 * kill_every))
            crew.keep_running()
            crew.kill(random.choice(crew.names))
    finally:
        for name in list(crew.running):
            crew.kill(name)


def _figures(crew: Crew, judgement: Judgement, minutes: float) -> dict[str, object]:
    facts = [fact for name in crew.names for fact in crew.record(name).read()]
    seconds = sorted(fact["seconds"] for fact in facts if "seconds" in fact)
    store = crew.top / "base" / "store"
    size = sum(path.stat().st_size for path in (store / "objects").rglob("*") if path.is_file())
    return {
        "minutes": minutes,
        "kills": crew.kills,
        "snapshots taken": len(seconds),
        "snapshot median ms": round(1000 * seconds[len(seconds) // 2], 1) if seconds else None,
        "snapshot slowest ms": round(1000 * seconds[-1], 1) if seconds else None,
        "restores, undos, redos": sum("done" in fact for fact in facts),
        "prunes": sum("pruned" in fact for fact in facts),
        "checkpoints dropped": sum(fact.get("pruned", 0) for fact in facts),
        "looks": sum("looked" in fact for fact in facts),
        "store MB at the end": round(size / 2**20, 2),
        "verified exactly": judgement.verified,
        "restored": judgement.restored,
        "differing": judgement.differing,
        "lost": judgement.lost,
        "damage": judgement.damage,
        "left behind": judgement.left_behind,
        "died by themselves": crew.deaths,
        "problems": [fact["problem"] for fact in facts if "problem" in fact],
        "troubles of readers": sum("trouble" in fact for fact in facts),
    }


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="scripts/soak",
        description="Processes that snapshot, restore, prune and look at one store are killed and started again; "
        "then every checkpoint is verified against what was written down when it was taken. Exit code 1 if "
        "anything was lost, damaged or left behind.",
    )
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--agents", type=int, default=3, help="how many edit and snapshot (default 3)")
    parser.add_argument("--kill-every", type=float, default=0.7, metavar="SECONDS", help="default 0.7")
    parser.add_argument("--scratch", type=Path, help="where to make the directory it all happens in")
    parser.add_argument("--keep", action="store_true", help="keep that directory also if all is well")
    return parser
