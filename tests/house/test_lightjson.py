"""Light JSON says what `json` says, to good input and to bad, and imports it only for the bad."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers import ROOT
from shadowsnap import lightjson

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)

TEXTS = [
    "{}", " [1, 2.5, -3e5, true, false, null] \r\n\t", '{"a": "\\u00e9\\ud800\\n"}', '"alone"', "1", "-Infinity",
    "NaN", '{"a": 1, "a": 2}', "", " ", "{", "[1,]", '{"a" 1}', "{'a': 1}", '"open', "[1] 2", "nul", "\ufeff{}",
    '"\x01"', '{"key": "tab\there"}', "\x0b[1]", "\xa0[1]", "[" * 100 + "]" * 100,
]  # fmt: skip


def told(deed: Callable[[], Any]) -> str:
    """What comes of it, or how it fails. (As text, in which NaN is equal to itself.)"""
    try:
        return repr(deed())
    except (TypeError, ValueError, RecursionError) as problem:
        return f"{type(problem).__name__}: {problem}"


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("strict", [True, False])
def test_reading_gives_what_json_gives(text: str, strict: bool) -> None:
    datas: list[str | bytes] = [text]
    for code in ("utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-32", "latin-1"):
        datas.append(text.encode(code, "replace"))
    for data in datas:
        assert told(partial(lightjson.loads, data, strict)) == told(partial(json.loads, data, strict=strict))


@given(VALUES)
def test_every_value_is_written_as_json_writes_it_and_read_back(value: Any) -> None:
    for options in ({}, {"sort_keys": True}, {"separators": (",", ":")}):
        text = lightjson.dumps(value, **options)  # type: ignore[arg-type]
        assert text == json.dumps(value, **options)  # type: ignore[arg-type]
        assert repr(lightjson.loads(text)) == repr(json.loads(text))
        assert repr(lightjson.loads(text.encode())) == repr(json.loads(text))


def test_what_cannot_be_written_fails_as_with_json() -> None:
    circle: list[Any] = []
    circle.append(circle)
    for value in ({1, 2}, b"bytes", {"a": object}, {(1, 2): 3}, circle):
        assert told(partial(lightjson.dumps, value)) == told(partial(json.dumps, value))
    assert told(partial(lightjson.dumps, {"b": 1, 2: 3}, sort_keys=True)).startswith("TypeError: ")
    assert lightjson.dumps({1: {2}, None: 1.5, False: 0}, default=str) == '{"1": "{2}", "null": 1.5, "false": 0}'


@pytest.mark.parametrize(
    "data", ["", "{", "[1,]", '{"a" 1}', '"open', '"\x01"', '[{"a": [}', "[1] 2", "nul", b"", b"{", b"[\xff]", 7]
)
def test_bad_input_is_refused_as_by_json_although_nobody_imported_it(data: Any) -> None:
    script = (
        "import sys; from shadowsnap.lightjson import loads; assert 'json' not in sys.modules\n"
        f"try: loads({data!r})\n"
        "except (TypeError, ValueError) as problem: print(f'{type(problem).__name__}: {problem}')"
    )
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, check=True, text=True)
    assert done.stdout == told(partial(json.loads, data)) + "\n"


@pytest.mark.parametrize(
    ("deed", "loads_json"),
    [
        ("loads('{\"a\": [1]}')", False),
        ("loads(b'[1]')", False),
        ("dumps({'a': [1, None]}, sort_keys=True)", False),
        ("sys.modules.update(_json=None); loads('[1]')", True),
        ("sys.modules.update(_json=None); dumps([1])", True),
        ("from shadowsnap import lightjson; lightjson._IS_SAFE = False; loads('[1]')", True),
    ],
)
def test_json_is_imported_only_where_it_has_to_be(deed: str, loads_json: bool) -> None:
    script = f"import sys; from shadowsnap.lightjson import dumps, loads; {deed}; print('json' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, check=True, text=True)
    assert done.stdout.strip() == str(loads_json)
