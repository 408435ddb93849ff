"""The command line as a whole: options, errors, exit codes, streams, start-up."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import pytest
from command_line import COMMAND, CommandLine, ageless, without_progress
from thorough import depth

from reference import EXIT_CODES, error_classes
from shadowsnap import __version__
from shadowsnap.cli.commands import command_names
from shadowsnap.cli.main import main


@pytest.fixture
def cli(
    project: Path, base: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> CommandLine:
    return CommandLine(project, base, monkeypatch, capsys)


# --- words --------------------------------------------------------------------------------------------


def test_the_version_is_data(cli: CommandLine) -> None:
    assert cli("--version").out == f"shadowsnap {__version__}\n"
    assert cli("--json", "--version").answer == {"schema": 2, "version": __version__}


def test_the_help_lists_every_command_and_fits_80_columns(cli: CommandLine) -> None:
    out = cli("--help").out
    listed = {line.split()[0] for line in out.splitlines() if line.startswith("  ")}
    assert listed >= {*command_names()}
    assert max(map(len, out.splitlines())) <= 80
    assert "3:after" in out  # the ways to name a state
    assert cli("help").out == cli("-h").out == out
    assert cli.json("help")["help"] + "\n" == out


def test_a_command_explains_itself(cli: CommandLine) -> None:
    out = cli("restore", "--help").out
    usage = "usage: shadowsnap restore [REF] [PATH...] [--plan TOKEN] [-n] [-y]"
    assert out.startswith(f"{usage}\n\nBring the files back")
    assert "--dry-run" in out and "what would happen" in out
    assert cli("help", "restore").out == cli("restore", "-h").out == out


@pytest.mark.parametrize("name", command_names())
def test_every_command_has_help(cli: CommandLine, name: str) -> None:
    assert cli("help", name).out == cli(name, "--help").out
    assert max(map(len, cli("help", name).out.splitlines())) <= 80
    assert cli.json("help", name) == cli.json(name, "-h")


def test_help_for_a_command_that_is_not_there(cli: CommandLine) -> None:
    assert "did you mean list?" in cli("help", "lits", code=2).err


# --- no command -----------------------------------------------------------------------------------------

on_posix = pytest.mark.skipif(sys.platform == "win32", reason="no pty")


@on_posix
def test_without_a_command_a_terminal_shows_the_list(cli: CommandLine, project: Path) -> None:
    cli.snap("the beginning")
    code, screen = cli.terminal(NO_COLOR="1")
    assert code == 0 and ageless(screen) == ageless(cli.terminal("list", NO_COLOR="1")[1])
    assert "  1  now       the beginning" in ageless(screen)
    code, screen = cli.terminal("-C", "src", "--no-color")
    assert code == 0 and "the beginning" in screen


@on_posix
def test_without_a_command_and_without_history_the_first_steps_are_shown(cli: CommandLine) -> None:
    code, screen = cli.terminal(NO_COLOR="1")
    lines = screen.splitlines()
    assert code == 0 and lines[0].endswith("no agent's hook has run here yet: shadowsnap install AGENT")
    assert lines[1].startswith("no history yet")
    assert lines[2] == cli("help").out.splitlines()[0]
    assert cli.terminal("list")[0] == 3


def test_without_a_command_the_timeline_is_shown_in_a_pipe_too(cli: CommandLine) -> None:
    assert cli("--json", code=3).answer["error"]["type"] == "NoSuchProject"
    cli.snap()
    assert ageless(cli().out) == ageless(cli("list").out)
    assert cli("--json").answer["entries"] == cli("list", "--json").answer["entries"]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--bad",), "there is no option --bad"),
        (("-C",), "-C needs a directory"),
        (("lst",), "there is no command 'lst'"),
        (("../main",), "there is no command"),
        (("list", "--bad"), "--bad"),
        (("list", "--limit", "x"), "--limit"),
        (("list", "--limit", "-1"), "--limit"),
        (("list", "--limi", "1"), "--limi"),
        (("list", "--all-projects", "--file", "x"), "--all-projects"),
        (("list", "--checkpoints", "--restores"), "--restores"),
        (("list", "--", "x"), "takes no paths"),
        (("show",), "REF"),
        (("diff", "a", "b", "c"), "c"),
        (("diff", "@", "1"), "put it second"),
        (("label", "last"), "NAME"),
        (("label", "last", "x", "--remove"), "NAME"),
        (("completion", "tcsh"), "tcsh"),
        (("docs", "nothing"), "'nothing'"),
    ],
)
def test_wrong_usage_is_exit_code_2(cli: CommandLine, words: tuple[str, ...], told: str) -> None:
    ran = cli(*words, code=2)
    assert ran.out == ""
    assert ran.err.startswith("error: ") and told in ran.err
    error = cli("--json", *words, code=2).answer["error"]
    assert told in error["message"] and set(error) == {"type", "message", "hint"}


def test_a_mistyped_command_is_guessed(cli: CommandLine) -> None:
    assert "did you mean list?" in cli("lits", code=2).err


def test_shared_options_stand_before_or_after_the_command(cli: CommandLine, project: Path) -> None:
    cli.snap()
    os.chdir(project.parent)
    for words in (
        ("-C", "project", "--json", "list"),
        ("-Cproject", "list", "--json"),
        ("list", "--json", "-C", "project"),
        ("--no-color", "-C", str(project.parent), "list", "-C", "project", "--json"),
    ):
        assert len(cli(*words).answer["entries"]) == 1


# --- which project --------------------------------------------------------------------------------------


def test_a_subdirectory_means_the_project_above_it(cli: CommandLine, project: Path) -> None:
    cli.snap()
    os.chdir(project / "src")
    assert cli.json("list")["project"]["workdir"] == str(project)
    (project / "src" / "main.py").write_text("changed\n")
    assert cli.json("diff", "--", "main.py")["changes"][0]["path"] == "src/main.py"
    assert cli.json("diff", "--", "../README.md")["changes"] == []
    assert cli.json("restore", "last", "main.py", "--yes")["written"] == ["src/main.py"]
    assert (project / "src" / "main.py").read_text() == "print('hello')\n"


def test_the_nearest_of_two_projects_is_meant(cli: CommandLine, project: Path) -> None:
    cli.snap()
    cli("-C", "src", "snap")
    known = cli.json("-C", "src", "list")["project"]["workdir"]
    assert known == str(project)  # snap, too, went to the one that is known
    inner = project / "inner"
    (inner / ".git").mkdir(parents=True)
    (inner / "file").write_text("x")
    assert cli.json("-C", "inner", "snap")["checkpoint"]["workdir"] == str(inner)
    assert cli.json("-C", "inner", "list")["project"]["workdir"] == str(inner)


def test_the_project_of_somebody_above_is_not_taken_for_a_repository_without_checkpoints(
    cli: CommandLine, project: Path
) -> None:
    cli.snap()
    (project / "inner" / ".git").mkdir(parents=True)
    assert cli.json("-C", "inner", "list", code=3)["error"]["type"] == "NoSuchProject"


def test_single_files_of_the_home_directory_do_not_make_it_everybodys_project(
    cli: CommandLine, home: Path
) -> None:
    (home / ".profile").write_text("x\n")
    (home / "notes").mkdir()
    taken = cli.json("-C", str(home), "snap", ".profile")
    assert taken["status"] == "partial" and taken["checkpoint"]["scope"] == "paths"
    assert cli.json("-C", str(home), "show", "last")["files"] == [".profile"]
    assert cli.json("-C", str(home / "notes"), "list", code=3)["error"]["type"] == "NoSuchProject"


def test_a_directory_that_is_gone_still_has_its_checkpoints(cli: CommandLine, project: Path) -> None:
    import shutil

    cli.snap()
    os.chdir(project.parent)
    shutil.rmtree(project)
    listed = cli.json("-C", "project", "list")
    assert len(listed["entries"]) == 1 and listed["now"] is None
    error = cli.json("-C", "project", "restore", "last", "--yes", code=3)["error"]
    assert error["type"] == "DirectoryMissing" and "make an empty directory" in error["hint"]
    project.mkdir()
    cli("-C", "project", "restore", "last", "--yes")
    assert (project / "src" / "main.py").read_text() == "print('hello')\n"


def test_standing_in_a_directory_that_is_gone_is_told(cli: CommandLine, project: Path) -> None:
    gone = project / "gone"
    gone.mkdir()
    os.chdir(gone)
    gone.rmdir()
    try:
        assert "does not exist any more" in cli("list", code=2).err
    finally:
        os.chdir(project)


def test_a_directory_that_never_was_has_no_project(cli: CommandLine) -> None:
    assert cli.json("-C", "nowhere/at/all", "list", code=3)["error"]["type"] == "NoSuchProject"
    assert "does not exist" in cli.json("-C", "nowhere/at/all", "snap", code=4)["error"]["message"]


# --- errors ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "code", "kind"),
    [
        (("list",), 3, "NoSuchProject"),
        (("-C", "/", "snap"), 4, "DirectoryRefused"),
        (("snap", "../outside"), 4, "PathRefused"),
    ],
)
def test_without_checkpoints(cli: CommandLine, words: tuple[str, ...], code: int, kind: str) -> None:
    assert cli.json(*words, code=code)["error"]["type"] == kind
    ran = cli(*words, code=code)
    assert ran.out == "" and ran.err.splitlines()[-1].startswith(("error: ", "hint: "))


@pytest.mark.parametrize(
    ("words", "code", "kind"),
    [
        (("show", "abcd"), 3, "NoSuchCheckpoint"),
        (("show", "last~7"), 3, "NoSuchCheckpoint"),
        (("show", "7"), 3, "NoSuchTurn"),
        (("show", "7:after"), 3, "NoSuchTurn"),
        (("show", "no-such-label"), 3, "NoSuchCheckpoint"),
        (("show", ""), 2, "MalformedReference"),
        (("restore", "last", "nothing", "--yes"), 3, "NoSuchPath"),
        (("restore", "last", "../x", "--yes"), 4, "PathRefused"),
        (("restore", "last", "/etc/passwd", "--yes"), 4, "PathRefused"),
        (("restore", "last", "", "--yes"), 4, "PathRefused"),
        (("undo", "--yes"), 3, "NothingToUndo"),
        (("redo", "--yes"), 3, "NothingToRedo"),
        (("label", "last", "abcd"), 2, "MalformedLabel"),
        (("delete", "last", "abcd", "--yes"), 3, "NoSuchCheckpoint"),
    ],
)
def test_with_one_checkpoint(cli: CommandLine, words: tuple[str, ...], code: int, kind: str) -> None:
    cli.snap()
    assert cli.json(*words, code=code)["error"]["type"] == kind
    assert len(cli.ids()) == 1


def test_a_checkpoint_of_another_project_is_told_apart(cli: CommandLine, project: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / "file").write_text("secret plans\n")
    foreign = cli.json("-C", str(other), "snap")["checkpoint"]["id"]
    cli.snap()
    assert cli.json("restore", foreign, "--yes", code=3)["error"]["type"] == "ForeignCheckpoint"
    assert not (project / "file").exists()


def test_a_file_in_place_of_an_id_gets_a_hint(cli: CommandLine) -> None:
    cli.snap()
    assert "put -- before it: -- README.md" in cli("diff", "README.md", code=3).err


def test_every_error_class_has_a_documented_exit_code() -> None:
    assert {kind.exit_code for kind in error_classes()} <= set(EXIT_CODES)
    assert all(kind.__doc__ for kind in error_classes())


def test_a_surprise_is_an_error_too(cli: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    from shadowsnap.manager import CheckpointManager

    monkeypatch.setattr(CheckpointManager, "find_project", lambda *_: 1 / 0)
    assert cli.json("list", code=1)["error"]["type"] == "ZeroDivisionError"
    ran = cli("list", code=1)
    assert "Traceback" not in ran.err and "SHADOWSNAP_DEBUG=1" in ran.err
    monkeypatch.setenv("SHADOWSNAP_DEBUG", "1")
    assert "Traceback" in cli("list", code=1).err


def test_an_unusable_store_is_an_error(cli: CommandLine, base: Path) -> None:
    base.write_text("not a directory")
    assert cli.json("list", code=1)["error"]["type"] == "StoreUnusable"


# --- streams --------------------------------------------------------------------------------------------


def test_a_reader_that_leaves_early_is_no_error(cli: CommandLine) -> None:
    cli.snap()
    readable, writable = os.pipe()
    os.close(readable)
    for words in (["list"], ["diff", "--json"], ["docs", "cli"]):
        done = subprocess.run([*COMMAND, *words], stdout=writable, stderr=subprocess.PIPE, check=False)
        assert (done.returncode, without_progress(done.stderr.decode())) == (0, "")
    os.close(writable)


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full")
def test_output_that_cannot_be_written_is_a_failure(cli: CommandLine) -> None:
    with open("/dev/full", "wb") as full:
        done = subprocess.run([*COMMAND, "--version"], stdout=full, stderr=subprocess.PIPE, check=False)
    assert done.returncode == 1 and b"error: " in done.stderr and b"Traceback" not in done.stderr


NAMES = [b"caf\xc3\xa9 \xe2\x98\x83.txt", b"latin-\xe9.txt", b"esc-\x1b[31m.txt", b"line\nbreak.txt"]


@pytest.mark.every(2, start=1)
@pytest.mark.parametrize("encoding", ["utf-8", "ascii", "latin-1", "cp1252", "utf-16"])
def test_any_file_name_survives_any_encoding(cli: CommandLine, project: Path, encoding: str) -> None:
    for name in NAMES:
        (project / os.fsdecode(name)).write_bytes(b"before\n")
    cli.snap("caf\u00e9 \u2603 \udce9")
    for name in NAMES:
        (project / os.fsdecode(name)).write_bytes(b"after\n")
    commands = [["list"], ["show", "1"], ["diff", "--stat"], ["diff"], ["restore", "1", "--dry-run"], ["snap"]]
    for words in depth(commands if encoding == "ascii" else commands[3:4] + commands[-1:], commands):
        plain = cli.process(*words, PYTHONIOENCODING=encoding, PYTHONUTF8="0")
        assert plain.returncode == 0, plain.stderr
        assert b"\x1b" not in plain.stdout + plain.stderr
        answer = cli.process(*words, "--json", PYTHONIOENCODING=encoding, PYTHONUTF8="0")
        json.loads(answer.stdout.decode(encoding))
    assert cli.json("diff")["changes"] == []  # the last snap holds them
    assert {os.fsencode(change["path"]) for change in cli.json("show", "2")["changes"]} == set(NAMES)


def test_a_name_that_is_not_text_can_be_named(cli: CommandLine, project: Path) -> None:
    name = b"latin-\xe9.txt"
    (project / os.fsdecode(name)).write_bytes(b"before\n")
    cli.snap()
    (project / os.fsdecode(name)).write_bytes(b"after\n")
    assert cli.process(b"restore", b"last", b"--yes", b"--", name).returncode == 0
    assert (project / os.fsdecode(name)).read_bytes() == b"before\n"


def test_a_host_program_may_catch_the_output_as_text(cli: CommandLine, project: Path) -> None:
    cli.snap()
    (project / "empty").write_text("now\n")
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        assert main(["diff"]) == 0
        assert main(["list"]) == 0
    assert "+now" in out.getvalue() and "manual" in out.getvalue()


def test_colour_is_for_terminals_unless_told_otherwise(cli: CommandLine) -> None:
    cli.snap()
    assert b"\x1b[" not in cli.process("list").stdout
    assert b"\x1b[1m" in cli.process("list", FORCE_COLOR="1").stdout
    assert b"\x1b[" not in cli.process("list", FORCE_COLOR="0").stdout
    assert b"\x1b[" not in cli.process("list", FORCE_COLOR="1", NO_COLOR="1").stdout
    assert b"\x1b[" not in cli.process("list", "--no-color", FORCE_COLOR="1").stdout
    assert b"\x1b[" not in cli.process("list", "--json", FORCE_COLOR="1").stdout


@pytest.mark.skipif(sys.platform == "win32", reason="no pty")
def test_colour_on_a_terminal(cli: CommandLine) -> None:
    cli.snap()
    assert "\x1b[1m" in cli.terminal("list")[1]
    assert "\x1b[" not in cli.terminal("list", NO_COLOR="1")[1]
    assert "\x1b[" not in cli.terminal("list", TERM="dumb")[1]
    assert "\x1b[" not in cli.terminal("--no-color", "list")[1]


# --- start-up -------------------------------------------------------------------------------------------


def loaded(*words: str) -> set[str]:
    script = (
        "import sys\nbefore = set(sys.modules)\nfrom shadowsnap.cli.main import main\n"
        f"main({list(words)!r})\nprint('\\n' + ' '.join(set(sys.modules) - before))"
    )
    done = subprocess.run([sys.executable, "-I", "-c", script], capture_output=True, text=True, check=True)
    return set(done.stdout.splitlines()[-1].split())


def test_only_the_command_that_runs_is_imported(cli: CommandLine) -> None:
    modules = loaded("docs")
    commands = {name for name in modules if name.startswith("shadowsnap.cli.commands.")}
    assert commands == {"shadowsnap.cli.commands.help"}


@pytest.mark.parametrize("words", [("--version",), ("docs", "errors"), ("completion", "bash")])
def test_what_needs_no_checkpoint_does_not_load_the_engine(cli: CommandLine, words: tuple[str, ...]) -> None:
    modules = loaded(*words)
    assert not {name for name in modules if name.startswith("shadowsnap.store")}
    assert "shadowsnap.manager" not in modules


def test_what_a_hook_starts_with_loads_next_to_nothing() -> None:
    script = "import sys\nbefore = set(sys.modules)\nimport {}\nprint(*set(sys.modules) - before)"
    for module, most in (("shadowsnap.__main__", set()), ("shadowsnap.hook.client", {"_socket", "gc", "time"})):
        words = [sys.executable, "-I", "-c", script.format(module)]
        done = subprocess.run(words, capture_output=True, text=True, check=True)
        assert {name for name in done.stdout.split() if not name.startswith("shadowsnap")} <= most


@pytest.mark.skipif(sys.platform == "win32", reason="no sh")
@pytest.mark.parametrize("closed", [">&-", "2>&-", ">&- 2>&-", "<&- >&- 2>&-"])
def test_without_any_output_it_is_done_all_the_same(cli: CommandLine, closed: str) -> None:
    words = ["sh", "-c", f'exec "$@" {closed}', "sh", *COMMAND, "snap"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert (done.returncode, without_progress(done.stderr)) == (0, "")
    assert len(cli.ids()) == 1


def test_the_help_of_a_command_is_an_object_too(cli: CommandLine) -> None:
    assert cli.json("snap", "--help")["help"] == cli("snap", "-h").out
