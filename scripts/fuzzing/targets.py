"""What is fuzzed: a target writes an input to where the package reads it, calls the reader, and checks the answer.

Only `ShadowsnapError`, and what a target expects beside it, may be raised. Every import of the package is in the
one list below.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import struct
import sys
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fuzzing import seeds
from fuzzing.mutations import join, split

# --- the package ------------------------------------------------------------------------------------------
from shadowsnap import CheckpointManager
from shadowsnap.agents.edit import add_hook, add_member, append_item, plain, remove_hooks, remove_part
from shadowsnap.agents.edit import parse as parse_json_text
from shadowsnap.base import configured_base
from shadowsnap.deadline import NO_DEADLINE
from shadowsnap.errors import DamagedObject, ShadowsnapError
from shadowsnap.git.index import Entry, Index, tracked_paths
from shadowsnap.git.maintenance import PackIndex, loose_content, loose_problem, pack_ids, pack_problem
from shadowsnap.git.objects import EMPTY_TREE, object_id
from shadowsnap.git.packs import Packs
from shadowsnap.git.reading import ObjectReader
from shadowsnap.git.reading import _named_in as named_in
from shadowsnap.git.refs import (
    count_refs,
    create_ref,
    is_damaged_ref,
    newest_ref,
    read_ref,
    read_refs,
    ref_exists,
    ref_folders,
    ref_names,
)
from shadowsnap.git.trees import (
    DIRECTORY,
    TreeReader,
    TreeSearch,
    name_problem,
    parse_tree,
    patch_tree,
    path_problem,
    tree_changes,
    tree_entries,
)
from shadowsnap.hook import client
from shadowsnap.hook import handle as hook
from shadowsnap.hook import session as hooklog
from shadowsnap.hook.payload import SESSION_START, read_event
from shadowsnap.hook.session import HookSession
from shadowsnap.patterns import matches
from shadowsnap.settings import Layers, Settings, load_settings
from shadowsnap.snapshot.ignore_rules import find_repository
from shadowsnap.snapshot.tools import may_write, named_files, named_folders, plain_path
from shadowsnap.store import log
from shadowsnap.store.checkpoints import _remembered as remembered_statistics
from shadowsnap.store.checkpoints import (
    decode_checkpoint,
    label_of,
)
from shadowsnap.store.conversations import ConversationContent, from_file, from_json, from_transcript
from shadowsnap.store.history import read_history
from shadowsnap.store.layout import Store, last_prune, open_store
from shadowsnap.store.projects import (
    Journal,
    Project,
    all_records,
    find_place,
    known_projects,
    last_writes,
    may_lack_checkpoints,
    named_in_journal,
    named_in_journals,
    note_writes,
    project_of,
    read_journal,
    read_purged,
    read_record,
    touch_record,
    write_journal,
)
from shadowsnap.store.redaction import own_pattern, redact, redacted_beginning
from shadowsnap.store.stat_cache import CachedTrees, load_cache, save_cache
from shadowsnap.timeline import read_sessions, read_timeline
from shadowsnap.turns import input_digest
from shadowsnap.upkeep.reclaim import read_memory, write_memory
from shadowsnap.upkeep.status import failures

Run = Callable[[bytes], None]
Prepared = tuple[Run, list[bytes]]
PACKAGE = os.path.dirname(sys.modules["shadowsnap"].__file__ or "")
PLACEHOLDER = b"__PROJECT__"
"""Stands for the directory of the project in an input."""


@dataclass(frozen=True)
class Target:
    name: str
    about: str
    prepare: Callable[[Path], Prepared]
    """Makes what it needs in a directory; returns what runs one input, and seeds."""
    forms: tuple[str, ...] = ("bytes",)
    """One for each file of an input: `bytes`, `json`, `lines` (of JSON) or `zlib`."""
    fix: Callable[[list[bytes]], list[bytes]] = list
    """Puts checksums right, so that what lies behind them is reached."""
    words: tuple[bytes, ...] = ()
    """What the format is made of."""
    expected: tuple[type[Exception], ...] = (ShadowsnapError,)
    seconds: float = 2.0
    """Of processor time that one input may take."""

    def fixed(self, data: bytes) -> bytes:
        parts = self.fix(split(data, len(self.forms)))
        return parts[0] if len(parts) == 1 else join(parts)


TARGETS: dict[str, Target] = {}


def target(about: str, *, name: str = "", **facts: Any) -> Callable[[Callable[[Path], Prepared]], None]:
    def add(prepare: Callable[[Path], Prepared]) -> None:
        called = name or prepare.__name__.replace("_", "-")
        TARGETS[called] = Target(called, about, prepare, **facts)

    return add


# --- what several targets need ----------------------------------------------------------------------------


@dataclass(frozen=True)
class World:
    """A store with some checkpoints of a small project, made by the package itself."""

    store: Store
    project: Project
    manager: CheckpointManager


def make_world(place: Path) -> World:
    workdir = place / "work" / "project"
    for name in ("README.md", "src/main.py", "src/util.py"):
        (workdir / name).parent.mkdir(parents=True, exist_ok=True)
        (workdir / name).write_text(f"{name}\n" * 3)
    seeds.git(workdir, "init", "-q")
    os.environ |= {"SHADOWSNAP_HOME": str(place / "base"), "SHADOWSNAP_BACKGROUND_UPKEEP": "false"}
    os.environ |= {"SHADOWSNAP_FSYNC": "false"}
    manager = CheckpointManager(base=place / "base", background_upkeep=False, fsync=False)
    manager.new_turn(session_id="a-session", prompt="begin")
    first = manager.ensure_checkpoint(workdir, "first").checkpoint
    assert first is not None
    (workdir / "src/main.py").write_text("changed\n")
    manager.record_write(workdir, "src/main.py")
    manager.new_turn(session_id="a-session", prompt="go on")
    manager.before_tool("write", {"file_path": "src/main.py"}, workdir)
    manager.end_turn([{"role": "user", "content": "go on"}])
    manager.restore(workdir, first.id, ["src/main.py"])
    manager.undo(workdir)
    manager.list_checkpoints(workdir)
    store = open_store(Settings(base=place / "base", fsync=False))
    return World(store, project_of(workdir), manager)


def is_text(value: object) -> bool:
    return isinstance(value, str)


def all_text(values: Sequence[object]) -> bool:
    return isinstance(values, (tuple, list)) and all(map(is_text, values))


def sha1(data: bytes) -> bytes:
    return hashlib.sha1(data, usedforsecurity=False).digest()


def printable(value: Any) -> None:
    """Whatever is handed out can be written as JSON, as `--json` does."""
    json.dumps(value.to_dict())


# --- hooks ------------------------------------------------------------------------------------------------

_JSON_WORDS = (
    b'"tool_name"', b'"tool_input"', b'"session_id"', b'"cwd"', b'"prompt"', b'"file_path"',
    b'"transcript_path"', b'"hook_event_name": "PreToolUse"', b'{"a":', b"[", b"\\u0000", b"\\ud800",
    b'"extra": {', b'"tool_input": "{', b'"roots": [', b"*** Update File: ",
)


@target("the input of hooks, and what is known of a session", forms=("json",), words=_JSON_WORDS)
def payload(place: Path) -> Prepared:
    base = place / "base"
    (base / "run").mkdir(parents=True)
    os.environ["SHADOWSNAP_HOME"] = str(base)
    os.chdir(base)

    def run(data: bytes) -> None:
        for name in ("", "preToolUse"):
            event = read_event("fuzz", data, name)
            assert all_text([event.kind, event.session, event.turn, event.cwd, event.tool, event.prompt])
            assert all_text([event.transcript, event.ends, event.problem]) and all_text(event.roots)
            assert len(event.session) < 250 and len(event.turn) < 250
            may_write(event.tool)
            input_digest(event.tool_input)
            assert all_text(named_files(event.tool_input)) and all_text(named_folders(event.tool_input))
            session = HookSession(str(base), event)
            hook._covers(session, event)
            session.begin_turn(event, event.prompt, prompted=True)
            state = session.state_of(event)
            session.note_taken(event, state)
            session.note_tool(event.tool, "x", session.files_not_taken(event), shell=False)
            session.read()
            assert session.state_of(event) == json.loads(json.dumps(state))
            assert session.tools()
            session.note_ended()
            hooklog.log_event("fuzz", event, "failed", ValueError("x"))
            os.unlink(session.path)

    return run, seeds.payloads()


@target("reading the input of a hook from a pipe", forms=("json",), words=_JSON_WORDS)
def hook_input(place: Path) -> Prepared:
    def run(data: bytes) -> None:
        reading, writing = os.pipe()
        os.set_blocking(writing, False)
        sent = os.write(writing, data) if data else 0
        os.close(writing)
        before = sys.stdin
        sys.stdin = os.fdopen(reading)
        try:
            assert client._read_input() == data[:sent]
        finally:
            sys.stdin.close()
            sys.stdin = before

    return run, seeds.payloads()


@target(
    "a whole hook: no input may keep it from taking a snapshot",
    name="hook",
    forms=("json",),
    words=_JSON_WORDS,
    seconds=6.0,
)
def whole_hook(place: Path) -> Prepared:
    world = make_world(place)
    workdir, base = world.project.workdir, world.store.base
    documented = {each.__name__ for each in _below(ShadowsnapError)}

    def run(data: bytes) -> None:
        data = data.replace(PLACEHOLDER, json.dumps(str(workdir))[1:-1].encode())
        event = read_event("fuzz", data)
        if event.kind == SESSION_START or not event.cwd.startswith(str(workdir)):
            return  # the first starts processes, and the other is about the files of this machine
        log_file = hooklog.log_file()
        log_file.unlink(missing_ok=True)
        (workdir / "src/main.py").write_bytes(os.urandom(8))
        hook.run_hook("fuzz", data)
        for entry in hooklog.read_log(100):
            error = str(entry.get("error", "")).partition(":")[0]
            assert error in documented or entry["status"] != "failed", entry
        shutil.rmtree(base / "turns", ignore_errors=True)

    return run, [line.replace(b"/home/dev/shop", PLACEHOLDER) for line in seeds.payloads()]


def _below(kind: type) -> Iterator[type]:
    for each in kind.__subclasses__():
        yield each
        yield from _below(each)


@target(
    "files that tool inputs and patches name",
    words=(
        b"*** Begin Patch\n", b"*** End Patch\n", b"*** Add File: ", b"*** Update File: ",
        b"*** Delete File: ", b"*** Move to: ", b"file:///", b"@@\n", b"\x0b", b"\xe2\x80\xa8", b"/c:/",
    ),
)
def patches(place: Path) -> Prepared:
    def run(data: bytes) -> None:
        for text in (data.decode("utf-8", "surrogateescape"), data.decode("latin-1")):
            for value in (
                text,
                {"input": text},
                {"patch": text},
                {"command": ["apply_patch", text]},
                {"file_path": text},
                {"edits": [{"path": text}]},
                {"changes": {text: {}}},
            ):
                for windows in (False, True):
                    found = named_files(value, windows=windows)
                    assert all_text(found) and len(found) <= 1000
                    assert not any("\0" in path or len(path) > 4096 for path in found)
            named_folders({"cwd": text})
            assert is_text(plain_path(text)) and is_text(plain_path(text, windows=True))

    known = [line for line in seeds.payloads() if b"*** " in line]
    texts = [
        json.loads(line)["tool_input"] for line in known if isinstance(json.loads(line).get("tool_input"), dict)
    ]
    patch = b"*** Begin Patch\n*** Update File: src/app.py\n*** Move to: src/new.py\n@@\n-a\n+b\n*** End Patch\n"
    return run, [patch, b"file:///home/dev/a%20b", *(str(text).encode() for text in texts)]


@target("what hooks of a session leave for the next one", forms=("json", "json"))
def turns(place: Path) -> Prepared:
    world = make_world(place)
    workdir = str(world.project.workdir)
    folder = world.store.base / "run"
    folder.mkdir(exist_ok=True)

    def run(data: bytes) -> None:
        record, sent = split(data.replace(PLACEHOLDER, json.dumps(workdir)[1:-1].encode()), 2)
        event = read_event("fuzz", sent)
        session = HookSession(str(world.store.base), event)
        path = session.path
        Path(path).write_bytes(record)
        session.read()
        hook._covers(session, event)
        session.is_same_turn(event)
        state = session.state_of(event)
        world.manager.resume_turn(state)
        json.dumps(world.manager.turn_state())
        session.note_taken(event, world.manager.turn_state())
        session.note_state(world.manager.turn_state())
        session.continue_turn(event)
        session.begin_turn(event, event.prompt, prompted=True)
        session.note_ended()
        HookSession(str(world.store.base), event)
        os.unlink(path)

    sent = [line for line in seeds.payloads() if b"tool_input" in line][:8]
    event = read_event("fuzz", sent[0])
    session = HookSession(str(world.store.base), event)
    session.begin_turn(event, event.prompt, prompted=True)
    world.manager.resume_turn(session.state_of(event))
    world.manager.before_tool("write", {"file_path": "src/main.py"}, workdir)
    session.note_taken(event, world.manager.turn_state())
    record = Path(session.path).read_bytes().replace(workdir.encode(), PLACEHOLDER)
    return run, [join([record, line]) for line in sent]


# --- settings ---------------------------------------------------------------------------------------------

_TOML_WORDS = (
    b"enabled = true\n", b"max_snapshots = ", b"max_file_size_mb = ", b"excludes = [", b"base = ",
    b"redact = [", b"[tool.shadowsnap]\n", b"granularity = 'turn'\n", b"'''", b'"""', b"= [\n", b"a.b.c = 1\n",
    b"[[x]]\n", b"0x7fffffffffffffff", b"1979-05-27T07:32:00Z", b"inf", b"nan", b"*a*a", b"**/", b"[!", b"[^",
    b"\\", b"!(", b"{a = {a = ",
)
_SETTINGS = (
    b"enabled = true\nmax_snapshots = 20\nmax_file_size_mb = 10.5\nexcludes = ['*.tmp', \"data/\", '[a-z]*.g']\n",
    b"[tool.shadowsnap]\nexcludes = ['**/gen/*', '[^x]y', '/a\\ b/']\nmax_file_size_mb = 2\n[tool.other]\nx = 1\n",
    b"base = '/somewhere'\ngranularity = 'tool'\nredact = ['(a+)+', '[0-9]{4}']\nretention_days = 1e3\n",
)


@target("the settings file of the person", words=_TOML_WORDS)
def settings(place: Path) -> Prepared:
    file = place / "shadowsnap" / "config.toml"
    file.parent.mkdir()
    os.environ["XDG_CONFIG_HOME"] = str(place)

    def run(data: bytes) -> None:
        file.write_bytes(data)
        found = load_settings()
        assert all_text(found.warnings) and all_text(found.settings.excludes) and all_text(found.settings.redact)
        assert isinstance(found.settings.enabled, bool) and found.settings.max_snapshots >= 0
        assert is_text(configured_base())

    return run, [*_SETTINGS]


@target("the settings files of a project", forms=("bytes", "bytes"), words=_TOML_WORDS)
def project_settings(place: Path) -> Prepared:
    def run(data: bytes) -> None:
        for name, content in zip(("pyproject.toml", ".shadowsnap.toml"), split(data, 2), strict=True):
            (place / name).write_bytes(content)
        before = Layers(Settings())
        found, warnings = before.narrowed_by(place)
        assert all_text(warnings) and all_text(found.excludes)
        assert 1 <= found.max_file_size_mb <= before.settings.max_file_size_mb
        assert found.enabled and found.redact == () and not found.include_secrets and found.base is None

    return run, [join([first, second]) for first in _SETTINGS for second in _SETTINGS]


@target("SHADOWSNAP_* variables", words=(b"\nENABLED=", b"\nEXCLUDES=", b"\nDEADLINE=", b"\nHOME=", b"\nDEBUG="))
def variables(place: Path) -> Prepared:
    def run(data: bytes) -> None:
        given = [line.partition(b"=") for line in data.replace(b"\0", b"").split(b"\n") if b"=" in line]
        names = [b"SHADOWSNAP_" + name for name, _, _ in given]
        try:
            for name, (_, _, value) in zip(names, given, strict=True):
                os.environb[name] = value
            found = load_settings()
            assert all_text(found.warnings) and isinstance(found.settings.enabled, bool)
            assert is_text(configured_base())
        finally:
            for name in names:
                os.environb.pop(name, None)

    return run, [
        b"ENABLED=true\nMAX_SNAPSHOTS=7\nDEADLINE=2.5\nEXCLUDES=a,b,*.c\nGRANULARITY=tool\nBASE=/x\nHOME=/y",
        b"MAX_FILE_SIZE_MB=1\nREDACT=x\nFSYNC=0\nNONSENSE=1\nenabled=no",
    ]


@target(
    "patterns in .gitignore syntax",
    forms=("bytes", "bytes"),
    words=(b"**/", b"*", b"?", b"[a-", b"[!", b"[^", b"[[:alpha:]]", b"\\", b"/", b"!", b" ", b"*a"),
)
def patterns(place: Path) -> Prepared:
    def run(data: bytes) -> None:
        line, path = (part.decode("utf-8", "surrogateescape") for part in split(data, 2))
        matches(line[:500], path[:4096])  # a longer pattern is not used

    lines = (b"*.py", b"**/a/**/b", b"/src/[a-z]*/", b"!keep", b"a*b*c*d*e", b"[[:digit:]]?\\*")
    return run, [join([line, b"src/lib/main.py"]) for line in lines]


@target(
    "settings files of agents: JSON with comments",
    words=(b"// c\n", b"/* c */", b"{", b"}", b"[", b"]", b",", b":", b'"hooks"', b'"a": ', b'\\"', b"\\u12"),
    expected=(ValueError,),
)
def agent_json(place: Path) -> Prepared:
    def run(data: bytes) -> None:
        text = data.decode("utf-8", "replace")
        value = parse_json_text(text)
        plain(value)
        if value.kind == "object":
            assert plain(parse_json_text(add_member(text, (), "new", {"x": [1]})))["new"] == {"x": [1]}
        if value.kind == "list":
            assert plain(parse_json_text(append_item(text, (), "new")))[-1] == "new"
        count = len(value.parts)
        for number in sorted({0, count // 2, count - 1} if count else ()):
            left = parse_json_text(remove_part(text, value, number))
            assert len(left.parts) == len(value.parts) - 1

    return run, [
        b'{\n  // mine\n  "hooks": {"Pre": [{"matcher": "x", "hooks": []}]}, /* c */\n  "a": [1, 2e3, null]\n}\n',
        b'[\n  "a", {"b": true}, // c\n  "\\u00e9\\n"\n]\n', b"\xef\xbb\xbf{}", b'{"a":{"b":{"c":[]}}}',
    ]


@target(
    "settings files of agents: YAML",
    words=(
        b"hooks:\n", b"  pre_tool_call:\n", b"  - command: x\n", b"    - ", b"\t", b"{}", b"#", b"---\n",
        b"\r\n", b"\x0b",
    ),
    expected=(ValueError,),
)
def agent_yaml(place: Path) -> Prepared:
    ours = own_pattern("ours").pattern.decode()

    def run(data: bytes) -> None:
        import re

        text = data.decode("utf-8", "replace")
        added = add_hook(text, "pre_tool_call", {"command": "ours", "timeout": 3})
        assert '"ours"' in added
        remove_hooks(added, re.compile(ours))

    return run, [
        b"model: x\nhooks:\n  pre_tool_call:\n    - matcher: a\n      command: b\n  other: {}\nend: 1\n",
        b"hooks: {}  # none\n", b"", b"a: 1", b"hooks:\n- x\n",
    ]


# --- git --------------------------------------------------------------------------------------------------


def _index_fixed(parts: list[bytes]) -> list[bytes]:
    data = parts[-1]
    return [*parts[:-1], data[:-20] + sha1(data[:-20])] if len(data) > 20 else parts


@target("the private index", fix=_index_fixed, words=(b"DIRC\0\0\0\2", b"IEOT", b"EOIE", b"TREE", b"\x0f\xff"))
def index(place: Path) -> Prepared:
    file = place / "index"

    def run(data: bytes) -> None:
        file.write_bytes(data)
        found = Index.load(file)
        paths = list(found.paths())
        assert len(paths) == len(found)
        known = dict(found.items())
        assert {*found.lookup(paths)} <= {*known}
        for path in (b"", b"dir", b"file-1", paths[0] if paths else b"x"):
            list(found.paths_below(path))
            found.lookup([path])
        found.write({b"new": Entry.of(0o100644, "ab" * 20, os.stat(place)), **dict.fromkeys(paths[:2])})
        assert b"new" in Index.load(file).lookup([b"new"])

    made = []
    for count in (0, 1, 3, 300):
        names = (b"dir/file-%d" % number + b"x" * (number % 30) for number in range(count))
        seen = os.stat(place)
        Index(file).write({name: Entry.of(0o100644, "12" * 20, seen) for name in names})
        made.append(file.read_bytes())
    Index(file).write({b"long" * 1200: Entry.of(0o120000, "34" * 20, os.stat(place))})
    return run, [*made, file.read_bytes()]


@target(
    "the index of the person's repository",
    forms=("bytes", "bytes"),
    words=(b"DIRC\0\0\0\2", b"DIRC\0\0\0\4", b"link", b"TREE", b"REUC", b"sdir", b"FSMN", b"\x80", b"\x40"),
)
def tracked(place: Path) -> Prepared:
    def run(data: bytes) -> None:
        main, shared = split(data, 2)
        found = tracked_paths(main, lambda name: shared or None)
        assert isinstance(found, set) and all(isinstance(path, bytes) for path in found)

    return run, [join(pair) for pair in seeds.indexes(place)]


_REPOSITORY = (".git", ".git/HEAD", ".git/commondir", ".git/packed-refs", ".git/info/exclude", ".git/index")


@target(
    "the person's repository: plain files of it",
    forms=("bytes",) * 6,
    words=(b"gitdir: ", b"ref: refs/heads/", b"../", b"/", b"0" * 40, b" refs/heads/main\n"),
)
def repository(place: Path) -> Prepared:
    top = place / "top" / "inner"
    (top / "below").mkdir(parents=True)

    def run(data: bytes) -> None:
        pointer, *contents = split(data, 6)
        shutil.rmtree(top / "dot", ignore_errors=True)
        (top / "dot" / "info").mkdir(parents=True)
        for name, content in zip(_REPOSITORY[1:], contents, strict=True):
            (top / name.replace(".git", "dot")).write_bytes(content)
        (top / ".git").write_bytes(pointer)
        for workdir in (top, top / "below"):
            found = find_repository(workdir)
            if found is not None and found.top == top:
                commit, branch = found.head()
                assert commit is None or is_text(commit)
                assert branch is None or is_text(branch)
                assert all_text(found.exclude_lines())
                found.odd_files()
                found.tracked(workdir)

    (index_file, _), *_ = seeds.indexes(place)
    files = [b"ref: refs/heads/main\n", b"", b"# pack-refs\n" + b"1" * 40 + b" refs/heads/main\n", b"*.tmp\n!x\n"]
    return run, [
        join([b"gitdir: dot\n", *files, index_file]),
        join([b"gitdir: dot", b"2" * 40, b"./\n", *files[2:], b""]),
    ]


def _pack_fixed(parts: list[bytes]) -> list[bytes]:
    pack, idx = parts
    if len(pack) > 32:
        pack = pack[:-20] + sha1(pack[:-20])
    if len(idx) > 1100:
        idx = idx[:-40] + pack[-20:]
        idx += sha1(idx)
    return [pack, idx]


def _pack_runner(place: Path, most: int = 60) -> Callable[[bytes, bytes], None]:
    """Reads the objects that an index names first, and asks about them in every way."""
    stem = place / "objects" / "pack" / ("pack-" + "1" * 40)
    stem.parent.mkdir(parents=True)
    pack_file, idx_file = Path(f"{stem}.pack"), Path(f"{stem}.idx")

    def run(pack: bytes, idx: bytes) -> None:
        pack_file.write_bytes(pack)
        idx_file.write_bytes(idx)
        names = [idx[at : at + 20].hex() for at in range(1032, min(len(idx), 1032 + 20 * most), 20)]
        names = [name for name in names if len(name) == 40] + ["00" * 20, "ff" * 20]
        read = Packs(place / "objects")
        for name in names:
            found = read.read(name)
            if found is not None:
                assert object_id(*found) == name
            size = read.size(name)
            assert size is None or size >= 0
        read.read(names[-1], known_only=True)
        read.contained(names)
        read.contained(names, intact=True)
        problem = pack_problem(pack_file)
        assert problem is None or is_text(problem)
        try:
            listed = pack_ids(idx_file)
            assert all(len(name) == 40 for name in listed), "half a name"
        except ShadowsnapError:
            pass
        if not idx:
            return
        opened = PackIndex(place, stem.name)
        try:
            for name in names:
                assert (name in opened) in (True, False)
            assert all(len(name) == 40 for name in opened), "half a name"
        finally:
            opened.close()

    return run


@target(
    "packs and their indexes",
    forms=("bytes", "bytes"),
    fix=_pack_fixed,
    words=(b"PACK\0\0\0\2", b"\xfftOc\0\0\0\2", b"\x78\x9c", b"\x80\0\0\0", b"\xff\xff\xff\xff"),
)
def packs(place: Path) -> Prepared:
    run = _pack_runner(place)
    return lambda data: run(*split(data, 2)), [join(pair) for pair in seeds.packs(place)]


_BOMB = b"BOMB"


@target(
    "chains of deltas in a pack, each well compressed",
    forms=("bytes",) * 4,
    words=(b"\x80", b"\x90\x01", b"\xff", b"\xff" * 7, b"\xb0\0\0", b"\xff\xff\xff\x7f"),
)
def deltas(place: Path) -> Prepared:
    base = b"0123456789" * 10
    first = _size(100) + _size(30) + b"\x90\x14" + b"\x0a" + b"abcdefghij"
    second = _size(30) + _size(35) + b"\xb0\x1e\0" + b"\x05hello"
    third = _size(35) + _size(70) + b"\x90\x23\x90\x23"
    return _delta_builder(place), [join([base, first, second, third])]


@target(
    "a few bytes in a pack that claim to be hundreds of megabytes",
    forms=("bytes",) * 4,
    seconds=20.0,
    words=(_BOMB, b"\xff\xff\xff\x7f", b"\xff\xff\xff\xff"),
)
def bombs(place: Path) -> Prepared:
    large = 180 << 20
    return _delta_builder(place, 2), [
        join([_bomb(large), _size(large) + _size(3) + b"\x90\x03", b"", b""]),
        join([b"x", _bomb(large), _bomb(large), _bomb(large)]),
        join([b"x" * 100, _size(100) + _size(large) + b"\x90\x64" * 3, b"", b""]),
        join([_bomb(large), _size(large) + _size(large) + b"\xf0\xff\xff\xff" * 16, b"", b""]),
    ]


def _delta_builder(place: Path, most: int = 4) -> Run:
    """Runs a pack of a base and of deltas, each of the part before it."""
    run = _pack_runner(place, most)

    def build(data: bytes) -> None:
        body, rows, at = [struct.pack(">4sII", b"PACK", 2, 4)], [], 12
        for number, part in enumerate(split(data, 4)):
            part, packed, size = _blown_up(part)
            kind, back = (3, b"") if number == 0 else (6, _distance(at - rows[-1][1]))
            entry = _entry_header(kind, size) + back + packed
            rows.append((sha1(b"%d" % number + part), at, zlib.crc32(entry)))
            body.append(entry)
            at += len(entry)
        pack = b"".join(body)
        pack += sha1(pack)
        rows.sort()
        counts = [sum(row[0][0] <= first for row in rows) for first in range(256)]
        idx = b"".join(
            (
                b"\xfftOc\0\0\0\2",
                struct.pack(">256I", *counts),
                b"".join(row[0] for row in rows),
                struct.pack(">4I", *(row[2] for row in rows)),
                struct.pack(">4I", *(row[1] for row in rows)),
                pack[-20:],
            )
        )
        run(pack, idx + sha1(idx))

    return build


def _bomb(size: int) -> bytes:
    return _BOMB + size.to_bytes(4, "big")


def _blown_up(part: bytes) -> tuple[bytes, bytes, int]:
    """A part, compressed, and its size. One that begins with a mark stands for so many zeros."""
    if not part.startswith(_BOMB):
        return part, zlib.compress(part, 1), len(part)
    size = min(int.from_bytes(part[4:8], "big"), 300 << 20)
    squeeze, zeros = zlib.compressobj(1), bytes(1 << 20)
    packed = [squeeze.compress(zeros) for _ in range(size >> 20)] + [squeeze.compress(zeros[: size & 0xFFFFF])]
    return part, b"".join(packed) + squeeze.flush(), size


def _size(number: int) -> bytes:
    found = bytearray([number & 0x7F])
    while number := number >> 7:
        found[-1] |= 0x80
        found.append(number & 0x7F)
    return bytes(found)


def _entry_header(kind: int, size: int) -> bytes:
    rest = size >> 4
    first = kind << 4 | size & 15 | (0x80 if rest else 0)
    return bytes([first]) + (_size(rest) if rest else b"")


def _distance(number: int) -> bytes:
    found = [number & 0x7F]
    while number := number >> 7:
        number -= 1
        found.append(0x80 | number & 0x7F)
    return bytes(reversed(found))


@target("loose objects", forms=("zlib",), words=(b"blob 5\0", b"tree 99999999999\0", b"commit -1\0", b"\0", b" "))
def loose(place: Path) -> Prepared:
    store = open_store(Settings(base=place / "base", fsync=False))

    def run(data: bytes) -> None:
        try:
            whole = zlib.decompressobj().decompress(data, 1 << 20)
        except zlib.error:
            whole = data
        name = sha1(whole).hex()
        path = store.git_dir / "objects" / name[:2] / name[2:]
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(data)
        try:
            reader = ObjectReader(store.git())
            size = reader.size(name)
            assert size is None or size >= 0
            for kind in (b"blob", b"tree", b"commit"):
                found, content = reader._read_loose(name, kind)
                assert not found or object_id(found, content) == name
            if loose_problem(path, name) is None:
                kind, content = loose_content(path)
                assert object_id(kind, content) == name
        finally:
            path.unlink()

    def bomb(head: bytes, size: int) -> bytes:
        squeeze, zeros = zlib.compressobj(9), bytes(1 << 20)
        return b"".join(
            [squeeze.compress(head), *(squeeze.compress(zeros) for _ in range(size >> 20)), squeeze.flush()]
        )

    contents = (b"blob 5\0hello", b"tree 0\0", b"commit 10\0tree 12345", b"blob 3000\0" + b"abc" * 1000)
    return run, [*(zlib.compress(each) for each in contents), bomb(b"blob 10\0", 40 << 20)]


_TREE_COUNT = 3


def _tree_parts(data: bytes) -> tuple[list[bytes], dict[str, bytes]]:
    """The trees with the ids of those that they hold. An id can only be known of what is complete, as with real
    trees: the later parts stand below the earlier ones."""
    parts, known = split(data, _TREE_COUNT), dict[str, bytes]()
    for number in range(_TREE_COUNT - 1, -1, -1):
        for below in range(number + 1, _TREE_COUNT):
            name = bytes.fromhex(object_id(b"tree", parts[below]))
            parts[number] = parts[number].replace(bytes([below]) * 20, name)
        known[object_id(b"tree", parts[number])] = parts[number]
    return parts, known


@target(
    "trees and the names in them",
    forms=("bytes",) * _TREE_COUNT,
    words=(
        b"40000 ", b"100644 ", b"120000 ", b"160000 ", b".git\0", b".GIT", b"git~1", b"..", b".", b"\\", b":",
        b" ", b".g\xe2\x80\x8cit",
        b"40000 x\0" + b"\1" * 20,
        b"40000 y\0" + b"\2" * 20,
        b"\1" * 20,
    ),
)
def trees(place: Path) -> Prepared:
    def run(data: bytes) -> None:
        (root, *_), known = _tree_parts(data)
        name = object_id(b"tree", root)

        def read(wanted: str) -> bytes:
            if wanted == EMPTY_TREE:
                return b""
            if wanted not in known:
                raise DamagedObject(id=wanted)
            return known[wanted]

        def attempt(action: Callable[[], object]) -> None:
            try:
                action()
            except ShadowsnapError:
                pass

        written: dict[str, bytes] = {}

        def write(content: bytes) -> str:
            written[object_id(b"tree", content)] = content
            return object_id(b"tree", content)

        changes = {b"b/new": (0o100644, "ab" * 20), b"a": None, b"b/d": None, b"z/y/x": (0o120000, "cd" * 20)}
        attempt(lambda: _check_tree(parse_tree(root)))
        attempt(lambda: list(tree_entries(root)))
        attempt(lambda: list(named_in(b"tree", root)))
        attempt(lambda: patch_tree(name, changes, read, write))
        attempt(lambda: tree_changes(EMPTY_TREE, TreeReader(name, read), 100))
        attempt(lambda: list(TreeReader(name, read).files_below(b"")))
        attempt(lambda: TreeReader(name, read).find(b"b/d/e"))
        attempt(lambda: TreeSearch(read, lambda each, mode, _: name_problem(each) is not None).find(name))
        for content in written.values():
            attempt(lambda content=content: parse_tree(content))

    made = seeds.trees(place)
    below = [bytes.fromhex(object_id(b"tree", each)) for each in made]
    for number in (1, 2):
        made = [each.replace(below[number], bytes([number]) * 20) for each in made]
    return run, [join(made), join([b"100644 a\0" + b"x" * 20, b"", b""])]


def _check_tree(entries: dict[bytes, tuple[int, str]]) -> None:
    for name, (mode, object_name) in entries.items():
        assert name and b"/" not in name and b"\0" not in name and name not in (b".", b"..")
        assert name.lower() != b".git" and len(object_name) == 40
        assert 0 <= mode < 1 << 32 and (mode == DIRECTORY or mode >= 0)


@target(
    "names that a checkpoint may hold",
    words=(
        b".git", b"git~1", b"\xe2\x80\x8c", b"\xef\xbb\xbf", b"\\", b"..", b":", b"/", b" ", b".",
        b"\xed\xb2\x80",
    ),
)
def names(place: Path) -> Prepared:
    def run(data: bytes) -> None:
        problem = name_problem(data)
        assert problem is None or is_text(problem)
        parts = data.split(b"/")
        whole = path_problem(data)
        assert (whole is None) == all(name_problem(part) is None for part in parts), (
            "a path and its parts disagree"
        )
        if problem is None:
            assert data.lower().rstrip(b". ") != b".git" and data not in (b"", b".", b"..")

    return run, [
        b"main.py", b"src/.git/config", b".g\xe2\x80\x8cit", b"GIT~1", b"a\\..\\b", b"x/../y", b".git::$INDEX",
    ]


@target(
    "refs: loose ones and packed-refs",
    forms=("bytes", "bytes", "bytes"),
    words=(
        b"# pack-refs with: peeled fully-peeled sorted \n",
        b"a" * 40 + b" refs/shadowsnap/p/",
        b"^" + b"1" * 40 + b"\n",
        b" refs/shadowsnap/", b"-", b"\n", b"\xff",
    ),
)
def refs(place: Path) -> Prepared:
    git_dir = place / "store"
    (git_dir / "refs/shadowsnap/p").mkdir(parents=True)
    prefix = "refs/shadowsnap/p"

    def run(data: bytes) -> None:
        packed, content, name = split(data, 3)
        (git_dir / "packed-refs").write_bytes(packed)
        file = os.path.join(
            os.fsencode(git_dir / prefix), name.replace(b"/", b"").replace(b"\0", b"")[:200] or b"x"
        )
        if os.path.basename(file) in (b".", b".."):
            return
        with open(file, "wb") as opened:
            opened.write(content)
        try:
            found = read_refs(git_dir, prefix)
            assert all(len(value) == 40 for value in found.values()), "half an id"
            for each in ref_names(git_dir, prefix):
                ref = f"{prefix}/{each}"
                value = read_ref(git_dir, ref)
                assert value is None or len(value) == 40
                ref_exists(git_dir, ref)
                is_damaged_ref(git_dir, ref)
            newest = newest_ref(git_dir, prefix)
            assert newest is None or is_text(newest)
            ref_folders(git_dir, "refs/shadowsnap")
            count_refs(git_dir, prefix)
            all(map(is_text, map(label_of, found)))
        finally:
            os.unlink(file)

    commit = "ab" * 20
    ref = f"{prefix}/1700000000000-{commit[:12]}"
    create_ref(git_dir, ref, commit, fsync=False)
    content = (git_dir / ref).read_bytes()
    (git_dir / ref).unlink()
    packed = f"# pack-refs with: peeled fully-peeled sorted \n{commit} {ref}\n{'1' * 40} refs/shadowsnap/q/1-x\n"
    return run, [
        join([packed.encode(), content, os.path.basename(ref).encode()]),
        join([b"", content, b"_c3_a9x"]),
    ]


@target(
    "the commit of a checkpoint",
    forms=("lines",),
    words=(
        b"tree ", b"parent ", b"author a <b> 1 +0000\n", b"\n\n", b'{"skipped":[["a","b"]]}', b'"workdir":',
        b'"turn":',
    ),
)
def commits(place: Path) -> Prepared:
    world = make_world(place)

    def run(data: bytes) -> None:
        name = object_id(b"commit", data)
        ref = f"{world.project.refs}/1700000000000-{name[:12]}"
        found = decode_checkpoint(world.project, ref, name, data)
        assert all_text(
            [found.id, found.project, found.workdir, found.reason, found.kind, found.scope, found.tree]
        )
        for value in (found.session_id, found.tool):
            assert value is None or is_text(value)
        assert found.turn is None or isinstance(found.turn, int)
        assert all(all_text([each.path, each.why]) for each in found.skipped)
        printable(found)
        list(named_in(b"commit", data))
        list(named_in(b"tag", data))

    git_dir = world.store.git_dir
    shown = [
        seeds.git(git_dir, "cat-file", "commit", each.id)
        for each in world.manager.list_checkpoints(world.project.workdir)
    ]
    tag = b"object " + b"1" * 40 + b"\ntype commit\ntag x\ntagger a <b> 1 +0000\n\nx\n"
    return run, [*shown, tag]


@target(
    "a crafted checkpoint: listed, compared and restored, and nothing outside of the project changes",
    forms=("json",),
    seconds=6.0,
    words=(
        b'"empty_dirs":["', b'"modes":{', b'"other":{"', b'"skipped":[["', b"../", b'"rules":{',
        b'"scope":"paths"',
    ),
)
def checkpoints(place: Path) -> Prepared:
    world = make_world(place)
    store, project, manager = world.store, world.project, world.manager
    outside = project.workdir.parent / "outside"
    tree = manager.list_checkpoints(project.workdir)[0].tree

    def run(data: bytes) -> None:
        outside.mkdir(exist_ok=True)
        (outside / "canary").write_text("alive")
        outside.chmod(0o700)
        commit = f"tree {tree}\nauthor a <b> 1 +0000\ncommitter a <b> 1 +0000\n\nx\n\n".encode() + data
        name = store.objects.write(b"commit", commit)
        ref = f"{project.refs}/9000000000000-{name[:12]}"
        if not (store.git_dir / ref).exists():
            create_ref(store.git_dir, ref, name, fsync=False)
        try:
            for each in manager.list_checkpoints(project.workdir):
                printable(each)
            printable(manager.diff(project.workdir, name))
            for dry_run in (True, False):
                try:
                    printable(manager.restore(project.workdir, name, dry_run=dry_run))
                except ShadowsnapError:
                    pass
            (project.workdir / "src").mkdir(exist_ok=True)
            (project.workdir / "src/main.py").write_bytes(os.urandom(8))
            manager.new_turn()
            found = manager.ensure_checkpoint(project.workdir)
            assert found.error is None or isinstance(found.error, ShadowsnapError), repr(found.error)
        finally:
            for each in (store.git_dir / project.refs).iterdir():
                if each.name.startswith("9"):
                    each.unlink()
        assert (outside / "canary").read_text() == "alive" and os.listdir(outside) == ["canary"]
        assert outside.stat().st_mode & 0o777 == 0o700
        assert sorted(os.listdir(project.workdir.parent)) == ["outside", project.workdir.name]

    git_dir = store.git_dir
    commits = [
        seeds.git(git_dir, "cat-file", "commit", each.id) for each in manager.list_checkpoints(project.workdir)
    ]
    bodies = [json.loads(commit.split(b"\n\n")[2]) for commit in commits]
    more = {
        "empty_dirs": ["a/b", "../outside/new"],
        "absent": ["x"],
        "skipped": [["big", "too-large"]],
        "rules": {".gitignore": "*.tmp"},
        "excludes": {"defaults": 1, "own": ["*.x"]},
        "modes": {
            "file": "644",
            "exec": "755",
            "dir": "755",
            "other": {"../outside": "777", "src/main.py": "600"},
        },
        "before": "ab" * 20,
        "within": "cd" * 20,
    }
    safe = {**more, "empty_dirs": ["a/b"], "modes": {**more["modes"], "other": {"src/main.py": "600"}}}  # type: ignore[dict-item]
    return run, [json.dumps(each).encode() for each in (*bodies, {**bodies[0], **more}, {**bodies[0], **safe})]


# --- the store --------------------------------------------------------------------------------------------


def _check_journal(journal: Journal) -> None:
    begun = journal.open
    if begun is not None:
        assert all_text([begun.before, begun.target]) and isinstance(begun.operation, dict)
        assert all_text(begun.paths) and all_text(begun.staging) and all_text(begun.touched)
    assert all_text(journal.leftover) and is_text(journal.note)
    assert all(all_text([stage.before, stage.lock]) for stage in journal.stages)


def _journal_seeds(world: World) -> list[bytes]:
    file = world.store.journal_file(world.project.id)
    made = file.read_bytes() if file.exists() else b'{"open":null,"stages":[],"leftover":[]}'
    record = json.loads(made)
    before = world.manager.list_checkpoints(world.project.workdir)[-1].id
    begun = {
        "before": before,
        "target": before,
        "paths": ["src/main.py"],
        "staging": [".shadowsnap-restore-1"],
        "applying": True,
        "operation": {"id": "1-2", "kind": "restore"},
        "exact": False,
        "touched": ["src/main.py"],
    }
    old = {**{name: begun[name] for name in begun if name != "operation"}, "then": "undo"}
    many = {**record, "undo": [[before, "x.paths", True]], "open": old, "stages": [[before, "stage-1.lock"]]}
    records = [{**record, "open": begun}, {**record, "open": {**begun, "applying": False}}, many]
    return [made, *(json.dumps({**each, "leftover": [".shadowsnap-restore-2"]}).encode() for each in records)]


@target("the journal of restores", forms=("json", "json"), words=(b'"open":', b'"stages":[[', b"../"))
def journal(place: Path) -> Prepared:
    world = make_world(place)
    file = world.store.journal_file(world.project.id)

    def run(data: bytes) -> None:
        content, kept = split(data, 2)
        file.write_bytes(content)
        (file.parent / "x.paths").write_bytes(kept)
        named_in_journals(world.store)
        assert all_text(named_in_journal(file))
        found = read_journal(world.store, world.project)
        _check_journal(found)
        write_journal(world.store, world.project, found, lasting=False)
        _check_journal(read_journal(world.store, world.project))

    kept = json.dumps({"paths": ["a", "b/c"]}).encode()
    return run, [join([content, kept]) for content in _journal_seeds(world)]


@target(
    "finishing what a journal says: nothing outside of the project changes",
    forms=("json",),
    seconds=6.0,
    words=(b'".shadowsnap-restore-', b"../", b'"/', b'"applying":true'),
)
def recovery(place: Path) -> Prepared:
    world = make_world(place)
    workdir, file = world.project.workdir, world.store.journal_file(world.project.id)
    outside = workdir.parent / ".shadowsnap-restore-outside"

    def run(data: bytes) -> None:
        for folder in (outside, workdir / ".shadowsnap-restore-1", workdir / ".shadowsnap-restore-2"):
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            (folder / "canary").write_text("alive")
        file.write_bytes(data)
        (workdir / "src").mkdir(exist_ok=True)
        (workdir / "src/main.py").write_bytes(os.urandom(8))
        world.manager.new_turn()
        found = world.manager.ensure_checkpoint(workdir)
        assert found.error is None or isinstance(found.error, ShadowsnapError), repr(found.error)
        assert found.status in ("taken", "unchanged"), f"{found.status}: {found.error!r}"
        assert (outside / "canary").read_text() == "alive" and sorted(os.listdir(workdir.parent)) == there

    outside.mkdir()
    there = sorted(os.listdir(workdir.parent))
    text = [
        seed.replace(b".shadowsnap-restore-2", b"../.shadowsnap-restore-outside") for seed in _journal_seeds(world)
    ]
    return run, [*_journal_seeds(world), *text]


@target(
    "the log of troubles and the hook log",
    forms=("lines",),
    seconds=6.0,  # each input is read six times
    words=(b'{"at":', b'{"time":', b'"what":', b"\n", b"\r", b"\xc2\x85", b'"paths":['),
)
def logs(place: Path) -> Prepared:
    base = place / "base"
    base.mkdir()
    os.environ["SHADOWSNAP_HOME"] = str(base)

    def run(data: bytes) -> None:
        (base / "log.jsonl").write_bytes(data)
        (base / "hook.log.jsonl").write_bytes(data)
        found = log.read_troubles(base)
        for trouble in failures(found):
            printable(trouble)
        log.append_trouble(base, kind="failed", what="x")
        assert log.read_troubles(base)
        assert all(isinstance(entry, dict) for entry in hooklog.read_log(50))
        hooklog.log_event("fuzz", None, "failed", ValueError("x"))
        assert hooklog.read_log(1)

    log.append_trouble(
        base, kind="failed", workdir="/x", error="DiskFull", what="no space", advice="free", paths=["a", "b"]
    )
    late = {"error": "DeadlineExceeded", "what": "late", "advice": "", "paths": []}
    log.append_trouble(base, kind="partial", workdir="/y", **late)
    event = read_event("claude", seeds.payloads()[0])
    hooklog.log_event("claude", event, "failed", ValueError("y"))
    made = [(base / name).read_bytes() for name in ("log.jsonl", "hook.log.jsonl")]
    return run, [*made, b"".join(made), b"".join(made) * 20]


@target("the record of a project", forms=("json",), words=(b'"workdir":', b'"next_number":', b'"quiet_turns":'))
def project_record(place: Path) -> Prepared:
    world = make_world(place)
    store, project = world.store, world.project
    file = store.project_file(project.id)

    def run(data: bytes) -> None:
        file.write_bytes(data)
        for name, record in all_records(store).items():
            may_lack_checkpoints(store, name, record)
            find_place(project.workdir, record)
        assert all(isinstance(each, Project) for each in known_projects(store))
        read_record(store, project)
        touch_record(store, project, more=1)

    touch_record(store, project, emptied=1.0)
    made = file.read_bytes()
    old = {"quiet_turns": [1], "begun": [["s", "cd" * 20, 1.0]], "turn": 3}
    return run, [made, json.dumps({**json.loads(made), "above": [1, 2], "emptied": 9e9, **old}).encode()]


@target(
    "the operation log: history, timeline, sessions",
    forms=("lines",),
    seconds=6.0,
    words=(b'{"op":"begin","at":1,"turn":', b'"op":"end"', b'"op":"restore"', b'"undoes":', b'"paths":[', b"\n"),
)
def operation_log(place: Path) -> Prepared:
    world = make_world(place)
    store, project = world.store, world.project
    file = store.log_file(project.id)

    def run(data: bytes) -> None:
        file.write_bytes(data)
        history = read_history(store, project, NO_DEADLINE)
        for turn in history.turns.values():
            assert is_text(history.status_of(turn))
        history.undoable()
        for ref in ("1", "2:after", "last", "last~3"):
            try:
                history.checkpoint_of(ref)
            except ShadowsnapError:
                pass
        for entry in read_timeline(store, project, NO_DEADLINE, counted=False).entries:
            printable(entry)
        for session in read_sessions(store, NO_DEADLINE):
            printable(session)

    return run, [file.read_bytes()]


@target(
    "the records of format 1: sessions, journal, project",
    forms=("json", "json", "json"),
    seconds=6.0,
    words=(b'"turns":[', b'"places":[', b'"attachments":[', b'"undo":[[', b'"quiet_turns":['),
)
def format_1(place: Path) -> Prepared:
    world = make_world(place)
    store, project = world.store, world.project
    folder = store.base / "sessions"
    folder.mkdir()
    checkpoints = world.manager.list_checkpoints(project.workdir)

    def run(data: bytes) -> None:
        session, journal, record = split(data, 3)
        (folder / "a-session.json").write_bytes(session)
        store.journal_file(project.id).write_bytes(journal)
        store.project_file(project.id).write_bytes(record)
        store.log_file(project.id).unlink(missing_ok=True)
        for entry in read_timeline(store, project, NO_DEADLINE, counted=False).entries:
            printable(entry)

    place_of = {"project": project.id, "turn": 1, "before": checkpoints[-1].id, "after": checkpoints[0].id}
    turn = {"key": "k", "began": 1.0, "ended": 2.0, "prompt": "do it", "places": [place_of]}
    session = {"id": "a-session", "status": "completed", "ended": 3.0, "agent": "x", "turns": [turn], "edits": []}
    journal = {"undo": [[checkpoints[0].id, ["a"], True]], "redo": [[checkpoints[-1].id, "x.paths", False]]}
    record = {"format": 1, "workdir": str(project.workdir), "quiet_turns": [1], "turn": 2}
    return run, [join([json.dumps(each).encode() for each in (session, journal, record)])]


@target("small files of the store: upkeep, purged, statistics, writes, the last prune", forms=("json",))
def notes(place: Path) -> Prepared:
    world = make_world(place)
    store, project = world.store, world.project
    purged = store.git_dir / "purged" / f"{project.id}.json"
    purged.parent.mkdir(exist_ok=True)
    files = {
        "memory": store.git_dir / "upkeep.json",
        "purged": purged,
        "statistics": store.statistics_file(project.id),
        "writes": store.writes_file(project.id),
    }

    def run(data: bytes) -> None:
        for file in (*files.values(), store.base / ".last_prune"):
            file.write_bytes(data)
        memory = read_memory(store)
        write_memory(store, memory)
        found = read_purged(store, project.id)
        assert all_text([*found.ids, *found.ids.values()]) and all_text(found.paths) and all_text(found.blobs)
        assert all(len(numbers) == 5 for numbers in remembered_statistics(store, project).values())
        assert all_text([*last_writes(store, project).values()])
        note_writes(store, project, {"x": ("ab", 1.0)})
        last_prune(store.base)

    world.manager.prune()
    made = [file.read_bytes() for file in files.values() if file.exists()]
    known = {"ids": {"ab" * 20: "cd" * 20}, "paths": ["a/b"], "blobs": ["ef" * 20]}
    return run, [*made, json.dumps(known).encode(), b"1700000000\n"]


def _cache_fixed(parts: list[bytes]) -> list[bytes]:
    state, folders, index_file = _index_fixed(parts)
    folders = sha1(folders[40:]).hex().encode() + folders[40:]
    try:
        record = json.loads(state)
        if isinstance(record, dict):
            record |= {"index": index_file[-20:].hex(), "directories": folders[:40].decode()}
            state = json.dumps(record).encode()
    except (ValueError, RecursionError):
        pass
    return [state, folders, index_file]


@target("what a capture remembers", forms=("json", "bytes", "bytes"), fix=_cache_fixed)
def cache(place: Path) -> Prepared:
    world = make_world(place)
    store, project = world.store, world.project
    file = store.index_file(project.id)
    names = (file.with_name(f"{file.name}.json"), file.with_name(f"{file.name}.dirs"), file)

    def run(data: bytes) -> None:
        for path, content in zip(names, split(data, 3), strict=True):
            path.write_bytes(content)
        found = load_cache(store, project)
        assert all(
            isinstance(path, bytes) for path in (*found.named, *found.tracked, *found.directories, *found.rules)
        )
        assert is_text(found.tree) and isinstance(found.as_of_ns, int)
        assert all(isinstance(mode, int) for mode in found.modes.other.values())
        CachedTrees(store).read()
        save_cache(store, project, found)
        assert load_cache(store, project).tree == found.tree

    world.manager.before_tool("write", {"file_path": "src/main.py"}, project.workdir)
    return run, [join([path.read_bytes() for path in names])]


# --- conversations ----------------------------------------------------------------------------------------


@target(
    "taking secrets out of text",
    words=(
        b"sk-", b"ghp_", b"eyJ", b".eyJ", b"-----BEGIN RSA PRIVATE KEY-----", b"-----END RSA PRIVATE KEY-----",
        b"://u:p@h", b"password=", b'"token": "', b"AKIA", b"xoxb-", b"Bearer ", b"$2a$10$",
        b"machine h login l password p", b"key=", b"api_key: ", b"\\n", b"%3D", b":AA", b"Q~", b"-us1",
        b"_mmk", b".atlasv1.", b"sig=", b"a1B2c3D4",
    ),
)
def redaction(place: Path) -> Prepared:
    def run(data: bytes) -> None:
        cleaned, count = redact(data)
        assert count > 0 or cleaned == data
        assert len(cleaned) <= len(data) + 64 * count
        text = data.decode("utf-8", "surrogatepass" if _is_utf8(data) else "replace")
        assert len(redacted_beginning(text, 2000)) <= 2000

    return run, [
        b"here is sk-abcdefgh1234ijkl5678mnop and ghp_" + b"a1B2" * 9 + b"\n",
        b'{"password": "hunter2hunter2", "n": 1}',
        b"-----BEGIN RSA PRIVATE KEY-----\nMIIabc/+=\n-----END RSA PRIVATE KEY-----\n",
        b"https://me:secret99@host/x", b"eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NSJ9.c2lnbmF0dXJlMTIz",
        b"machine h login l password pw12345\n",
        b"$2a$10$" + b"abcdefghij./KLMNOPQRSTUVWXYZ" * 2,
        b"def token(self):\n    return self.key[0]\n" * 3,
    ]


def _is_utf8(data: bytes) -> bool:
    try:
        data.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        return False
    return True


@target(
    "transcripts of agents", forms=("lines",), words=(b'{"messages":[', b'{"role":', b"\n", b"[", b"\xef\xbb\xbf")
)
def transcripts(place: Path) -> Prepared:
    file = place / "transcript.jsonl"
    plain_file = place / "transcript.json"

    def run(data: bytes) -> None:
        found = [from_transcript(data)]
        for path in (file, plain_file):
            path.write_bytes(data)
            for size in (None, len(data) // 2):
                content = from_file(str(path), 1 << 20, size)
                assert isinstance(content, (ConversationContent, str))
                found += [content] if isinstance(content, ConversationContent) else []
        for content in found:
            assert content.count is None or content.count >= 0
        try:
            value = json.loads(data)
        except (ValueError, RecursionError):
            return
        from_json(value)

    made = from_json([{"role": "user", "content": "hello"}, {"role": "assistant", "content": [{"text": "é"}]}])
    return run, [made.data, b'{"messages": [1, 2]}', b"User: hello\nAgent: hi\n", *seeds.payloads()[:3]]
