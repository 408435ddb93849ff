"""docs and completion on the command line; the documentation that is made from the code is current."""

from __future__ import annotations

import io
import re
import shlex
import shutil
import subprocess
import sys
from dataclasses import fields
from itertools import takewhile
from pathlib import Path

import pytest
from answers import ANSWERS as FORMS
from answers import INSTEAD, MEANINGS, RECORDS, all_keys, problems
from command_line import CommandLine

from reference import error_classes, pages, setting_texts
from shadowsnap import CheckpointManager, model, results
from shadowsnap.agents import handover
from shadowsnap.agents.catalog import AGENTS
from shadowsnap.base import config_file
from shadowsnap.cli.commands import (
    GLOBAL_OPTIONS,
    Command,
    command_names,
    command_parser,
    load_all,
    load_command,
    parse,
    split_words,
)
from shadowsnap.cli.commands.help import DOCS_FOLDER, topic_files
from shadowsnap.errors import ShadowsnapError
from shadowsnap.remote import lanes, pull
from shadowsnap.settings import LEAST_FILE_SIZE_MB, PROJECT_SETTINGS, Settings
from shadowsnap.snapshot.ignore_rules import DEFAULT_EXCLUDES
from shadowsnap.snapshot.secrets import NOT_SECRET_ENDINGS, SECRET_NAMES
from shadowsnap.upkeep import retention, status

HOW = "run: scripts/reference"


@pytest.fixture
def cli(
    project: Path, base: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> CommandLine:
    return CommandLine(project, base, monkeypatch, capsys)


# --- made from the code -----------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "text"), pages().items())
def test_what_is_made_from_the_code_is_current(name: str, text: str) -> None:
    assert (DOCS_FOLDER / f"{name}.md").read_text("utf-8") == text, HOW


def test_the_settings_are_complete() -> None:
    assert list(setting_texts()) == [field.name for field in fields(Settings)]
    assert all(setting_texts().values())
    text = (DOCS_FOLDER / "settings.md").read_text("utf-8")
    assert f"`{config_file().replace(str(Path.home()), '~')}`" in text
    assert all(f"`{name}`" in text.partition("| setting |")[0] for name in PROJECT_SETTINGS)
    assert f"(not below {LEAST_FILE_SIZE_MB:g})" in text


def test_the_reference_has_every_command_and_option() -> None:
    text = (DOCS_FOLDER / "cli.md").read_text("utf-8")
    for name, command in load_all().items():
        part = text.partition(f"### {name}\n")[2].partition("\n### ")[0]
        assert command.summary in part
        for action in command_parser(command)._actions:
            assert action.help, f"{name}: {action.dest} has no help"
            for option in action.option_strings:
                shared = any(option in told for told, _ in GLOBAL_OPTIONS)
                assert shared or f"`{option}" in part, (name, option)


def test_the_table_has_every_error() -> None:
    rows = re.findall(r"^\| `(\w+)` \| (\d+) \|", (DOCS_FOLDER / "errors.md").read_text("utf-8"), re.MULTILINE)
    assert rows == [(kind.__name__, str(kind.exit_code)) for kind in error_classes()]
    assert len(rows) > 20


def test_a_command_has_a_sentence_and_a_group() -> None:
    for name, command in load_all().items():
        assert command.summary and len(f"  {name:10}  {command.summary}") <= 80, name
        assert type(command).run is not Command.run and command.name == name
    assert set(load_all()) == set(command_names())


# --- written by hand --------------------------------------------------------------------------------------


def listed(text: str) -> set[str]:
    """The words of all indented blocks."""
    return {word for line in text.splitlines() if line.startswith("    ") for word in line.split()}


def test_the_promises_list_every_secret_and_every_exclude() -> None:
    text = (DOCS_FOLDER / "promises.md").read_text("utf-8")
    assert listed(text) == {*SECRET_NAMES, *DEFAULT_EXCLUDES}
    for ending in NOT_SECRET_ENDINGS:
        assert f"`{ending}`" in text


def test_the_promises_list_every_reason_for_leaving_a_file_out() -> None:
    from shadowsnap.model import Skipped

    reasons = set(re.findall(r"`([a-z-]+)`", Skipped.__doc__ or ""))
    text = (DOCS_FOLDER / "promises.md").read_text("utf-8")
    assert reasons == set(re.findall(r"^\| `([a-z-]+)` \|", text, re.MULTILINE))


# --- docs -------------------------------------------------------------------------------------------------


def test_docs_lists_the_topics(cli: CommandLine) -> None:
    topics = cli.json("docs")["topics"]
    assert {"cli", "errors", "how-it-works", "promises"} <= set(topics)
    assert topics["cli"] == "The command line"
    assert len(cli("docs").out.splitlines()) == len(topics)


def test_docs_prints_a_topic_as_it_is(cli: CommandLine) -> None:
    for name, path in topic_files().items():
        text = re.sub(r"<!-- .* -->\n", "", path.read_text("utf-8"))  # marks for the generator
        assert cli("docs", name).out == text
        assert cli.json("docs", name)["text"] == text


@pytest.mark.skipif(sys.platform == "win32", reason="no pty")
def test_docs_go_through_the_pager(cli: CommandLine) -> None:
    code, screen = cli.terminal("docs", "cli", PAGER="head -1")
    assert (code, screen) == (0, "# The command line\n")


# --- JSON -------------------------------------------------------------------------------------------------


def test_the_page_about_json_has_every_command() -> None:
    assert set(FORMS) == {*command_names(), INSTEAD}
    assert {name for name, forms in FORMS.items() if not forms} == {"hook", "ui"}


# Keys that a record has besides its fields, fields that it shows elsewhere, and types that are narrower.
BESIDES = {("Checkpoint", "short_id"), ("RemoteStatus", "push_error"), ("Now", "patch")}
NARROWER = {("RestoreResult", "conversation"), ("RestoreResult", "conflicts")}


def test_the_page_about_json_has_the_fields_of_every_record() -> None:
    seen = set()
    for module in (model, results, handover, lanes, pull, status, retention):
        for name in RECORDS.keys() & vars(module).keys() - {"BlamedLine", "Conflict"}:  # these are flattened
            kind = getattr(module, name)
            if issubclass(kind, model.Record):
                seen.add(name)
                found = {key for key in RECORDS[name].items() if (name, key[0]) not in BESIDES | NARROWER}
                wanted = {key for key in json_fields(kind).items() if (name, key[0]) not in BESIDES | NARROWER}
                assert found == wanted, name
    assert len(seen) > 20


def json_fields(kind: type[model.Record]) -> dict[str, str]:
    """The keys of a record as `to_dict` has them, and their types by its annotations."""
    annotations: dict[str, str] = {}
    for each in reversed(kind.__mro__):
        annotations.update({name: str(value) for name, value in vars(each).get("__annotations__", {}).items()})
    names: tuple[str, ...] = kind.__match_args__  # type: ignore[attr-defined]  # the fields of a dataclass
    keys = {kind.json_names.get(name, name): json_type(annotations[name]) for name in names}
    if keys.pop("error", None):
        keys["error?"] = "Error"
    return keys


JSON_TYPES = {
    "str": "string", "int": "integer", "float": "number", "bool": "boolean", "datetime": "moment",
    "dict[str, Any]": "object", "dict[str, str]": "object", "Any": "any",
}  # fmt: skip


def json_type(annotation: str) -> str:
    inner, optional = annotation.removesuffix(" | None"), annotation.endswith(" | None")
    if many := re.fullmatch(r"tuple\[(.+), \.\.\.\]", inner):
        return f"[{json_type(many[1])}]"
    words = r"Literal\[.*|(?!Project|Store|Remote)\w*(?:Status|Kind|Severity|State)"
    if re.fullmatch(words, inner):
        inner = "str"  # one of a few words
    return JSON_TYPES.get(inner, inner) + ("?" if optional else "")


# Dashboards read thousands of lanes: their names and numbers are said in one word each.
LANES = {("Lane", "project"), ("Lane", "turns")}


def test_a_key_has_one_type_and_one_meaning() -> None:
    kinds: dict[str, set[str]] = {}
    for place, key, kind in all_keys():
        if (place, key) not in LANES:
            kinds.setdefault(key, set()).add(kind)
    assert {key: found for key, found in kinds.items() if len(found) > 1} == {}
    assert list(MEANINGS) == sorted(kinds)


def test_every_type_is_known() -> None:
    plain = {"string", "integer", "number", "boolean", "moment", "object", "any"}
    for place, key, kind in all_keys():
        assert kind.strip("[]").removesuffix("?") in {*plain, *RECORDS}, (place, key)


def test_what_is_not_documented_is_found() -> None:
    """The other tests hold every answer against the page: this one shows that they could fail."""
    answer = {"schema": 2, "checkpoint_id": "a", "files": ["x"]}
    assert problems("ls", answer) == []
    assert problems("ls", {**answer, "more": 1}) == ["more is not documented"]
    assert problems("ls", {**answer, "files": [1]}) == ["files[0] is no string: 1"]
    assert problems("ls", {"schema": 2, "files": []}) == ["checkpoint_id is missing"]
    error = {"type": "t", "message": "m", "hint": ""}
    assert problems("ls", {"schema": 2, "error": error}) == []
    assert problems("ls", {"schema": 2, "error": None}) != []


ANSWERS = [
    ("statusline",), ("status",), ("status", "--store"), ("helper",),
    ("list",), ("list", "--checkpoints"), ("list", "--all-projects"), ("log",),
    ("list", "--all-projects", "--checkpoints"), ("list", "--restores"),
    ("show", "1"), ("show", "1", "-p"), ("report", "-o", "../report.html"),
    ("show", "1:after"), ("diff",), ("diff", "1"), ("diff", "1", "2"), ("cat", "1", "README.md"), ("ls", "1"),
    ("sessions",), ("sessions", "show", "sess"), ("show", "1", "--chat"), ("show", "1", "--chat", "-o", "c.json"),
    ("sessions", "show", "sess", "--chat"), ("restore", "1", "-n"), ("undo", "-n"), ("revert", "1", "-n"),
    ("undo", "-y"), ("redo", "-n"), ("redo", "-y"), ("restore", "1", "-y"), ("undo", "-y"), ("revert", "2", "-y"),
    ("rollback",), ("rollback", "1"), ("rollback", "diff 1"), ("rollback", "pin 1"), ("rollback", "nothing"),
    ("rollback", "help"), ("rollback", "1 --both"), ("snap",), ("pin", "1"), ("unpin", "1"),
    ("label", "1", "good"), ("doctor",), ("doctor", "--repair"),
    ("prune", "-n"), ("prune", "--max-snapshots", "1", "-y"), ("docs",),
    ("docs", "cli"), ("help",), ("help", "list"), ("completion", "bash"), ("completion", "offer", "--", "li"),
    ("install", "claude", "--dry-run"), ("install", "claude"), ("uninstall", "claude"),
    ("purge", "README.md", "-n"), ("purge", "README.md", "-y"),
    ("import", "elsewhere", "-C", "."), ("snap", "-m", "last", ".env"),
    ("delete", "last", "--now", "-y"), ("clear", "-n"), ("clear", "-y"), ("clear-legacy", "-n"), ("demo",),
]  # fmt: skip


def test_every_command_answers_as_documented(
    cli: CommandLine, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In this order, so that each finds something to answer with."""
    monkeypatch.setattr("sys.stdin", io.StringIO(""))
    manager = CheckpointManager()
    (project / ".env").write_text("TOKEN=1\n")
    for number in (1, 2):
        messages = [{"role": "user", "content": "please"}]
        manager.new_turn("session-1", f"turn {number}", conversation=messages, agent="claude")
        manager.before_tool("Bash", {"command": "make"}, project)
        (project / f"file-{number}").write_text("x\n")
        manager.end_turn()
    (project / "empty").write_text("mine\n")
    cli("snap")
    seen = set()
    for words in ANSWERS:
        ran = cli("--json", *words, code=None)
        assert ran.err == ""
        assert problems(words[0], ran.answer) == [], words
        assert '"error": null' not in ran.out
        if "error" not in ran.answer:
            seen.add(words[0])
    elsewhere = {"bisect", "blame", "export", "fork", "mcp", "verify"}  # tests/questions has their answers
    elsewhere |= {"lanes", "pull", "push", "remote", "resume"}  # test_remote.py
    without = {"hook", "import", "ui"}  # there is nothing to import here, and no terminal
    assert seen >= set(command_names()) - without - elsewhere


# --- the commands that the documentation shows -------------------------------------------------------------

README = DOCS_FOLDER.parents[1] / "README.md"
_PROGRAM = re.compile(r"(?:^|[\s`(;&|=])shadowsnap\s+([^`\n]*)")
_PLACES = {"N": "3", "TOKEN": "t", "SECONDS": "5", "DAYS": "5", "MB": "5"}


def shown_commands(path: Path) -> list[str]:
    """What follows `shadowsnap` in code of a page: between backticks, in a block, or in an indented line."""
    found, block, inside = [], False, path.read_text("utf-8").replace("\\\n", "")
    inside = re.sub(r"`([^`\n]*)\n([^`\n]*)`", r"`\1 \2`", inside)
    for line in inside.splitlines():
        if line.lstrip().startswith("```"):
            block = not block
            continue
        code = [line] if block or line.startswith("    ") else re.findall(r"`([^`]+)`", line)
        for text in code:
            found += [match[1] for match in _PROGRAM.finditer(text.removeprefix("$ "))]
    return found


def command_words(text: str) -> list[str]:
    """The words of one command line, up to a pipe, a comment or what else follows it; of a form like
    `[-n N] REF...`, with every option."""
    text = re.sub(r"\.\.\.(?=\s|\]|$)|\[(?=-|[A-Z])|(?<=[A-Za-z-])\]", "", text.strip().rstrip(".,:"))
    lexer = shlex.shlex(text.partition("  ")[0], posix=True, punctuation_chars=";|&<>()")
    lexer.whitespace_split = True
    words = list(takewhile(lambda word: word[0] not in ";|&<>()" if word else True, lexer))
    return [_PLACES.get(word, word) for word in words]


@pytest.mark.parametrize("path", [README, *topic_files().values()], ids=lambda path: path.stem)
def test_every_command_that_a_page_shows_is_accepted(path: Path) -> None:
    if path.stem == "README" and not path.exists():
        pytest.skip("no README beside an installed package")
    wrong = []
    for text in shown_commands(path):
        if path.stem == "cli" and "[" in text:
            continue  # made from the parser
        _, name, rest = split_words(command_words(text))
        if not name.isalpha() or not rest:  # a command alone is its name, not a line to type
            continue
        try:
            parse(command_parser(load_command(name)), rest)
        except ShadowsnapError as problem:
            wrong.append(f"shadowsnap {text}: {problem}")
    assert wrong == []


# --- completion -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_completion_script_can_be_read_by_its_shell(cli: CommandLine, shell: str) -> None:
    script = cli("completion", shell).out
    assert cli.json("completion", shell)["script"] == script
    assert "shadowsnap completion offer" in script
    program = shutil.which(shell)
    if program:
        subprocess.run([program, "-n"], input=script, text=True, check=True)


def offered(cli: CommandLine, *words: str) -> dict[str, str]:
    """What is offered for the last of these words, and what each means."""
    answer = cli.json("completion", "offer", "--", *words)["offers"]
    lines = cli("completion", "offer", "--", *words).out.splitlines()
    assert lines == [f"{each['word']}\t{each['about']}".removesuffix("\t") for each in answer]
    return {each["word"]: each["about"] for each in answer}


@pytest.fixture
def history(cli: CommandLine, project: Path) -> CommandLine:
    manager = CheckpointManager()
    for number, session in ((1, "session-one"), (2, "session-two")):
        manager.new_turn(session, f"what was asked\nin turn {number}")
        manager.ensure_checkpoint(project)
        (project / "src" / f"file-{number}").write_text("x\n")
        manager.end_turn()
    (project / "empty").write_text("mine\n")
    cli("snap", "-m", "by hand")
    cli("label", "2", "good")
    (project / "src" / "main.py").unlink()
    return cli


def test_commands_and_options_are_offered(history: CommandLine) -> None:
    assert set(offered(history, "")) == set(command_names())
    assert set(offered(history, "un")) == {"undo", "unpin", "uninstall"}
    assert offered(history, "restor") == {"restore": load_all()["restore"].summary}
    assert set(offered(history, "-C", "src", "res")) == {"restore", "resume"}
    assert set(offered(history, "--j")) == {"--json"}
    assert set(offered(history, "--json", "list", "--l")) == {"--limit"}
    assert set(offered(history, "completion", "")) == {"bash", "zsh", "fish", "offer"}
    assert set(offered(history, "revert", "--on-conflict", "")) == {"keep", "markers", "theirs"}
    assert set(offered(history, "docs", "pro")) == {"promises"}
    assert set(offered(history, "help", "res")) == {"restore", "resume"}
    assert set(offered(history, "install", "cl")) == {"claude", "cline"}
    assert set(offered(history, "uninstall", "")) >= set(AGENTS)


@pytest.mark.parametrize("command", ["show", "restore", "diff", "cat", "ls", "pin", "unpin", "label", "delete"])
def test_numbers_are_offered_with_what_was_asked(history: CommandLine, command: str) -> None:
    words = offered(history, command, "")
    assert words["2"] == "what was asked in turn 2" and words["1"] == "what was asked in turn 1"
    assert words["3"] == "by hand" and words["good"] == "a label" and "last" in words
    assert list(words)[:3] == ["3", "2", "1"]


def test_only_turns_are_offered_where_only_turns_are_meant(history: CommandLine) -> None:
    assert set(offered(history, "revert", "")) == set(offered(history, "revert", "--turn", "")) == {"1", "2"}
    assert "@" in offered(history, "diff", "1", "")


def test_sessions_are_offered(history: CommandLine) -> None:
    for words in (("list", "--session", ""), ("revert", "--session", ""), ("sessions", "show", "")):
        assert offered(history, *words) == {
            "session-two": "what was asked in turn 2",
            "session-one": "what was asked in turn 1",
        }


def test_files_of_the_state_are_offered_also_those_that_are_gone(history: CommandLine, project: Path) -> None:
    assert set(offered(history, "restore", "2", "")) >= {"README.md", "src/"}
    assert set(offered(history, "restore", "2", "src/")) == {"src/main.py", "src/file-1"}
    assert set(offered(history, "restore", "2", "README.md", "src/m")) == {"src/main.py"}
    assert set(offered(history, "cat", "1", "src/")) == {"src/main.py"}
    assert set(offered(history, "diff", "2", "--", "src/f")) == {"src/file-1"}
    assert set(offered(history, "-C", "src", "restore", "2", "")) == {"main.py", "file-1"}
    assert offered(history, "snap", "READ") == {}  # the shell goes on with file names


def test_nothing_is_offered_where_nothing_can_be_known(cli: CommandLine) -> None:
    for words in (("restore", ""), ("nothing", ""), ("show", "1", "2", ""), ("docs", "cli", "")):
        assert offered(cli, *words) == {}
