"""What lanes cost, against the aims: a turn that changes one of 5,000 files, pushed to a git server and,
encrypted, to an S3 server; what the hot path has of it; and `resume` against `git clone` over the same transport.

    scripts/bench remote [FILES [LANES]]

The servers are a bare repository reached through git's own transport, and moto. With LANES (try 10000), that many
lanes are put into the bucket first, and are listed.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from statistics import median

from shadowsnap import CheckpointManager
from shadowsnap.remote.manifest import Sealer, generate_key, head_name, head_with_content
from shadowsnap.remote.storage import open_storage
from shadowsnap.store.layout import Store

FILES, RUNS = 5_000, 5


def fill(project: Path, files: int) -> None:
    words = random.Random(1)
    for number in range(files):
        folder = project / f"folder-{number // 100}"
        folder.mkdir(parents=True, exist_ok=True)
        lines = (f"{words.random()} line {line}\n" for line in range(words.randrange(5, 60)))
        (folder / f"file-{number}.txt").write_text("".join(lines))


@contextmanager
def s3_server() -> Iterator[str]:
    """The address of a new bucket."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    for name in [name for name in os.environ if name.lower().endswith("_proxy")]:
        del os.environ[name]
    os.environ |= {"AWS_ACCESS_KEY_ID": "x", "AWS_SECRET_ACCESS_KEY": "x", "AWS_REGION": "us-east-1"}
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        address = f"http://127.0.0.1:{port}"
        for _ in range(300):
            try:
                urllib.request.urlopen(urllib.request.Request(f"{address}/lanes", method="PUT")).close()
                break
            except OSError:
                time.sleep(0.1)
        yield f"s3://lanes/bench?endpoint={address}&region=us-east-1"
    finally:
        server.kill()
        server.wait()


class Bench:
    def __init__(self, top: Path) -> None:
        self.top = top
        self.project = top / "project"
        self.missed = 0
        self.turns = 0

    def manager(self, name: str, **settings: bool) -> CheckpointManager:
        return CheckpointManager(base=self.top / name, background_upkeep=False, max_snapshots=0, **settings)

    def turn(self, manager: CheckpointManager) -> float:
        """One turn that changes one file; the seconds that its calls took."""
        self.turns += 1
        began = time.perf_counter()
        manager.new_turn("session-1", f"make change number {self.turns} of this file", agent="bench")
        manager.before_tool("Write", {"file_path": "folder-1/file-107.txt"}, self.project)
        spent = time.perf_counter() - began
        (self.project / "folder-1" / "file-107.txt").write_text(f"changed {self.turns}\n")
        began = time.perf_counter()
        manager.end_turn()
        return spent + time.perf_counter() - began

    def say(self, what: str, found: float, unit: str, aim: float | None = None) -> None:
        is_missed = aim is not None and found > aim
        self.missed += is_missed
        wanted = "" if aim is None else f"   aim {aim:g}{' MISSED' if is_missed else ''}"
        print(f"{what:58} {found:10.4g} {unit}{wanted}", flush=True)

    def pushes(self, manager: CheckpointManager, where: str, aim: float) -> None:
        first = manager.push(self.project)
        self.say(f"{where}: the first push", first.bytes / 1024, "KB")
        sizes, cpu, seconds = [], [], []
        for _ in range(RUNS):
            self.turn(manager)
            before, began = sum(os.times()[:4]), time.perf_counter()
            sizes.append(manager.push(self.project).bytes)
            cpu.append(sum(os.times()[:4]) - before)
            seconds.append(time.perf_counter() - began)
        self.say(f"{where}: a turn of one file", median(sizes) / 1024, "KB", aim)
        self.say(f"{where}: CPU of that push", 1000 * median(cpu), "ms", 150)
        self.say(f"{where}: time of that push", 1000 * median(seconds), "ms")


def main(arguments: list[str]) -> int:
    files = int(arguments[0]) if arguments else FILES
    lanes = int(arguments[1]) if len(arguments) > 1 else 0
    with tempfile.TemporaryDirectory() as folder, s3_server() as bucket:
        bench = Bench(Path(folder).resolve())
        fill(bench.project, files)
        key = generate_key(bench.top / "key")
        _git_lane(bench)
        _s3_lane(bench, bucket, key, lanes)
        _hot_path(bench)
    return 1 if bench.missed else 0


def _git_lane(bench: Bench) -> None:
    server = bench.top / "server.git"
    _run("git", "init", "-q", "--bare", str(server))
    manager = bench.manager("base-git")
    manager.ensure_checkpoint(bench.project)
    manager.set_remote(bench.project, "git", f"file://{server}", plain=True)
    bench.pushes(manager, "plain, git server", 1)
    source = bench.top / "source"
    shutil.copytree(bench.project, source)
    who = ("-c", "user.name=x", "-c", "user.email=x@x")
    for words in (("init", "-q"), ("add", "."), (*who, "commit", "-qm", "x")):
        _run("git", "-C", str(source), *words)
    lane = manager.lanes(f"file://{server}")[0].lane
    cloned, resumed = [], []
    for number in range(3):
        began = time.perf_counter()
        _run("git", "clone", "-q", f"file://{source}", str(bench.top / f"cloned-{number}"))
        cloned.append(time.perf_counter() - began)
        desk, began = bench.manager(f"base-desk-{number}"), time.perf_counter()
        desk.resume(lane, bench.top / f"resumed-{number}", url=f"file://{server}")
        resumed.append(time.perf_counter() - began)
    bench.say("git clone of the same files", 1000 * median(cloned), "ms")
    bench.say("resume", 1000 * median(resumed), "ms")
    bench.say("resume / git clone", median(resumed) / median(cloned), "times", 1.5)


def _s3_lane(bench: Bench, bucket: str, key: str, lanes: int) -> None:
    manager = bench.manager("base-s3")
    manager.ensure_checkpoint(bench.project)
    manager.set_remote(bench.project, "s3", bucket, [key])
    bench.pushes(manager, "encrypted, S3", 5)
    if not lanes:
        return
    storage, sealer = open_storage(bucket, Store(bench.top / "base-s3", False)), Sealer([key])

    def put(number: int) -> None:
        lane = f"{number:020x}/{number:012x}"
        about = {"machine": f"sandbox-{number}", "name": f"project-{number}"}
        head = head_name(lane, 1, 1_700_000_000_000 + number, 3, 1000)
        storage.put(head_with_content(head, sealer.seal(json.dumps(about).encode())), b"")

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(put, range(lanes)))
    began, before = time.perf_counter(), time.process_time()
    found = manager.lanes(bucket, key=bench.top / "key")
    bench.say(f"listing {len(found)} lanes", time.perf_counter() - began, "s", 5)
    bench.say(f"listing {len(found)} lanes: CPU of the client", time.process_time() - before, "s")
    bench.pushes(manager, f"encrypted, S3, beside {len(found)} lanes", 5)


def _hot_path(bench: Bench) -> None:
    """The same turns with a remote that is pushed to by itself, and without: in turn, so that noise meets both."""
    without, beside = bench.manager("base-without"), bench.manager("base-beside", sync=True)
    (bench.top / "shelf").mkdir()
    for manager in (without, beside):
        manager.ensure_checkpoint(bench.project)
    beside.set_remote(bench.project, "shelf", str(bench.top / "shelf"), plain=True)
    times: dict[CheckpointManager, list[float]] = {without: [], beside: []}
    for _ in range(4 * RUNS):
        for manager, found in times.items():
            found.append(bench.turn(manager))
    more = median(times[beside]) - median(times[without])
    bench.say("what a turn's own calls wait for the remote", max(0.0, 1000 * more), "ms", 5)


def _run(*words: str) -> None:
    subprocess.run(words, check=True, stdout=subprocess.DEVNULL)
