"""Settings from files, variables and flags: what goes over what, what a project may say, and that
nothing anybody writes into such a file stops a snapshot."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from command_line import CommandLine

from shadowsnap import CheckpointManager, Settings
from shadowsnap.base import base_folder, config_file, configured_base
from shadowsnap.errors import BadArguments
from shadowsnap.settings import load_settings

WITHOUT_HELPER = "SHADOWSNAP_RESIDENT"


@pytest.fixture(autouse=True)
def _no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    """No test here starts from a setting; those that run hooks switch the helper off again."""
    monkeypatch.delenv(WITHOUT_HELPER)


def write_config(text: str) -> Path:
    path = Path(config_file())
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def held(project: Path) -> list[str]:
    return CheckpointManager.from_settings().files(project, "last")


def take(project: Path) -> CheckpointManager:
    manager = CheckpointManager.from_settings()
    assert manager.ensure_checkpoint(project).status == "taken"
    return manager


# --- layers -----------------------------------------------------------------------------------------------


def test_without_any_file_all_are_defaults() -> None:
    layers = load_settings()
    assert (layers.settings, layers.warnings) == (Settings(), ())


def test_the_file_goes_over_the_defaults_variables_over_it_and_flags_over_all(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    write_config('max_snapshots = 1\nretention_days = 1.5\nfsync = false\nexcludes = ["*.a", "*.b"]\n')
    assert load_settings().settings == Settings(
        max_snapshots=1, retention_days=1.5, fsync=False, excludes=("*.a", "*.b")
    )
    monkeypatch.setenv("SHADOWSNAP_MAX_SNAPSHOTS", "2")
    monkeypatch.setenv("SHADOWSNAP_RETENTION_DAYS", "2.5")
    monkeypatch.setenv("SHADOWSNAP_FSYNC", "yes")
    monkeypatch.setenv("SHADOWSNAP_EXCLUDES", "*.c, *.d")
    by_variable = Settings(max_snapshots=2, retention_days=2.5, fsync=True, excludes=("*.c", "*.d"))
    assert load_settings().settings == by_variable
    assert load_settings(max_snapshots=3, fsync=None).settings.max_snapshots == 3
    assert load_settings(fsync=None).settings == by_variable


def test_embedding_code_gets_only_what_it_says() -> None:
    write_config("max_snapshots = 1\nenabled = false\n")
    assert CheckpointManager().settings == Settings()
    assert CheckpointManager.from_settings().settings.enabled is False


def test_the_store_can_be_moved_by_the_file_and_the_variable_decides(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_config(f'base = "{tmp_path}/there"\n')
    assert CheckpointManager.from_settings().settings.resolved_base() == tmp_path / "there"
    assert configured_base() == str(tmp_path / "there")
    monkeypatch.setenv("SHADOWSNAP_HOME", str(tmp_path / "elsewhere"))
    assert CheckpointManager.from_settings().settings.resolved_base() == tmp_path / "elsewhere"
    assert configured_base() == str(tmp_path / "elsewhere")


def test_the_command_line_and_the_hook_use_the_store_of_the_file(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(project)
    write_config(f'base = "{tmp_path}/there"\n')
    event = {"session_id": "s", "cwd": str(project), "hook_event_name": "PreToolUse", "tool_name": "Write"}
    command = [sys.executable, "-m", "shadowsnap"]
    monkeypatch.setenv(WITHOUT_HELPER, "false")
    subprocess.run([*command, "hook", "claude"], input=json.dumps(event).encode(), check=True, timeout=60)
    listed = subprocess.run([*command, "--json", "list"], capture_output=True, check=True, timeout=60)
    assert len(json.loads(listed.stdout)["entries"]) == 1
    assert (tmp_path / "there" / "store").is_dir() and (tmp_path / "there" / "hook.log.jsonl").exists()
    assert not Path(base_folder()).exists()


# --- what is wrong in a file ------------------------------------------------------------------------------

WRONG = [
    ("max_snapshots = \n", ":1"),
    ("\n\nmax_snapshots = = 1\n", ":3"),
    ("\nexcludes = [[[\n", ":2"),
    ("max_snapshots = 'many'\n", ":1: max_snapshots is ignored: it must be a whole number"),
    ("# x\nmax_snapshots = -1\n", ":2: max_snapshots is ignored: it must be a whole number"),
    ("max_snapshots = true\n", ":1: max_snapshots is ignored"),
    ("max_snapshots = 1.5\n", ":1: max_snapshots is ignored"),
    ("retention_days = '3'\n", ":1: retention_days is ignored: it must be a number"),
    ("enabled = 0\n", ":1: enabled is ignored: it must be true or false"),
    ("excludes = [1]\n", ":1: excludes is ignored: it must be a list of strings"),
    ('excludes = ["a\\nb"]\n', ":1: excludes is ignored: a pattern must be one line"),
    ("base = 'relative'\n", ":1: base is ignored: it must be an absolute path"),
    ("max_snapshot = 1\n", ":1: max_snapshot is ignored: there is no setting of this name"),
    ("\x00\n", ":1"),
    ("a = " + "[" * 20_000, ""),
]


@pytest.mark.parametrize(("text", "told"), WRONG)
def test_what_cannot_be_used_is_ignored_with_a_warning_that_names_file_and_line(text: str, told: str) -> None:
    path = write_config(text)
    layers = load_settings()
    assert layers.settings == Settings()
    assert len(layers.warnings) == 1 and layers.warnings[0].startswith(f"{path}{told}")


def test_a_setting_that_is_a_word_is_one_of_a_few(monkeypatch: pytest.MonkeyPatch) -> None:
    write_config('granularity = "tool"')
    assert load_settings().settings.granularity == "tool"
    write_config('granularity = "line"')
    layers = load_settings()
    assert layers.settings.granularity == "turn" and "turn or tool" in layers.warnings[0]
    monkeypatch.setenv("SHADOWSNAP_GRANULARITY", "tool")
    assert load_settings().settings.granularity == "tool"


def test_one_wrong_value_spoils_no_other() -> None:
    write_config("max_snapshots = 'many'\nretention_days = 3\n")
    assert load_settings().settings == Settings(retention_days=3)


@pytest.mark.parametrize("kind", ["bytes", "directory", "pipe", "huge", "closed"])
def test_a_file_that_is_none_is_ignored(kind: str, project: Path, as_user) -> None:  # type: ignore[no-untyped-def]
    path = project / ".shadowsnap.toml"
    if kind == "bytes":
        path.write_bytes(b"\xff\xfe")
    elif kind == "directory":
        path.mkdir()
    elif kind == "pipe":
        if sys.platform == "win32":
            pytest.skip("no pipes by name")
        os.mkfifo(path)
    elif kind == "huge":
        path.write_bytes(b"#" * (2 << 20))
    else:
        path.write_text("x")
        path.chmod(0)
    settings, warnings = as_user(lambda: load_settings().narrowed_by(project))
    assert settings == Settings()
    assert len(warnings) == 1 and warnings[0].startswith(str(path))


@pytest.mark.parametrize(
    ("name", "text"),
    [("MAX_SNAPSHOTS", "many"), ("MAX_SNAPSHOTS", "-1"), ("DEADLINE", "inf"), ("ENABLED", "maybe"),
     ("NONSENSE", "1"), ("BASE", "/x")],
)  # fmt: skip
def test_a_variable_that_cannot_be_used_is_ignored(name: str, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(f"SHADOWSNAP_{name}", text)
    layers = load_settings()
    assert layers.settings == Settings()
    assert layers.warnings[0].startswith(f"SHADOWSNAP_{name} is ignored: ")


# --- what a project may say -------------------------------------------------------------------------------


@pytest.mark.parametrize("file", [".shadowsnap.toml", "pyproject.toml"])
def test_a_project_can_leave_out_more_and_lower_the_size_limit(project: Path, file: str) -> None:
    head = "[project]\nname = 'x'\n[tool.shadowsnap]\n" if file == "pyproject.toml" else ""
    (project / file).write_text(f'{head}excludes = ["*.bin", "/samples/"]\nmax_file_size_mb = 2\n')
    (project / "large.txt").write_bytes(b"x" * (3 << 20))
    (project / "samples").mkdir()
    (project / "samples" / "one.txt").write_text("a sample\n")
    manager = take(project)
    assert {"data.bin", "samples/one.txt", "large.txt"} & set(held(project)) == set()
    assert file in held(project) and manager.warnings == []
    assert manager.settings == Settings()  # other projects are not concerned


def test_both_files_count_and_add_to_what_the_person_leaves_out(project: Path) -> None:
    write_config('excludes = ["empty"]\n')
    (project / "pyproject.toml").write_text('[tool.shadowsnap]\nexcludes = ["*.bin"]\n')
    (project / ".shadowsnap.toml").write_text('excludes = ["run.sh"]\n')
    take(project)
    assert {"data.bin", "run.sh", "empty"} & set(held(project)) == set()


def test_a_project_of_another_tool_is_not_even_read(project: Path) -> None:
    (project / "pyproject.toml").write_text("this is = = not TOML")
    assert take(project).warnings == []


@pytest.mark.parametrize(
    "line",
    ["enabled = false", "base = '/tmp/elsewhere'", "include_secrets = true", "deadline = 0.001", "fsync = false",
     "max_snapshots = 1", "retention_days = 0.01", "max_total_size_mb = 1", "max_file_size_mb = 0",
     "max_file_size_mb = 100", "max_file_size_mb = 0.001", "excludes = ['*']", "excludes = ['/**/*']",
     "excludes = ['!.env']", "excludes = [' !*.pem']", "excludes = ['?*']", "excludes = ['[!x]*']",
     "excludes = ['/**/[[:print:]]?*']"],
)  # fmt: skip
def test_a_clone_can_neither_switch_protection_off_nor_reach_beyond_itself(project: Path, line: str) -> None:
    (project / ".env").write_text("TOKEN=1")
    usual = CheckpointManager(base=project.parent / "usual")
    usual.ensure_checkpoint(project)
    (project / ".shadowsnap.toml").write_text(f"{line}\n")
    manager = take(project)
    assert set(held(project)) == {*usual.files(project, "last"), ".shadowsnap.toml"}
    assert manager.settings == Settings()
    assert len(manager.warnings) == 1 and str(project / ".shadowsnap.toml") in manager.warnings[0]


def test_every_setting_is_either_the_projects_or_refused_to_it(project: Path) -> None:
    for field in fields(Settings):
        value = {"bool": "true", "int": "1", "float": "1", "tuple[str, ...]": "['x']"}.get(str(field.type), "'/x'")
        (project / ".shadowsnap.toml").write_text(f"{field.name} = {value}\n")
        settings, warnings = load_settings().narrowed_by(project)
        assert (settings == Settings()) == bool(warnings), field.name
        assert bool(warnings) == (field.name not in ("excludes", "max_file_size_mb"))


def test_variables_and_flags_go_over_the_project(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (project / ".shadowsnap.toml").write_text("max_file_size_mb = 2\n")
    assert load_settings().narrowed_by(project)[0].max_file_size_mb == 2
    assert load_settings(max_file_size_mb=5).narrowed_by(project)[0].max_file_size_mb == 5
    monkeypatch.setenv("SHADOWSNAP_MAX_FILE_SIZE_MB", "7")
    assert load_settings().narrowed_by(project)[0].max_file_size_mb == 7


def test_another_project_of_the_same_turn_is_not_narrowed(project: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / "data.bin").write_text("x")
    (project / ".shadowsnap.toml").write_text('excludes = ["*.bin"]\n')
    manager = take(project)
    manager.ensure_checkpoint(other)
    assert "data.bin" not in held(project) and held(other) == ["data.bin"]


# --- telling ----------------------------------------------------------------------------------------------


def test_the_command_line_warns_and_goes_on(
    project: Path, base: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    cli = CommandLine(project, base, monkeypatch, capsys)
    path = write_config("max_snapshots = 'many'\n")
    (project / ".shadowsnap.toml").write_text("enabled = false\n")
    ran = cli("snap")
    assert ran.out.startswith("took snapshot 1 ")
    first, second = ran.err.splitlines()
    assert first.startswith(f"warning: {path}:1: max_snapshots is ignored")
    assert second.startswith(f"warning: {project}/.shadowsnap.toml: enabled: ignored")
    assert cli.json("status", "--store")["settings"]["ignored"][0].startswith(f"{path}:1: ")
    assert cli("docs").err == ""  # needs no settings


def test_a_hook_notes_what_it_ignored(project: Path, base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHADOWSNAP_HOME", str(base))
    (project / ".shadowsnap.toml").write_text("enabled = false\n")
    event = {"session_id": "s", "cwd": str(project), "hook_event_name": "PreToolUse", "tool_name": "Write"}
    command = [sys.executable, "-m", "shadowsnap", "hook", "claude"]
    monkeypatch.setenv(WITHOUT_HELPER, "false")
    done = subprocess.run(command, input=json.dumps(event).encode(), capture_output=True, check=False, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
    entries = [json.loads(line) for line in (base / "hook.log.jsonl").read_text().splitlines()]
    assert [entry["status"] for entry in entries] == ["taken", "settings"]
    assert "enabled: ignored" in entries[1]["error"]


def test_the_store_stays_where_it_was_if_the_program_changes_its_directory(
    tmp_path: Path, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    manager = CheckpointManager(base="relative")
    assert manager.ensure_checkpoint(project).status == "taken"
    monkeypatch.chdir(project)
    assert len(manager.list_checkpoints(project)) == 1
    assert (tmp_path / "relative" / "store").is_dir() and not (project / "relative").exists()


def test_a_relative_path_in_the_variable_is_ignored_with_a_warning(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usual = load_settings().settings.resolved_base()
    monkeypatch.setenv("SHADOWSNAP_HOME", "relative")
    layers = load_settings()
    assert layers.settings.resolved_base() == usual == Path(os.path.realpath(configured_base()))
    assert layers.warnings == ("SHADOWSNAP_HOME is ignored: it must be an absolute path",)
    monkeypatch.setenv("SHADOWSNAP_HOME", "~/elsewhere")
    assert load_settings().settings.resolved_base() == Path(os.path.realpath(home / "elsewhere"))
    assert load_settings().warnings == ()


def test_one_pattern_is_not_taken_letter_by_letter(base: Path, project: Path) -> None:
    (project / "code.py").write_text("1\n")
    (project / "noise.log2").write_text("1\n")
    manager = CheckpointManager(base=base, excludes="*.log2", background_upkeep=False)
    taken = manager.snapshot(project)
    assert taken.checkpoint is not None and "code.py" in manager.files(project, taken.checkpoint)
    assert "noise.log2" not in manager.files(project, taken.checkpoint)


@pytest.mark.parametrize(("name", "value"), [
    ("max_snapshots", "20"), ("max_snapshots", 1.5), ("max_snapshots", -3), ("max_file_size_mb", "5"),
    ("deadline", float("nan")), ("enabled", "no"), ("excludes", [1]), ("granularity", "call"), ("redact", [None]),
])  # fmt: skip
def test_a_value_that_a_setting_cannot_have_is_refused_at_once(name: str, value: object, tmp_path: Path) -> None:
    arguments: dict[str, Any] = {name: value}
    for make in (CheckpointManager, CheckpointManager.from_settings):
        with pytest.raises(BadArguments, match=f"{name}: it must be"):
            make(base=tmp_path / "base", **arguments)


@pytest.mark.skipif(sys.platform == "win32", reason="another variable there")
@pytest.mark.parametrize("home", ["", "relative"])
def test_a_home_that_is_no_absolute_path_counts_as_not_set(home: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HOME")
    without = base_folder(), config_file()
    monkeypatch.setenv("HOME", home)
    assert (base_folder(), config_file()) == without
