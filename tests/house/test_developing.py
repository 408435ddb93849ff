"""What `docs developing` says of the code is so."""

from __future__ import annotations

import ast
import re

import pytest

from helpers import ROOT

PAGE = (ROOT / "shadowsnap" / "docs" / "developing.md").read_text("utf-8")
# `hook/client.py` `main`, also where several names follow the same file.
MENTIONED = re.findall(r"`([\w/]+\.py)`\s+`([\w.]+)`", PAGE)


def defined_in(path: str) -> set[str]:
    tree = ast.parse((ROOT / "shadowsnap" / path).read_text("utf-8"))
    names = set()
    for node in tree.body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            names.add(node.name)
        if isinstance(node, ast.ClassDef):
            inner = [each for each in node.body if isinstance(each, ast.FunctionDef)]
            names |= {f"{node.name}.{each.name}" for each in inner}
    return names


def test_it_follows_a_turn_by_name() -> None:
    assert len(MENTIONED) >= 12


@pytest.mark.parametrize(("path", "name"), MENTIONED)
def test_what_it_names_is_there(path: str, name: str) -> None:
    assert name in defined_in(path)


@pytest.mark.parametrize("room", sorted(set(re.findall(r"^\| `([\w]+)/`", PAGE, re.MULTILINE))))
def test_every_room_is_there(room: str) -> None:
    assert (ROOT / "shadowsnap" / room / "__init__.py").is_file()


def test_no_room_is_missing() -> None:
    rooms = {path.parent.name for path in (ROOT / "shadowsnap").glob("*/__init__.py")}
    assert rooms <= set(re.findall(r"`([\w]+)/`", PAGE))
