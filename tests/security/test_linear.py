"""What is parsed by hand takes time that grows with its length, and no faster. Each is measured by doubling."""

from __future__ import annotations

import json
import struct
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from thorough import depth

from helpers import git
from shadowsnap import CheckpointManager
from shadowsnap.cli.text import cut, cut_path, one_line, wrapped
from shadowsnap.errors import MalformedObject
from shadowsnap.git.index import tracked_paths
from shadowsnap.git.trees import parse_tree, path_problem
from shadowsnap.hook.payload import read_event
from shadowsnap.patterns import matches, parts
from shadowsnap.settings import Layers, Settings
from shadowsnap.snapshot.ignore_rules import pattern_lines
from shadowsnap.snapshot.secrets import is_secret
from shadowsnap.snapshot.tools import named_files
from shadowsnap.store.conversations import from_transcript, split
from shadowsnap.store.history import fold
from shadowsnap.store.projects import project_of
from shadowsnap.store.redaction import redacted_beginning
from shadowsnap.timeline import _Entries

Make = Callable[[int], Any]
SIZE = 1 << 14
ENOUGH = depth(0.005, 0.02)
"""Seconds that a clock can tell from none."""


def assert_linear(parse: Callable[[Any], object], make: Make, size: int = SIZE) -> None:
    """Four times the length takes about four times as long; what is quadratic takes sixteen times. What takes next
    to no time is made longer first, as far as a clock can tell."""
    while size < depth(1 << 20, 1 << 22) and _seconds(parse, make(size)) < ENOUGH:
        size *= 4
    for _ in range(5):  # a busy machine has pauses
        short = min(_seconds(parse, make(size)) for _ in range(2))
        long = _seconds(parse, make(4 * size))
        if long < 10 * short + 2 * ENOUGH:
            return
    raise AssertionError(f"{short:.3f} s for {size}, {long:.3f} s for four times that")


def _seconds(parse: Callable[[Any], object], data: Any) -> float:
    began = time.process_time()
    try:
        parse(data)
    except (ValueError, RecursionError, MalformedObject):
        pass  # what cannot be read is to be refused as quickly
    return time.process_time() - began


# --- settings ---------------------------------------------------------------------------------------

TOML: dict[str, Make] = {
    "a name of many parts": lambda size: "a" + ".a" * (size // 2) + " = 1",
    "a name of many quoted parts": lambda size: '"a"' + '."a"' * (size // 4) + " = 1",
    "a header of many parts": lambda size: "[a" + " . a" * (size // 4) + "]",
    "names of many parts": lambda size: "".join("a." * 500 + f"k{number} = 1\n" for number in range(size // 1000)),
    "one long word": lambda size: "a" * size,
    "many quotes": lambda size: "'\"" * (size // 2),
    "nested lists": lambda size: "x = " + "[" * size,
    "nested tables": lambda size: "x = " + "{a=" * (size // 3),
    "unknown names": lambda size: "".join(f"n{number} = 1\n" for number in range(size // 10)),
    "many tables": lambda size: "".join(f"[t{number}]\n" for number in range(size // 10)),
    "a list over many lines": lambda size: "excludes = [\n" + "'a',\n" * (size // 5) + "]\n",
    "an open string": lambda size: 'x = "' + "a" * size,
    "escapes": lambda size: 'x = "' + "\\u0041" * (size // 6) + '"',
    "blanks": lambda size: "x = 1" + " " * size + "y",
    "a long number": lambda size: "x = 1." + "1" * size,
}


@pytest.mark.parametrize("make", TOML.values(), ids=TOML)
def test_settings_of_a_clone(tmp_path: Path, make: Make) -> None:
    def read(text: str) -> None:
        (tmp_path / ".shadowsnap.toml").write_text(text)
        Layers(Settings()).narrowed_by(tmp_path)

    assert_linear(read, lambda size: make(min(size, 1 << 16)), 1 << 13)  # a longer file is not read


def test_a_clone_cannot_fill_the_log_with_warnings(tmp_path: Path) -> None:
    (tmp_path / ".shadowsnap.toml").write_text("".join(f"n{number} = 1\n" for number in range(5_000)))
    _, warnings = Layers(Settings()).narrowed_by(tmp_path)
    assert len(warnings) == 21 and warnings[0].startswith(f"{tmp_path / '.shadowsnap.toml'}:1: n0 is ignored")
    assert warnings[-1].endswith("4980 more are ignored")


# --- the input of hooks -----------------------------------------------------------------------------


def _payload(**more: Any) -> bytes:
    return json.dumps({"hook_event_name": "PreToolUse", "tool_name": "Write", "cwd": "/p", **more}).encode()


PAYLOADS: dict[str, Make] = {
    "content": lambda size: _payload(tool_input={"content": "x" * size}),
    "escaped content": lambda size: _payload(tool_input={"content": '\n"\\' * (size // 3)}),
    "cut content": lambda size: _payload(tool_input={"content": '\n"\\' * (size // 3)})[: size // 2],
    "brackets": lambda size: b"[" * size,
    "braces": lambda size: b"{" * size,
    "nested objects": lambda size: b'{"a":' * (size // 5),
    "quotes": lambda size: b'"' * size,
    "backslashes": lambda size: b'{"a":"' + b"\\" * size,
    "blanks": lambda size: b"{" + b" " * size + b"]",
    "a key without end": lambda size: b'{"cwd":"/p",' + b'"tool_input":' * (size // 13),
    "a key and blanks": lambda size: b'{"tool_input"' + b" " * size + b":",
    "a long session": lambda size: _payload(session_id="s" * size),
    "a long number": lambda size: b'{"session_id":' + b"9" * size + b"}",
    "many roots": lambda size: _payload(workspace_roots=["/r"] * (size // 6)),
    "half surrogates": lambda size: b'{"a":"' + b"\\ud800" * (size // 6) + b'"}',
    "not UTF-8": lambda size: b'{"a":"' + b"\xff" * size + b'"}',
}


@pytest.mark.parametrize("make", PAYLOADS.values(), ids=PAYLOADS)
def test_the_input_of_a_hook(make: Make) -> None:
    assert_linear(lambda data: read_event("claude", data), make)


INPUTS: dict[str, Make] = {
    "a patch": lambda size: {"command": "*** Update File: f\n+x\n" * (size // 22)},
    "a patch of one line": lambda size: {"command": "*** Update File: " * (size // 17)},
    "stars": lambda size: {"command": "*** " * (size // 4)},
    "lines of stars": lambda size: {"command": "\n*** " * (size // 5)},
    "paths": lambda size: {"paths": [f"a{number}" for number in range(size // 8)]},
    "a long path": lambda size: {"path": "a/" * (size // 2)},
    "a path of escapes": lambda size: {"path": "file:///" + "%41" * (size // 3)},
    "nested": lambda size: {"changes": {f"a{number}": {"path": "x"} for number in range(size // 20)}},
}


@pytest.mark.parametrize("make", INPUTS.values(), ids=INPUTS)
def test_what_a_tool_names(make: Make) -> None:
    assert_linear(named_files, make)


def test_the_files_of_a_patch_are_found_as_before() -> None:
    text = "*** Begin Patch\r\n*** Add File: a b\r\n+*** Add File: no\n+x\n*** Move to: c\n *** Add File: no\n"
    assert named_files({"command": text + "*** Delete File: d"}) == ["a b", "c", "d"]
    assert named_files({"command": "*** Update File: first\n"}) == ["first"]


# --- what is shown ----------------------------------------------------------------------------------

TEXTS: dict[str, Make] = {
    "letters": lambda size: "s" * size,
    "wide ones": lambda size: "\u6f22" * size,
    "accents": lambda size: "e\u0301" * (size // 2),
    "words": lambda size: "a " * (size // 2),
    "control characters": lambda size: "\x1b[" * (size // 2),
}


@pytest.mark.parametrize("make", TEXTS.values(), ids=TEXTS)
def test_text_for_people(make: Make) -> None:
    for show in (cut, cut_path, wrapped):
        assert_linear(lambda text, show=show: show(text, 60), make, 1 << 14)
    assert_linear(one_line, make, 1 << 14)


def test_text_is_cut_as_before() -> None:
    wide = "\u6f22\u5b57" * 3
    for text in ("abcdefghij", wide, "ae\u0301bcde\u0301fghi", "a b c d e f", "ab   cdefghi"):
        for width in range(9):
            left, right = text, text
            while left and _width(left) > width - 3:
                left = left[:-1]
            while right and _width(right) > width - 3:
                right = right[1:]
            if _width(text) > width:
                assert cut(text, width) == left.rstrip() + "..."[:width]
                assert cut_path(text, width) == "..."[:width] + right


def _width(text: str) -> int:
    return sum(2 if char in "\u6f22\u5b57" else 0 if char == "\u0301" else 1 for char in text)


# --- what comes from repositories -------------------------------------------------------------------


def index_of_long_names(size: int) -> bytes:
    """Of version 4: each entry says that its name is the one before with one letter more."""
    entry = bytes(24) + struct.pack(">I", 0o100644) + bytes(34) + b"\0b\0"
    count = size // len(entry)
    return struct.pack(">4sII", b"DIRC", 4, count) + entry * count + bytes(20)


INDEXES: dict[str, Make] = {
    "names that grow": index_of_long_names,
    "extensions": lambda size: struct.pack(">4sII", b"DIRC", 2, 0) + b"TREE\0\0\0\0" * (size // 8) + bytes(20),
    "an endless number": lambda size: struct.pack(">4sII", b"DIRC", 4, 1) + b"\xff" * size,
}


@pytest.mark.parametrize("make", INDEXES.values(), ids=INDEXES)
def test_the_index_of_a_clone(make: Make) -> None:
    assert_linear(lambda data: tracked_paths(data, lambda _: None), make)


def test_the_names_of_an_index_take_no_more_memory_than_a_few_times_its_size() -> None:
    with pytest.raises(MalformedObject):
        tracked_paths(index_of_long_names(4 << 20), lambda _: None)
    few = tracked_paths(index_of_long_names(400), lambda _: None)
    assert few == {b"b" * length for length in range(1, 7)}


@pytest.mark.parametrize(
    "rules", ["**/" * 100_000 + "x", "[" * 100_000 + "/x", "*a" * 100_000 + "/x", "**/a/**/x\n" * 90_000]
)
def test_rules_above_a_project_do_not_keep_it_from_being_captured(base: Path, tmp_path: Path, rules: str) -> None:
    project = tmp_path / "clone" / "a" / "a" / "a"
    project.mkdir(parents=True)
    git(tmp_path / "clone", "init", "-q")
    (tmp_path / "clone" / ".gitignore").write_text(f"*.log\n{rules}\n")
    (project / "file").write_text("x\n")
    (project / "a.log").write_text("x\n")
    manager = CheckpointManager(base=base, deadline=8, background_upkeep=False, fsync=False)
    outcome = manager.ensure_checkpoint(project)
    assert outcome.status == "taken" and outcome.checkpoint is not None, outcome.error
    assert manager.files(project, outcome.checkpoint.id) == ["file"]


def test_several_wildcards_in_a_row_mean_one() -> None:
    for line, same in (("**/**/x", "**/x"), ("a/**/**", "a/**"), ("a/**/**/b", "a/**/b"), ("/**/**/**", "/**")):
        assert parts(line) == parts(same)
        for path in ("x", "a/x", "a/b", "a", "a/c/b", "a/c/d/b", "b"):
            assert matches(line, path) == matches(same, path)


OTHERS: dict[str, tuple[Callable[[Any], object], Make]] = {
    "a tree": (parse_tree, lambda size: b"".join(b"100644 %d\0" % at + bytes(20) for at in range(size // 32))),
    "a tree without end": (parse_tree, lambda size: b"100644 " + b"a" * size),
    "a tree of beginnings": (parse_tree, lambda size: b"100644 " * (size // 7)),
    "rules": (pattern_lines, lambda size: b"a\n" * (size // 2)),
    "a pattern of stars": (lambda text: matches(text, "a" * 200), lambda size: "*a" * (size // 2)),
    "a pattern of brackets": (lambda text: matches(text, "a" * 200), lambda size: "[" * size),
    "a pattern of folders": (lambda text: matches(text, "/".join("a" * 9)), lambda size: "**/a/" * (size // 5)),
    "a pattern of any folders": (lambda text: matches(text, "/".join("a" * 9)), lambda size: "**/" * (size // 3)),
    "a name": (path_problem, lambda size: b"a\xcc\x81" * (size // 3)),
    "a path": (path_problem, lambda size: b"a/" * (size // 2)),
    "a secret's name": (is_secret, lambda size: b"credentials" * (size // 11)),
    "a transcript": (from_transcript, lambda size: b"{}\n" * (size // 3)),
    "a transcript of brackets": (from_transcript, lambda size: b"[" * size),
    "pieces of a conversation": (lambda data: list(split(data)), lambda size: b"\n" * size),
    "a prompt": (lambda text: redacted_beginning(text, 2000), lambda size: "sk-" * (size // 3)),
}


@pytest.mark.parametrize(("parse", "make"), OTHERS.values(), ids=OTHERS)
def test_other_foreign_data(parse: Callable[[Any], object], make: Make) -> None:
    assert_linear(parse, make, 1 << 14)


# --- the timeline -----------------------------------------------------------------------------------


def test_a_long_timeline(tmp_path: Path) -> None:
    project = project_of(tmp_path)

    def lines(size: int) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        for number in range(1, size + 1):
            before, after = f"{number:040x}", f"{number + 1:040x}"
            facts = {"before": before, "session": f"s{number % 3}", "key": f"k{number}"}
            found.append({"op": "begin", "at": float(number), "turn": number, **facts})
            found.append({"op": "end", "at": number + 0.5, "turn": number, "after": after, "status": "done"})
        return found

    assert len(_Entries(fold(project, lines(10)), {}).rows) == 10
    assert_linear(lambda data: _Entries(fold(project, data), {}), lines, 250)
