"""A patch as rows: each file's part, remarks in words, two columns."""

from __future__ import annotations

import pytest
from viewing import Shop

from shadowsnap.snapshot.states import part_of, split_patch
from shadowsnap.tui.patches import Line, pairs, patch_of_file, side_by_side_line, unified_line

PATCH = """\
diff --git a/a b b/a b
new file mode 120000
index 000..111
--- /dev/null
+++ b/a b
@@ -0,0 +1 @@
+target
\\ No newline at end of file
diff --git "a/b\\303\\244\\t\\"\\\\.py" "b/b\\303\\244\\t\\"\\\\.py"
index 000..111 100644
--- "a/b"
+++ "b/b"
@@ -3,4 +3,4 @@ def diff --git a/x b/x
 def one():
-\told = 1
-    gone = 2
+\tnew = 1
+old mode 100644
diff --git a/c b/c
old mode 100600
new mode 100755
diff --git a/d b/d
Binary files a/d and b/d differ
diff --git a/e b/e
not captured: too-large
"""
NAMES = ["plain.py", "a b", "ä", "tab\there", 'quote"', "back\\slash", "new\nline", "\a\b\v\f\r", "\udcff"]


def text(lines: list[Line]) -> list[str]:
    return [unified_line(line, 80).plain for line in lines]


def test_each_file_has_its_part() -> None:
    parts = split_patch(PATCH)
    assert text(patch_of_file(part_of(parts, "a b"), "a b")) == [
        "new symbolic link, permissions 000", "line 1", "+target", "(no newline at the end)",
    ]  # fmt: skip
    assert text(patch_of_file(part_of(parts, "c"), "c")) == ["permissions: 600 before, 755 after"]
    assert text(patch_of_file(part_of(parts, "d"), "d")) == ["binary file: its contents are not shown"]
    assert text(patch_of_file(part_of(parts, "e"), "e")) == ["not captured: too-large"]


def test_contents_that_look_like_a_head_are_contents() -> None:
    lines = patch_of_file(part_of(split_patch(PATCH), 'bä\t"\\.py'), "b.py")
    assert text(lines) == [
        "line 3  def diff --git a/x b/x", " def one():", "-    old = 1", "-    gone = 2", "+    new = 1",
        "+old mode 100644",
    ]  # fmt: skip


def test_two_columns_have_what_came_in_the_place_of_what() -> None:
    rows = pairs(patch_of_file(part_of(split_patch(PATCH), 'bä\t"\\.py'), "b.py"))
    shown = [side_by_side_line(row, 43).plain for row in rows]
    assert shown[1:] == [
        " def one():          │  def one():         ",
        "-    old = 1         │ +    new = 1        ",
        "-    gone = 2        │ +old mode 100644    ",
    ]


def test_a_wide_character_does_not_move_the_columns() -> None:
    rows = pairs(patch_of_file("@@ -1 +1 @@\n-漢字漢字漢字漢字\n+漢字\n", "x.txt"))
    assert {side_by_side_line(row, 21).cell_len for row in rows[1:]} == {21}


def test_very_long_lines_and_files_are_not_coloured_and_bounded() -> None:
    long = patch_of_file(f"@@ -0,0 +1 @@\n+{'(' * 5000}\n", "x.py")
    assert long[1].text.spans == []
    many = patch_of_file("@@ -0,0 +1,30000 @@\n" + "+x = 1\n" * 30000, "x.py")
    assert many[-1].text.plain == "... and 10001 more lines"


@pytest.mark.parametrize("name", NAMES)
def test_the_name_is_the_one_that_the_manager_says(name: str, shop: Shop) -> None:
    diff = shop.manager.diff(shop.directory, 1, "1:after")
    assert name in {change.path for change in diff.changes}
    assert "now" in part_of(split_patch(diff.text), name)


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Shop:
    """One turn changed files with all kinds of names."""
    top = tmp_path_factory.mktemp("names")
    shop = Shop(top / "shop", top / "base")

    def write(text: str) -> None:
        for name in NAMES:
            shop.write(name, text)

    write("then\n")
    shop.turn("rename everything", lambda: write("now\n"))
    return shop
