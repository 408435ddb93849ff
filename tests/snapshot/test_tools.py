"""Which tools write, which files they name, and what is made safe before they run."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from helpers import git
from shadowsnap import CheckpointManager
from shadowsnap.git import repository as runner
from shadowsnap.snapshot.tools import command_projects, may_write, named_files, named_folders, plain_path

PATCH = """\
*** Begin Patch
*** Add File: src/new.py
+print("*** Update File: not/this/one.py")
*** Update File: src/old.py
*** Move to: src/moved.py
@@
-a
+b
*** Delete File: src/gone.py
*** End Patch
"""
PATCHED = ["src/new.py", "src/old.py", "src/moved.py", "src/gone.py"]


@pytest.fixture
def manager(base: Path) -> CheckpointManager:
    return CheckpointManager(base=base, fsync=False)


# --- tools ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "tool",
    """Write Edit MultiEdit NotebookEdit Bash apply_patch write_file replace edit run_shell_command StrReplace
    Delete ApplyPatch Shell create bash powershell write developer__write developer__edit developer__shell
    developer__text_editor fs_write execute_bash patch terminal write_to_file replace_in_file execute_command
    write_code run_command mcp__filesystem__write_file mcp__anything__read_file write_bash exec_command
    shell local_shell PowerShell process monitor run_commands editor write_stdin Agent task spawn_agent skill
    save_memory EnterWorktree KillShell an_unknown_tool""".split(),  # noqa: SIM905
)
def test_tools_that_write_and_every_shell_count_as_writing(tool: str) -> None:
    assert may_write(tool)


@pytest.mark.parametrize(
    "tool",
    """Read Glob Grep LS NotebookRead WebFetch WebSearch TodoWrite read_file list_directory search_file_content
    view glob report_intent read webfetch fs_read developer__tree developer__read_image list_files
    ask_followup_question codebase_search readFile READ_FILE update_plan view_image final_answer
    transfer_to_agent rg read_files search_codebase fetch_web_content ask_question todo__todo_write
    analyze__analyze skills_list vision_analyze TaskList request_user_input""".split(),  # noqa: SIM905
)
def test_tools_that_are_known_to_read_do_not_count_as_writing(tool: str) -> None:
    assert not may_write(tool)


def test_a_tool_without_a_name_counts_as_writing() -> None:
    assert may_write("")


# --- files ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("tool_input", "files"),
    [
        ({"file_path": "/p/a.py", "content": "x"}, ["/p/a.py"]),
        ({"filePath": "a.py", "oldString": "a", "newString": "b"}, ["a.py"]),
        ({"notebook_path": "n.ipynb", "new_source": "1"}, ["n.ipynb"]),
        ({"path": "a b/ü.txt", "file_text": "*** Update File: no.py"}, ["a b/ü.txt"]),
        ({"target_file": "a.py", "code_edit": "..."}, ["a.py"]),
        ({"files": ["a.py", "b.py", "a.py"]}, ["a.py", "b.py"]),
        ({"files": [{"path": "a.py", "content": "x"}, {"path": "b.py"}]}, ["a.py", "b.py"]),
        ({"edits": [{"file_path": "a.py"}, {"filePath": "b.py", "old_string": "path"}]}, ["a.py", "b.py"]),
        ({"file_path": "a.py", "edits": [{"old_string": "x", "new_string": "y"}]}, ["a.py"]),
        ({"changes": {"a.py": {"update": {}}, "b.py": {"delete": {}}}}, ["a.py", "b.py"]),
        ({"source": "a", "destination": "b"}, ["a", "b"]),
        ({"command": PATCH}, PATCHED),
        ({"input": PATCH}, PATCHED),
        ({"patchText": PATCH}, PATCHED),
        (PATCH, PATCHED),
        ({"command": ["apply_patch", PATCH]}, PATCHED),
        ({"command": f"apply_patch <<'EOF'\n{PATCH}EOF"}, PATCHED),
        ({"command": PATCH.replace("\n", "\r\n")}, PATCHED),
        ({"uri": "file:///p/a%20b.py"}, ["/p/a b.py"]),
        ({"uri": "https://example.com/a"}, []),
        ({"command": "rm -rf build"}, []),
        ({"path": ""}, []),
        ({"path": None, "file_path": 7}, []),
        ({"path": "a\0b"}, []),
        (None, []),
        (["a.py"], []),
        (42, []),
    ],
)
def test_the_files_a_tool_input_names(tool_input: Any, files: list[str]) -> None:
    assert named_files(tool_input) == files


def test_the_paths_of_an_endless_input_are_bounded() -> None:
    deep: Any = {"path": "a"}
    for _ in range(10_000):
        deep = [deep]
    assert named_files(deep) == []
    assert len(named_files({"files": [f"f{n}" for n in range(5000)]})) == 1000


@pytest.mark.parametrize(
    ("path", "windows", "elsewhere"),
    [
        ("/c:/Users/me/a.py", "c:/Users/me/a.py", "/c:/Users/me/a.py"),
        ("file:///C:/Users/me/a%20b.py", "C:/Users/me/a b.py", "/C:/Users/me/a b.py"),
        ("/C|/a.py", "C:/a.py", "/C|/a.py"),
        ("C:\\a.py", "C:\\a.py", "C:\\a.py"),
        ("file://localhost/p/a.py", "/p/a.py", "/p/a.py"),
        ("/p/a.py", "/p/a.py", "/p/a.py"),
    ],
)
def test_paths_of_other_spellings(path: str, windows: str, elsewhere: str) -> None:
    assert plain_path(path, windows=True) == windows
    assert plain_path(path, windows=False) == elsewhere


def test_the_directories_a_command_is_to_run_in() -> None:
    assert named_folders({"command": "make", "workdir": "/p/sub"}) == ["/p/sub"]
    assert named_folders({"command": "make", "dir_path": "sub", "path": "x"}) == ["sub"]
    assert named_folders("make") == []


# --- before a tool --------------------------------------------------------------------------------------


def test_a_tool_that_reads_takes_no_snapshot(manager: CheckpointManager, project: Path, base: Path) -> None:
    assert manager.before_tool("Read", {"file_path": "README.md"}, project).status == "not-needed"
    assert not base.exists()


def test_a_disabled_manager_takes_no_snapshot(project: Path, base: Path) -> None:
    manager = CheckpointManager(enabled=False, base=base)
    assert manager.before_tool("Write", {"file_path": "README.md"}, project).status == "disabled"
    assert not base.exists()


def test_the_first_writing_tool_of_a_turn_takes_the_project(manager: CheckpointManager, project: Path) -> None:
    manager.new_turn("s1", prompt="tidy up")
    outcome = manager.before_tool("Write", {"file_path": "src/main.py"}, project)
    assert outcome.status == "taken"
    assert outcome.checkpoint.reason == "before Write main.py"
    assert outcome.checkpoint.tool == "Write"
    assert outcome.checkpoint.session_id == "s1"
    assert outcome.checkpoint.metadata["prompt"] == "tidy up"
    assert manager.before_tool("Bash", {"command": "make"}, project).status == "already-taken"
    assert len(manager.list_checkpoints(project)) == 1


def test_a_long_prompt_is_cut(manager: CheckpointManager, project: Path) -> None:
    manager.new_turn(prompt="x" * 10_000)
    assert len(manager.before_tool("Bash", {}, project).checkpoint.metadata["prompt"]) == 2000


def test_the_project_around_the_current_directory_is_captured(manager: CheckpointManager, project: Path) -> None:
    git(project, "init")
    outcome = manager.before_tool("Bash", {"command": "make"}, project / "src")
    assert outcome.checkpoint.workdir == str(project.resolve())


def test_an_ignored_file_is_captured_if_a_tool_names_it(manager: CheckpointManager, project: Path) -> None:
    git(project, "init")
    (project / ".gitignore").write_text("*.local\n")
    (project / "my.local").write_text("mine\n")
    (project / "other.local").write_text("not named\n")
    manager.before_tool("Edit", {"file_path": str(project / "my.local")}, project / "src")
    assert "my.local" in manager.files(project, "last")
    assert "other.local" not in manager.files(project, "last")


def test_a_file_of_another_project_takes_a_snapshot_of_that_project(
    manager: CheckpointManager, project: Path, tmp_path: Path
) -> None:
    other = tmp_path / "other"
    (other / "lib").mkdir(parents=True)
    (other / "package.json").write_text("{}")
    (other / "lib" / "x.js").write_text("1")
    outcome = manager.before_tool("Edit", {"file_path": "../other/lib/x.js"}, project)
    assert outcome.status == "taken"
    assert str(other) in outcome.note
    assert manager.files(other, "last") == ["lib/x.js", "package.json"]
    assert manager.list_checkpoints(project)


def test_of_a_file_outside_any_project_only_the_file_is_captured(
    manager: CheckpointManager, project: Path, tmp_path: Path
) -> None:
    downloads = tmp_path / "downloads"
    downloads.mkdir()
    for name in ("notes.txt", "huge.txt"):
        (downloads / name).write_text(name)
    outcome = manager.before_tool("Write", {"file_path": str(downloads / "notes.txt")}, project)
    assert outcome.status == "partial"
    assert manager.get(downloads, "last").scope == "paths"
    assert manager.files(downloads, "last") == ["notes.txt"]


def test_a_file_directly_in_the_home_directory_is_captured_alone(
    manager: CheckpointManager, project: Path, home: Path
) -> None:
    (home / ".bashrc").write_text("alias ll=ls\n")
    outcome = manager.before_tool("Edit", {"file_path": "~/.bashrc"}, project)
    assert outcome.status == "partial"
    assert manager.files(home, "last") == [".bashrc"]
    (home / ".bashrc").write_text("broken")
    manager.restore(home, "last")
    assert (home / ".bashrc").read_text() == "alias ll=ls\n"


def test_in_the_home_directory_only_named_files_are_captured(
    manager: CheckpointManager, home: Path
) -> None:
    (home / "notes").write_text("1")
    assert manager.before_tool("Bash", {"command": "ls"}, home).status == "refused"
    assert manager.before_tool("Write", {"path": "notes"}, home).status == "partial"
    assert manager.files(home, "last") == ["notes"]


def test_in_the_home_directory_the_projects_of_named_files_are_captured(
    manager: CheckpointManager, home: Path
) -> None:
    project = home / "project"
    project.mkdir()
    for name in ("pyproject.toml", "a.py", "b.py"):
        (project / name).write_text("1")
    outcome = manager.before_tool("Write", {"path": "project/a.py"}, home)
    assert (outcome.status, outcome.checkpoint and outcome.checkpoint.workdir) == ("taken", str(project))
    assert manager.files(project, "last") == ["a.py", "b.py", "pyproject.toml"]
    assert manager.before_tool("Write", {"path": "project/b.py"}, home).status == "already-taken"


def test_a_link_is_followed_to_the_file_it_leads_to(
    manager: CheckpointManager, project: Path, tmp_path: Path
) -> None:
    (tmp_path / "far").mkdir()
    (tmp_path / "far" / "target").write_text("far away")
    (project / "near").symlink_to(tmp_path / "far" / "target")
    manager.before_tool("Write", {"file_path": str(project / "near")}, project)
    assert manager.files(tmp_path / "far", "last") == ["target"]
    assert "near" in manager.files(project, "last")


def test_a_command_in_another_directory_takes_that_project_too(
    manager: CheckpointManager, project: Path, tmp_path: Path
) -> None:
    other = tmp_path / "other"
    (other / "sub").mkdir(parents=True)
    git(other, "init")
    (other / "f").write_text("1")
    manager.before_tool("shell", {"command": ["make"], "workdir": str(other / "sub")}, project)
    assert manager.files(other, "last") == ["f"]


def test_every_root_of_a_workspace_is_taken(manager: CheckpointManager, project: Path, tmp_path: Path) -> None:
    second = tmp_path / "second"
    second.mkdir()
    (second / "f").write_text("1")
    manager.before_tool("Bash", {}, project, roots=[project, second])
    assert manager.list_checkpoints(second) and manager.list_checkpoints(project)


def ignored_directory(project: Path) -> Path:
    """A directory that git ignores, with a file and a directory that is excluded by default."""
    git(project, "init")
    (project / ".gitignore").write_text("cache/\n")
    folder = project / "cache"
    (folder / "deep" / "node_modules").mkdir(parents=True)
    (folder / "deep" / "notes").write_text("mine\n")
    (folder / "deep" / "node_modules" / "module.js").write_text("installed")
    return folder


def test_an_ignored_directory_is_captured_if_a_tool_names_it(manager: CheckpointManager, project: Path) -> None:
    folder = ignored_directory(project)
    assert manager.before_tool("delete_directory", {"path": "cache"}, project).status == "taken"
    assert [path for path in manager.files(project, "last") if "cache" in path] == ["cache/deep/notes"]
    shutil.rmtree(folder)
    manager.restore(project, "last")
    assert (folder / "deep" / "notes").read_text() == "mine\n"


def test_an_ignored_directory_that_a_later_tool_names_is_captured_then(
    manager: CheckpointManager, project: Path
) -> None:
    ignored_directory(project)
    manager.before_tool("Bash", {"command": "make"}, project)
    assert manager.before_tool("delete_directory", {"path": "cache"}, project).status == "taken"
    assert "cache/deep/notes" in manager.files(project, "last")
    assert manager.before_tool("delete_directory", {"path": "cache"}, project).status == "already-taken"


def test_a_directory_that_is_excluded_by_default_is_captured_only_if_it_is_named_itself(
    manager: CheckpointManager, project: Path
) -> None:
    module = ignored_directory(project) / "deep" / "node_modules"
    manager.before_tool("delete_directory", {"path": str(module.parent)}, project)
    assert "cache/deep/node_modules/module.js" not in manager.files(project, "last")
    manager.before_tool("delete_directory", {"path": str(module)}, project)
    assert "cache/deep/node_modules/module.js" in manager.files(project, "last")


@pytest.mark.parametrize(("files", "size"), [(1001, 1), (2, 33 << 20)])
def test_a_large_ignored_directory_does_not_hold_up_a_tool_that_names_it(
    manager: CheckpointManager, project: Path, files: int, size: int
) -> None:
    folder = ignored_directory(project)
    with open(folder / "file0", "wb") as file:
        file.truncate(size)
    for number in range(1, files):
        os.link(folder / "file0", folder / f"file{number}")
    assert manager.before_tool("delete_directory", {"path": "cache"}, project).status == "taken"
    assert not any("cache" in path for path in manager.files(project, "last"))


def test_directories_outside_any_project_are_not_captured(
    manager: CheckpointManager, project: Path, home: Path, tmp_path: Path
) -> None:
    (home / "unrelated").write_text("x")
    (tmp_path / "downloads").mkdir()
    (tmp_path / "downloads" / "film").write_text("x")
    for path in (str(home), "/", str(tmp_path / "downloads")):
        manager.before_tool("mcp__fs__list", {"path": path}, project)
    assert manager.projects() == [project.resolve()]


def test_a_directory_in_a_refused_one_is_not_captured(manager: CheckpointManager, home: Path) -> None:
    (home / "photos").mkdir()
    (home / "photos" / "one.jpg").write_text("x")
    assert manager.before_tool("delete_directory", {"path": "photos"}, home).status == "refused"
    assert manager.projects() == []


def test_a_git_directory_is_never_captured(manager: CheckpointManager, project: Path) -> None:
    git(project, "init")
    manager.before_tool("Edit", {"file_path": str(project / ".git" / "config")}, project)
    assert manager.projects() == [project.resolve()]
    assert not any(".git/" in path for path in manager.files(project, "last"))


@pytest.mark.parametrize("cwd", ["", "/does/not/exist", "bad\0path", None])
def test_an_unusable_current_directory_does_not_raise(
    manager: CheckpointManager, project: Path, cwd: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(project)
    outcome = manager.before_tool("Bash", {"command": "ls"}, cwd)
    assert outcome.status in ("taken", "refused", "failed")
    assert outcome.status == "taken" or outcome.error is not None


@pytest.mark.parametrize(
    "tool_input",
    [object(), {"file_path": b"bytes"}, [[[]]], "text", {1: 2}, {"path": "x" * 9999}, {"path": "x" * 300}],
)
def test_an_odd_input_still_leaves_the_project_safe(
    manager: CheckpointManager, project: Path, tool_input: Any
) -> None:
    assert manager.before_tool("Write", tool_input, project).status == "taken"


def test_a_named_file_that_cannot_be_reached_does_not_prevent_a_snapshot(
    base: Path, project: Path, as_user: Callable[..., Any]
) -> None:
    (project / "closed").mkdir()
    (project / "closed" / "file").write_text("1")

    def before_tool() -> tuple[str, list[tuple[str, str]]]:
        (project / "closed").chmod(0)
        manager = CheckpointManager(base=base, fsync=False)
        outcome = manager.before_tool("Write", {"file_path": "closed/file"}, project)
        (project / "closed").chmod(0o755)
        return outcome.status, [(item.path, item.why) for item in outcome.skipped]

    status, skipped = as_user(before_tool)
    assert status == "taken"
    assert ("closed/", "unreadable") in skipped


def test_a_turn_goes_on_in_another_process(manager: CheckpointManager, project: Path, base: Path) -> None:
    manager.new_turn("s1", prompt="hello")
    manager.before_tool("Write", {"file_path": "README.md"}, project)
    (project / "README.md").write_text("changed by the tool\n")

    other = CheckpointManager(base=base, fsync=False)
    other.resume_turn(manager.turn_state())
    before = runner.processes_started
    assert other.before_tool("Write", {"file_path": "README.md"}, project).status == "already-taken"
    assert runner.processes_started == before
    assert len(manager.list_checkpoints(project)) == 1

    ends = other.end_turn()
    assert [(end.status, end.checkpoint.kind, end.checkpoint.turn) for end in ends] == [("taken", "turn-end", 1)]
    assert ends[0].checkpoint.metadata["prompt"] == "hello"
    assert ends[0].checkpoint.metadata["before"] == manager.list_checkpoints(project)[-1].id


def test_a_resumed_turn_still_protects_an_ignored_file_that_is_new_to_it(
    manager: CheckpointManager, project: Path, base: Path
) -> None:
    git(project, "init")
    (project / ".gitignore").write_text("*.local\n")
    (project / "my.local").write_text("mine\n")
    manager.before_tool("Bash", {}, project)
    other = CheckpointManager(base=base, fsync=False)
    other.resume_turn(manager.turn_state())
    assert other.before_tool("Write", {"file_path": "my.local"}, project).status == "taken"
    assert "my.local" in manager.files(project, "last"), "the state before the turn holds it now"
    # The first state, the one with the file, and the first with the file added, which is before the turn.
    assert [each.turn for each in manager.list_checkpoints(project)] == [1, 1, 1]
    assert len(manager.timeline(project)) == 1


@pytest.mark.parametrize("state", [{}, {"places": [{}]}, {"places": 7}, {"places": [None]}, None])
def test_a_damaged_turn_state_is_a_new_turn(
    manager: CheckpointManager, project: Path, state: Any
) -> None:
    manager.resume_turn(state)
    assert manager.before_tool("Bash", {}, project).status == "taken"


def test_relative_paths_are_relative_to_the_current_directory(
    manager: CheckpointManager, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    git(project, "init")
    (project / ".gitignore").write_text("*.local\n")
    (project / "src" / "x.local").write_text("1")
    monkeypatch.chdir(project / "src")
    manager.before_tool("Write", {"file_path": "x.local"})
    assert "src/x.local" in manager.files(project, "last")


# --- shell commands -------------------------------------------------------------------------------------


@pytest.fixture
def other(tmp_path: Path) -> Path:
    """Another project, beside the one that the agent works in."""
    other = tmp_path / "other project"
    (other / "src").mkdir(parents=True)
    git(other, "init")
    (other / "src" / "app.py").write_text("1\n")
    return other


COMMANDS = {
    "a path": "rm -rf {other}/src",
    "a file": "rm {other}/src/app.py",
    "a relative path": "rm -rf ../other{space}project/src",
    "single quotes": "rm -rf '../other project/src'",
    "double quotes": 'rm -rf "../other project"/src',
    "part of a word in quotes": "rm -rf ../'other project'/src",
    "an apostrophe in quotes": "git commit -m \"don't\" && rm -rf '../other project/src'",
    "an open quote": "echo don't && rm -rf {plain}/src",
    "a directory to work in": "cd ../other{space}project && make clean",
    "a directory without its path": "cd .. && rm -rf other{space}project",
    "a directory for git": "git -C {other} reset --hard",
    "an option with a value": "agent --add-dir={other} -p tidy",
    "an option and a value": "agent --add-dir {other} -p tidy",
    "a short option": "make -C{other} clean",
    "an assignment": "dd if=/dev/zero of={other}/src/app.py",
    "a redirection": "echo>{other}/src/app.py",
    "a wildcard": "rm -rf {other}/src/*.py",
    "braces": "rm -rf {other}/{{src,lib}}",
    "a volume": "docker run -v {other}:/data image",
    "a script in a script": "bash -lc 'rm -rf {other}/src'",
    "Python": "python3 -c \"import shutil; shutil.rmtree('{plain}/src')\"",
    "a subshell": "(cd src; ls); echo $(rm -rf {other}/src)",
    "several lines": "set -e\nls\nrm -rf \\\n  {other}/src\n",
    "a file URI": "code file://{plain}/src/app.py",
}


@pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS)
def test_a_shell_command_protects_the_project_of_a_path_that_it_names(
    manager: CheckpointManager, project: Path, other: Path, command: str
) -> None:
    plain = other.with_name("plain")  # for what cannot escape a space
    plain.symlink_to(other)
    escaped = str(other).replace(" ", "\\ ")
    command = command.format(other=escaped, space="\\ ", plain=plain)
    assert manager.before_tool("Bash", {"command": "make"}, project).status == "taken"
    assert manager.before_tool("Bash", {"command": command}, project).status == "taken"
    assert manager.files(other, "last") == ["src/app.py"]
    assert manager.before_tool("Bash", {"command": command}, project).status == "already-taken"


@pytest.mark.parametrize(
    "tool_input",
    [
        "rm -rf ../other",
        {"commands": ["make", "rm -rf ../other"]},
        {"command": ["bash", "-lc", "rm -rf ../other"]},
        {"command": "rm", "args": ["-r", "../other"]},
        {"cmd": "cd ../other && make"},
        {"code": "shutil.rmtree('../other')"},
        {"chars": "cd ../other\n"},
    ],
)
def test_commands_are_found_in_the_inputs_of_all_agents(
    manager: CheckpointManager, project: Path, other: Path, tool_input: Any
) -> None:
    other = other.rename(other.with_name("other"))
    manager.before_tool("Bash", tool_input, project)
    assert manager.files(other, "last") == ["src/app.py"]


def test_home_is_found_by_its_variable_and_its_sign(manager: CheckpointManager, project: Path, home: Path) -> None:
    for number, path in enumerate(("~/code/0", "$HOME/code/1", '"${HOME}/code/2"')):
        (home / "code" / str(number) / ".git").mkdir(parents=True)
        manager.before_tool("Bash", {"command": f"rm -rf {path}"}, project)
    assert len(manager.projects()) == 4


def test_a_link_in_the_project_that_leads_to_another_one_protects_that_one(
    manager: CheckpointManager, project: Path, other: Path
) -> None:
    (project / "near").symlink_to(other)
    manager.before_tool("Bash", {"command": "cd near/ && rm -rf src"}, project)
    assert manager.files(other, "last") == ["src/app.py"]


@pytest.mark.parametrize(
    "command",
    ["rm -rf ~", "rm -rf ~/", "rm -rf $HOME", "rm -rf /", "rm -rf /*", "cd / && ls", "cd .. && ls", "ls /usr/bin",
     "make > /dev/null 2>&1", "/usr/bin/env python3 -V", "rm -rf ../no/such/path", "curl https://example.com/a/../b",
     "rm -rf src ./src {project}/src", "rm -rf ../folder", "cat '", "", "\0", "~nobody/x", "echo \ud800/../x"],
)  # fmt: skip
def test_a_shell_command_protects_nothing_that_is_no_project(
    manager: CheckpointManager, project: Path, tmp_path: Path, command: str
) -> None:
    (tmp_path / "folder").mkdir()
    command = command.replace("{project}", str(project))
    assert manager.before_tool("Bash", {"command": command}, project).status == "taken"
    assert manager.projects() == [project.resolve()]


def test_the_content_of_a_patch_is_no_command(manager: CheckpointManager, project: Path, other: Path) -> None:
    patch = PATCH.replace("-a", f"-rm -rf '{other}'")
    manager.before_tool("apply_patch", {"command": patch}, project)
    manager.before_tool("Write", {"file_path": "a.sh", "content": f"rm -rf '{other}'"}, project)
    assert manager.projects() == [project.resolve()]
    manager.before_tool("Bash", {"command": f"apply_patch <<'X'\n{patch}X\nrm -rf '{other}'"}, project)
    assert len(manager.projects()) == 2


@pytest.mark.parametrize(
    "piece",
    ["'", '"', "/x ", "../y ", "cd .. ", "a=b:/c ", "\\ ", "(", "*/", "~ ", "../y%d ", "~user%d ", "cd .. cd a ",
     "cd ../a/b/../b%d "],
)  # fmt: skip
@pytest.mark.parametrize("count", [1, 100])
@pytest.mark.each_value
def test_long_commands_do_not_take_long(tmp_path: Path, piece: str, count: int) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    size = 4_000_000 // len(piece) // count
    pieces = (piece % number if "%d" in piece else piece for number in range(size * count))
    commands = {"commands": ["".join(islice(pieces, size)) for _ in range(count)]}
    start = time.perf_counter()
    assert command_projects(commands, str(tmp_path / "a"), tmp_path) == []
    assert time.perf_counter() - start < 5  # it takes 0.2 s; machines that run tests are busy


def test_a_change_of_directory_holds_for_the_rest_of_one_command(tmp_path: Path) -> None:
    cwd, other = tmp_path / "a", tmp_path / "other"
    for folder in (cwd / "sub", other / ".git"):
        folder.mkdir(parents=True)
    base = tmp_path / "base"
    assert command_projects({"command": "cd sub && cd .. && cd .. && rm -r other"}, str(cwd), base) == [other]
    assert command_projects({"commands": ["cd ..", "rm -r other"]}, str(cwd), base) == []


def test_a_command_that_names_a_directory_with_a_history_protects_it(tmp_path: Path, base: Path) -> None:
    """Also if it does not look like a project. One without a history may be anything."""
    here, notes, photos = (tmp_path / name for name in ("here", "notes", "photos"))
    for folder in (here, notes / "sub", photos):
        folder.mkdir(parents=True)
    (notes / "n.txt").touch()
    CheckpointManager(base=base, fsync=False).snapshot(notes)
    for command in (f"rm -rf {notes}/sub", f"cd {notes}; make", "rm ../notes/n.txt"):
        assert command_projects({"command": command}, str(here), base) == [notes]
    assert command_projects({"command": f"rm -rf {photos}"}, str(here), base) == []


# --- names of what does not exist yet -----------------------------------------------------------------------


@pytest.mark.parametrize("name", ["gen/report", "gen/deep/report", "notes.local"])
def test_an_ignored_file_that_a_tool_names_and_makes_is_held_from_then_on(
    manager: CheckpointManager, project: Path, name: str
) -> None:
    (project / ".gitignore").write_text("gen/\n*.local\n")
    manager.new_turn("s1", "write the report")
    manager.before_tool("write_file", {"path": name}, project)
    (project / name).parent.mkdir(parents=True, exist_ok=True)
    (project / name).write_text("an hour of work\n")
    manager.end_turn()
    assert manager.contents(project, "1:after", [name]) == {name: b"an hour of work\n"}
    assert manager.timeline(project)[0].files_changed == 1
    manager.new_turn("s1", "clean up")
    assert manager.before_tool("bash", {"command": "make clean"}, project).protected
    (project / name).unlink()
    manager.end_turn()
    manager.restore(project, 2)
    assert (project / name).read_text() == "an hour of work\n"
    manager.undo(project)
    manager.undo(project)
    manager.undo(project)  # the state before turn 1 knows that the file did not exist
    assert not (project / name).exists()


def test_what_a_later_tool_names_and_makes_is_held_too(manager: CheckpointManager, project: Path) -> None:
    (project / ".gitignore").write_text("gen/\n")
    manager.new_turn("s1", "write")
    manager.before_tool("bash", {"command": "make"}, project)
    manager.before_tool("write_file", {"path": "gen/report"}, project)
    (project / "gen").mkdir()
    (project / "gen" / "report").write_text("1\n")
    manager.end_turn()
    assert manager.contents(project, "1:after", ["gen/report"]) == {"gen/report": b"1\n"}


def test_an_ignored_directory_that_a_tool_names_and_makes_is_held_from_then_on(
    manager: CheckpointManager, project: Path
) -> None:
    (project / ".gitignore").write_text("generated/\n")
    manager.new_turn("s1", "generate")
    manager.before_tool("make_dir", {"path": "generated"}, project)
    (project / "generated").mkdir()
    (project / "generated" / "code.py").write_text("1\n")
    manager.end_turn()
    assert "generated/code.py" in manager.files(project, "1:after")


@pytest.mark.parametrize("damage", ["cut", "gone"])
def test_what_tools_named_is_known_although_the_cache_is_lost(
    manager: CheckpointManager, project: Path, base: Path, damage: str
) -> None:
    (project / ".gitignore").write_text("*.local\n")
    (project / "my.local").write_text("1\n")
    manager.new_turn("s1", "one")
    manager.before_tool("write_file", {"path": "my.local"}, project)
    (project / "my.local").write_text("2\n")
    manager.end_turn()
    for path in (base / "store" / "indexes").iterdir():
        if damage == "gone":
            path.unlink()
        elif path.suffix == ".json":
            path.write_bytes(path.read_bytes()[:40])
    (project / "my.local").write_text("3\n")
    again = CheckpointManager(base=base, background_upkeep=False)
    again.new_turn("s1", "two")
    taken = again.before_tool("bash", {"command": "rm my.local"}, project)
    assert again.contents(project, taken.checkpoint, ["my.local"]) == {"my.local": b"3\n"}
