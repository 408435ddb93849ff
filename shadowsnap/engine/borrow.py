"""Asking git about the person's index without running git in their repository.

Even commands that only read may touch files there (a split index is freshened whenever it is
read). So git is given a directory of our own with a copy of their index, whose objects are
theirs to read and ours to write.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from shadowsnap.engine.person import PersonRepository, ignored_paths
from shadowsnap.engine.worktree import above, parents
from shadowsnap.errors import GitFailed
from shadowsnap.git.files import remove_tree
from shadowsnap.git.runner import Git
from shadowsnap.store.layout import Store

_NO_FILES = (b"160000 ", b"040000 ")
_CONFIG = """\
[core]
\trepositoryformatversion = 1
\tbare = false
\tfsmonitor = false
\tuntrackedCache = false
\tsplitIndex = false
\tsparseCheckout = true
\tsparseCheckoutCone = true
[index]
\tsparse = false
\tversion = 2
"""


@contextmanager
def borrowed_index(store: Store, repository: PersonRepository, git: Git) -> Iterator[Git]:
    """Git bound to a copy of their index."""
    folder = store.git_dir / f"scratch-theirs-{os.getpid()}-{id(git)}"
    try:
        _lay_out(folder, repository)
        yield git.bound(git_dir=folder, work_tree=repository.top, index_file=folder / "index", config=())
    finally:
        remove_tree(folder)


def tracked_despite_excludes(
    store: Store, repository: PersonRepository, git: Git, workdir: Path, excludes: Path
) -> list[bytes] | None:
    """Files below `workdir` that their index holds although an exclude matches; None if it cannot
    be read."""
    try:
        with borrowed_index(store, repository, git) as theirs:
            if workdir == repository.top:
                rules = ("--exclude-per-directory=.gitignore", f"--exclude-from={excludes}")
                return _listed(theirs, "-c", "-i", *rules)
            # Our patterns are relative to the project, theirs to the top: ask the one, then the other.
            inside = os.fsencode(workdir.relative_to(repository.top)) + b"/"
            below = [path[len(inside) :] for path in _listed(theirs, "-c", "--", str(workdir))]
        # Git refuses to answer about paths behind a link; those are gone anyway.
        links = {folder for folder in above(below) if os.path.islink(os.fsencode(workdir) + b"/" + folder)}
        return sorted(ignored_paths(git, [path for path in below if links.isdisjoint(parents(path))]))
    except (GitFailed, OSError):
        return None


def _lay_out(folder: Path, repository: PersonRepository) -> None:
    (folder / "objects/info").mkdir(parents=True)
    (folder / "refs").mkdir()
    (folder / "info").mkdir()
    (folder / "HEAD").write_text("ref: refs/heads/none\n")
    sha256 = b"sha256" in (repository.common_dir / "config").read_bytes().lower()
    (folder / "config").write_text(_CONFIG + ("[extensions]\n\tobjectFormat = sha256\n" if sha256 else ""))
    (folder / "objects/info/alternates").write_bytes(_quoted(repository.common_dir / "objects"))
    for path in [*repository.git_dir.glob("sharedindex.*"), repository.git_dir / "index"]:
        (folder / path.name).write_bytes(path.read_bytes())
    sparse = repository.git_dir / "info/sparse-checkout"
    if sparse.exists():
        (folder / "info/sparse-checkout").write_bytes(sparse.read_bytes())


def _quoted(path: Path) -> bytes:
    raw = os.fsencode(path).replace(b"\\", b"\\\\").replace(b'"', b'\\"').replace(b"\n", b"\\n")
    return b'"' + raw + b'"\n'


def _listed(theirs: Git, *options: str) -> list[bytes]:
    # To expand a sparse index git would write trees, and freshen those of the person.
    if b"sdir" in (theirs.git_dir / "index").read_bytes():
        theirs, options = theirs.bound(config=("index.sparse=true",)), ("--sparse", *options)
    rows = theirs.run("ls-files", "-z", "-s", *options).split(b"\0")
    return sorted({row.partition(b"\t")[2] for row in rows if row and not row.startswith(_NO_FILES)})
