"""Edits of JSON text: the new value is there, and not one byte of the rest has changed."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shadowsnap.agents.edit import add_member, append_item, parse, plain, remove_part

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-99, 99) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
OBJECTS = st.dictionaries(st.text(max_size=5), VALUES, max_size=5)
INDENTS = st.sampled_from([None, 0, 1, 2, 4, "\t"])
NEW = {"k": [{"command": "it's \"quoted\" \\ ü"}], "n": 1}


@given(OBJECTS, INDENTS, st.booleans(), st.booleans())
def test_a_member_is_added_at_the_end_and_taken_out_again(
    value: dict[str, Any], indent: int | str | None, ascii_only: bool, windows: bool
) -> None:
    text = json.dumps(value, indent=indent, ensure_ascii=ascii_only)
    text = text.replace("\n", "\r\n") if windows else text
    added = add_member(text, (), "a new key", NEW)
    assert json.loads(added) == {**value, "a new key": NEW}
    assert list(json.loads(added)) == [*(key for key in value if key != "a new key"), "a new key"]
    assert added.startswith(text[:-1].rstrip())
    top = parse(added)
    assert json.loads(remove_part(added, top, len(top.parts) - 1)) == value
    assert windows or remove_part(added, top, len(top.parts) - 1) == text


@given(st.lists(VALUES, max_size=4), INDENTS)
def test_an_item_is_appended_and_any_item_is_taken_out(value: list[Any], indent: int | str | None) -> None:
    text = json.dumps({"list": value}, indent=indent)
    added = append_item(text, ("list",), NEW)
    assert json.loads(added) == {"list": [*value, NEW]}
    for number in range(len(value) + 1):
        found = parse(added).get("list")
        assert found is not None
        left = [*value, NEW]
        del left[number]
        assert json.loads(remove_part(added, found, number)) == {"list": left}


@given(VALUES, INDENTS)
def test_what_json_reads_is_read_alike(value: Any, indent: int | str | None) -> None:
    assert plain(parse(json.dumps(value, indent=indent))) == value


COMMENTED = """\
// top
{
  "a": 1, // one
  /* two */ "b": [1, 2,], // three
  "c": {} /* four */
  // five
}
// end
"""


def test_comments_stay_where_they_are() -> None:
    added = add_member(COMMENTED, (), "d", 7)
    assert added == COMMENTED.replace('{} /* four */\n', '{}, /* four */\n  "d": 7\n')
    assert plain(parse(added)) == {"a": 1, "b": [1, 2], "c": {}, "d": 7}
    assert remove_part(added, parse(added), 3) == COMMENTED
    without_b = remove_part(COMMENTED, parse(COMMENTED), 1)
    assert plain(parse(without_b)) == {"a": 1, "c": {}}
    for comment in ("// top", "// one", "/* two */", "// three", "/* four */", "// five", "// end"):
        assert comment in without_b


def test_the_last_of_two_equal_keys_counts() -> None:
    value = parse('{"a": 1, "a": 2}').get("a")
    assert value is not None and value.plain == 2


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("", 1), ("{", 1), ('{\n"a"}', 2), ('{\n"a": 1\n"b": 2}', 3), ("[1 2]", 1), ("{}}", 1), ("{} {}", 1),
        ('{"a": tru}', 1), ("{a: 1}", 1), ('{"a": 1 /* never ends', 1), ('"a\nb"', 1), ("'a'", 1),
        ("[" * 500, None),
    ],
)  # fmt: skip
def test_broken_json_is_refused_with_its_line(text: str, line: int | None) -> None:
    with pytest.raises(ValueError, match=f"line {line}:" if line else "nested"):
        parse(text)
