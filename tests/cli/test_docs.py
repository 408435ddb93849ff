"""docs and completion on the command line; the documentation that is made from the code is current."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import pytest
from command_line import CommandLine

from shadowsnap.agents.catalog import AGENTS
from shadowsnap.cli.commands import command_names, load_all
from shadowsnap.cli.commands.docs import FOLDER, topic_files
from shadowsnap.cli.parser import GLOBAL_OPTIONS, command_parser, summary
from shadowsnap.cli.reference import (
    cli_markdown,
    error_classes,
    errors_markdown,
    setting_texts,
    settings_markdown,
)
from shadowsnap.settings import Settings, config_file
from shadowsnap.snapshot.ignore_rules import DEFAULT_EXCLUDES
from shadowsnap.snapshot.secrets import NOT_SECRET_ENDINGS, SECRET_NAMES

HOW = "run: python -m shadowsnap.cli.reference"


@pytest.fixture
def cli(
    project: Path, base: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> CommandLine:
    return CommandLine(project, base, monkeypatch, capsys)


# --- made from the code -----------------------------------------------------------------------------------


def test_the_reference_of_the_command_line_is_current() -> None:
    assert (FOLDER / "cli.md").read_text("utf-8") == cli_markdown(), HOW


def test_the_table_of_settings_is_current_and_complete() -> None:
    assert (FOLDER / "settings.md").read_text("utf-8") == settings_markdown(), HOW
    assert list(setting_texts()) == [field.name for field in fields(Settings)]
    assert all(setting_texts().values())
    assert f"`{config_file().replace(str(Path.home()), '~')}`" in settings_markdown()


def test_the_table_of_errors_is_current() -> None:
    assert (FOLDER / "errors.md").read_text("utf-8") == errors_markdown(), HOW


def test_the_reference_has_every_command_and_option() -> None:
    text = cli_markdown()
    for name, module in load_all().items():
        part = text.partition(f"### {name}\n")[2].partition("\n### ")[0]
        assert summary(module) in part
        for action in command_parser(name, module)._actions:
            assert action.help, f"{name}: {action.dest} has no help"
            for option in action.option_strings:
                shared = any(option in told for told, _ in GLOBAL_OPTIONS)
                assert shared or f"`{option}" in part, (name, option)


def test_the_table_has_every_error() -> None:
    rows = re.findall(r"^\| `(\w+)` \| (\d+) \|", errors_markdown(), re.MULTILINE)
    assert rows == [(kind.__name__, str(kind.exit_code)) for kind in error_classes()]
    assert len(rows) > 20


def test_a_command_is_a_module_with_a_sentence_and_a_group() -> None:
    for name, module in load_all().items():
        assert summary(module) and len(f"  {name:10}  {summary(module)}") <= 80, name
        assert callable(module.run) and callable(module.add_arguments)
    assert set(load_all()) == set(command_names())


# --- written by hand --------------------------------------------------------------------------------------


def listed(text: str) -> set[str]:
    """The words of all indented blocks."""
    return {word for line in text.splitlines() if line.startswith("    ") for word in line.split()}


def test_the_promises_list_every_secret_and_every_exclude() -> None:
    text = (FOLDER / "promises.md").read_text("utf-8")
    assert listed(text) == {*SECRET_NAMES, *DEFAULT_EXCLUDES}
    for ending in NOT_SECRET_ENDINGS:
        assert f"`{ending}`" in text


def test_the_promises_list_every_reason_for_leaving_a_file_out() -> None:
    from shadowsnap.model import Skipped

    reasons = set(re.findall(r"`([a-z-]+)`", Skipped.__doc__ or ""))
    text = (FOLDER / "promises.md").read_text("utf-8")
    assert reasons == set(re.findall(r"^\| `([a-z-]+)` \|", text, re.MULTILINE))


# --- docs -------------------------------------------------------------------------------------------------


def test_docs_lists_the_topics(cli: CommandLine) -> None:
    topics = cli.json("docs")["topics"]
    assert {"cli", "errors", "how-it-works", "promises"} <= set(topics)
    assert topics["cli"] == "The command line"
    assert len(cli("docs").out.splitlines()) == len(topics)


def test_docs_prints_a_topic_as_it_is(cli: CommandLine) -> None:
    for name, path in topic_files().items():
        assert cli("docs", name).out == path.read_text("utf-8")
        assert cli.json("docs", name)["text"] == path.read_text("utf-8")


@pytest.mark.skipif(sys.platform == "win32", reason="no pty")
def test_docs_go_through_the_pager(cli: CommandLine) -> None:
    code, screen = cli.terminal("docs", "cli", PAGER="head -1")
    assert (code, screen) == (0, "# The command line\n")


# --- completion -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_completion_script_knows_every_command(cli: CommandLine, shell: str) -> None:
    script = cli("completion", shell).out
    assert cli.json("completion", shell)["script"] == script
    for name in command_names():
        assert re.search(rf"\b{name}\b", script)
    program = shutil.which(shell)
    if program:
        subprocess.run([program, "-n"], input=script, text=True, check=True)


@pytest.fixture
def complete(cli: CommandLine, project: Path, tmp_path: Path) -> object:
    """What bash offers for a line; the last word is the one to complete."""
    bash = shutil.which("bash")
    if bash is None:
        pytest.skip("no bash")
    binaries = tmp_path / "bin"
    binaries.mkdir()
    (binaries / "shadowsnap").write_text(f'#!/bin/sh\nexec "{sys.executable}" -I -m shadowsnap "$@"\n')
    (binaries / "shadowsnap").chmod(0o755)
    script = cli("completion", "bash").out

    def offered(*words: str) -> set[str]:
        given = " ".join(f"'{word}'" for word in ("shadowsnap", *words))
        asking = f"COMP_WORDS=({given}); COMP_CWORD={len(words)}; _shadowsnap; "
        asking += "printf '%s\\n' \"${COMPREPLY[@]}\""
        done = subprocess.run(
            [bash, "-c", script + asking],
            cwd=project,
            env={**os.environ, "PATH": f"{binaries}{os.pathsep}{os.environ['PATH']}"},
            capture_output=True,
            text=True,
            check=True,
        )
        assert done.stderr == ""
        return set(done.stdout.split())

    return offered


def test_bash_completes(cli: CommandLine, complete) -> None:  # type: ignore[no-untyped-def]
    taken = cli.snap()
    assert complete("un") >= {"undo", "unpin"}
    assert complete("restor") == {"restore"}
    assert complete("-C", "restore", "res") == {"restore"}
    assert complete("--json", "list", "--l") == {"--limit"}
    assert complete("completion", "") >= {"bash", "zsh", "fish"}
    assert complete("docs", "pro") == {"promises"}
    assert complete("install", "cl") == {"claude", "cline"}
    assert complete("uninstall", "") >= set(AGENTS)
    assert complete("show", taken[:3]) == {taken[:8]}
    assert complete("show", "la") == {"last"}
    assert complete("snap", "READ") == set()  # bash goes on with file names
