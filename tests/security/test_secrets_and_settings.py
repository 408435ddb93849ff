"""Which secrets are captured: what the person's git tracks, and what the person says."""

from __future__ import annotations

from pathlib import Path

from capturing import names, skipped, snap

from helpers import git
from shadowsnap.settings import Layers, Settings


def test_a_file_that_git_tracks_is_no_secret_any_more(base: Path, project: Path) -> None:
    git(project, "init", "-q")
    for name in (".env", "secrets.yaml", "deploy.key"):
        (project / name).write_text("x = 1\n")
    checkpoint = snap(base, project)
    assert skipped(checkpoint) == dict.fromkeys((".env", "secrets.yaml", "deploy.key"), "secret")
    git(project, "add", "-f", "secrets.yaml", "deploy.key")
    checkpoint = snap(base, project)
    assert {"secrets.yaml", "deploy.key"} <= names(base, checkpoint) and skipped(checkpoint) == {".env": "secret"}
    (project / "deploy.key").write_text("x = 2\n")
    assert "deploy.key" in names(base, snap(base, project))
    git(project, "rm", "-q", "--cached", "-f", "deploy.key")
    checkpoint = snap(base, project)
    assert skipped(checkpoint) == {".env": "secret", "deploy.key": "secret"}
    assert names(base, checkpoint) == names(base.parent / "fresh", snap(base.parent / "fresh", project))


def test_single_names_can_be_captured_all_the_same(base: Path, project: Path) -> None:
    for name in (".env", "secrets.yaml", "src/secrets.yaml"):
        (project / name).write_text("x = 1\n")
    checkpoint = snap(base, project)
    assert skipped(checkpoint) == dict.fromkeys((".env", "secrets.yaml", "src/secrets.yaml"), "secret")
    checkpoint = snap(base, project, capture_secrets=("secrets.yaml",))
    assert {"secrets.yaml", "src/secrets.yaml"} <= names(base, checkpoint)
    assert skipped(checkpoint) == {".env": "secret"}
    checkpoint = snap(base, project)
    assert not {"secrets.yaml", "src/secrets.yaml"} & names(base, checkpoint)


def test_a_clone_cannot_have_secrets_captured(tmp_path: Path) -> None:
    (tmp_path / ".shadowsnap.toml").write_text("capture_secrets = ['*']\ninclude_secrets = true\n")
    settings, warnings = Layers(Settings()).narrowed_by(tmp_path)
    assert settings == Settings() and len(warnings) == 2
