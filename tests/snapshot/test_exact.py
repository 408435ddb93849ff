"""A snapshot holds every kind of file exactly: bytes, names, types, link targets, permission bits."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import pytest
from capturing import captured, content, everything_old, names, objects, skipped, snap, store_git
from hypothesis import given
from hypothesis import strategies as st

from helpers import git, manifest, snapshot_dotgit

posix = pytest.mark.skipif(sys.platform == "win32", reason="POSIX names, links and permission bits")


@pytest.fixture
def empty(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    return folder


def assert_exact(base: Path, project: Path) -> None:
    """The first snapshot holds everything, and so does one that starts from what it remembered."""
    checkpoint = snap(base, project, status="taken")
    assert captured(base, checkpoint) == manifest(project)
    assert checkpoint.skipped == ()
    assert snap(base, project, status="unchanged").id == checkpoint.id


# --- bytes ------------------------------------------------------------------------------------------


def test_the_ordinary_project_is_captured_as_it_is(base: Path, project: Path) -> None:
    assert_exact(base, project)


CONTENTS = {
    "empty": b"",
    "crlf": b"one\r\ntwo\r\n",
    "mixed": b"one\r\ntwo\nthree\rfour",
    "binary": bytes(range(256)) * 10,
    "utf-16": "text\n".encode("utf-16"),
    "ident": b"$Id$ $Id: 0123456789012345678901234567890123456789 $\n",
    "trailing-spaces": b"  \n\n\n",
    "no-newline": b"end",
    "looks-like-an-object": b"blob 4\0abcd",
}


@pytest.mark.parametrize("name", CONTENTS)
def test_bytes_are_kept(base: Path, empty: Path, name: str) -> None:
    (empty / name).write_bytes(CONTENTS[name])
    checkpoint = snap(base, empty)
    assert content(base, checkpoint, name) == CONTENTS[name]


ATTRIBUTES = {
    "text": "* text\n",
    "text=auto": "* text=auto\n",
    "eol=crlf": "* text eol=crlf\n",
    "eol=lf": "* text eol=lf\n",
    "ident": "* ident\n",
    "filter": "* filter=shout\n",
    "working-tree-encoding": "* working-tree-encoding=UTF-16\n",
    "an encoding that does not exist": "* working-tree-encoding=NO-SUCH-ENCODING\n",
    "macro": "[attr]odd text ident filter=shout\n* odd\n",
    "binary": "* binary\n",
    "export and merge": "* export-ignore export-subst merge=union\n",
}


@pytest.mark.parametrize("how", ["whole repository", "plain directory"])
@pytest.mark.parametrize("attributes", ATTRIBUTES)
@pytest.mark.each_value
def test_gitattributes_change_nothing(base: Path, empty: Path, home: Path, attributes: str, how: str) -> None:
    (home / "marker").write_text("")
    git(empty, "config", "--global", "filter.shout.clean", f"rm {home / 'marker'}; tr a-z A-Z")
    git(empty, "config", "--global", "filter.shout.required", "true")
    git(empty, "config", "--global", "core.autocrlf", "true")
    if how == "whole repository":
        git(empty, "init", "-q")
    (empty / ".gitattributes").write_text(ATTRIBUTES[attributes])
    for name, data in CONTENTS.items():
        (empty / name).write_bytes(data)
    assert_exact(base, empty)
    assert (home / "marker").exists(), "a filter of the person's was run"


def test_attributes_deeper_down_and_in_the_repository_change_nothing(base: Path, empty: Path) -> None:
    git(empty, "init", "-q")
    (empty / ".git" / "info").mkdir(exist_ok=True)
    (empty / ".git" / "info" / "attributes").write_text("* text eol=crlf ident\n")
    (empty / "deep").mkdir()
    (empty / "deep" / ".gitattributes").write_text("*.txt text eol=crlf ident\n")
    (empty / "deep" / "a.txt").write_bytes(CONTENTS["mixed"] + CONTENTS["ident"])
    assert_exact(base, empty)


@pytest.mark.parametrize("size", [(1 << 20) - 1, 1 << 20, (1 << 20) + 1, 3 << 20])
def test_large_files_are_kept_completely(base: Path, empty: Path, size: int) -> None:
    data = os.urandom(4096) * (size // 4096 + 1)
    (empty / "large").write_bytes(data[:size])
    checkpoint = snap(base, empty)
    assert content(base, checkpoint, "large") == data[:size]


def test_many_files_at_once_are_kept(base: Path, empty: Path) -> None:
    for number in range(500):
        folder = empty / f"d{number % 7}"
        folder.mkdir(exist_ok=True)
        (folder / str(number)).write_text(f"file {number}\n" * number)
    assert_exact(base, empty)


def test_git_finds_nothing_wrong_with_what_was_written(base: Path, project: Path) -> None:
    for number in range(150):
        (project / f"many-{number}").write_text(str(number))
    snap(base, project)
    (project / "one more").write_text("")
    snap(base, project)
    assert git(base, "--git-dir=store", "fsck", "--full", "--strict", "--no-dangling") == ""


# --- names ------------------------------------------------------------------------------------------

NAMES = [
    b"with space", b" leading and trailing ", b"tab\tand\nnewline", b"\n", b"quote\"and'quote", b"back\\slash",
    b"-leading-dash", b"--", b"-rf", b":colon", b":(glob)x", b":!x", b"report[1].dat", b"report1.dat", b"*", b"?",
    b"**", b"{a,b}", b"$HOME", b"`id`", b"a;b", b"#hash", b"!bang", b"~root", b"%s%n", b"caf\xc3\xa9",
    b"cafe\xcc\x81", b"\xff\xfe invalid", b"\xed\xa0\x80", b"\x01\x02\x7f", b"name.lock", b"HEAD", b"refs",
    b"index", b".gitmodules", b".gitkeep", b".hidden", b"...", b".shadowsnap", b"trailing.", b"con", b"aux.txt",
    b"A", b"a", b"n" * 255, b"a" + b"\xcc\x81" * 127,
]  # fmt: skip


@posix
def test_every_name_is_kept(base: Path, empty: Path) -> None:
    for name in NAMES:
        _write(empty, name, b"file " + name)
        _write(empty, b"folder-" + name[:200] + b"/" + name, b"deeper " + name)
    assert_exact(base, empty)


@posix
def test_every_name_is_captured_changed_and_dropped(base: Path, empty: Path) -> None:
    _write(empty, b"other", b"")
    for text in (b"one", b"two!"):
        for name in NAMES:
            _write(empty, name, text)
        found = captured(base, snap(base, empty))
        assert {found[name][2] for name in NAMES} == {text}
    for name in NAMES:
        os.unlink(os.fsencode(empty) + b"/" + name)
    assert names(base, snap(base, empty)) == {"other"}


@posix
@pytest.mark.every(3)  # all of them at once, above
@pytest.mark.parametrize("name", NAMES, ids=repr)
def test_every_name_alone_is_captured_changed_and_dropped(base: Path, empty: Path, name: bytes) -> None:
    _write(empty, b"other", b"")
    _write(empty, name, b"one")
    assert captured(base, snap(base, empty))[name][2] == b"one"
    _write(empty, name, b"two!")
    assert captured(base, snap(base, empty))[name][2] == b"two!"
    os.unlink(os.fsencode(empty) + b"/" + name)
    assert names(base, snap(base, empty)) == {"other"}


@posix
def test_glob_characters_in_a_name_mean_only_that_name(base: Path, empty: Path) -> None:
    for name in ("report[1].dat", "report1.dat", "*", "plain"):
        (empty / name).write_text("old")
    snap(base, empty)
    (empty / "report[1].dat").unlink()
    (empty / "*").unlink()
    checkpoint = snap(base, empty)
    assert names(base, checkpoint) == {"report1.dat", "plain"}
    (empty / ".gitignore").write_text("report*\n")
    (empty / "report[1].dat").write_text("named")
    checkpoint = snap(base, empty, "report[1].dat")
    assert names(base, checkpoint) == {"report[1].dat", "plain", ".gitignore"}


@posix
@given(st.lists(st.binary(min_size=1, max_size=30), min_size=1, max_size=6, unique=True))
def test_any_name_is_kept(tmp_path_factory: pytest.TempPathFactory, raw: list[bytes]) -> None:
    top = tmp_path_factory.mktemp("names")
    project = top / "project"
    project.mkdir()
    kept = [name.replace(b"/", b"|").replace(b"\0", b"0") for name in raw]
    for name in {name for name in kept if name not in (b".", b"..") and not name.lower().startswith(b".git")}:
        _write(project, name, name)
    checkpoint = snap(top / "base", project, include_secrets=True, fsync=False)
    # What a name may cost it is only a default exclude (`*.o`, `a~`).
    missing = manifest(project).keys() - captured(top / "base", checkpoint).keys()
    assert all(name.endswith(b"~") or b"." in name for name in missing)
    shutil.rmtree(top)


@posix
def test_paths_as_long_as_the_system_allows(base: Path, empty: Path) -> None:
    """Longer than the kernel takes in one piece: the project's own path comes on top."""
    inside = os.path.join(*["d" * 250] * 16)  # 4015 bytes of at most 4095
    _make_deep(empty, inside, b"at the bottom")
    checkpoint = snap(base, empty)
    assert content(base, checkpoint, f"{inside}/file") == b"at the bottom"
    assert checkpoint.skipped == ()
    _make_deep(empty, inside, b"changed there")
    assert content(base, snap(base, empty, status="taken"), f"{inside}/file") == b"changed there"


@posix
def test_paths_that_are_too_long_cost_only_themselves(base: Path, empty: Path) -> None:
    below, last = os.path.join(*["d" * 250] * 16), "f" * 100
    _make_deep(empty, below, b"within reach")
    _make_deep(empty, f"{below}/{'d' * 250}/deeper", b"out of reach")
    _make_deep(empty, below, b"out of reach", last)
    (empty / "ordinary").write_text("safe")
    for _ in range(2):
        checkpoint = snap(base, empty)
        assert names(base, checkpoint) == {"ordinary", f"{below}/file"}
        assert skipped(checkpoint) == {f"{below}/{last}": "unreadable", f"{below}/{'d' * 250}/": "unreadable"}
    with everything_old():
        assert snap(base, empty, status="unchanged").id == checkpoint.id
        assert snap(base, empty, status="unchanged").id == checkpoint.id


def _make_deep(top: Path, inside: str, data: bytes, name: str = "file") -> None:
    folder = os.open(top, os.O_RDONLY)
    for part in inside.split("/"):
        if part not in os.listdir(folder):
            os.mkdir(part, dir_fd=folder)
        deeper = os.open(part, os.O_RDONLY, dir_fd=folder)
        os.close(folder)
        folder = deeper
    file = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, dir_fd=folder)
    os.write(file, data)
    os.close(file)
    os.close(folder)


def _write(top: Path, name: bytes, data: bytes) -> None:
    path = os.fsencode(top) + b"/" + name
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as file:
        file.write(data)


# --- permission bits --------------------------------------------------------------------------------


@posix
def test_every_permission_bit_is_kept(base: Path, empty: Path) -> None:
    ordinary = (0o644, 0o600, 0o640, 0o444, 0o400, 0o755, 0o700, 0o750, 0o555, 0o500, 0o777, 0o666)
    for bits in (*ordinary, 0o4755, 0o2755, 0o6711):
        (empty / f"{bits:o}").write_text(f"{bits:o}")
        (empty / f"{bits:o}").chmod(bits)
    for bits in (0o755, 0o700, 0o750, 0o1777, 0o2775, 0o555):
        (empty / f"dir-{bits:o}").mkdir()
        (empty / f"dir-{bits:o}" / "inside").write_text("")
        (empty / f"dir-{bits:o}").chmod(bits)
    assert_exact(base, empty)


@posix
@pytest.mark.parametrize("bits", [0o600, 0o640, 0o444, 0o755, 0o4755, 0o100])
def test_a_change_of_permission_bits_alone_is_noticed_at_once(base: Path, project: Path, bits: int) -> None:
    """Also in the second of the last snapshot: git compares times by the second."""
    snap(base, project)
    (project / "README.md").chmod(bits)
    checkpoint = snap(base, project, status="taken")
    assert captured(base, checkpoint) == manifest(project)
    (project / "README.md").chmod(0o644)
    assert captured(base, snap(base, project, status="taken")) == manifest(project)


@posix
@pytest.mark.parametrize("bits", [0o700, 0o2755, 0o1777])
def test_a_change_of_a_directorys_bits_is_noticed(base: Path, project: Path, bits: int) -> None:
    (project / "empty-one").mkdir()
    snap(base, project)
    for name in ("src", "empty-one"):
        (project / name).chmod(bits)
        assert captured(base, snap(base, project, status="taken")) == manifest(project)


@posix
def test_the_most_frequent_bits_are_recorded_once(base: Path, empty: Path) -> None:
    for number in range(50):
        (empty / str(number)).write_text("")
        (empty / str(number)).chmod(0o600)
    (empty / "odd").write_text("")
    (empty / "odd").chmod(0o644)
    checkpoint = snap(base, empty)
    assert checkpoint.metadata["modes"]["other"] == {"odd": "644"}
    assert captured(base, checkpoint) == manifest(empty)


# --- time -------------------------------------------------------------------------------------------


def test_an_edit_of_the_same_size_in_the_same_second_is_noticed(base: Path, project: Path) -> None:
    for word in (b"aaaa\n", b"bbbb\n", b"cccc\n", b"dddd\n"):
        (project / "README.md").write_bytes(word)
        assert content(base, snap(base, project, status="taken"), "README.md") == word


def test_an_edit_that_keeps_size_and_time_is_noticed(base: Path, project: Path) -> None:
    file = project / "README.md"
    os.utime(file, ns=(10**18, 10**18))
    for word in (b"aaaa\n", b"bbbb\n", b"cccc\n"):
        file.write_bytes(word)
        os.utime(file, ns=(10**18, 10**18))
        assert content(base, snap(base, project, status="taken"), "README.md") == word


def test_a_file_replaced_by_an_equal_looking_one_is_noticed(base: Path, project: Path) -> None:
    (project / "README.md").write_bytes(b"aaaa\n")
    os.utime(project / "README.md", ns=(10**18, 10**18))
    (project / "other").write_bytes(b"bbbb\n")
    os.utime(project / "other", ns=(10**18, 10**18))
    snap(base, project)
    os.replace(project / "other", project / "README.md")
    assert content(base, snap(base, project, status="taken"), "README.md") == b"bbbb\n"


@pytest.mark.parametrize("year", [1901, 1970, 2037, 2105, 2400])
def test_times_far_away_do_no_harm(base: Path, project: Path, year: int) -> None:
    moment = (year - 1970) * 31_556_952
    os.utime(project / "README.md", (moment, moment))
    checkpoint = snap(base, project)
    assert snap(base, project).id == checkpoint.id
    (project / "README.md").write_text("changed")
    os.utime(project / "README.md", (moment, moment))
    assert content(base, snap(base, project, status="taken"), "README.md") == b"changed"


def test_touching_a_file_is_no_change(base: Path, project: Path) -> None:
    checkpoint, before = snap(base, project), objects(base)
    os.utime(project / "README.md")
    assert snap(base, project, status="unchanged").id == checkpoint.id
    assert objects(base) == before


def test_unchanged_files_write_no_object(base: Path, project: Path) -> None:
    checkpoint = snap(base, project)
    before, refs = objects(base), git(base, "--git-dir=store", "for-each-ref")
    for _ in range(3):
        assert snap(base, project, status="unchanged").id == checkpoint.id
    assert objects(base) == before
    assert git(base, "--git-dir=store", "for-each-ref") == refs


@pytest.mark.shortcut
def test_one_changed_file_writes_only_what_changed(base: Path, project: Path) -> None:
    snap(base, project)
    before = objects(base)
    (project / "src" / "main.py").write_text("changed\n")
    snap(base, project)
    assert before.items() <= objects(base).items()
    assert len(objects(base)) - len(before) == 2  # a pack and its index
    (index,) = [base / "store" / "objects" / path for path in objects(base).keys() - before if ".idx" in path]
    kinds = store_git(base, "verify-pack", "-v", str(index)).decode().split()
    assert [kinds.count(kind) for kind in ("blob", "tree", "commit")] == [1, 2, 1]


def test_going_back_to_an_older_state_writes_no_file_twice(base: Path, project: Path) -> None:
    first = snap(base, project)
    (project / "README.md").write_text("changed\n")
    snap(base, project)
    (project / "README.md").write_text("# A project\n")
    third = snap(base, project, status="taken")
    assert third.tree == first.tree and third.id != first.id


# --- links ------------------------------------------------------------------------------------------


@posix
def test_links_are_captured_and_never_followed(base: Path, empty: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret").write_text("not ours")
    (empty / "folder").mkdir()
    (empty / "folder" / "file").write_text("inside")
    targets = {
        "dangling": "no/such/file",
        "absolute": str(outside / "secret"),
        "to-a-directory": "folder",
        "to-an-outside-directory": str(outside),
        "to-itself": "to-itself",
        "up": "..",
        "folder/sibling": "file",
        "invalid": "\udcff\udcfe",
        "newline": "a\nb",
        "long": "x" * 4000,
        "to-a-device": "/dev/null",
    }
    for name, target in targets.items():
        (empty / name).symlink_to(target)
    assert_exact(base, empty)
    assert names(base, snap(base, empty)) == {*targets, "folder/file"}


@posix
def test_a_retargeted_link_is_noticed(base: Path, project: Path) -> None:
    for target in ("src/mane.py", "README.md", "nowhere"):
        (project / "link").unlink()
        (project / "link").symlink_to(target)
        assert content(base, snap(base, project, status="taken"), "link") == target.encode()


# --- one thing becomes another ----------------------------------------------------------------------

THINGS = (
    "nothing", "file", "executable", "link", "link to a directory", "directory", "empty directory", "repository",
)  # fmt: skip


@posix
@pytest.mark.parametrize("after", THINGS)
@pytest.mark.parametrize("before", THINGS)
@pytest.mark.every(3)
def test_anything_may_become_anything(base: Path, empty: Path, before: str, after: str) -> None:
    (empty / "other").mkdir()
    (empty / "other" / "inside").write_text("elsewhere")
    _make(empty / "thing", before)
    snap(base, empty)
    _unmake(empty / "thing")
    _make(empty / "thing", after)
    assert captured(base, snap(base, empty)) == manifest(empty)
    assert captured(base, snap(base, empty)) == manifest(empty)


def _make(location: Path, what: str) -> None:
    if what in ("file", "executable"):
        location.write_text(what)
        location.chmod(0o755 if what == "executable" else 0o644)
    elif what.startswith("link"):
        location.symlink_to("other" if what == "link to a directory" else "other/inside")
    elif what != "nothing":
        location.mkdir()
        if what != "empty directory":
            (location / "inside").write_text(what)
        if what == "repository":
            git(location, "init", "-q")


def _unmake(location: Path) -> None:
    if location.is_dir() and not location.is_symlink():
        shutil.rmtree(location)
    else:
        location.unlink(missing_ok=True)


# --- directories ------------------------------------------------------------------------------------


def test_empty_directories_are_captured(base: Path, project: Path) -> None:
    (project / "a" / "b" / "c").mkdir(parents=True)
    (project / "src" / "empty").mkdir()
    assert_exact(base, project)
    assert snap(base, project).metadata["empty_dirs"] == ["a", "a/b", "a/b/c", "src/empty"]


def test_directories_with_only_ignored_files_are_captured_as_empty(base: Path, project: Path) -> None:
    (project / "logs").mkdir()
    (project / "logs" / "today.log").write_text("ignored")
    (project / "node_modules" / "x").mkdir(parents=True)
    checkpoint = snap(base, project)
    assert checkpoint.metadata["empty_dirs"] == ["logs"]
    assert snap(base, project, status="unchanged").id == checkpoint.id


def test_a_directory_that_loses_its_last_file_is_captured_as_empty(base: Path, project: Path) -> None:
    (project / "deep" / "er").mkdir(parents=True)
    (project / "deep" / "er" / "file").write_text("")
    snap(base, project)
    (project / "deep" / "er" / "file").unlink()
    checkpoint = snap(base, project, status="taken")
    assert checkpoint.metadata["empty_dirs"] == ["deep", "deep/er"]
    assert captured(base, checkpoint) == manifest(project)
    (project / "deep" / "er").rmdir()
    assert snap(base, project, status="taken").metadata["empty_dirs"] == ["deep"]
    (project / "deep").rmdir()
    assert "empty_dirs" not in snap(base, project, status="taken").metadata


def test_a_project_without_any_file_is_captured(base: Path, empty: Path) -> None:
    assert_exact(base, empty)
    (empty / "folder").mkdir()
    assert_exact(base, empty)
    (empty / "folder" / "first").write_text("")
    assert_exact(base, empty)
    (empty / "folder" / "first").unlink()
    assert captured(base, snap(base, empty)) == manifest(empty)


# --- whatever happens, the result is the same as from nothing ---------------------------------------


def test_a_lost_or_damaged_cache_changes_nothing(base: Path, project: Path) -> None:
    (project / "hollow").mkdir()
    checkpoint = snap(base, project)
    files = [path for path in (base / "store" / "indexes").iterdir() if path.is_file()]
    assert len(files) >= 3
    for path in files:
        whole = path.read_bytes()
        for damage in (b"", whole[: len(whole) // 2], b"\0" * len(whole), whole + b"x", None):
            path.unlink()
            if damage is not None:
                path.write_bytes(damage)
            assert snap(base, project, status="unchanged").id == checkpoint.id, (path.name, damage)


def test_the_users_repository_is_not_written(base: Path, project: Path) -> None:
    git(project, "init", "-q")
    git(project, "add", "README.md")
    git(project, "commit", "-q", "-m", "first")
    before = snapshot_dotgit(project)
    assert_exact(base, project)
    (project / "README.md").write_text("changed")
    snap(base, project)
    assert snapshot_dotgit(project) == before


def test_a_project_that_was_deleted_and_created_again_is_captured_as_it_is_now(base: Path, project: Path) -> None:
    snap(base, project)
    shutil.rmtree(project)
    (project / "README.md").mkdir(parents=True)
    (project / "README.md" / "other").write_text("a directory now")
    (project / "src").write_text("a file now")
    assert captured(base, snap(base, project, status="taken")) == manifest(project)


@posix
def test_two_hard_links_are_captured_as_two_files(base: Path, project: Path) -> None:
    os.link(project / "README.md", project / "src" / "same")
    assert_exact(base, project)
    (project / "README.md").write_text("changed through one name\n")
    checkpoint = snap(base, project, status="taken")
    for name in ("README.md", "src/same"):
        assert content(base, checkpoint, name) == b"changed through one name\n"
