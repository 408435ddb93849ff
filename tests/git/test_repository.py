"""How git is run: with a deadline, in its own session, and with all of its output."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest
from fakegit import Lifeline, fake_git

from shadowsnap.deadline import Deadline
from shadowsnap.errors import DeadlineExceeded, GitFailed
from shadowsnap.git import repository as runner
from shadowsnap.git.repository import Git, side_by_side
from shadowsnap.settings import Settings
from shadowsnap.store.layout import open_store


@pytest.fixture
def git(base: Path) -> Git:
    return open_store(Settings(base=base)).git()


def open_files() -> int:
    return len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0


# --- a command and its end --------------------------------------------------------------------------


def test_a_command_returns_what_it_printed(git: Git) -> None:
    assert git.run("rev-parse", "--is-bare-repository") == b"true\n"


def test_an_error_has_the_command_the_status_and_the_reason(git: Git) -> None:
    with pytest.raises(GitFailed) as caught:
        git.run("cat-file", "-t", "a" * 40)
    assert caught.value.facts["command"] == "cat-file"
    assert caught.value.facts["status"] == 128
    assert "git cat-file failed with status 128: fatal: " in str(caught.value)


def test_an_expected_exit_code_is_no_failure(git: Git) -> None:
    assert git.run("config", "--get", "no.such", ok=(0, 1)) == b""
    with pytest.raises(GitFailed):
        git.run("config", "--get", "no.such")


def test_much_input_and_much_output_do_not_block_each_other(git: Git) -> None:
    name = git.run("hash-object", "-w", "--stdin", stdin=b"x" * 3_000_000).strip()
    answer = git.run("cat-file", "--batch", stdin=(name + b"\n") * 10)
    assert len(answer) == 10 * (len(b"%s blob 3000000\n" % name) + 3_000_001)


def test_git_does_not_wait_for_input_that_never_comes(git: Git, tmp_path: Path) -> None:
    """`git add` once waited for a standard input that was never closed."""
    reader = git.bound(executable=str(fake_git(tmp_path / "bin", "cat; echo end")))
    assert reader.run("anything") == b"end\n"


def test_input_that_git_does_not_read_is_no_error(git: Git, tmp_path: Path) -> None:
    deaf = git.bound(executable=str(fake_git(tmp_path / "bin", "exec <&-; echo done")))
    assert deaf.run("anything", stdin=b"x" * 1_000_000) == b"done\n"


def test_no_file_stays_open(git: Git, tmp_path: Path) -> None:
    hanging = git.bound(executable=str(fake_git(tmp_path / "bin", "sleep 1000")), deadline=Deadline(0.1))
    before = open_files()
    git.run("version")
    with pytest.raises(GitFailed):
        git.run("no-such-command")
    with pytest.raises(DeadlineExceeded):
        hanging.run("anything")
    with git.conversation("cat-file", "--batch"):
        pass
    git.start("version").abandon()
    assert open_files() == before


# --- the deadline -----------------------------------------------------------------------------------

HANGING = {
    "hangs": "echo $$ >&9; exec sleep 1000",
    "hangs with children": "echo $$ >&9; sleep 1000 & (sleep 1000 & sleep 1000) & wait",
    "does not want to die": "echo $$ >&9; trap '' TERM INT HUP; while :; do sleep 1000; done",
    "ended, but a child holds its output": "echo $$ >&9; sleep 1000 & exit 0",
    "closed its output": "echo $$ >&9; exec >&- 2>&-; sleep 1000",
}


@pytest.mark.parametrize("script", HANGING.values(), ids=HANGING.keys())
def test_a_git_that_hangs_is_killed_with_its_children_and_reaped(git: Git, tmp_path: Path, script: str) -> None:
    with Lifeline(tmp_path / "line") as line:
        executable = fake_git(tmp_path / "bin", f"{line.hold}\n{script}")
        hanging = git.bound(executable=str(executable), deadline=Deadline(0.3))
        with pytest.raises(DeadlineExceeded, match="0.3 s ran out while git status was running"):
            hanging.run("status")
        pid = int(line.said_before_the_last_one_died())
    with pytest.raises(ChildProcessError):
        os.waitpid(pid, os.WNOHANG)


def test_a_conversation_ends_at_the_deadline(git: Git, tmp_path: Path) -> None:
    with Lifeline(tmp_path / "line") as line:
        executable = fake_git(tmp_path / "bin", f"{line.hold}\nsleep 1000 & wait")
        hanging = git.bound(executable=str(executable), deadline=Deadline(0.3))
        with hanging.conversation("cat-file", "--batch") as process:
            assert process.stdout is not None
            assert process.stdout.readline() == b""
        assert line.said_before_the_last_one_died() == b""
    assert process.returncode is not None


def test_a_conversation_can_end_in_the_middle_of_an_answer(git: Git, tmp_path: Path) -> None:
    with Lifeline(tmp_path / "line") as line:
        executable = fake_git(tmp_path / "bin", f"{line.hold}\nprintf 'whole\\nhalf'; sleep 1000 & wait")
        hanging = git.bound(executable=str(executable), deadline=Deadline(0.3))
        with hanging.conversation("cat-file", "--batch") as process:
            assert process.stdout is not None
            assert [process.stdout.readline() for _ in range(3)] == [b"whole\n", b"half", b""]
        assert line.said_before_the_last_one_died() == b""


def test_a_conversation_takes_its_process_with_it(git: Git, tmp_path: Path) -> None:
    threads = threading.active_count()
    with Lifeline(tmp_path / "line") as line:
        executable = fake_git(tmp_path / "bin", f"{line.hold}\nsleep 1000 & wait")
        waiting = git.bound(executable=str(executable), deadline=Deadline(1000))
        with pytest.raises(KeyError), waiting.conversation("cat-file", "--batch"):
            line.break_off(1)
        assert line.said_before_the_last_one_died() == b""
    assert threading.active_count() == threads


def test_after_the_deadline_nothing_is_started(git: Git) -> None:
    before = runner.processes_started
    with pytest.raises(DeadlineExceeded, match="starting git version"):
        git.bound(deadline=Deadline(1e-9)).run("version")
    assert runner.processes_started == before


def test_commands_side_by_side_do_not_outlive_their_block(git: Git, tmp_path: Path) -> None:
    with Lifeline(tmp_path / "line") as line:
        waiting = git.bound(executable=str(fake_git(tmp_path / "bin", f"{line.hold}\nsleep 1000 & wait")))
        one, other = waiting.start("one"), waiting.start("other")
        with pytest.raises(KeyError), side_by_side(one, other):
            line.break_off(2)
        assert line.said_before_the_last_one_died() == b""


def test_commands_run_side_by_side(git: Git, tmp_path: Path) -> None:
    """Each waits for the other, so run in sequence they would never end."""
    os.mkfifo(tmp_path / "there")
    os.mkfifo(tmp_path / "back")
    first = fake_git(tmp_path / "a", f"echo hello >'{tmp_path}/there'; cat '{tmp_path}/back'")
    second = fake_git(tmp_path / "b", f"cat '{tmp_path}/there'; echo answer >'{tmp_path}/back'")
    one = git.bound(executable=str(first), deadline=Deadline(20)).start("one")
    other = git.bound(executable=str(second), deadline=Deadline(20)).start("other")
    with side_by_side(one, other):
        assert (one.output(), other.output()) == (b"answer\n", b"hello\n")


def test_processes_are_counted(git: Git) -> None:
    before = runner.processes_started
    git.run("version")
    with git.conversation("cat-file", "--batch"):
        pass
    git.start("version").output()
    assert runner.processes_started == before + 3


# --- what it is bound to ----------------------------------------------------------------------------


def test_git_works_on_what_it_is_bound_to(git: Git, project: Path, tmp_path: Path) -> None:
    bound = git.bound(work_tree=project, index_file=tmp_path / "private-index")
    bound.run("add", "README.md")
    assert bound.run("ls-files") == b"README.md\n"
    assert (tmp_path / "private-index").exists()
    assert bound.run("rev-parse", "--show-toplevel").decode().strip() == str(project)


def test_new_objects_go_to_the_scratch_directory_and_old_ones_are_found(git: Git, tmp_path: Path) -> None:
    kept = git.run("hash-object", "-w", "--stdin", stdin=b"kept").strip().decode()
    (tmp_path / "scratch").mkdir()
    trying = git.bound(scratch_objects=tmp_path / "scratch")
    passing = trying.run("hash-object", "-w", "--stdin", stdin=b"passing").strip().decode()
    assert trying.run("cat-file", "blob", kept) == b"kept"
    assert trying.run("cat-file", "blob", passing) == b"passing"
    with pytest.raises(GitFailed):
        git.run("cat-file", "blob", passing)


def test_names_are_never_patterns(git: Git, tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    tree.mkdir()
    for name in ("report[1].dat", "report1.dat", ":magic", "*"):
        (tree / name).touch()
    bound = git.bound(work_tree=tree, index_file=tmp_path / "private-index")
    for name in ("report[1].dat", ":magic", "*"):
        assert bound.run("ls-files", "-o", "--", name) == name.encode() + b"\n"


def test_settings_of_one_command_reach_it_unchanged(git: Git) -> None:
    odd = "a=b c\"d'e\nf"
    assert git.bound(config=(f"shadowsnap.odd={odd}",)).run("config", "shadowsnap.odd").decode() == odd + "\n"


def test_a_conversation_goes_on_however_much_git_complains(git: Git, tmp_path: Path) -> None:
    """Its errors are not read, and must not fill a pipe."""
    script = "read line; head -c 300000 /dev/zero >&2; echo answer"
    loud = git.bound(executable=str(fake_git(tmp_path / "bin", script)), deadline=Deadline(20))
    with loud.conversation("cat-file", "--batch") as process:
        assert process.stdin is not None and process.stdout is not None
        process.stdin.write(b"question\n")
        process.stdin.flush()
        assert process.stdout.readline() == b"answer\n"


def test_of_many_error_lines_the_first_are_reported(git: Git, tmp_path: Path) -> None:
    script = "for number in 1 2 3 4 5 6 7 8 9; do echo complaint $number >&2; done; exit 1"
    loud = git.bound(executable=str(fake_git(tmp_path / "bin", script)))
    with pytest.raises(GitFailed) as caught:
        loud.run("checkout-index")
    assert "complaint 5\n(and 4 more)" in str(caught.value) and "complaint 6" not in str(caught.value)
