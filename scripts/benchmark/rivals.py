"""The other ways to do it: git status, cp -r, a shadow repository, a flow built on read-tree."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from pathlib import Path

_WHO = {
    "GIT_AUTHOR_NAME": "bench", "GIT_AUTHOR_EMAIL": "bench@localhost",
    "GIT_COMMITTER_NAME": "bench", "GIT_COMMITTER_EMAIL": "bench@localhost",
}  # fmt: skip


def set_aside(folder: Path) -> None:
    """Move a directory out of the way. Removing it would slow down what creates files next: ext4 passes over
    inodes that were freed just now."""
    if folder.exists():
        folder.rename(folder.with_name(f"{folder.name}-{time.monotonic_ns()}"))


class Git:
    """git bound to a repository and a work tree, counting its processes."""

    def __init__(
        self, git_dir: Path, work_tree: Path, *, locks: bool = True, options: tuple[str, ...] = ()
    ) -> None:
        self.git_dir = git_dir
        self.work_tree = work_tree
        self.started = 0
        self._argv = ["git", *(part for option in options for part in ("-c", option))]
        self._environment = {
            "PATH": os.environ.get("PATH", os.defpath),
            "HOME": str(git_dir),
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_CONFIG_GLOBAL": os.devnull,
            "GIT_DIR": str(git_dir),
            "GIT_WORK_TREE": str(work_tree),
            "GIT_OPTIONAL_LOCKS": "1" if locks else "0",
            "LC_ALL": "C",
            **_WHO,
        }

    def __call__(self, *args: str, stdin: bytes | None = None) -> bytes:
        self.started += 1
        done = subprocess.run(
            [*self._argv, *args], env=self._environment, cwd=self.work_tree, input=stdin, stdout=subprocess.PIPE,
            stdin=subprocess.DEVNULL if stdin is None else None, check=True,
        )  # fmt: skip
        return done.stdout

    def processes(self) -> int:
        return self.started


class StatusThroughOurIndex:
    """`git status` with a copy of shadowsnap's private index.

    The store has no current branch, so status there would call every file new. Instead there is a
    directory that is to the store what a linked worktree is to its repository: objects, excludes and
    settings are the store's, HEAD is the newest checkpoint, the index is the copy. It is never written
    (no optional locks), and keeps the file time that git compares with those of the files.
    """

    def __init__(self, folder: Path, store: Path, index: Path, work_tree: Path, excludes: Path) -> None:
        self._index = index
        folder.mkdir(parents=True)
        (folder / "commondir").write_text(f"{store}\n")
        (folder / "HEAD").write_text("ref: refs/heads/none\n")
        self.git = Git(folder, work_tree, locks=False, options=(f"core.excludesFile={excludes}",))

    def follow(self, checkpoint: str) -> None:
        """Take the index and the newest checkpoint as they are now."""
        (self.git.git_dir / "HEAD").write_text(f"{checkpoint}\n")
        shutil.copy2(self._index, self.git.git_dir / "index")

    def run(self) -> None:
        self.git("status", "--porcelain")

    def changes(self) -> int:
        """How many lines it has to say; on a generated tree, that is how many files differ."""
        return self.git("status", "--porcelain", "-z").count(b"\0")


class ShadowRepository:
    """A repository of its own beside the project, as most agents have it: `git add -A`, `git commit`."""

    def __init__(self, git_dir: Path, work_tree: Path, excludes: bytes) -> None:
        self.git = Git(git_dir, work_tree)
        self._reader = Git(git_dir, work_tree, locks=False)
        self._excludes = excludes
        self.create()

    def create(self) -> None:
        """Make it anew, empty. A gc in the background would disturb everyone, so there is none."""
        set_aside(self.git.git_dir)
        self.git.git_dir.mkdir(parents=True)
        self.git("init", "-q")
        self.git("config", "gc.auto", "0")
        (self.git.git_dir / "info" / "exclude").write_bytes(self._excludes)

    def commit(self) -> None:
        self.git("add", "-A")
        self.git("commit", "-q", "--allow-empty", "-m", "snapshot")

    def status(self) -> None:
        self._reader("status", "--porcelain")

    def status_processes(self) -> int:
        return self._reader.started

    def head(self) -> str:
        return self.git("rev-parse", "HEAD").decode().strip()

    def files(self) -> list[Path]:
        """Ordinary files that are captured."""
        rows = self.git("ls-files", "-s", "-z").split(b"\0")
        return [Path(os.fsdecode(row.split(b"\t", 1)[1])) for row in rows if row.startswith(b"100")]


class ReadTreeFlow:
    """The index is filled from the last snapshot by read-tree each time, which forgets the stat data, so
    that `git add` reads every file again; then write-tree, commit-tree and update-ref."""

    _REF = "refs/heads/snapshots"

    def __init__(self, git_dir: Path, work_tree: Path) -> None:
        self.git = Git(git_dir, work_tree)
        self._last = ""

    def start_from(self, shadow: ShadowRepository) -> None:
        """Begin with the first snapshot of another repository, whose objects are read where they are."""
        self.git.git_dir.mkdir(parents=True)
        self.git("init", "-q")
        self.git("config", "gc.auto", "0")
        theirs = shadow.git.git_dir
        shutil.copy2(theirs / "info" / "exclude", self.git.git_dir / "info" / "exclude")
        (self.git.git_dir / "objects" / "info" / "alternates").write_text(f"{theirs / 'objects'}\n")
        self._last = shadow.head()

    def snapshot(self) -> None:
        self.git("read-tree", self._last)
        self.git("add", "-A")
        tree = self.git("write-tree").decode().strip()
        self._last = self.git("commit-tree", tree, "-p", self._last, "-m", "snapshot").decode().strip()
        self.git("update-ref", self._REF, self._last)


class Copy:
    """`cp -r` of the tree."""

    def __init__(self, tree: Path, copy: Path) -> None:
        self._tree = tree
        self._copy = copy

    def run(self) -> None:
        subprocess.run(["cp", "-r", "--", str(self._tree), str(self._copy)], check=True)

    def set_aside(self) -> None:
        set_aside(self._copy)
