"""Repositories as other tools leave them, made with real git the way those tools make them."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

from helpers import git

Files = Mapping[str, str | bytes | None]
"""Path -> content; None removes it, a name that ends in a star is executable."""

EXCLUDES = ("node_modules/", "coverage/", ".env", "*.log", ".git/")


def write(workdir: Path, files: Files) -> None:
    for name, content in files.items():
        path = workdir / name.rstrip("*")
        if content is None:
            path.unlink()
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        if name.endswith("*"):
            path.chmod(0o755)


def run(git_dir: Path, workdir: Path, *args: str, at: int = 1_700_000_000, index: Path | None = None) -> str:
    """git as such a tool runs it: its own repository, the person's directory."""
    environment = {
        **os.environ, "GIT_DIR": str(git_dir), "GIT_WORK_TREE": str(workdir),
        "GIT_AUTHOR_DATE": f"{at} +0200", "GIT_COMMITTER_DATE": f"{at + 7} +0200",
    }  # fmt: skip
    if index is not None:
        environment["GIT_INDEX_FILE"] = str(index)
    command = ["git", *args]
    done = subprocess.run(command, cwd=workdir, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def hermes_directory(base: Path, workdir: Path, states: list[tuple[str, int, Files]]) -> Path:
    """One shadow repository per directory, named by its path."""
    workdir.mkdir(parents=True, exist_ok=True)
    repository = base / hashlib.sha256(str(workdir).encode()).hexdigest()[:16]
    if not repository.exists():
        repository.mkdir(parents=True)
        run(repository, workdir, "init", "-q")
        (repository / "info" / "exclude").write_text("\n".join(EXCLUDES) + "\n")
        (repository / "HERMES_WORKDIR").write_text(f"{workdir}\n")
    for reason, at, files in states:
        write(workdir, files)
        run(repository, workdir, "add", "-A")
        run(repository, workdir, "commit", "-q", "--allow-empty", "-m", reason, "--no-gpg-sign", at=at)
    return repository


def hermes_store(base: Path, workdir: Path, states: list[tuple[str, int, Files]]) -> Path:
    """One store for all directories: a branch, an index and a record each."""
    workdir.mkdir(parents=True, exist_ok=True)
    store = base / "store"
    name = hashlib.sha256(str(workdir).encode()).hexdigest()[:16]
    if not store.exists():
        store.mkdir(parents=True)
        git(base, "init", "-q", "--bare", store)
        (store / "indexes").mkdir()
        (store / "projects").mkdir()
        (store / "info" / "exclude").write_text("\n".join(EXCLUDES) + "\n")
    record = {"workdir": str(workdir), "created_at": 1.0, "last_touch": 2.0}
    (store / "projects" / f"{name}.json").write_text(json.dumps(record))
    parent: list[str] = []
    for reason, at, files in states:
        write(workdir, files)
        run(store, workdir, "add", "-A", index=store / "indexes" / name)
        tree = run(store, workdir, "write-tree", index=store / "indexes" / name)
        commit = run(store, workdir, "commit-tree", tree, *parent, "-m", reason, "--no-gpg-sign", at=at)
        run(store, workdir, "update-ref", f"refs/hermes/{name}", commit)
        parent = ["-p", commit]
    return store


def praisonai(storage: Path, workdir: Path, states: list[tuple[str, int, Files]]) -> Path:
    """One repository per workspace, whose work tree is set in its configuration."""
    workdir.mkdir(parents=True, exist_ok=True)
    folder = storage / hashlib.sha256(str(workdir).encode()).hexdigest()[:12]
    git_dir = folder / ".git"
    folder.mkdir(parents=True)
    run(git_dir, workdir, "init", "-q")
    run(git_dir, workdir, "config", "user.name", "PraisonAI Checkpoints")
    run(git_dir, workdir, "config", "core.worktree", str(workdir))
    (git_dir / "info" / "exclude").write_text("\n".join((*EXCLUDES, str(folder))) + "\n")
    run(git_dir, workdir, "commit", "-q", "--allow-empty", "-m", "Initial checkpoint", at=states[0][1] - 60)
    for reason, at, files in states:
        write(workdir, files)
        run(git_dir, workdir, "add", "-A")
        run(git_dir, workdir, "commit", "-q", "-m", reason, at=at)
    return folder


def entire(repository: Path, workdir: Path, worktree: str, states: list[tuple[str, int, Files]]) -> str:
    """A branch beside the person's own, for the commit they were on and the work tree."""
    head = git(workdir, "rev-parse", "HEAD")
    branch = f"entire/{head[:7]}-{hashlib.sha256(worktree.encode()).hexdigest()[:6]}"
    index = repository / ".git" / "entire-index"
    git_dir = repository / ".git"
    parent: list[str] = []
    for reason, at, files in states:
        write(workdir, files)
        session = "2026-01-02-some-session"
        write(workdir, {f".entire/metadata/{session}/prompt.txt": reason})
        run(git_dir, workdir, "read-tree", parent[1] if parent else head, index=index)
        run(git_dir, workdir, "add", "-A", "-f", ".", index=index)
        tree = run(git_dir, workdir, "write-tree", index=index)
        trailers = f"Entire-Metadata: .entire/metadata/{session}\nEntire-Session: {session}\nEntire-Strategy: x\n"
        commit = run(git_dir, workdir, "commit-tree", tree, *parent, "-m", f"{reason}\n\n{trailers}", at=at)
        run(git_dir, workdir, "update-ref", f"refs/heads/{branch}", commit)
        parent = ["-p", commit]
    index.unlink(missing_ok=True)
    return branch
