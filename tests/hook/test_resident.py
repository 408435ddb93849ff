"""The resident helper makes hooks faster and nothing else: whatever happens to it, the hook does its work."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from capturing import everything_old
from command_line import CommandLine

from helpers import ROOT, call_unprivileged, manifest, remove_tree, wait_until
from shadowsnap import CheckpointManager
from shadowsnap.hook import client, handle, payload, server
from shadowsnap.hook import session as hooklog
from shadowsnap.hook.handle import run_hook
from shadowsnap.hook.server import running_helper, start_helper, stop_helper
from shadowsnap.snapshot.scan import directory_times_are_reliable
from shadowsnap.store.locks import is_free

resource = pytest.importorskip("resource")

HOOK = [sys.executable, "-m", "shadowsnap", "hook", "claude"]

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="Windows has no helper")


@pytest.fixture
def base(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Of a store whose hooks start a helper, which is stopped at the end. Its path is short wherever temporary
    files are kept: the path of a socket has at most about 100 bytes."""
    folder = tempfile.mkdtemp(prefix="ss-", dir="/tmp")
    os.chmod(folder, 0o711)
    base = Path(folder, "b")
    monkeypatch.setenv("SHADOWSNAP_HOME", str(base))
    monkeypatch.delenv("SHADOWSNAP_RESIDENT")
    yield base
    found = running_helper(str(base))
    if found is not None:
        with suppress(ProcessLookupError):
            os.kill(found.pid, signal.SIGKILL)
    wait_until(lambda: is_removed(folder))  # the worker of a killed helper may still be writing


def is_removed(folder: str) -> bool:
    with suppress(OSError):
        remove_tree(folder)
    return not os.path.lexists(folder)


@pytest.fixture
def manager(base: Path) -> CheckpointManager:
    return CheckpointManager(base=base, fsync=False)


def hook(project: Path, turn: str = "t1", **options: Any) -> None:
    """One tool event, in a process as agents start it."""
    done = subprocess.run(
        HOOK, input=event(project, turn), capture_output=True, check=False, timeout=60, **options
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


def event(project: Path, turn: str, session: str = "s1") -> bytes:
    told = {
        "session_id": session, "prompt_id": turn, "cwd": str(project), "hook_event_name": "PreToolUse",
        "tool_name": "Write", "tool_input": {"file_path": "README.md"},
    }  # fmt: skip
    return json.dumps(told).encode()


def change(project: Path, text: str) -> None:
    (project / "README.md").write_text(text)


def with_helper(project: Path, base: Path) -> int:
    """The first hook of a store, and the helper that it starts."""
    hook(project, "t0")
    wait_until(lambda: (base / client.SOCKET).exists() and running_helper(str(base)) is not None)
    found = running_helper(str(base))
    assert found is not None
    return found.pid


def served(project: Path) -> bool:
    """Whether a helper would do the work of a hook of this process."""
    return client.ask_helper("claude", "", event(project, "t0")) == client.SERVED


def takes_a_checkpoint(project: Path, manager: CheckpointManager, **options: Any) -> bool:
    """Whether a hook of another turn still does what it must."""
    before = len(manager.list_checkpoints(project))
    change(project, f"{before}\n")
    hook(project, f"turn-{before}", **options)
    return len(manager.list_checkpoints(project)) == before + 1


# --- with a helper ------------------------------------------------------------------------------------


def test_the_first_hook_starts_a_helper_that_does_the_work_of_the_next(
    project: Path, base: Path, manager: CheckpointManager
) -> None:
    helper = with_helper(project, base)
    change(project, "by the agent\n")
    # A Python that cannot import the modules that do the work shows who did it.
    script = (
        "import sys; sys.modules['shadowsnap.hook.handle'] = None\n"
        "from shadowsnap.hook import client; client.main(['claude'])"
    )
    subprocess.run([sys.executable, "-c", script], input=event(project, "t1", "s2"), check=True, timeout=60)
    assert [each.session_id for each in manager.list_checkpoints(project)] == ["s2", "s1"]
    assert running_helper(str(base)).pid == helper


def test_a_turn_ends_with_what_was_written_without_an_event(
    project: Path, base: Path, manager: CheckpointManager, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Through a hard link in a directory that is not watched."""
    if not directory_times_are_reliable(project):
        pytest.skip("nothing is watched on this file system")
    monkeypatch.setattr(handle, "watchers", {})
    stop = {"session_id": "s1", "prompt_id": "t1", "cwd": str(project), "hook_event_name": "Stop"}
    (project / "other.txt").write_text("as it was")
    with everything_old():
        manager.snapshot(project)
        server._watch_project(handle.watchers, str(project))
        run_hook("claude", event(project, "t1"))
        os.link(project / "other.txt", tmp_path / "another name")
        (tmp_path / "another name").write_text("by the other name")
        run_hook("claude", json.dumps(stop).encode())
    (watcher,) = handle.watchers.values()
    watcher.close()
    assert manager.contents(project, "2:after", ["other.txt"]) == {"other.txt": b"by the other name"}


def test_a_turn_begins_with_what_was_written_without_an_event_whoever_served_its_prompt(
    project: Path, base: Path, manager: CheckpointManager, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The worker was busy with another request, so that it compared nothing after this prompt."""
    if not directory_times_are_reliable(project):
        pytest.skip("nothing is watched on this file system")
    monkeypatch.setattr(handle, "watchers", {})
    told = {"session_id": "s1", "prompt_id": "t1", "cwd": str(project), "hook_event_name": "UserPromptSubmit"}
    (project / "other.txt").write_text("as it was")
    with everything_old():
        manager.snapshot(project)
        server._watch_project(handle.watchers, str(project))
        for number in range(2):
            change(project, f"{number}\n")
            run_hook("claude", event(project, f"a{number}"))
        run_hook("claude", json.dumps(told | {"prompt_id": "a1", "hook_event_name": "Stop"}).encode())
        os.link(project / "other.txt", tmp_path / "link")
        (tmp_path / "link").write_text("changed by the other name")
        subprocess.run(HOOK, input=json.dumps(told | {"prompt": "go on"}).encode(), check=True, timeout=60)
        run_hook("claude", event(project, "t1"))
    assert manager.contents(project, "last", ["other.txt"]) == {"other.txt": b"changed by the other name"}


def test_the_client_imports_next_to_nothing(project: Path, base: Path) -> None:
    with_helper(project, base)
    script = (
        "import sys, os; before = set(sys.modules); out, end = os.dup(1), os._exit\n"
        "from shadowsnap.hook import client\n"
        "os._exit = lambda code: (os.write(out, ' '.join(set(sys.modules) - before).encode()), end(code))\n"
        "client.main(['claude'])"
    )
    data = event(project, "t0")
    done = subprocess.run([sys.executable, "-c", script], input=data, capture_output=True, check=True, cwd=ROOT)
    ours = {"shadowsnap", "shadowsnap.base", "shadowsnap.hook", "shadowsnap.hook.client"}
    assert set(done.stdout.decode().split()) - {"_socket", "select", "gc"} == ours


def test_a_rollback_is_not_done_by_the_helper(project: Path, base: Path, manager: CheckpointManager) -> None:
    """It changes files; what comes over a socket must not."""
    with_helper(project, base)
    change(project, "by the agent\n")
    prompt = {"session_id": "s1", "cwd": str(project), "hook_event_name": "UserPromptSubmit"}
    prompt["prompt"] = "/rollback 1"
    assert client.ask_helper("claude", "", json.dumps(prompt).encode()) != client.SERVED
    assert (project / "README.md").read_text() == "by the agent\n"


def test_it_leaves_when_it_is_idle_or_the_base_is_gone(
    project: Path, base: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (base / "run").mkdir(parents=True, mode=0o700)
    for number, until in enumerate(("idle", "gone")):
        (base / client.RECORD).unlink(missing_ok=True)
        (base / client.RECORD).touch()
        seconds = 0.05 if until == "idle" else 3600
        script = (
            f"from shadowsnap.hook import server; server._IDLE_SECONDS = {seconds}; server._LOOK_SECONDS = 0.05\n"
            f"server.main([{str(base)!r}])"
        )
        helper = subprocess.Popen([sys.executable, "-c", script])
        if until == "gone":
            wait_until((base / client.SOCKET).exists)
            shutil.rmtree(base)
        assert helper.wait(20) == 0, number
    assert not (base / client.SOCKET).exists()


# --- whatever happens to it ---------------------------------------------------------------------------


def test_killed_before_a_hook(project: Path, base: Path, manager: CheckpointManager) -> None:
    os.kill(with_helper(project, base), signal.SIGKILL)
    wait_until(lambda: running_helper(str(base)) is None)
    assert takes_a_checkpoint(project, manager)
    os.utime(base / client.RECORD, (0, 0))  # so that it was not started within the last minute
    assert takes_a_checkpoint(project, manager)
    wait_until(lambda: running_helper(str(base)) is not None)


def test_killed_while_it_works(project: Path, base: Path, manager: CheckpointManager) -> None:
    """At every step of a request, as far as a fake helper can tell: the hook does the work itself."""
    hook(project, "t0", env={**os.environ, "SHADOWSNAP_RESIDENT": "0"})
    ready = client.READY + os.getpid().to_bytes(4, "big")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(base / client.SOCKET))
        listener.listen()
        for last_words in ([], [ready], [client.REFUSED]):
            with started(project, manager) as hooked:
                connection, _ = listener.accept()
                with connection:
                    connection.recv(1 << 16)
                    for word in last_words:
                        connection.sendall(word)
                        connection.recv(1)
                assert hooked() == 1


class started:
    """A hook of another turn that runs beside this test: `hooked()` says how many checkpoints came of it."""

    def __init__(self, project: Path, manager: CheckpointManager) -> None:
        self._project, self._manager = project, manager

    def __enter__(self) -> Callable[[], int]:
        before = len(self._manager.list_checkpoints(self._project))
        change(self._project, f"{before}\n")
        self.process = subprocess.Popen(HOOK, stdin=subprocess.PIPE)
        self.process.stdin.write(event(self._project, f"turn-{before}"))
        self.process.stdin.close()

        def hooked() -> int:
            assert self.process.wait(30) == 0
            return len(self._manager.list_checkpoints(self._project)) - before

        return hooked

    def __exit__(self, *_: object) -> None:
        self.process.wait(30)


def test_stopped(project: Path, base: Path, manager: CheckpointManager) -> None:
    helper = with_helper(project, base)
    os.kill(helper, signal.SIGSTOP)
    began = time.monotonic()
    assert takes_a_checkpoint(project, manager)
    assert time.monotonic() - began < 15
    os.kill(helper, signal.SIGCONT)
    # What it finds in its queue afterwards was given up by the hook, and is not done a second time.
    wait_until(lambda: served(project))
    assert len(manager.list_checkpoints(project)) == 2


def test_stopped_while_it_works(project: Path, base: Path, manager: CheckpointManager) -> None:
    """The worker holds locks; it is killed, so that the hook can take them. Which process that is, the system says
    and not the answer: it may be anything, such as the group of the agent itself (0)."""
    hook(project, "t0", env={**os.environ, "SHADOWSNAP_RESIDENT": "0"})
    script = (
        "import os, signal, socket, sys; listener = socket.socket(socket.AF_UNIX)\n"
        "listener.bind(sys.argv[1]); listener.listen(); connection, _ = listener.accept()\n"
        "connection.recv(1 << 16); connection.sendall(b'R' + int(sys.argv[2]).to_bytes(4, 'big'))\n"
        "os.kill(os.getpid(), signal.SIGSTOP)"
    )
    hooking = (
        "from shadowsnap.hook import client; client._ANSWER_SECONDS = 0.3\n"
        "client._MOST_SECONDS = 12; client.main(['claude'])"
    )
    with subprocess.Popen(["sleep", "60"]) as other:
        for number in (0, other.pid) if sys.platform == "linux" else ():
            path = base / client.SOCKET
            with subprocess.Popen([sys.executable, "-c", script, str(path), str(number)]) as worker:
                wait_until(path.exists)
                change(project, f"{number}\n")
                words = [sys.executable, "-c", hooking]
                told = event(project, f"t-{number}")
                hooked = subprocess.run(words, input=told, check=False, timeout=30, start_new_session=True)
                assert hooked.returncode == 0
                assert worker.wait(5) == -signal.SIGKILL
            path.unlink()
        assert other.poll() is None
        other.kill()
    assert len(manager.list_checkpoints(project)) == 3


@pytest.mark.skipif(not hasattr(resource, "prlimit"), reason="limits of another process are a thing of Linux")
def test_out_of_memory(project: Path, base: Path, manager: CheckpointManager) -> None:
    helper = with_helper(project, base)
    resource.prlimit(helper, resource.RLIMIT_AS, (1 << 20, 1 << 20))
    assert takes_a_checkpoint(project, manager)
    assert not [entry for entry in hooklog.read_log() if entry["status"] == "failed"]


@pytest.mark.skipif(not hasattr(resource, "prlimit"), reason="limits of another process are a thing of Linux")
@pytest.mark.parametrize("limit", range(9, 13))
def test_out_of_descriptors(project: Path, base: Path, manager: CheckpointManager, limit: int) -> None:
    """With few, some steps of the work succeed, and what cannot be opened must not count as absent."""
    helper = with_helper(project, base)
    resource.prlimit(helper, resource.RLIMIT_NOFILE, (limit, limit))
    assert takes_a_checkpoint(project, manager)
    stop = json.loads(event(project, "turn-1")) | {"hook_event_name": "Stop"}
    subprocess.run(HOOK, input=json.dumps(stop).encode(), check=True, timeout=60)
    assert manager.timeline(project)[0].status == "done"


def test_no_helper_is_started_where_it_could_open_few_files(project: Path, base: Path) -> None:
    limited = "import resource, sys; resource.setrlimit(resource.RLIMIT_NOFILE, (60, 60))\n"
    script = limited + "from shadowsnap.hook import server; sys.exit(server.main(sys.argv[1:]))"
    hook(project, "t0", env={**os.environ, "SHADOWSNAP_RESIDENT": "0"})
    (base / client.RECORD).touch()
    subprocess.run([sys.executable, "-c", script, str(base)], check=True, timeout=20)
    assert running_helper(str(base)) is None


def test_a_request_that_hangs_keeps_no_other_waiting(project: Path, base: Path) -> None:
    with_helper(project, base)
    with socket.socket(socket.AF_UNIX) as silent:
        silent.connect(str(base / client.SOCKET))
        assert served(project)


def test_a_hook_that_is_killed_takes_its_work_with_it(project: Path, base: Path) -> None:
    """The tool may run then, and what is captured would be no state from before it."""
    with_helper(project, base)
    lock = base / "run" / "s-s1.lock"
    with subprocess.Popen(["flock", str(lock), "sleep", "20"]) as holding:
        wait_until(lambda: not is_free(lock))
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(str(base / client.SOCKET))
            connection.sendall(client._request(str(base), "claude", "", event(project, "t9")))
            worker = int.from_bytes(connection.recv(5)[1:], "big")
            connection.sendall(client.GO)
            wait_until(lambda: has_begun(worker))
        wait_until(lambda: not Path(f"/proc/{worker}").exists())
        holding.kill()
    wait_until(lambda: served(project))


def has_begun(worker: int) -> bool:
    """Whether it will hear of the end of its hook: it has a descriptor that sends signals."""
    flags = [file.read_text().split("flags:")[1].split()[0] for file in Path(f"/proc/{worker}/fdinfo").iterdir()]
    return any(int(text, 8) & os.O_ASYNC for text in flags)


def test_a_hook_that_is_gone_before_the_work_begins_has_nothing_done(
    project: Path, base: Path, manager: CheckpointManager
) -> None:
    with_helper(project, base)
    change(project, "by the agent\n")
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(str(base / client.SOCKET))
        connection.sendall(client._request(str(base), "claude", "", event(project, "t9")))
        assert connection.recv(5)[:1] == client.READY
    assert takes_a_checkpoint(project, manager)
    assert [entry.number for entry in manager.timeline(project) if entry.kind == "turn"] == [2, 1]


def test_the_worker_watches_the_project_and_finds_what_a_scan_finds(
    project: Path, base: Path, manager: CheckpointManager
) -> None:
    """Every change between hooks is in the checkpoint of the next one, and git compares no files for it."""
    helper = with_helper(project, base)
    rng = random.Random(7)
    for number in range(12):
        hook_once(project, f"a{number}", "Stop")
        for _ in range(rng.randrange(4)):
            path = project / f"d{rng.randrange(3)}" / f"{rng.randrange(5)}.txt"
            path.parent.mkdir(exist_ok=True)
            if rng.random() < 0.3 and path.exists():
                path.unlink()
            else:
                path.write_text(f"{rng.random()}\n")
        change(project, f"{number}\n")
        expected = manifest(project)
        hook_once(project, f"b{number}", "PreToolUse")
        assert restored(manager, project, "last") == expected
    if not directory_times_are_reliable(project):
        return  # no watching on this file system
    workers = [int(pid) for pid in Path(f"/proc/{helper}/task/{helper}/children").read_text().split()]
    links = [os.readlink(link) for pid in workers for link in Path(f"/proc/{pid}/fd").iterdir()]
    assert "anon_inode:inotify" in links
    watched = [file.read_text() for pid in workers for file in Path(f"/proc/{pid}/fdinfo").iterdir()]
    inode = f"ino:{project.stat().st_ino:x} "
    assert any(inode in text for text in watched)


def test_a_turn_begins_with_what_was_written_before_its_prompt_without_an_event(
    project: Path, base: Path, manager: CheckpointManager, tmp_path: Path
) -> None:
    with_helper(project, base)
    for number in range(3):
        change(project, f"{number}\n")
        hook_once(project, f"a{number}", "PreToolUse")
        wait_until(lambda: served(project))
    os.link(project / "src" / "main.py", tmp_path / "link")
    (tmp_path / "link").write_text("by the other name\n")
    hook_once(project, "b", "UserPromptSubmit")
    hook_once(project, "b", "PreToolUse")
    assert manager.contents(project, "last", ["src/main.py"]) == {"src/main.py": b"by the other name\n"}


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_the_worker_ends_with_the_helper(project: Path, base: Path, number: int) -> None:
    helper = with_helper(project, base)
    assert served(project)
    (worker,) = Path(f"/proc/{helper}/task/{helper}/children").read_text().split()
    os.kill(helper, number)
    wait_until(lambda: not Path(f"/proc/{worker}").exists())


@pytest.mark.skipif(sys.platform != "linux", reason="a process that adopts orphans is a thing of Linux")
def test_a_worker_whose_helper_was_killed_stops_no_other_process(
    project: Path, base: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has another parent by then, such as the service manager of the session."""
    script = (
        "import ctypes, sys; ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)\n"  # PR_SET_CHILD_SUBREAPER
        "from shadowsnap.hook.server import start_helper; start_helper(sys.argv[1])\n"
        "sys.stdin.read()"
    )
    hook(project, "t0", env={**os.environ, "SHADOWSNAP_RESIDENT": "0"})
    adopting = subprocess.Popen([sys.executable, "-c", script, str(base)], stdin=subprocess.PIPE)
    wait_until(lambda: (base / client.SOCKET).exists() and running_helper(str(base)) is not None)
    helper = running_helper(str(base)).pid
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(str(base / client.SOCKET))
        assert served(project)  # so the worker has the first connection
        worker = int(Path(f"/proc/{helper}/task/{helper}/children").read_text().split()[0])
        os.kill(helper, signal.SIGKILL)
        wait_until(lambda: parent_of(worker) == adopting.pid)
        monkeypatch.setattr("shadowsnap.__version__", "99")
        connection.sendall(client._request(str(base), "claude", "", event(project, "t1")))
        wait_until(lambda: parent_of(worker) is None)
    adopting.communicate(timeout=10)
    assert adopting.returncode == 0


def parent_of(process: int) -> int | None:
    """None if it has ended."""
    try:
        state, parent = Path(f"/proc/{process}/stat").read_text().rpartition(") ")[2].split()[:2]
    except FileNotFoundError:
        return None
    return None if state == "Z" else int(parent)


def hook_once(project: Path, turn: str, name: str) -> None:
    told = json.loads(event(project, turn)) | {"hook_event_name": name}
    assert client.ask_helper("claude", "", json.dumps(told).encode()) == client.SERVED


def restored(manager: CheckpointManager, project: Path, ref: str) -> Any:
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder, "fork")
        manager.fork(project, ref, place)
        return manifest(place)


def test_a_defect_in_asking_it(project: Path, base: Path, manager: CheckpointManager) -> None:
    with_helper(project, base)
    change(project, "1\n")
    script = "from shadowsnap.hook import client; client.facts = lambda base: 1 / 0; client.main(['claude'])"
    subprocess.run([sys.executable, "-c", script], input=event(project, "t1"), check=True, timeout=60)
    assert len(manager.list_checkpoints(project)) == 2


# --- another one than the hook needs --------------------------------------------------------------------


def test_another_version(
    project: Path, base: Path, manager: CheckpointManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_helper(project, base)
    monkeypatch.setattr("shadowsnap.__version__", "99")
    assert not served(project)
    wait_until(lambda: running_helper(str(base)) is None)  # it makes room for the other one
    assert takes_a_checkpoint(project, manager)


def test_other_settings(project: Path, base: Path, manager: CheckpointManager, home: Path) -> None:
    with_helper(project, base)
    assert takes_a_checkpoint(project, manager, env={**os.environ, "SHADOWSNAP_EXCLUDES": "*.bin"})
    assert "data.bin" not in manager.files(project, "last")
    config = home / ".config" / "shadowsnap" / "config.toml"
    config.parent.mkdir(parents=True)
    config.write_text('excludes = ["*.sh"]\n')
    assert takes_a_checkpoint(project, manager)
    assert "run.sh" not in manager.files(project, "last")
    wait_until(lambda: running_helper(str(base)) is None)


def test_another_path(project: Path, base: Path, manager: CheckpointManager, tmp_path: Path) -> None:
    """Another git is another program; a PATH that leads to the same one is the same."""
    with_helper(project, base)
    change(project, "1\n")
    hook(project, "t1", env={**os.environ, "PATH": str(tmp_path)})
    assert hooklog.read_log(1)[0]["error"] == "git was not found on the PATH"
    os.environ["PATH"] += f":{tmp_path}"
    assert served(project)


def test_another_home(project: Path, base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with_helper(project, base)
    assert served(project)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert not served(project)


def test_a_turn_that_is_pushed_ends_in_the_hook_itself(project: Path, base: Path) -> None:
    """The credentials for it may be in its environment."""
    with_helper(project, base)
    (base / "remote").mkdir()
    stop = {"session_id": "s1", "cwd": str(project), "hook_event_name": "Stop"}
    assert client.ask_helper("claude", "", json.dumps(stop).encode()) == client.BUSY
    assert served(project)


def test_every_variable_of_an_agent_is_compared() -> None:
    places = [place for each in payload._TRANSCRIPT_FOLDERS.values() for place in each]
    assert {place.variable for place in places if place.variable} <= client.VARIABLES


def test_of_another_user(project: Path, base: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can be another user")
    with_helper(project, base)
    with tempfile.TemporaryDirectory(prefix="ss-") as public:
        door = os.path.join(public, "socket")  # the helper's own one lies where no other user comes
        os.link(base / client.SOCKET, door)
        os.chmod(public, 0o711)
        os.chmod(door, 0o777)

        def ask() -> bytes:
            with socket.socket(socket.AF_UNIX) as connection:
                connection.connect(door)
                return connection.recv(5)

        assert call_unprivileged(ask, owning=()) == b""
    assert served(project)


# --- where there can be none ----------------------------------------------------------------------------


def test_two_that_start_at_once_are_one(project: Path, base: Path) -> None:
    hook(project, "t0", env={**os.environ, "SHADOWSNAP_RESIDENT": "0"})
    (base / client.RECORD).touch()
    both = [
        subprocess.Popen([sys.executable, "-m", "shadowsnap.hook.server", str(base)], stderr=subprocess.DEVNULL)
        for _ in range(2)
    ]
    wait_until(lambda: any(each.poll() == 0 for each in both))
    wait_until(lambda: served(project))
    found = stop_helper(str(base))
    assert found.pid in [each.pid for each in both]
    assert [each.wait(10) for each in both] == [0, 0]


def test_a_socket_path_that_is_too_long(project: Path, base: Path, tmp_path: Path) -> None:
    deep = tmp_path / ("x" * 100)
    manager = CheckpointManager(base=deep, fsync=False)
    hook(project, env={**os.environ, "SHADOWSNAP_HOME": str(deep)})
    assert len(manager.list_checkpoints(project)) == 1
    assert not (deep / client.RECORD).exists()


def test_a_full_disk(project: Path, base: Path, tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m,mode=700", "tmpfs", disk], capture_output=True, check=False
    )
    if mounted.returncode != 0:
        pytest.skip("file systems cannot be mounted here")
    place = disk / "b"
    os.environ["SHADOWSNAP_HOME"] = str(place)
    try:
        with_helper(project, place)
        filler = place / "filler"
        with pytest.raises(OSError, match="No space"):
            filler.write_bytes(bytes(2 << 20))
        change(project, "x" * 5000)
        hook(project, "t1")  # ends as ever, although nothing can be written
        filler.unlink()
        assert takes_a_checkpoint(project, CheckpointManager(base=place, fsync=False))
        assert served(project)
    finally:
        stop_helper(str(place))
        subprocess.run(["umount", "-l", disk], check=True)


def test_a_base_that_cannot_be_written_to(
    project: Path, tmp_path: Path, as_user: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    base = tmp_path / "b"  # which the other user owns
    monkeypatch.setenv("SHADOWSNAP_HOME", str(base))
    monkeypatch.delenv("SHADOWSNAP_RESIDENT")

    def in_sandbox() -> bool:
        run_hook("claude", event(project, "t0"))
        (base / "run").chmod(0o500)
        run_hook("claude", event(project, "t1"))
        wanted = client.wants_helper(str(base)) or start_helper(str(base))
        (base / "run").chmod(0o700)
        return wanted

    assert as_user(in_sandbox) is False
    assert running_helper(str(base)) is None


def test_a_sandbox_that_hides_other_files(project: Path, base: Path, manager: CheckpointManager) -> None:
    """It sees the same socket, and other files under the same names: the helper would capture the wrong ones."""
    with_helper(project, base)
    if subprocess.run(["unshare", "--mount", "true"], capture_output=True, check=False).returncode:
        pytest.skip("no namespaces here")
    script = f'mount -t tmpfs tmpfs {project} && echo hidden > {project}/README.md && exec "$@"'
    words = ["unshare", "--mount", "sh", "-c", script, "sh", *HOOK]
    subprocess.run(words, input=event(project, "t1", "s3"), check=True, timeout=60)
    assert manager.files(project, "last") == ["README.md"]


# --- what people see of it ------------------------------------------------------------------------------


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere only the groups are compared")
def test_a_sandbox_that_forbids_files(project: Path, base: Path) -> None:
    """It may forbid them with the same mounts. A helper that was started in it cannot read what others can."""
    with_helper(project, base)
    script = (
        "import ctypes, sys; ctypes.CDLL(None).prctl(int(sys.argv[1]), 1, 0, 0, 0)\n"
        "from shadowsnap.hook import client; print(client.ask_helper('claude', '', sys.stdin.buffer.read()))"
    )
    set_no_new_privileges, nothing = 38, 0
    for option, answer in ((nothing, client.SERVED), (set_no_new_privileges, client.BUSY)):
        words = [sys.executable, "-c", script, str(option)]
        done = subprocess.run(words, input=event(project, "t0"), stdout=subprocess.PIPE, check=True, timeout=60)
        assert done.stdout.decode().strip() == answer


def test_switched_off_none_is_started(project: Path, base: Path, home: Path) -> None:
    config = home / ".config" / "shadowsnap" / "config.toml"
    config.parent.mkdir(parents=True)
    config.write_text("resident = false\n")
    hook(project)
    assert not (base / client.RECORD).exists()
    config.unlink()
    hook(project)
    wait_until(lambda: running_helper(str(base)) is not None)


def test_the_commands_show_and_stop_it(
    project: Path, base: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    cli = CommandLine(project, base, monkeypatch, capsys)
    assert cli("helper").out == "no helper runs: hooks do their work themselves\n"
    helper = with_helper(project, base)
    assert cli.json("helper", "status")["helper"]["pid"] == helper
    assert f"helper      process {helper}, started" in cli("status", "--store").out
    assert cli.json("status", "--store")["helper"]["pid"] == helper
    assert cli.json("helper", "stop")["stopped"] is True
    assert cli.json("helper", "stop") == {"schema": 2, "helper": None, "stopped": False}
    assert not (base / client.SOCKET).exists()


def test_a_helper_that_does_not_react_is_stopped_too(
    project: Path, base: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shadowsnap.hook.server._STOP_SECONDS", 0.2)
    os.kill(with_helper(project, base), signal.SIGSTOP)
    assert stop_helper(str(base)) is not None
    wait_until(lambda: running_helper(str(base)) is None)


def test_the_helper_keeps_what_hooks_import_late() -> None:
    """A module that each child has to import again makes it slow without a word."""
    server._import_everything()
    assert {"shadowsnap.loop", "shadowsnap.snapshot.take", "shadowsnap.hook.payload"} <= set(sys.modules)
