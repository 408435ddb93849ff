"""Where checkpoints of other tools lie, and what is known of them there. Everything is only read.

hermes-directory   `<hash>/` with HEAD and HERMES_WORKDIR: one repository per directory, a branch
hermes-store       one repository, a branch `refs/hermes/<hash>` and `projects/<hash>.json` each
praisonai          `<hash>/.git` with `core.worktree`: one repository per workspace, a branch
entire             branches `entire/<commit>-<worktree>` in the person's own repository
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from shadowsnap.errors import GitFailed
from shadowsnap.git.runner import Git
from shadowsnap.store.layout import Store
from shadowsnap.store.older import ARCHIVE, WORKDIR_MARKER, is_hermes_store, is_repository, is_shadow_repository

_WORKSPACE_NAME = re.compile(r"[0-9a-f]{12}")
_SHADOW_BRANCH = re.compile(r"refs/heads/entire/[0-9a-f]{4,40}(?:-([0-9a-f]{6}))?")
# Nothing may be fetched to complete what we read.
READ_ONLY = ("protocol.allow=never", "core.fsmonitor=false", "core.hooksPath=" + os.devnull)


@dataclass(frozen=True)
class Source:
    """One line of checkpoints of one directory."""

    layout: str
    path: Path
    """What is shown to the person."""
    git_dir: Path
    tips: tuple[str, ...] = ()
    workdir: str = ""
    excludes: tuple[str, ...] = ()
    """Patterns that kept files out of the checkpoints."""
    problem: str = ""
    """Why nothing can be imported from it."""

    def git(self, store: Store) -> Git:
        """Git that reads there. The work tree is ours, because theirs may be gone."""
        return store.git().bound(git_dir=self.git_dir, work_tree=store.base, config=READ_ONLY)


def find_sources(store: Store, path: Path) -> list[Source]:
    """Every source at a path: it may be one, or hold them, as the base of a tool or an archive does."""
    found: list[Source] = []
    for folder in _candidates(path):
        if is_hermes_store(folder):
            found += _hermes_store(store, folder)
        elif is_shadow_repository(folder):
            found.append(_hermes_directory(store, folder))
        elif _is_workspace(folder):
            found.append(_praisonai(store, folder))
    return found or list(_entire(store, path))


def _candidates(path: Path) -> Iterator[Path]:
    yield path
    for folder in _folders(path):
        yield folder
        if folder.name.startswith(ARCHIVE):
            yield from _folders(folder)


def _folders(path: Path) -> list[Path]:
    try:
        return sorted(folder for folder in path.iterdir() if folder.is_dir())
    except OSError:
        return []


# --- Hermes ----------------------------------------------------------------------------------


def _hermes_directory(store: Store, folder: Path) -> Source:
    source = Source("hermes-directory", folder, folder, excludes=_patterns(folder))
    workdir = _text(folder / WORKDIR_MARKER)
    if not _is_place(workdir):
        return replace(source, problem=f"{WORKDIR_MARKER} does not say which directory it is of")
    return _with_tips(store, replace(source, workdir=workdir), "refs/heads/")


def _hermes_store(store: Store, folder: Path) -> Iterator[Source]:
    excludes = _patterns(folder)
    whole = Source("hermes-store", folder, folder, excludes=excludes)
    try:
        refs = _refs(whole.git(store), "refs/hermes/")
    except GitFailed as problem:
        yield replace(whole, problem=str(problem))
        return
    for ref, tip in refs.items():
        name = ref.removeprefix("refs/hermes/")
        workdir = _json(folder / "projects" / f"{name}.json").get("workdir")
        source = replace(whole, path=folder / ref, tips=(tip,))
        if isinstance(workdir, str) and _is_place(workdir):
            yield replace(source, workdir=workdir)
        else:
            yield replace(source, problem=f"projects/{name}.json does not say which directory it is of")


# --- PraisonAI -------------------------------------------------------------------------------


def _is_workspace(folder: Path) -> bool:
    return bool(_WORKSPACE_NAME.fullmatch(folder.name)) and is_repository(folder / ".git")


def _praisonai(store: Store, folder: Path) -> Source:
    git_dir = folder / ".git"
    source = Source("praisonai", folder, git_dir, excludes=_patterns(git_dir))
    answer = source.git(store).run("config", "--file", str(git_dir / "config"), "core.worktree", ok=(0, 1))
    workdir = os.fsdecode(answer).removesuffix("\n")
    if not _is_place(workdir):
        return replace(source, problem="core.worktree does not say which directory it is of")
    return _with_tips(store, replace(source, workdir=workdir), "refs/heads/")


# --- Entire ----------------------------------------------------------------------------------


def _entire(store: Store, path: Path) -> Iterator[Source]:
    git_dir = common_dir(path)
    if git_dir is None:
        return
    whole = Source("entire", path, git_dir, excludes=_patterns(git_dir))
    worktrees = _worktrees(git_dir)
    for ref, tip in _refs(whole.git(store), "refs/heads/entire/").items():
        branch = _SHADOW_BRANCH.fullmatch(ref)
        if branch is None:
            continue  # other branches of the same tool hold no files
        source = replace(whole, path=git_dir / ref, tips=(tip,))
        workdir = worktrees.get(branch[1] or _worktree_key(""))
        if workdir is None:
            yield replace(source, problem="the worktree it is of does not exist any more")
        else:
            yield replace(source, workdir=workdir)


def common_dir(path: Path) -> Path | None:
    """The repository that a directory is the work tree of, or is itself."""
    git_dir = path if is_repository(path) else path / ".git"
    if git_dir.is_file():
        git_dir = path / _text(git_dir).removeprefix("gitdir: ")
    common = _text(git_dir / "commondir")
    git_dir = Path(os.path.normpath(git_dir / common)) if common else git_dir
    return git_dir if is_repository(git_dir) else None


def _worktrees(git_dir: Path) -> dict[str, str]:
    """The directory of each work tree, by what Entire calls it in names of branches."""
    found = {_worktree_key(""): str(git_dir.parent)} if git_dir.name == ".git" else {}
    for folder in _folders(git_dir / "worktrees"):
        pointer = _text(folder / "gitdir")
        if pointer:
            found[_worktree_key(folder.name)] = os.path.dirname(os.path.join(folder, pointer))
    return found


def _worktree_key(name: str) -> str:
    return hashlib.sha256(name.encode("utf-8", "surrogateescape")).hexdigest()[:6]


# --- reading ---------------------------------------------------------------------------------


def _with_tips(store: Store, source: Source, prefix: str) -> Source:
    git = source.git(store)
    try:
        tips = list(_refs(git, prefix).values())
        head = git.run("rev-parse", "--verify", "-q", "HEAD", ok=(0, 1)).decode().strip()
    except GitFailed as problem:
        return replace(source, problem=str(problem))
    return replace(source, tips=tuple(dict.fromkeys(filter(None, (head, *tips)))))


def _refs(git: Git, prefix: str) -> dict[str, str]:
    rows = git.run("for-each-ref", "--format=%(objectname) %(refname)", prefix).decode().splitlines()
    return {ref: name for name, _, ref in (row.partition(" ") for row in rows)}


def _patterns(git_dir: Path) -> tuple[str, ...]:
    lines = _text(git_dir / "info" / "exclude").splitlines()
    return tuple(line for line in lines if line.strip() and not line.startswith("#"))


def _is_place(workdir: str) -> bool:
    return os.path.isabs(workdir) and "\0" not in workdir


def _text(path: Path) -> str:
    try:
        return os.fsdecode(path.read_bytes()).removeprefix("\ufeff").strip()
    except OSError:
        return ""


def _json(path: Path) -> dict[str, object]:
    try:
        value = json.loads(_text(path))
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}
