"""Warm equals cold: a snapshot that starts from the cache holds what one from nothing holds, and what it should.

Random stories change everything that decides what is captured: files, ignore rules, the person's repository,
settings, and names that tools give. In between they go back and forth by restores, undos, reverts and stages.
Two managers and another process take turns. The judge is independent of the engine: real git decides what is
ignored and tracked, and the bytes come from the disk.
"""

from __future__ import annotations

import json
import os
import shutil
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from capturing import captured, snap
from hypothesis import given, settings
from hypothesis import strategies as st

import shadowsnap
from helpers import Entry, git, manifest
from shadowsnap import Checkpoint, CheckpointManager
from shadowsnap.errors import ShadowsnapError
from shadowsnap.snapshot.ignore_rules import DEFAULT_DIRECTORY_NAMES, exclude_file

pytestmark = pytest.mark.skipif(os.name == "nt", reason="FIFOs, permission bits and hard links are those of POSIX")

SMALL_MB = 2048 / 2**20
LARGE = b"1,2,3\n" * 500
"""More than `SMALL_MB`."""

SECRET = b".env"
"""The only name in these stories that looks like a secret."""

FIRST_FILES = {
    "a": b"one\n", "data.csv": LARGE, ".env": b"KEY=1\n", "d/a": b"one\n", "d/data.csv": b"1,2\n",
    "d/s/a": b"deep\n", "gen/data.csv": b"3,4\n", "build/a": b"built\n",
}  # fmt: skip
"""What lies there when a story begins. There is a checkpoint of it."""

Action = tuple[Any, ...]
"""The name of a method of `Scene`, and its arguments."""


@dataclass(frozen=True)
class Step:
    """What happens between two snapshots, and who takes the second one."""

    actions: tuple[Action, ...]
    who: str = "first"
    how: str = "snapshot"
    named: tuple[str, ...] = ()
    """Paths that a tool names in that snapshot."""


# --- another process --------------------------------------------------------------------------------

WORKER = """
import json, sys
from shadowsnap import CheckpointManager
from shadowsnap.errors import ShadowsnapError
for line in sys.stdin:
    settings, calls = json.loads(line)
    try:
        manager = CheckpointManager(**settings)
        for name, given, more in calls:
            result = getattr(manager, name)(*given, **more)
        checkpoint = getattr(result, "checkpoint", None)
        answer = {"status": getattr(result, "status", ""), "id": checkpoint and checkpoint.id}
        answer["error"] = str(getattr(result, "error", None))
    except ShadowsnapError as error:
        answer = {"refused": type(error).__name__, "error": str(error)}
    print(json.dumps(answer), flush=True)
"""

Call = tuple[str, tuple[Any, ...], dict[str, Any]]
"""The name of a method of a manager, and its arguments."""
Process = Callable[[dict[str, Any], list[Call]], dict[str, Any]]


@pytest.fixture(scope="module")
def process() -> Iterator[Process]:
    """Another process that makes a manager with these settings and calls its methods."""
    where = str(Path(shadowsnap.__file__).parent.parent)
    worker = subprocess.Popen(
        [sys.executable, "-c", WORKER],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": where},
    )
    assert worker.stdin is not None and worker.stdout is not None

    def ask(settings: dict[str, Any], calls: list[Call]) -> dict[str, Any]:
        assert worker.stdin is not None and worker.stdout is not None
        print(json.dumps([settings, calls], default=str), file=worker.stdin, flush=True)
        answer: dict[str, Any] = json.loads(worker.stdout.readline())
        return answer

    yield ask
    worker.stdin.close()
    worker.wait()
    worker.stdout.close()


# --- what can happen --------------------------------------------------------------------------------

NOTHING_TO_DO = {"NothingToUndo", "NothingToRedo", "NoSuchTurn", "NoSuchSession", "NoSuchPath"}
REFUSED = {"RestoreRefused", "PresentNotSaved", "DirtyWorkingTree"}


@dataclass
class Scene:
    """A project, those who take snapshots of it, and everything that may happen to it."""

    top: Path
    layout: str
    """The project is `alone`, has a `repository`, or is a `subdirectory` of one."""
    process: Process
    watching: bool = False
    who: str = "first"
    limits: dict[str, dict[str, Any]] = field(default_factory=dict)
    """The settings of each who takes snapshots."""
    known: list[str] = field(default_factory=list)
    """Ids of checkpoints to go back to."""
    names: set[str] = field(default_factory=set)
    """What tools named while something was there: it is captured from then on, ignored or not."""

    def __post_init__(self) -> None:
        above = self.top / "repository"
        self.project = above / "work" if self.layout == "subdirectory" else self.top / "project"
        self.base = self.top / "base"
        self.project.mkdir(parents=True)
        if self.layout != "alone":
            git(above if self.layout == "subdirectory" else self.project, "init", "-q", "--template=")
        for path, content in FIRST_FILES.items():
            self.write(path, content)
        self._managers = {who: CheckpointManager(**self.settings(who)) for who in ("first", "second")}
        for manager in self._managers.values() if self.watching else ():
            assert manager.watch(self.project)

    def close(self) -> None:
        for manager in self._managers.values():
            manager.unwatch(self.project)
        shutil.rmtree(self.top)

    # --- files

    def write(self, path: str, content: bytes) -> None:
        """A new file that replaces whatever exists there."""
        self._cleared(path).write_bytes(content)

    def edit(self, path: str) -> None:
        """Other bytes in the same file, of the same size and with the same time. Other hard links see them."""
        if self._kind(path) == stat.S_IFREG and os.stat(self.project / path).st_size:
            seen = os.stat(self.project / path)
            with open(self.project / path, "r+b") as file:
                first = file.read(1)
                file.seek(0)
                file.write(bytes([first[0] ^ 1]))
            os.utime(self.project / path, ns=(seen.st_atime_ns, seen.st_mtime_ns))

    def chmod(self, path: str, mode: int) -> None:
        kind = self._kind(path)
        if kind in (stat.S_IFREG, stat.S_IFDIR):
            (self.project / path).chmod(mode | 0o700 if kind == stat.S_IFDIR else mode)

    def rename(self, path: str, other: str) -> None:
        if self._kind(path) and not f"{other}/".startswith(f"{path}/"):
            os.rename(self.project / path, self.top / "moving")
            os.rename(self.top / "moving", self._cleared(other))

    def link(self, path: str, other: str) -> None:
        """A second name of a file."""
        if self._kind(path) == stat.S_IFREG and not f"{path}/".startswith(f"{other}/"):
            os.link(self.project / path, self.top / "linking")
            os.rename(self.top / "linking", self._cleared(other))

    def delete(self, path: str) -> None:
        kind = self._kind(path)
        if kind == stat.S_IFDIR:
            shutil.rmtree(self.project / path)
        elif kind:
            (self.project / path).unlink()

    def mkdir(self, path: str) -> None:
        if self._kind(path) != stat.S_IFDIR:
            self._cleared(path).mkdir()

    def symlink(self, path: str, to: str) -> None:
        self._cleared(path).symlink_to(to)

    def fifo(self, path: str) -> None:
        os.mkfifo(self._cleared(path))

    # --- rules

    def rules(self, folder: str, text: str) -> None:
        self.write(f"{folder}/.gitignore".lstrip("/"), text.encode())

    def odd_rules(self, folder: str) -> None:
        """A FIFO that git would wait for."""
        self.fifo(f"{folder}/.gitignore".lstrip("/"))

    def rules_above(self, text: str) -> None:
        if self.layout == "subdirectory":
            (self.project.parent / ".gitignore").write_text(text)

    def exclude(self, text: str) -> None:
        """In the person's `.git/info/exclude`."""
        if (repository := self.repository()) is not None:
            (repository / ".git" / "info").mkdir(exist_ok=True)
            (repository / ".git" / "info" / "exclude").write_text(text)

    # --- the person's git

    def git_init(self, folder: str) -> None:
        if folder:
            self.mkdir(folder)
        git(self.project / folder, "init", "-q", "--template=")

    def git_gone(self) -> None:
        shutil.rmtree(self.project / ".git", ignore_errors=True)

    def git_add(self, path: str) -> None:
        if self._kind(path) == stat.S_IFREG:
            self._git("add", "-f", "--", path)

    def git_forget(self, path: str) -> None:
        self._git("rm", "-r", "-f", "-q", "--cached", "--ignore-unmatch", "--", path)

    def git_commit(self) -> None:
        self._git("commit", "-q", "--allow-empty", "-m", "work")

    def _git(self, *args: str) -> None:
        """Run git as the person would, if it can work here: it would wait for a FIFO, and it refuses a file
        in a nested repository."""
        places = [self.project, self.project.parent, *(self.project / folder for folder in FOLDERS)]
        odd = any((place / ".gitignore").is_fifo() for place in places)
        if self.repository() is not None and not odd:
            subprocess.run(["git", *args], cwd=self.project, capture_output=True, check=False, timeout=30)

    def repository(self) -> Path | None:
        """The nearest one."""
        above = [self.project.parent] if self.layout == "subdirectory" else []
        return next((place for place in (self.project, *above) if (place / ".git").is_dir()), None)

    # --- settings

    def set(self, name: str, value: Any) -> None:
        """A setting of the process that takes the next snapshot."""
        self.limits.setdefault(self.who, {})[name] = value
        if self.who in self._managers:
            self._managers[self.who].settings = CheckpointManager(**self.settings(self.who)).settings

    def settings(self, who: str) -> dict[str, Any]:
        return {"base": self.base, "fsync": False, "background_upkeep": False, **self.limits.get(who, {})}

    # --- going back and forth

    def restore(self, which: int, *paths: str) -> None:
        self._go("restore", self.known[which % len(self.known)], paths=paths)

    def restore_undone(self, which: int) -> None:
        self.restore(which)
        self.undo()

    def undo(self) -> None:
        self._go("undo")

    def redo(self) -> None:
        self._go("redo")

    def end_turn(self) -> None:
        if self.who in self._managers:
            for outcome in self._managers[self.who].end_turn():
                assert outcome.status in ("taken", "unchanged"), outcome

    def revert(self, which: int, on_conflict: str) -> None:
        past = CheckpointManager(**self.settings(self.who)).list_checkpoints(self.project)
        turns = sorted({each.turn for each in past if each.turn})
        if turns:
            self._go("revert", turn=turns[which % len(turns)], on_conflict=on_conflict)

    def revert_session(self, on_conflict: str) -> None:
        self._go("revert", session_id=self.who, on_conflict=on_conflict)

    def stage(self, path: str, content: bytes, kept: bool) -> None:
        manager = self._managers.get(self.who) or CheckpointManager(**self.settings(self.who))
        manager.snapshot(self.project)
        with manager.stage(self.project) as stage:
            self.write(path, content)
            _ = stage.commit() if kept else stage.discard()

    def _go(self, name: str, *given: Any, **more: Any) -> None:
        before = manifest(self.project)
        answer = self.call((name, (self.project, *given), more))
        if "refused" in answer:
            assert answer["refused"] in NOTHING_TO_DO | REFUSED, answer
            assert manifest(self.project) == before

    # --- time

    def second(self) -> None:
        """Until every change so far lies in an earlier second: git compares times by the second."""
        end = time.time_ns() // 10**9 + 1
        while time.time_ns() < end * 10**9 + 20_000_000:
            time.sleep(0.001)

    # --- snapshots

    def call(self, *calls: Call) -> dict[str, Any]:
        """Let whose turn it is call these methods, one after the other."""
        manager = self._managers.get(self.who)
        if manager is None:
            return self.process(self.settings(self.who), list(calls))
        try:
            for name, given, more in calls:
                result = getattr(manager, name)(*given, **more)
        except ShadowsnapError as error:
            return {"refused": type(error).__name__, "error": str(error)}
        checkpoint = getattr(result, "checkpoint", None)
        return {"status": getattr(result, "status", ""), "id": checkpoint and checkpoint.id, "result": result}

    def snapshot(self, how: str = "snapshot", named: tuple[str, ...] = ()) -> Checkpoint:
        named = tuple(path for path in named if not self._behind_link(path))
        if how == "turn":
            begin: Call = ("new_turn", (), {"session_id": self.who})
            answer = self.call(begin, ("ensure_checkpoint", (self.project,), {"paths": named}))
        else:
            answer = self.call(("snapshot", (self.project,), {"paths": named}))
        assert answer.get("status") in ("taken", "unchanged"), answer
        self._remember(named)
        self.known.append(answer["id"])
        return CheckpointManager(**self.settings("judge")).get(self.project, answer["id"])

    def _remember(self, named: tuple[str, ...]) -> None:
        """What was named stays so, but for a name of nothing that a scan would find once it is made."""
        there = {path for path in named if self._kind(path)}
        absent = {os.fsencode(path) for path in {*named} - there}
        asked = {each: ("file", 0, b"") for path in absent for each in (path, path + b"/x")}
        limits = self.limits.get(self.who, {})
        found = ignored(self, {**manifest(self.project), **asked}, limits.get("excludes", ()))
        self.names |= there | {os.fsdecode(path) for path in absent if {path, path + b"/x"} & found}

    def _kind(self, path: str) -> int:
        """The type of what is at a path, 0 for nothing. Links are not followed, on the way neither."""
        place = self.project
        for name in path.split("/"):
            if not stat.S_ISDIR(place.lstat().st_mode) or not os.path.lexists(place / name):
                return 0
            place /= name
        return stat.S_IFMT(place.lstat().st_mode)

    def _behind_link(self, path: str) -> bool:
        """Then the path stands for another one, which may even lie outside."""
        parents = [parent.as_posix() for parent in Path(path).parents][:-1]
        return any(self._kind(parent) == stat.S_IFLNK for parent in parents)

    def _cleared(self, path: str) -> Path:
        """The path, with nothing at it and its parent directories created."""
        folder = path.rpartition("/")[0]
        if folder and self._kind(folder) != stat.S_IFDIR:
            self._cleared(folder).mkdir()
        self.delete(path)
        return self.project / path


# --- the judge --------------------------------------------------------------------------------------


def judge(scene: Scene, warm: Checkpoint) -> None:
    """Hold the newest checkpoint against one from nothing, and against the files on disk."""
    held = captured(scene.base, warm)
    there = manifest(scene.project)
    limits = scene.limits.get(scene.who, {})
    wanted = {path: there[path] for path in files_to_hold(scene, there, limits)}
    assert {path: entry for path, entry in held.items() if entry[0] != "dir"} == wanted
    assert held.items() <= there.items()

    fresh = scene.top / "fresh"
    # Also what is remembered although it does not exist: both have to know that.
    here = {path for path in scene.names if os.fsencode(path) in there}
    named = sorted(here.union(warm.metadata.get("named", ())))
    cold = snap(fresh, scene.project, *named, status="taken", fsync=False, background_upkeep=False, **limits)
    assert captured(fresh, cold) == held
    assert facts(cold) == facts(warm)
    assert cold.tree == warm.tree
    shutil.rmtree(fresh)


def facts(checkpoint: Checkpoint) -> dict[str, Any]:
    """What a checkpoint says beside its files. (Which permission bits it calls the usual ones depends on what
    was known before it; `captured` applies them.)"""
    said = {name: checkpoint.metadata.get(name) for name in ("empty_dirs", "absent", "excludes", "rules")}
    return {"skipped": checkpoint.skipped, **said}


def files_to_hold(scene: Scene, there: dict[bytes, Entry], limits: dict[str, Any]) -> set[bytes]:
    """The files that a checkpoint has to hold, and no others."""
    limit = limits.get("max_file_size_mb", 10) * 2**20
    tracked = tracked_files(scene)
    fit = {
        path
        for path, (kind, _, content) in there.items()
        if (kind == "link" or (kind == "file" and len(content or b"") <= limit))
        and (limits.get("include_secrets") or os.path.basename(path) != SECRET or path in tracked)
    }
    asked_for = named_files(scene, there) | tracked
    return (fit & asked_for) | (fit - ignored(scene, there, limits.get("excludes", ())))


def named_files(scene: Scene, there: dict[bytes, Entry]) -> set[bytes]:
    """Files that tools named, and those in directories that they named, but for what is excluded by default."""
    tops = [os.fsencode(name) for name in scene.names]
    return {
        path
        for path in there
        for top in tops
        if path == top
        or (
            path.startswith(top + b"/")
            and DEFAULT_DIRECTORY_NAMES.isdisjoint(path[len(top) + 1 :].split(b"/")[:-1])
        )
    }


def tracked_files(scene: Scene) -> set[bytes]:
    if scene.repository() is None:
        return set()
    return {os.fsencode(path) for path in git(scene.project, "ls-files", "-z").split("\0")[:-1]}


def ignored(scene: Scene, there: dict[bytes, Entry], excludes: tuple[str, ...]) -> set[bytes]:
    """What real git ignores in a copy that has all the rules, and nothing that git would wait for."""
    with tempfile.TemporaryDirectory(dir=scene.top) as top:
        place, above = Path(top), scene.project.parent
        for name in ("refs", "objects", "info"):
            (place / ".git" / name).mkdir(parents=True)
        (place / ".git" / "HEAD").write_text("ref: refs/heads/main\n")
        repository = scene.repository()
        if repository is not None and (repository / ".git" / "info" / "exclude").is_file():
            shutil.copy(repository / ".git" / "info" / "exclude", place / ".git" / "info" / "exclude")
        inside = b""
        if repository == above:
            (place / "work").mkdir()
            if (above / ".gitignore").is_file():
                shutil.copy(above / ".gitignore", place / ".gitignore")
            if check_ignore(place, [b"work"]):  # rules that ignore the project do not apply inside it
                (place / ".gitignore").unlink(missing_ok=True)
                (place / ".git" / "info" / "exclude").unlink(missing_ok=True)
            inside = b"work/"
        for path, (kind, _, content) in there.items():
            copy = place / os.fsdecode(inside + path)
            if kind == "dir":
                copy.mkdir(parents=True)
            elif kind == "file" and copy.name == ".gitignore":
                copy.write_bytes(content or b"")
        (place / ".git" / "excludes").write_bytes(exclude_file(excludes))
        answer = check_ignore(place, [inside + path for path in there], "-c", "core.excludesFile=.git/excludes")
    return {path[len(inside) :] for path in answer}


def check_ignore(place: Path, paths: list[bytes], *options: str) -> set[bytes]:
    done = subprocess.run(
        ["git", *options, "check-ignore", "-z", "--stdin", "--no-index"],
        cwd=place,
        input=b"".join(b"./%s\0" % path for path in paths),
        capture_output=True,
        check=False,
    )
    assert done.returncode in (0, 1), done.stderr
    return {path[2:] for path in done.stdout.split(b"\0")[:-1]}


def play(top: Path, process: Process, layout: str, steps: list[Step], *, watching: bool = False) -> None:
    """Let a story happen, and judge after each step."""
    scene = Scene(Path(tempfile.mkdtemp(dir=top)), layout, process, watching)
    try:
        scene.snapshot()
        for step in steps:
            scene.who = step.who
            for name, *arguments in step.actions:
                getattr(scene, name)(*arguments)
            judge(scene, scene.snapshot(step.how, step.named))
    finally:
        scene.close()


# --- random stories ---------------------------------------------------------------------------------

FOLDERS = ("d", "d/s", "gen", "build")
PLACES = (
    *FIRST_FILES, "d", "d/s", "gen", "b", "d/b", "gen/a", "gen/.env", "d/build/a", "x.log", "d/.gitignore",
)  # fmt: skip
CONTENTS = (b"", b"one\n", b"two\n", LARGE)
MODES = (0o644, 0o600, 0o755, 0o444, 0o4755)
RULES = (
    "", "*.csv\n", "data.csv\n", "a\n", "gen/\n", "d/\n", "/d/s\n", "*\n", "*\n!.gitignore\n!d/\n", "!build/\n",
    "*.csv\n!d/data.csv\n", ".gitignore\ndata.csv\n", "**/s/a\n", "!*.log\n",
)  # fmt: skip
RULES_ABOVE = (*RULES, "work/\n", "/work/gen/\n", "work/*.csv\n", "work/**/a\n!work/a\n", "*\n!work/\n")
EXCLUDES = ((), ("*.csv",), ("gen/",), ("s/", "!build/"), ("a",))
"""None of them matches the project's own directory."""
ENDS = ("keep", "markers", "theirs")
CAN_WATCH = sys.platform == "linux"
LONG = settings().max_examples > 1000
"""Then there is time for seconds to pass."""


def actions(places: list[str]) -> st.SearchStrategy[Action]:
    """Few paths, so that much happens to each."""
    place, folder, which = st.sampled_from(places), st.sampled_from(("", "d", "gen")), st.integers(0, 9)
    content, rules, end = st.sampled_from(CONTENTS), st.sampled_from(RULES), st.sampled_from(ENDS)
    files = st.one_of(
        st.tuples(st.just("write"), place, content),
        st.tuples(st.just("edit"), place),
        st.tuples(st.just("chmod"), place, st.sampled_from(MODES)),
        st.tuples(st.just("rename"), place, place),
        st.tuples(st.just("link"), place, place),
        st.tuples(st.just("delete"), place),
        st.tuples(st.just("mkdir"), place),
        st.tuples(st.just("symlink"), place, st.sampled_from(("a", "nowhere", "gen", "../d", "/nonexistent"))),
        st.tuples(st.just("fifo"), place),
    )
    what_counts = st.one_of(
        st.tuples(st.just("rules"), folder, rules),
        st.tuples(st.just("rules"), folder, rules),
        st.tuples(st.just("odd_rules"), folder),
        st.tuples(st.just("rules_above"), st.sampled_from(RULES_ABOVE)),
        st.tuples(st.just("exclude"), rules),
        st.tuples(st.just("git_init"), st.sampled_from(("", "d"))),
        st.tuples(st.just("git_gone")),
        st.tuples(st.just("git_add"), place),
        st.tuples(st.just("git_forget"), place),
        st.tuples(st.just("git_commit")),
        st.tuples(st.just("set"), st.just("excludes"), st.sampled_from(EXCLUDES)),
        st.tuples(st.just("set"), st.just("max_file_size_mb"), st.sampled_from((10, SMALL_MB))),
        st.tuples(st.just("set"), st.just("include_secrets"), st.booleans()),
        *([st.tuples(st.just("second"))] if LONG else []),
    )
    going_back = st.one_of(
        st.tuples(st.just("restore"), which),
        st.tuples(st.just("restore"), which, place),
        st.tuples(st.just("restore_undone"), which),
        st.tuples(st.just("undo")),
        st.tuples(st.just("redo")),
        st.tuples(st.just("end_turn")),
        st.tuples(st.just("revert"), which, end),
        st.tuples(st.just("revert_session"), end),
        st.tuples(st.just("stage"), place, content, st.booleans()),
    )
    # `one_of` would join the three lists, and few stories would go back.
    return st.sampled_from((files, what_counts, going_back)).flatmap(lambda kind: kind)


def steps(places: list[str]) -> st.SearchStrategy[list[Step]]:
    step = st.builds(
        Step,
        actions=st.lists(actions(places), min_size=1, max_size=3).map(tuple),
        who=st.sampled_from(("first", "second", "process")),
        how=st.sampled_from(("snapshot", "turn")),
        named=st.lists(st.sampled_from(places), max_size=1).map(tuple),
    )
    return st.lists(step, min_size=2, max_size=6)


layouts = st.sampled_from(("alone", "repository", "subdirectory"))
stories = st.lists(st.sampled_from(PLACES), min_size=2, max_size=4, unique=True).flatmap(steps)


@given(layouts, st.booleans() if CAN_WATCH else st.just(False), stories)
def test_a_snapshot_from_the_cache_equals_one_from_nothing_and_holds_every_file(
    tmp_path: Path, process: Process, layout: str, watching: bool, story: list[Step]
) -> None:
    play(tmp_path, process, layout, story, watching=watching)


# --- stories that once went wrong -------------------------------------------------------------------

@dataclass(frozen=True)
class Change:
    """A file that is captured, and a change that keeps it out."""

    path: str
    change: Action
    back: tuple[Action, ...] = ()
    """Takes the change back, if a restore does not."""
    first: tuple[Action, ...] = ()
    """What has to happen before, for the file to be captured."""


CHANGES = {
    "a line in .gitignore": Change("data.csv", ("rules", "", "*.csv\n")),
    "a .gitignore deeper down": Change("d/data.csv", ("rules", "d", "*.csv\n")),
    "a directory in .gitignore": Change("gen/data.csv", ("rules", "", "gen/\n")),
    "a line in info/exclude": Change("data.csv", ("exclude", "*.csv\n"), (("exclude", ""),)),
    "a rule above the project": Change("data.csv", ("rules_above", "work/*.csv\n"), (("rules_above", ""),)),
    "an exclude": Change("data.csv", ("set", "excludes", ("*.csv",)), (("set", "excludes", ()),)),
    "a lower limit": Change(
        "data.csv", ("set", "max_file_size_mb", SMALL_MB), (("set", "max_file_size_mb", 10),)
    ),
    "secrets off": Change(
        ".env",
        ("set", "include_secrets", False),
        (("set", "include_secrets", True),),
        (("set", "include_secrets", True),),
    ),
    "a file tracked no longer": Change(
        "gen/data.csv",
        ("git_forget", "gen/data.csv"),
        (("git_add", "gen/data.csv"),),
        (("rules", "", "gen/\n"), ("git_add", "gen/data.csv")),
    ),
}


def layout_for(change: str) -> str:
    return "subdirectory" if change == "a rule above the project" else "repository"


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.every(2)
def test_a_file_that_is_left_out_from_now_on_and_then_named(tmp_path: Path, process: Process, change: str) -> None:
    each = CHANGES[change]
    story = [
        Step(each.first),
        Step((each.change, ("write", "b", b"new\n")), named=(each.path,)),
        Step((("edit", each.path),), how="turn"),
        Step((("delete", each.path),), who="second"),
    ]
    play(tmp_path, process, layout_for(change), story)


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.every(2, start=1)
def test_a_restore_and_an_undo_across_a_change_of_what_is_captured(
    tmp_path: Path, process: Process, change: str
) -> None:
    play(tmp_path, process, layout_for(change), across(change))


@pytest.mark.skipif(not CAN_WATCH, reason="only Linux reports what happens in a directory")
def test_a_restore_and_an_undo_across_a_change_in_a_watched_directory(tmp_path: Path, process: Process) -> None:
    play(tmp_path, process, "repository", across("a directory in .gitignore"), watching=True)


def across(change: str) -> list[Step]:
    each = CHANGES[change]
    return [
        Step(each.first),
        Step((("edit", "a"), each.change, ("restore", 1), *each.back)),
        Step((("edit", "a"),)),
        Step((each.change, ("edit", each.path), ("restore", 1), ("undo",)), how="turn"),
        Step((*each.back, ("edit", "a"))),
    ]


def test_another_process_with_other_settings_in_between(tmp_path: Path, process: Process) -> None:
    less: tuple[Action, ...] = (("set", "excludes", ("*.csv",)), ("set", "max_file_size_mb", SMALL_MB))
    story = [
        Step((*less, ("edit", "a")), who="process"),
        Step((("edit", "data.csv"),)),
        Step((("restore", 0), ("edit", "d/data.csv")), who="process"),
        Step((("undo",),), who="second"),
    ]
    play(tmp_path, process, "alone", story)
