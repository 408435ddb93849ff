"""The demo shows the main job end to end, and leaves nothing behind."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from shadowsnap.cli.main import main


def test_the_demo_loses_work_and_brings_it_back(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["--json", "demo"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["schema"] == 1
    assert told["ok"] is True
    assert "notes/ideas.md" in told["lost"]
    assert [turn["prompt"] for turn in told["turns"]] == ["make the greeting friendlier", "clean the project up"]
    assert len(told["hook_ms"]) == 4
    assert told["directory"] is None
    assert told["seconds"] < 60


def test_it_is_narrated_and_can_be_kept(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo", "--keep"]) == 0
    out, talk = capsys.readouterr()
    assert "every byte of your uncommitted work is back" in talk
    assert max(len(line) for line in talk.splitlines()) <= 110
    project = Path(out.split("-C ")[1].split(" list")[0])
    assert (project / "notes/ideas.md").exists()
