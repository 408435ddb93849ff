"""What `shadowsnap docs migrate` says is so, and the faces stay what they are: thin, and loaded when wanted."""

from __future__ import annotations

import ast
import io
import re
import subprocess
import sys
import tokenize
from pathlib import Path

import pytest

from helpers import ROOT, git
from shadowsnap import AsyncCheckpointManager, CheckpointManager
from shadowsnap.cli.commands.help import topic_files

PAGE = (ROOT / "shadowsnap" / "docs" / "migrate.md").read_text("utf-8")
COMPAT = ROOT / "shadowsnap" / "compat"
FACES = ("hermes", "praisonai", "openjarvis", "entire")
EXAMPLES = dict(zip(FACES, re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL), strict=True))


def test_the_page_is_a_topic_with_a_path_from_each_system() -> None:
    assert topic_files()["migrate"].read_text("utf-8") == PAGE
    parts = re.split(r"(?m)^## ", PAGE)[1:]
    assert [part.partition("\n")[0] for part in parts] == ["Hermes Agent", "PraisonAI", "OpenJarvis", "Entire"]
    for face, part in zip(FACES, parts, strict=True):
        assert f"from shadowsnap.compat.{face} import" in part
        assert "**Your old" in part and "here, directly" in part


@pytest.mark.parametrize("face", FACES)
def test_its_examples_run(face: str, tmp_path: Path, base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHADOWSNAP_HOME", str(base))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "project").mkdir()
    (tmp_path / "project" / "main.py").write_text("print('hello')\n")
    git(tmp_path / "project", "init", "-q")
    exec(compile(EXAMPLES[face], f"migrate.md, {face}", "exec"), {"__name__": "example"})
    assert (base / "store").is_dir()


PROOFS = {
    "hermes": {
        "calls and dictionaries; `CHECKPOINT_BASE` may be replaced at any time": (
            "test_hermes.test_entries_have_the_keys_of_hermes", "test_hermes.test_a_hash_that_is_none_is_an_error",
            "test_hermes.test_the_base_is_read_at_every_call",
        ),
        "a safe restore leaves what people wrote, also where Hermes itself noted its writes": (
            "test_hermes.test_a_safe_restore_takes_back_the_agents_work_and_nothing_else",
            "test_hermes.test_what_hermes_noted_of_its_own_writes_is_taken_over",
        ),
        "what is captured: its excludes, `.env` left out, `max_file_size_mb`": (
            "test_capture_rules.test_a_face_captures_and_restores_what_the_original_does",
        ),
        "`/rollback` in a container-backed session is refused (`unsupported_backend_reason`)": (
            "test_hermes.test_a_task_in_a_container_has_no_checkpoints_and_says_why",
        ),
        "a project is orphaned only if its parent directory is known to be the one it was in": (
            "test_hermes.test_a_directory_whose_identity_was_never_seen_is_not_taken_for_deleted",
            "test_hermes.test_pruning_keeps_projects_that_may_only_be_out_of_reach",
        ),
        "they are removed, and saved first": ("test_hermes.test_a_restore_removes_what_came_later_and_saves_it",),
        "everything is restored, or nothing": ("test_hermes.test_a_restore_that_fails_changes_nothing",),
        "it is refused": ("test_hermes.test_a_checkpoint_of_another_project_is_refused",),
        "hashes never change": ("test_hermes.test_pruning_changes_no_hash",),
        "what is pinned (`shadowsnap pin`) is never pruned": ("test_hermes.test_pruning_keeps_what_is_pinned",),
        "in the shared store, about what Hermes recorded": (
            "test_shared_store.test_the_start_up_prune_of_hermes_leaves_projects_of_other_hosts_alone",
            "test_shared_store.test_clearing_hermes_leaves_the_checkpoints_of_other_hosts",
        ),
        "and with them all others that were to go": (
            "test_hermes.test_a_safe_restore_says_what_it_could_not_delete",
        ),
        "files that are not ours stay in it": (
            "test_hermes.test_clearing_everything_spares_what_is_not_ours",
        ),
        "they are projects; those that git cannot read are in `legacy_archives`": (
            "test_hermes.test_the_status_of_a_directory_of_hermes_shows_its_projects",
            "test_hermes.test_repositories_of_single_directories_that_git_cannot_read_become_an_archive",
        ),
    },
    "praisonai": {
        "methods, results, events, steps": (
            "test_praisonai.test_the_signatures_are_those_of_praisonai",
            "test_praisonai.test_listeners_hear_of_everything_in_order",
            "test_praisonai.test_a_step_can_be_gone_back_to",
        ),
        "what is captured: everything but `exclude_patterns`, of any size": (
            "test_capture_rules.test_a_face_captures_and_restores_what_the_original_does",
        ),
        '`save` without changes fails with "No changes to checkpoint", in a new process too': (
            "test_praisonai.test_a_new_process_knows_that_nothing_changed",
            "test_praisonai.test_a_checkpoint_of_another_host_is_neither_listed_nor_taken_for_one_that_was_saved",
        ),
        "what a restore finds unsaved is not listed: `restore` of the last one twice is the same as once": (
            "test_praisonai.test_restoring_the_last_checkpoint_twice_does_not_bring_the_damage_back",
        ),
        "`delete_all` also deletes what PraisonAI itself left in `storage_dir`": (
            "test_praisonai.test_what_was_deleted_is_not_imported_again",
        ),
        "it has only what was saved": (
            "test_praisonai.test_even_an_empty_workspace_is_saved_if_that_is_allowed",
            "test_praisonai.test_rewinding_counts_from_where_the_workspace_is",
        ),
        "`shadowsnap undo` brings them back": (
            "test_praisonai.test_later_checkpoints_stay_listed_and_unsaved_edits_are_saved_first",
        ),
        "they stay listed": (
            "test_praisonai.test_later_checkpoints_stay_listed_and_unsaved_edits_are_saved_first",
        ),
        "what is ignored now stays": ("test_praisonai.test_what_praisonai_destroys_stays",),
        "they come back as they were": ("test_praisonai.test_any_message_comes_back",),
        "contents and text too, and files that were emptied are not called deleted": (
            "test_praisonai.test_a_difference_has_status_numbers_and_contents",
        ),
        "`delete` takes one checkpoint of the service's own, and no other id changes": (
            "test_praisonai.test_one_checkpoint_can_be_deleted",
            "test_praisonai.test_what_another_host_took_of_the_workspace_cannot_be_deleted",
        ),
        "so they do here; in the shared store, the limits of the person hold for them": (
            "test_praisonai.test_what_is_older_than_the_limit_can_still_be_restored",
            "test_shared_store.test_the_count_that_a_host_was_given_holds_where_it_is_larger_than_the_persons",
        ),
        "all of them have one store there; `checkpoint_dir` is where PraisonAI left its own": (
            "test_praisonai.test_all_checkpoints_of_the_workspace_can_be_deleted",
            "test_praisonai.test_deleting_the_directory_of_the_workspace_deletes_nothing_of_others",
        ),
        "they are accepted, and not used": ("test_praisonai.test_a_configuration_may_name_an_author",),
    },
    "openjarvis": {
        "calls, results and errors; where OpenJarvis can be imported, its own types are used": (
            "test_openjarvis.test_where_openjarvis_is_installed_its_own_types_are_used",
        ),
        "what is captured: all of `config.toml`, `agents/` and `tools/`": (
            "test_capture_rules.test_a_face_captures_and_restores_what_the_original_does",
        ),
        "the database, its tables and columns": ("test_openjarvis.test_a_database_that_openjarvis_made_is_read",),
        "it does both": ("test_openjarvis.test_a_discarded_stage_leaves_no_trace",),
        "only what is tracked does": ("test_openjarvis.test_other_files_do_not_count",),
        "just `s1`, and then nothing": (
            "test_openjarvis.test_only_the_session_that_is_meant_is_reverted",
            "test_openjarvis.test_a_second_revert_does_nothing",
        ),
        "`RevertConflictError`, and nothing is reverted": (
            "test_openjarvis.test_a_revert_that_would_destroy_others_work_is_refused",
        ),
        "two for all of them, from any thread": (
            "test_openjarvis.test_listing_takes_as_many_queries_for_many_sessions_as_for_one",
            "test_openjarvis.test_threads_share_one_store",
        ),
        "no repository: checkpoints in the store": ("test_openjarvis.test_the_baseline_is_taken_once",),
    },
    "entire": {
        "layouts, metadata, agents as Entire spells them, trailers, parts and hashes of transcripts": (
            "test_entire.test_an_exported_session_is_read_back",
            "test_entire.test_agents_are_spelt_as_entire_does",
            "test_entire.test_a_transcript_in_parts_is_put_together",
            "test_entire.test_refs_of_the_second_layout_are_read_as_what_they_are",
        ),
        "what `entire checkpoint delete` noted is left out, and not written again": (
            "test_entire.test_what_the_person_deleted_is_left_out",
            "test_entire.test_what_was_deleted_there_is_not_written_again",
        ),
        "images that were taken out of a transcript are put back in": (
            "test_entire.test_images_are_put_back_into_the_transcript",
        ),
        "they have, and can be restored": ("test_entire.test_what_was_exported_can_be_attached",),
        "the report says which, and why": (
            "test_entire.test_one_checkpoint_that_fails_does_not_block_the_others",
        ),
        "nothing is fetched, and only `export_entire` writes": (
            "test_entire.test_a_conversation_goes_to_the_last_checkpoint_of_its_session",
        ),
        "exported ones are marked as imported, with the commit they began on": (
            "test_entire.test_an_exported_checkpoint_is_marked_as_imported_and_names_the_model",
        ),
    },
}  # fmt: skip
"""The tests that prove each row of the tables: what a row says cannot change without them."""


@pytest.mark.parametrize("face", FACES)
def test_every_row_of_its_tables_is_proved(face: str) -> None:
    part = re.split(r"(?m)^## ", PAGE)[1 + FACES.index(face)]
    rows = re.findall(r"(?m)^\| (same|better|different) \| ?(.*?) ?\| ?(.*?) ?\|$", part)
    assert {kind for kind, _, _ in rows} == {"same", "better", "different"}
    assert all(bool(here) is (kind != "same") for kind, _, here in rows)
    rows_text = [here or there for _, there, here in rows]
    assert sorted(rows_text) == sorted(PROOFS[face]) and len(rows_text) == len(set(rows_text))
    for name in {name for names in PROOFS[face].values() for name in names}:
        module, _, test = name.partition(".")
        assert f"def {test}(" in Path(__file__).with_name(f"{module}.py").read_text("utf-8"), name


def test_the_modules_it_names_are_those_of_the_originals() -> None:
    for module in ORIGINALS:
        assert module in PAGE


def test_the_methods_it_names_exist() -> None:
    names = set(re.findall(r"manager\.(\w+)\(", PAGE)) - {"list_all_checkpoints"}
    missing = {name for name in names if not hasattr(CheckpointManager, name)}
    assert names and missing == set()
    assert hasattr(AsyncCheckpointManager, "snapshot")


ORIGINALS = (
    "tools.checkpoint_manager", "tools.checkpoint_maintenance", "praisonaiagents.checkpoints",
    "openjarvis.learning.spec_search.checkpoint.store",
    "openjarvis.learning.spec_search.storage.session_store",
)  # fmt: skip
THIN = {
    ("hermes", "checkpoint_maintenance"): 250,
    ("praisonai",): 250,
    ("openjarvis",): 250,
    ("entire",): 315,  # four layouts of a format, three of them read and two written
}
"""The modules of each face, and how many lines of code they may have together."""


def test_a_face_does_not_grow() -> None:
    lines = {path.stem: code_lines(path) for path in COMPAT.glob("*.py")}
    others = {"commits", "common", "session_log", "exports"}  # what serves any system: no face of one
    assert {name for parts in THIN for name in parts} == {*lines} - {"__init__"} - others
    totals = {parts: sum(lines[name] for name in parts) for parts in THIN}
    assert {parts: total for parts, total in totals.items() if total >= THIN[parts]} == {}
    assert lines["common"] < 50


def code_lines(path: Path) -> int:
    """Lines with code on them: no blank ones, comments or docstrings."""
    text = path.read_text("utf-8")
    bare = (tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER)
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    code = {line for token in tokens if token.type not in bare for line in range(token.start[0], token.end[0] + 1)}
    for node in ast.walk(ast.parse(text)):
        value = node.value if isinstance(node, ast.Expr) else None
        if isinstance(value, ast.Constant) and isinstance(value.value, str):
            code -= set(range(value.lineno, (value.end_lineno or value.lineno) + 1))
    return len(code)


def test_nothing_loads_a_face_that_was_not_asked_for() -> None:
    script = (
        "import sys, shadowsnap; shadowsnap.CheckpointManager\n"
        "assert not [name for name in sys.modules if name.startswith('shadowsnap.compat')]\n"
        "import shadowsnap.compat\n"
        "assert [name for name in sys.modules if name.startswith('shadowsnap.compat')] == ['shadowsnap.compat']\n"
        "import shadowsnap.compat.hermes\n"
        "assert not {'asyncio', 'sqlite3'} & set(sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
