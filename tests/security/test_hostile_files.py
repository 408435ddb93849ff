"""Whatever a file says that is read here, at worst a documented error comes of it: found by `scripts/fuzz`."""

from __future__ import annotations

import hashlib
import json
import os
import re
import struct
import sys
import time
import zlib
from pathlib import Path
from typing import Any

import pytest

from helpers import git
from shadowsnap import CheckpointManager
from shadowsnap.agents.edit import add_hook, remove_hooks
from shadowsnap.errors import DamagedObject, MalformedObject
from shadowsnap.files import parse_json
from shadowsnap.git.index import Entry, Index
from shadowsnap.git.maintenance import PackIndex, loose_content, loose_problem, pack_ids
from shadowsnap.git.objects import object_id
from shadowsnap.git.packs import Packs, PackWriter
from shadowsnap.git.reading import Graph, ObjectReader
from shadowsnap.git.refs import create_ref, newest_ref, read_refs, ref_names
from shadowsnap.git.trees import parse_tree
from shadowsnap.hook.handle import run_hook
from shadowsnap.hook.payload import read_event
from shadowsnap.hook.session import log_event, log_file
from shadowsnap.hook.session import read_log as read_hook_log
from shadowsnap.patterns import matches
from shadowsnap.settings import Layers, Settings
from shadowsnap.snapshot.tools import named_files
from shadowsnap.store.checkpoints import _remembered, decode_checkpoint
from shadowsnap.store.conversations import from_transcript
from shadowsnap.store.layout import Store, open_store
from shadowsnap.store.log import append_trouble, read_troubles
from shadowsnap.store.projects import Project, journal_from, known_projects, project_of, read_journal
from shadowsnap.upkeep.status import failures

DEEP = [pytest.param("[" * depth + "]" * depth, id=str(depth)) for depth in (300, 5000, 200_000)]


@pytest.fixture
def store(base: Path) -> Store:
    return open_store(Settings(base=base, fsync=False))


@pytest.fixture
def known(store: Store, project: Path) -> Project:
    return project_of(project)


# --- nesting ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("deep", DEEP)
def test_json_that_is_nested_too_deeply_is_no_json(deep: str) -> None:
    for text in (deep, deep.encode(), f'{{"a": {deep}}}'):
        with pytest.raises(ValueError, match="nested too deeply"):
            parse_json(text)


def test_json_that_is_long_and_flat_is_read() -> None:
    value = {"rows": [[number, {"a": [number]}] for number in range(5000)], "text": "[{" * 5000}
    assert parse_json(json.dumps(value)) == value


@pytest.mark.parametrize("deep", DEEP)
def test_files_that_are_nested_too_deeply_count_as_damaged(store: Store, known: Project, deep: str) -> None:
    record = f'{{"workdir": "/x", "at": 1, "open": {deep}, "id": "s", "turns": {deep}}}'
    store.journal_file(known.id).write_text(record)
    store.project_file(known.id).write_text(record)
    (store.base / "log.jsonl").write_text(record + "\n")
    assert read_journal(store, known).note
    assert known_projects(store) == [] and read_troubles(store.base) == []
    assert from_transcript(f'{{"messages": {deep}}}'.encode()).count in (None, 1)


@pytest.mark.parametrize("deep", DEEP)
def test_a_hook_reads_what_it_can_of_an_input_that_is_nested_too_deeply(deep: str) -> None:
    data = f'{{"tool_name": "Write", "cwd": "/here", "x": {deep}, "tool_input": {{"file_path": "a"}}}}'
    event = read_event("claude", data.encode())
    assert (event.kind, event.tool, event.cwd) == ("tool", "Write", "/here")
    assert named_files(event.tool_input) == ["a"]


# --- objects ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "data",
    [
        b"100644",
        b"100644 a",
        b"100644 a\0short",
        b"1006448888 a\0" + b"x" * 20,
        b"+10064 a\0" + b"x" * 20,
        b"1_0644 a\0" + b"x" * 20,
        b"100698 a\0" + b"x" * 20,
        b" a\0" + b"x" * 20,
        b"\xff" * 40,
    ],
)
def test_what_is_no_tree_is_malformed(data: bytes) -> None:
    with pytest.raises(MalformedObject):
        parse_tree(data)


@pytest.mark.parametrize(
    "commit",
    [
        b"tree",
        b"tree \xff\xff",
        b"tree 12\nparent x\n\n",
        b"object " + b"1" * 40,
        b"object 1\ntype x\n",
        b"parent\n",
    ],
)
def test_a_commit_that_names_no_objects_is_damaged(store: Store, commit: bytes) -> None:
    name = store.objects.write(b"commit", commit)
    with Graph(store.git()) as graph, pytest.raises(DamagedObject):
        graph.named_by(name, b"commit")
    with Graph(store.git()) as graph:
        graph.prefetch({name: b"commit"})
        with pytest.raises(DamagedObject):
            graph.named_by(name, b"commit")


def test_a_name_of_two_lines_does_not_confuse_what_is_read_next(store: Store) -> None:
    name = store.objects.write(b"blob", b"content")
    with ObjectReader(store.git()) as reader:
        with pytest.raises(DamagedObject):
            reader.read(f"{'1' * 19}\n{'2' * 20}", b"blob")
        (store.git_dir / "objects" / name[:2] / name[2:]).unlink()
        PackWriter(store.git_dir / "objects", fsync=False).abandon()
        with pytest.raises(DamagedObject):
            reader.read(name, b"blob")


@pytest.mark.parametrize(
    "whole", [b"blob 4\0hello", b"blub 5\0hello", b"blob5\0hello", b"hello", b"blob 05\0hello"]
)
def test_a_loose_object_with_a_wrong_header_is_damaged(tmp_path: Path, whole: bytes) -> None:
    path = tmp_path / "object"
    path.write_bytes(zlib.compress(whole))
    name = hashlib.sha1(whole).hexdigest()
    assert loose_problem(path, name) == "its header is wrong"


def test_the_content_of_a_loose_object_is_as_long_as_it_says(tmp_path: Path) -> None:
    path = tmp_path / "object"
    path.write_bytes(zlib.compress(b"blob 5\0hello") + b"more")
    assert loose_content(path) == (b"blob", b"hello")
    path.write_bytes(zlib.compress(b"blob 5\0" + bytes(50 << 20)))
    with pytest.raises(MalformedObject):
        loose_content(path)


def pack_of(folder: Path, entries: list[bytes], names: list[bytes]) -> None:
    """A pack of these entries, with an index that is right about everything but perhaps the names."""
    body, rows, at = [struct.pack(">4sII", b"PACK", 2, len(entries))], [], 12
    for name, entry in zip(names, entries, strict=True):
        rows.append((name, zlib.crc32(entry), at))
        body.append(entry)
        at += len(entry)
    sha1 = hashlib.sha1
    pack = b"".join(body)
    pack += sha1(pack).digest()
    rows.sort()
    index = b"\377tOc\0\0\0\2" + struct.pack(">256I", *(sum(row[0][0] <= at for row in rows) for at in range(256)))
    index += b"".join(row[0] for row in rows) + b"".join(struct.pack(">I", row[1]) for row in rows)
    index += b"".join(struct.pack(">I", row[2]) for row in rows) + pack[-20:]
    (folder / "pack").mkdir(parents=True)
    (folder / "pack" / "pack-1.pack").write_bytes(pack)
    (folder / "pack" / "pack-1.idx").write_bytes(index + sha1(index).digest())


def entry(kind: int, size: int, packed: bytes, base: bytes = b"") -> bytes:
    header = bytearray([kind << 4 | size & 15])
    rest = size >> 4
    while rest:
        header[-1] |= 0x80
        header.append(rest & 0x7F)
        rest >>= 7
    return bytes(header) + base + packed


@pytest.mark.skipif(sys.platform != "linux", reason="limits of memory")
def test_a_chain_of_huge_deltas_is_not_held_in_memory(tmp_path: Path, as_user: Any) -> None:
    """Twenty deltas of 200 MB each, a few hundred kilobytes in all."""
    size = 200 << 20
    squeeze = zlib.compressobj(9)
    packed = b"".join([*(squeeze.compress(bytes(1 << 20)) for _ in range(size >> 20)), squeeze.flush()])
    names = [bytes([number + 1]) * 20 for number in range(20)]
    entries = [entry(3, size, packed), *(entry(7, size, packed, below) for below in names[:-1])]
    pack_of(tmp_path / "objects", entries, names)
    assert as_user(_read_within_limits, tmp_path / "objects", names[-1].hex()) is None


def _read_within_limits(objects: Path, name: str) -> object:
    _limit_memory()
    return Packs(objects).read(name)


def _limit_memory() -> None:
    """500 MB more than now, and no more."""
    import resource

    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + (500 << 20),) * 2)


@pytest.mark.skipif(sys.platform != "linux", reason="limits of memory")
def test_a_pack_index_that_promises_gigabytes_is_not_believed(tmp_path: Path, as_user: Any) -> None:
    names = [bytes([number + 1]) * 20 for number in range(2)]
    pack_of(tmp_path / "objects", [entry(3, 5, zlib.compress(b"hello"))] * 2, names)
    (path,) = (tmp_path / "objects" / "pack").glob("*.idx")
    data = bytearray(path.read_bytes())
    data[-44:-40] = struct.pack(">I", (1 << 31) - 1)
    path.write_bytes(data)
    assert as_user(_held_within_limits, tmp_path / "objects", names[0].hex()) == set()


def _held_within_limits(objects: Path, name: str) -> object:
    _limit_memory()
    return Packs(objects).contained([name], intact=True)


def test_a_delta_with_an_endless_number_is_refused_at_once(tmp_path: Path) -> None:
    names = [bytes([number + 1]) * 20 for number in range(2)]
    delta = b"\5" + b"\xff" * (1 << 19) + b"\1"
    entries = [entry(3, 5, zlib.compress(b"hello")), entry(7, len(delta), zlib.compress(delta), names[0])]
    pack_of(tmp_path / "objects", entries, names)
    began = time.process_time()
    assert Packs(tmp_path / "objects").read(names[1].hex()) is None
    assert Packs(tmp_path / "objects").size(names[1].hex()) is None
    assert time.process_time() - began < 1


@pytest.mark.parametrize("header", [b"blob -5", b"blob +5", b"blob 1_0", b"blob", b"blob x"])
def test_an_object_that_does_not_say_its_size_is_not_measured(store: Store, header: bytes) -> None:
    folder = store.git_dir / "objects" / "ab"
    folder.mkdir()
    (folder / ("ab" * 19)).write_bytes(zlib.compress(header + b"\0hello"))
    assert ObjectReader(store.git()).size("ab" * 20) is None


def test_objects_that_are_stored_as_deltas_are_still_read(tmp_path: Path) -> None:
    project = tmp_path / "repository"
    project.mkdir()
    git(project, "init", "-q")
    wanted = {}
    for number in range(5):
        text = "".join(f"line {line} {number if line % 9 == 0 else 0}\n" for line in range(300))
        (project / "file").write_text(text)
        git(project, "add", "-A")
        git(project, "commit", "-qm", "x")
        wanted[object_id(b"blob", text.encode())] = text.encode()
    git(project, "repack", "-adfq", "--depth=50")
    packs = Packs(project / ".git" / "objects")
    assert {name: packs.read(name) for name in wanted} == {name: (b"blob", data) for name, data in wanted.items()}


@pytest.mark.parametrize("damage", ["empty", "cut", "count", "backwards"])
def test_a_pack_index_that_does_not_add_up_is_malformed(tmp_path: Path, damage: str) -> None:
    writer = PackWriter(tmp_path / "objects", fsync=False)
    for number in range(3):
        writer.add(b"blob", b"%d" % number)
    writer.finish()
    (path,) = (tmp_path / "objects" / "pack").glob("*.idx")
    data = bytearray(path.read_bytes())
    if damage == "count":
        data[8 + 255 * 4 : 8 + 256 * 4] = struct.pack(">I", 1 << 30)
    if damage == "backwards":
        data[8:12] = struct.pack(">I", 1 << 30)
    whole = bytes(data[:-20])
    whole += hashlib.sha1(whole).digest()
    path.chmod(0o600)
    path.write_bytes({"empty": b"", "cut": whole[:900]}.get(damage, whole))
    with pytest.raises(MalformedObject):
        PackIndex(tmp_path, path.stem)
    with pytest.raises(MalformedObject):
        pack_ids(path)


def test_an_index_with_a_name_that_does_not_end_is_malformed(tmp_path: Path) -> None:
    path = tmp_path / "index"
    seen = os.stat(tmp_path)
    Index(path).write({b"name-%03d" % number: Entry.of(0o100644, "ab" * 20, seen) for number in range(3)})
    data = bytearray(path.read_bytes()[:-20])
    last = data.index(b"name-002")
    data[last - 2 :] = bytes(byte or 1 for byte in data[last - 2 :])  # no NUL any more
    data[last - 2 : last] = b"\x0f\xff"
    # The table of blocks says that the entries go on to the end.
    table = bytes(data[:12]) + bytes(data[12:])
    path.write_bytes(table + hashlib.sha1(table).digest())
    with pytest.raises(MalformedObject):
        list(Index.load(path).paths())
    index = Index(path, table + bytes(20))
    index.__dict__["_blocks"] = [type(index)._blocks.func.__globals__["_Block"](12, len(table), 3)]
    with pytest.raises(MalformedObject):
        list(index.paths())
    with pytest.raises(MalformedObject):
        index.lookup([b"name-002"])


# --- refs and checkpoints ---------------------------------------------------------------------------------


def test_packed_refs_may_say_anything(store: Store, known: Project) -> None:
    sound = f"{'ab' * 20} {known.refs}/1700000000000-{'ab' * 6}"
    damaged = [
        b"\xff" * 41 + known.refs.encode() + b"/\xff\xfe",
        b"12 " + known.refs.encode(),
        b"zz" * 20 + b" " + known.refs.encode() + b"/x",
        b"1" * 40 + b" " + known.refs.encode() + b"/cut",
    ]
    (store.git_dir / "packed-refs").write_bytes(sound.encode() + b"\n" + b"\n".join(damaged))
    found = read_refs(store.git_dir, known.refs)
    assert found.pop(f"1700000000000-{'ab' * 6}") == "ab" * 20
    assert all(len(value) == 40 and set(value) <= set("0123456789abcdef") for value in found.values())
    assert len(ref_names(store.git_dir, known.refs)) == 4 and newest_ref(store.git_dir, known.refs)


ODD = [None, 5, -1.5, True, [], {}, [[1, 2]], {"a": []}, "\ud800", "", "../x", "/x"]


@pytest.mark.parametrize("value", ODD, ids=repr)
def test_a_crafted_commit_is_still_a_checkpoint(known: Project, value: object) -> None:
    names = (
        "workdir",
        "reason",
        "kind",
        "scope",
        "session_id",
        "turn",
        "tool",
        "skipped",
        "modes",
        "empty_dirs",
        "absent",
        "rules",
        "excludes",
        "before",
        "within",
        "prompt",
        "ms",
    )
    for body in (
        dict.fromkeys(names, value),
        {"skipped": [value, [value, value]], "empty_dirs": [value]},
        {"modes": {"file": value, "other": {"a": value}}},
        {"excludes": {"own": value}},
    ):
        commit = b"tree \xff\n\nsubject\n\n" + json.dumps(body).encode()
        made = decode_checkpoint(known, f"{known.refs}/1-{'ab' * 6}", "ab" * 20, commit)
        json.dumps(made.to_dict())
        assert isinstance(made.workdir, str) and isinstance(made.reason, str) and isinstance(made.scope, str)
        assert all(isinstance(each.path, str) and isinstance(each.why, str) for each in made.skipped)
        for path in made.metadata.get("empty_dirs", []):
            assert not path.startswith(("/", ".."))


def test_a_crafted_checkpoint_changes_nothing_outside_of_the_project(base: Path, project: Path) -> None:
    manager = CheckpointManager(base=base, background_upkeep=False, fsync=False)
    first = manager.snapshot(project).checkpoint
    assert first is not None
    store, known = open_store(Settings(base=base)), project_of(project)
    outside = project.parent / "outside"
    outside.mkdir(mode=0o700)
    body = {
        "empty_dirs": ["../outside/new", "ok"],
        "scope": "tree",
        "modes": {"file": "644", "other": {"../outside": "777"}},
    }
    commit = f"tree {first.tree}\nauthor a <b> 1 +0000\ncommitter a <b> 1 +0000\n\nx\n\n{json.dumps(body)}"
    name = store.objects.write(b"commit", commit.encode())
    create_ref(store.git_dir, f"{known.refs}/9000000000000-{name[:12]}", name, fsync=False)
    (project / "README.md").write_text("changed\n")
    manager.restore(project, name)
    assert (project / "README.md").read_text() != "changed\n"
    assert os.listdir(outside) == [] and outside.stat().st_mode & 0o777 == 0o700


# --- what the store notes ---------------------------------------------------------------------------------


@pytest.mark.parametrize("field", ["paths", "staging", "touched"])
@pytest.mark.parametrize("value", [None, 5, "text", [1], [["a"]], {"a": 1}], ids=repr)
def test_a_journal_with_something_else_than_paths_is_none(field: str, value: object) -> None:
    begun = {
        "before": "a",
        "target": "b",
        "paths": [],
        "staging": [],
        "applying": True,
        "then": "restore",
        field: value,
    }
    assert journal_from({"open": begun}) is None
    assert journal_from({"leftover": value}) is None


def test_a_log_line_that_was_cut_short_does_not_take_the_next_one_along(base: Path, store: Store) -> None:
    (base / "log.jsonl").write_text('{"at": 1, "what": "cut')
    append_trouble(base, kind="failed", what="next")
    assert [entry["what"] for entry in read_troubles(base)] == ["next"]


def test_a_line_of_the_hook_log_that_was_cut_short_does_not_take_the_next_one_along(home: Path) -> None:
    log_file().parent.mkdir(parents=True)
    log_file().write_text('{"time": 1, "status": "cut')
    log_event("claude", None, "failed", ValueError("x"))
    assert [entry["status"] for entry in read_hook_log()] == ["failed"]


@pytest.mark.parametrize("at", ["1e300", "-1", "NaN", "Infinity", "253402300800", '"1"'])
def test_a_log_entry_of_an_impossible_time_is_left_out(base: Path, store: Store, at: str) -> None:
    (base / "log.jsonl").write_text(f'{{"at": {at}, "what": "x"}}\n{{"at": 5, "what": "y", "paths": {at}}}\n')
    assert [each.what for each in failures(read_troubles(base))] == ["y"]


def test_a_log_of_empty_lines_is_read_quickly(home: Path, base: Path, store: Store) -> None:
    log_file().parent.mkdir(parents=True)
    for path in (base / "log.jsonl", log_file()):
        path.write_bytes(b"\n" * 250_000 + b"x\n" + b'{"at": 1, "status": "last"}\n')
    began = time.process_time()
    assert read_troubles(base)[0]["status"] == read_hook_log()[0]["status"] == "last"
    assert time.process_time() - began < 1


@pytest.mark.parametrize("workdir", ["5", "null", "[]", '"a\\u0000b"', '"\\ud800"', '{"a": 1}'])
def test_a_project_record_of_no_directory_is_passed_by(store: Store, workdir: str) -> None:
    (store.git_dir / "projects" / "x.json").write_text(f'{{"workdir": {workdir}}}')
    assert known_projects(store) == []


def test_a_directory_may_be_called_like_the_home_of_an_unknown_user(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    odd = project / "~nobody-has-this-name"
    odd.mkdir()
    monkeypatch.chdir(project)
    assert project_of(odd.name).workdir == odd


def test_numbers_that_are_none_are_counted_again(store: Store, known: Project) -> None:
    rows = '{"a b": [Infinity, 1, 2, 0, 0], "c d": [1, 2, 3, 0, 1], "e f": [NaN, 1, 1, 0, 0]}'
    store.statistics_file(known.id).write_text(rows)
    assert _remembered(store, known) == {("c", "d"): (1, 2, 3, 0, 1)}


# --- hooks ------------------------------------------------------------------------------------------------

RECORDS = [
    "[]",
    "5",
    '{"turns": 5}',
    '{"turns": {"#0": 5, "#1": {"state": 5, "folders": 5, "files": [1, {}]}}}',
    '{"prompts": [], "count": "x"}',
    '{"prompts": {"#0": {}}}',
    '{"turns": {"#0": {"state": {"places": 5}}}}',
    '{"turns": {"#0": {"state": {"places": [{"workdir": 5}]}}}}',
    "[" * 5000,
]


@pytest.mark.parametrize("record", RECORDS)
def test_a_damaged_session_file_does_not_keep_a_hook_from_its_work(home: Path, project: Path, record: str) -> None:
    base = log_file().parent
    (base / "turns").mkdir(parents=True)
    base.chmod(0o700)
    (base / "turns" / "s-one.json").write_text(record)
    _hook(project, session_id="one", tool_name="Write", tool_input={"file_path": "README.md"})
    assert [entry["status"] for entry in read_hook_log()] == ["taken"]
    (base / "turns" / "s-one.json").write_text(record)
    _hook(project, session_id="one", hook_event_name="Stop")
    assert "failed" not in [entry["status"] for entry in read_hook_log()]


@pytest.mark.parametrize(
    "odd", ["\ud800", "file:///%00", "a\0b", "~nobody-has-this-name", "x" * 5000, "file://%ff"]
)
@pytest.mark.parametrize("field", ["transcript_path", "file", "folder", "root"])
@pytest.mark.each_value
def test_a_path_that_is_none_does_not_keep_a_hook_from_its_work(
    home: Path, project: Path, field: str, odd: str
) -> None:
    facts: dict[str, Any] = {"tool_name": "Write", "tool_input": {"file_path": "README.md"}, "session_id": "one"}
    if field == "transcript_path":
        facts[field] = odd
    elif field == "root":
        facts["workspace_roots"] = [odd]
    else:
        facts["tool_input"] = {"file_path": odd, "path": "README.md"} if field == "file" else {"cwd": odd}
    _hook(project, **facts)
    entries = read_hook_log()
    assert "taken" in str([[entry["status"], entry.get("note")] for entry in entries]), entries
    assert "failed" not in [entry["status"] for entry in entries]


def _hook(project: Path, **facts: Any) -> None:
    event = {"hook_event_name": "PreToolUse", "cwd": str(project), **facts}
    run_hook("claude", json.dumps(event).encode())


# --- linear time ------------------------------------------------------------------------------------------


def test_long_patterns_and_long_paths_are_compared_in_linear_time() -> None:
    began = time.process_time()
    assert not matches("**/a/" * 100 + "c", "a/" * 2000 + "b")
    assert matches("**/a/" * 100 + "b", "a/" * 2000 + "b")
    assert time.process_time() - began < 3


@pytest.mark.parametrize(
    "text",
    [
        "a." * 80_000 + "a = 1",
        f"[{'a.' * 80_000}a]\n",
        "x = {" + "a." * 80_000 + "a = 1}",
        f"[{'a.' * 200}a]\n" + "".join(f"b{number} = 1\n" for number in range(50_000)),
        '"=".' + "a." * 80_000 + "a = 1",
        f"[\"]\".{'a.' * 290}a]\n" + "".join(f"b{number} = 1\n" for number in range(50_000)),
        "".join(f"b{number}.{'a.' * 298}a = 1\n" for number in range(1_500)),
        "x = [\n" + "a." * 30_000 + "\n]",
    ],
    ids=["key", "table", "inline", "entries", "quoted", "quoted table", "many names", "short"],
)
def test_settings_with_names_of_many_parts_are_refused_at_once(tmp_path: Path, text: str) -> None:
    (tmp_path / ".shadowsnap.toml").write_text(f"excludes = ['x']\n{text}")
    began = time.process_time()
    settings, warnings = Layers(Settings()).narrowed_by(tmp_path)
    assert time.process_time() - began < 1
    assert settings.excludes == () and ("too many parts" in warnings[0] or "longer than 64 KB" in warnings[0])


@pytest.mark.parametrize("most", [b"a." * 100, b"b = 1\n" * 10, b"[[x]]\n", b'"""\n'])
def test_what_a_clone_says_of_others_is_not_read(tmp_path: Path, most: bytes) -> None:
    """A `pyproject.toml` may be long and of any kind. Only our own table counts, at its own lines."""
    ours = b"\n[tool.shadowsnap]  # ours\nexcludes = [\n  'x',\n]\nfoo = 1\n[tool.other]\n"
    (tmp_path / "pyproject.toml").write_bytes(most * 1000 + ours + most * 1000)
    began = time.process_time()
    settings, warnings = Layers(Settings()).narrowed_by(tmp_path)
    assert time.process_time() - began < 1 and settings.excludes == ("x",)
    line = (most * 1000 + ours).count(b"\n") - 1
    assert len(warnings) == 1 and f"pyproject.toml:{line}: foo is ignored" in warnings[0]


def test_settings_beside_ordinary_names_and_numbers_are_read(tmp_path: Path) -> None:
    lines = [
        "[tool.shadowsnap]",
        "excludes = ['x']",
        "[tool.a.b.c]",
        f"d = {[0.5] * 200}",
        "e = '''",
        "1.2." * 50,
        "'''",
    ]
    (tmp_path / "pyproject.toml").write_text("\n".join(lines))
    settings, warnings = Layers(Settings()).narrowed_by(tmp_path)
    assert settings.excludes == ("x",) and warnings == []


def test_a_long_settings_file_in_yaml_is_changed_in_linear_time() -> None:
    text = "hooks:\n" + "".join(f"  event{number}:\n    - command: x\n" for number in range(20_000))
    began = time.process_time()
    added = add_hook(text, "pre_tool_call", {"command": "ours"})
    assert remove_hooks(added, re.compile("ours")) == text
    assert time.process_time() - began < 3
