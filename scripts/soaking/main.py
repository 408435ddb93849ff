"""The command line of scripts/soak: runs the stories and the chaos beside them, and adds up what was found."""

from __future__ import annotations

import argparse
import random
import shutil
import tempfile
import threading
import time
import traceback
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from shadowsnap.hook.server import stop_helper
from soaking.chaos import Chaos
from soaking.judge import Finding, Store
from soaking.manifest import use_home
from soaking.story import KINDS, Story, Tally
from soaking.workers import Worker, process_environment

_SHOWN_IN_FULL = 3
_LAST_STEPS = 14


@dataclass
class Report:
    """What all lanes found. Problems are printed when they are found."""

    seed: int
    top: Path
    findings: list[Finding] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _shown: Counter[str] = field(default_factory=Counter)

    def add(self, story: Story) -> None:
        with self._lock:
            self.findings += story.findings
            self._shown[story.findings[0].code] += 1
            for finding in story.findings[:8]:
                print(f"{'LOST' if finding.lost else 'PROBLEM'}  {story.name}  {finding.code}: {finding.text}")
            whole = self.top / f"story-{story.name.replace(':', '-')}.txt"
            whole.write_text("\n".join(story.steps) + "\n")
            print(f"    all steps: {whole}")
            print(f"    reproduce: scripts/soak --seed {self.seed} --story {story.name}", flush=True)
            if self._shown[story.findings[0].code] <= _SHOWN_IN_FULL:
                print("".join(f"    {line}\n" for line in story.steps[-_LAST_STEPS:]), flush=True)

    def other(self, code: str, text: str, lost: bool = False) -> None:
        with self._lock:
            self.findings.append(Finding(code, text, lost))
            print(f"{'LOST' if lost else 'PROBLEM'}  {code}: {text}", flush=True)


class Lane(threading.Thread):
    """One story after the other, of one kind, with two processes of its own."""

    def __init__(self, kind: str, top: Path, report: Report, end: float, only: int | None = None) -> None:
        super().__init__(name=kind)
        self.tally = Tally()
        self._top = top
        self._report = report
        self._end = end
        self._only = only
        self._workers = [Worker(top / "base", top / f"{kind}-{number}.err") for number in range(2)]

    def run(self) -> None:
        number = self._only or 0
        try:
            while time.monotonic() < self._end:
                story = Story(
                    self._report.seed, self.name, number, self._top, self._workers, self.tally, self._end
                )
                story.run()
                self.tally.counts["stories"] += 1
                if story.findings:
                    self._report.add(story)
                if self._only is not None:
                    break
                number += 1
        except Exception:  # a defect of the soak itself must not pass for success
            self._report.other("the soak itself failed", traceback.format_exc())
        finally:
            for worker in self._workers:
                worker.kill()


def main(argv: Sequence[str]) -> int:
    options = _parser().parse_args(argv)
    seed = random.randrange(1_000_000) if options.seed is None else options.seed
    top = Path(tempfile.mkdtemp(prefix="soak-", dir=options.scratch)).resolve()
    use_home(top / "home")
    (top / "projects").mkdir()
    report, end = Report(seed, top), time.monotonic() + options.seconds
    print(f"{options.seconds:g} seconds, seed {seed}, in {top}", flush=True)

    kind, _, number = (options.story or "").partition(":")
    kinds = [kind] if kind else KINDS
    lanes = [Lane(each, top, report, end, int(number) if number else None) for each in kinds]
    resident = {"SHADOWSNAP_RESIDENT": "false" if options.no_helper else "true"}
    chaos = Chaos(top, {**process_environment(), **resident}, random.Random(f"{seed}/chaos"))
    for lane in lanes:
        lane.start()
    try:
        while any(lane.is_alive() for lane in lanes):
            if kind or time.monotonic() > end:
                chaos.stop()
                time.sleep(0.1)
                continue
            chaos.keep_running()
            time.sleep(chaos.chance.uniform(0.5, 4.0))
            chaos.keep_running()
            chaos.kill_one()
    finally:
        chaos.stop()
        for lane in lanes:
            lane.join()
    stop_helper(str(top / "base"))
    _judge_the_store(top, report, chaos)
    _summarize(lanes, chaos, report)
    if not report.findings and not options.keep:
        shutil.rmtree(top)
    return 1 if report.findings else 0


def _judge_the_store(top: Path, report: Report, chaos: Chaos) -> None:
    """After everything: one more call in each directory, one prune, and then no damage and no debris."""
    worker = Worker(top / "base", top / "end.err")
    common = {"settings": {}, "watch": False}
    chaotic = top / "chaos"
    if chaotic.is_dir():
        reply = worker.ask({**common, "do": "ensure", "project": str(chaotic), "reason": "end", "paths": [],
                            "session": "end"})  # fmt: skip
        if reply is None or reply.get("status") not in ("taken", "unchanged"):
            report.other("no snapshot at the end", str(reply))
    reply = worker.ask({**common, "do": "prune", "project": str(chaotic), "reclaim": "always"})
    if reply is None or "raised" in reply or reply["error"]:
        report.other("the last prune failed", str(reply))
    reply = worker.ask({**common, "do": "doctor", "project": str(chaotic)})
    if reply is None or "raised" in reply or not reply["healthy"]:
        report.other("doctor finds something", str(reply))
    worker.kill()
    store = Store(top / "base" / "store")
    if damage := store.fsck():
        report.other("git fsck", damage, lost=True)
    for path in _debris(store.git_dir):
        report.other("debris in the store", str(path))
    for text in chaos.problems:
        report.other("chaos", text)
    for fact in chaos.facts():
        if "damage" in fact:
            report.other("chaos found damage", fact["damage"], lost=True)


def _debris(store: Path) -> list[Path]:
    patterns = ("scratch-*", "trash-*", "objects/*/tmp_*", "objects/pack/.tmp-*", "indexes/.*", "projects/.*")
    found = [path for pattern in patterns for path in store.glob(pattern)]
    return found + [path for path in store.rglob("*.lock") if path.parent.name != "locks"]


def _summarize(lanes: list[Lane], chaos: Chaos, report: Report) -> None:
    counts: Counter[str] = sum((lane.tally.counts for lane in lanes), Counter())
    times = sorted(ms for lane in lanes for ms in lane.tally.snapshot_ms)
    beside = Counter(fact["done"] for fact in chaos.facts() if "done" in fact)
    troubles = Counter(fact["trouble"].split(": ")[1] for fact in chaos.facts() if "trouble" in fact)
    lost = sum(finding.lost for finding in report.findings)
    rows: list[tuple[str, object]] = [
        ("seed", report.seed),
        ("stories", f"{counts['stories']}, {counts['stories closed']} of them to the end"),
        ("kills", f"{counts['kills'] + chaos.kills} ({counts['kills']} in stories)"),
        ("snapshots", f"{counts['snapshots taken']} taken, {counts['snapshots unchanged']} unchanged"),
        ("snapshot ms", f"median {times[len(times) // 2]:.1f}, slowest {times[-1]:.1f}" if times else "none"),
        ("checkpoints verified", counts["checkpoints verified"]),
        *((each, counts[each]) for each in ("restores", "undos", "redos", "reverts", "stages", "prunes")),
        ("cold snapshots compared", counts["cold snapshots compared"]),
        ("beside them", ", ".join(f"{number} {what}s" for what, number in sorted(beside.items())) or "nothing"),
        ("refusals beside them", dict(troubles) or "none"),
    ]
    print("\n" + "\n".join(f"{name + ':':25}{value}" for name, value in rows))
    for code, number in Counter(finding.code for finding in report.findings).most_common():
        print(f"  found {number} x {code}")
    print(f"lost: {lost}, problems: {len(report.findings) - lost}", flush=True)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="scripts/soak",
        description="Random stories of edits, snapshots, restores, undos, reverts, stages and prunes in one store "
        "by processes that are killed again and again. Every checkpoint and every restore is compared with what "
        "the soak itself read from the disk. Exit code 1 if anything was lost, damaged or left behind.",
    )
    parser.add_argument("--seconds", type=float, default=600, help="how long (default 600)")
    parser.add_argument("--seed", type=int, help="the same stories again, except for the moments of kills")
    parser.add_argument("--story", metavar="KIND:NUMBER", help="only this story, with --seed")
    parser.add_argument("--scratch", type=Path, help="where to make the directory it all happens in")
    parser.add_argument("--no-helper", action="store_true", help="hooks do their work themselves")
    parser.add_argument("--keep", action="store_true", help="keep that directory also if all is well")
    return parser
