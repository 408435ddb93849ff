"""The demo shows the main job end to end, and leaves nothing behind."""

from __future__ import annotations

import json
import os
import re
import tempfile
from pathlib import Path

import pytest
from answers import problems

from shadowsnap.cli.main import main


def test_the_demo_loses_work_and_brings_it_back(capsys: pytest.CaptureFixture[str], home: Path) -> None:
    """The person's own settings and store have no part in it."""
    variables, files = dict(os.environ), sorted(home.rglob("*"))
    assert main(["--json", "demo"]) == 0
    assert (dict(os.environ), sorted(home.rglob("*"))) == (variables, files)
    told = json.loads(capsys.readouterr().out)
    assert problems("demo", told) == []
    assert told["ok"] is True
    assert told["lost"] == ["notes/ideas.md", "tests/test_cart.py"]
    assert [entry["prompt"] for entry in told["entries"] if entry["kind"] == "turn"] == told["prompts"][::-1]
    assert [entry["kind"] for entry in told["entries"]] == ["turn", "edits", "turn", "turn"]
    assert told["prompts"][-1] == "clean the project up"
    assert len(told["hook_ms"]) == len(told["calls"]) == 5
    assert told["directory"] is None
    assert told["seconds"] < 60


def test_it_is_narrated_and_can_be_kept(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))  # where it is kept
    assert main(["demo", "--keep"]) == 0
    out, talk = capsys.readouterr()
    shown = talk.partition("shadowsnap diff 3 --stat")[2]
    assert re.search(r"^ +D notes/ideas.md +\+0 -\d+$", shown, re.MULTILINE)  # as the command itself shows it
    assert "every byte of the lost files is back, and your edits stay" in talk
    assert "~/shop    protected by claude, last check " in talk
    assert max(len(line) for line in talk.splitlines()) <= 90
    project = Path(out.split("-C ")[1].split(" list")[0])
    assert (project / "notes/ideas.md").exists()
