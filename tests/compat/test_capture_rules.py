"""What each face captures is what the original system captures: git itself is asked, with the original's rules."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from helpers import manifest
from shadowsnap import CheckpointManager
from shadowsnap.compat import hermes
from shadowsnap.compat.openjarvis import CheckpointStore
from shadowsnap.compat.praisonai import CheckpointService

MB = 1024 * 1024
PRAISONAI = (".git", ".praisonai", "__pycache__", "*.pyc", ".env", "node_modules", ".venv", "venv", "*.log")
HERMES = (
    "node_modules/", "dist/", "build/", "target/", "out/", ".next/", ".nuxt/", "__pycache__/", "*.pyc", "*.pyo",
    ".cache/", ".pytest_cache/", ".mypy_cache/", ".ruff_cache/", "coverage/", ".coverage", ".venv/", "venv/",
    "env/", ".git/", ".hg/", ".svn/", ".worktrees/", "*.so", "*.dylib", "*.dll", "*.o", "*.a", "*.jar", "*.class",
    "*.exe", "*.obj", "*.mp4", "*.mov", "*.mkv", "*.webm", "*.zip", "*.tar", "*.tar.gz", "*.tgz", "*.7z", "*.rar",
    "*.iso", ".env", ".env.*", ".env.local", ".env.*.local", ".DS_Store", "Thumbs.db", "*.log",
)  # fmt: skip

KINDS = (
    "src/main.py", "build/app.js", "dist/app.whl", "out/a", "env/settings", "target/release/app", "bundle.zip",
    "film.mp4", "song.mp3", "lib.so", "server.pem", "id_rsa", ".env", ".env.local", "secrets.yaml",
    "node_modules/x.js", ".venv/x", "venv/bin/x", "__pycache__/x.pyc", "run.log", "coverage/index.html",
    ".coverage", ".worktrees/a/b", ".hg/store", "notes.swp", "notes~", "packages/.gitignore",
    "packages/ignored.txt", "packages/build/kept.js", ".praisonai/state.json", "a.egg-info/PKG-INFO",
    "archive.gz", "debug.pdb", ".DS_Store",
)  # fmt: skip


def fill(folder: Path) -> None:
    for name in KINDS:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{name}\n")
    (folder / "packages" / ".gitignore").write_text("ignored.txt\n")
    (folder / "large.bin").write_bytes(b"x" * (11 * MB))


def captured_by_git(work: Path, repository: Path, excludes: tuple[str, ...], *paths: str) -> set[str]:
    """What `git add` takes in, in a repository of its own with these excludes."""
    git = ["git", f"--git-dir={repository}", f"--work-tree={work}", "-c", "core.excludesFile=/dev/null"]
    subprocess.run(["git", "init", "-q", "--bare", str(repository)], check=True)
    (repository / "info" / "exclude").write_text("\n".join(excludes) + "\n")
    subprocess.run([*git, "config", "core.bare", "false"], check=True)
    subprocess.run([*git, "add", "-A", *paths], cwd=work, check=True)
    listed = subprocess.run([*git, "ls-files", "-z"], cwd=work, check=True, capture_output=True, text=True)
    return set(listed.stdout.split("\0")) - {""}


def by_praisonai(work: Path, base: Path) -> Callable[[], bool]:
    service = CheckpointService(str(work), str(base))

    async def save() -> bool:
        return await service.initialize() and (await service.save("all of it")).success

    async def restore() -> bool:
        listed = await service.list_checkpoints()
        return (await service.restore(listed[-1].id)).success

    assert asyncio.run(save())
    return lambda: asyncio.run(restore())


def by_openjarvis(work: Path, base: Path) -> Callable[[], bool]:
    store = CheckpointStore(work, base=base)
    store.init()
    handle = store.begin_stage("edit")
    return lambda: store.discard_stage(handle) is None


def by_hermes(work: Path, base: Path) -> Callable[[], bool]:
    hermes.CHECKPOINT_BASE = base
    manager = hermes.CheckpointManager(enabled=True)
    assert manager.ensure_checkpoint(str(work), "all of it")
    found = manager.list_checkpoints(str(work))[0]["hash"]
    return lambda: bool(manager.restore(str(work), found)["success"])


@pytest.mark.parametrize("face", ["hermes", "praisonai", "openjarvis"])
def test_a_face_captures_and_restores_what_the_original_does(
    face: str, tmp_path: Path, base: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hermes, "CHECKPOINT_BASE", base)
    work, repository = tmp_path / "work", tmp_path / "original.git"
    fill(work)
    if face == "openjarvis":
        fill(work / "agents")
        (work / "tools").mkdir()
        (work / "config.toml").write_text("model = 'a'\n")
        expected = captured_by_git(work, repository, (), "config.toml", "agents", "tools")
        assert {"config.toml", "agents/build/app.js", "agents/large.bin", "agents/id_rsa"} <= expected
    elif face == "praisonai":
        expected = captured_by_git(work, repository, PRAISONAI)
        assert {"build/app.js", "bundle.zip", "film.mp4", "lib.so", "id_rsa", "large.bin"} <= expected
    else:
        expected = captured_by_git(work, repository, HERMES) - {"large.bin"}
        assert {"id_rsa", "server.pem", "song.mp3"} <= expected and not {"bundle.zip", ".env"} & expected
    restore = {"hermes": by_hermes, "praisonai": by_praisonai, "openjarvis": by_openjarvis}[face](work, base)
    assert set(CheckpointManager(base=base, fsync=False).files(work, "last")) == expected

    before = manifest(work)
    for name in expected:
        (work / name).write_text("damaged\n")
    assert restore()
    assert manifest(work) == before
    for name in expected:
        (work / name).unlink()
    assert restore()
    assert manifest(work) == before


def test_the_projects_own_ignore_rules_hold_as_they_do_there(tmp_path: Path, base: Path) -> None:
    """`git add -A` reads them, too: the rules of a face are no stronger than a .gitignore."""
    work = tmp_path / "work"
    work.mkdir()
    (work / ".gitignore").write_text("build/\n*.zip\n")
    for name in ("build", "dist"):
        (work / name).mkdir()
        (work / name / "a").write_text("a\n")
    (work / "a.zip").write_text("a\n")
    expected = captured_by_git(work, tmp_path / "original.git", PRAISONAI)
    by_praisonai(work, base)
    assert set(CheckpointManager(base=base).files(work, "last")) == expected == {".gitignore", "dist/a"}


def test_a_file_that_is_ignored_since_is_left_out_from_then_on(tmp_path: Path, base: Path) -> None:
    work = tmp_path / "work"
    work.mkdir()
    (work / "a.cfg").write_text("one\n")
    restore = by_praisonai(work, base)
    (work / ".gitignore").write_text("*.cfg\n")
    (work / "a.cfg").write_text("two\n")
    by_praisonai(work, base)
    assert set(CheckpointManager(base=base, fsync=False).files(work, "last")) == {".gitignore"}
    assert restore() and (work / "a.cfg").read_text() == "one\n"
