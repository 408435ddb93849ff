"""Lanes on a git server: each lane is one ref, `refs/shadowsnap-lanes/v1/<project>/<machine>`.

The ref leads to a chain of commits. A plain lane is a chain of carriers and checkpoints (see `carrier`). The trees
of an encrypted one hold opaque files: its manifests and packs. A change is one commit on top of the tip that was
seen, pushed with a lease: it is refused if another machine was first. When files are removed, a new chain is
begun, so that they go from the server too. A lane has only one ref, because every push makes the server list all
its refs. The message of a commit is what `lanes` shows, so that listing needs no files.

The person's git configuration and credentials are used for these network commands, and for nothing else. What is
fetched is kept in a small repository of its own (`<base>/remote/<digest>.git`), never in the store.
"""

from __future__ import annotations

import base64
import os
import re
import secrets
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path

from shadowsnap.deadline import Deadline
from shadowsnap.errors import (
    DamagedObject,
    DeadlineExceeded,
    DiskFull,
    GitFailed,
    MalformedObject,
    RemoteFailed,
    UnsafeTree,
)
from shadowsnap.files import remove_tree, write_bytes
from shadowsnap.git.objects import EMPTY_TREE, LooseObjects, is_object_id
from shadowsnap.git.reading import ObjectReader
from shadowsnap.git.refs import read_ref
from shadowsnap.git.repository import Git, Running
from shadowsnap.git.trees import DIRECTORY, REGULAR, Leaf, format_tree, parse_tree
from shadowsnap.remote.checking import ANY_CONTENT, STREAMED
from shadowsnap.remote.manifest import HEADS, MOST_BYTES, MOST_PACK_BYTES, head_with_content, lane_folder
from shadowsnap.remote.storage import TOP, Item, TooLarge
from shadowsnap.store.lanes import LANE_NAME, mirror_of, shown_url
from shadowsnap.store.layout import Store, store_files

REFS = "refs/shadowsnap-lanes/v1"
_MIRROR = "refs/mirror"
_LANE_NAME = re.compile(rf"{TOP}/lanes/([0-9a-f]{{20}}/[0-9a-f]{{12}})/(.+)")
_PROBE_NAME = re.compile(rf"{TOP}/probe/([0-9a-f]+)")
_SECONDS = 600.0
_CHUNK = 1 << 20
# Whatever the person configured: no hooks, no signing, no unusual transport.
_NETWORK = (
    f"core.hooksPath={os.devnull}", "push.gpgSign=false", "push.followTags=false", "push.recurseSubmodules=no",
    "fetch.recurseSubmodules=false", "fetch.writeCommitGraph=false", "protocol.ext.allow=never", "gc.auto=0",
    "maintenance.auto=false", "transfer.fsckObjects=true", "core.askPass=", "fetch.unpackLimit=1",
    "pack.compression=9", "http.lowSpeedLimit=1", "http.lowSpeedTime=60",
    *STREAMED, *(f"fetch.fsck.{each}=ignore" for each in ANY_CONTENT),
)  # fmt: skip
_BYTES_SENT = re.compile(rb"Writing objects: 100% \(\d+/\d+\), ([\d.]+) (bytes|KiB|MiB|GiB)")
_UNITS = {b"bytes": 1, b"KiB": 1 << 10, b"MiB": 1 << 20, b"GiB": 1 << 30}
_MOST_LISTED = 1 << 30
"""Bytes that a listing of lanes may fetch."""
_CHECK_SECONDS = 0.2
_PROGRESS_LINE = re.compile(
    r"\d+% \(|, done\.?$|^(?:Delta compression|Total|To|hint:|Please make|and the repository) "
)
"""Lines that are not part of an error message."""
_LONGEST_WHY = 1000
Files = dict[str, Leaf]


class GitStorage:
    """Lanes in a git repository that other machines can reach."""

    reads_slowly = keeps_heads = True

    def __init__(self, url: str, local: Store) -> None:
        self.url = shown_url(url)
        self._address = url
        self._dir = mirror_of(local, url)
        self._bare = Git(local.git().executable, self._dir, deadline=Deadline(_SECONDS))
        self._seen: dict[str, str] = {}
        """The last known commit of each lane at the server; empty if it has no ref."""
        self._waiting: dict[str, tuple[Files, bool]] = {}
        """Files of lanes that are not pushed yet, and whether they begin a new chain."""

    @cached_property
    def _git(self) -> Git:
        """The repository for what is fetched, made on first use."""
        _make_repository(self._dir)
        return self._bare

    @cached_property
    def _objects(self) -> LooseObjects:
        return LooseObjects(self._git.objects, fsync=False)

    # --- reading --------------------------------------------------------------------------------------

    def items(self, prefix: str) -> Iterator[Item]:
        if prefix.startswith(HEADS):
            yield from self._heads()
            return
        lane = prefix.removeprefix(f"{TOP}/lanes/").strip("/")
        if self.is_chain(lane):
            yield Item(f"{lane_folder(lane)}chain", 0, 0.0)
            return
        for path, (_, blob) in self._files(lane).items():
            yield Item(f"{lane_folder(lane)}{path}", self._size_of(blob), 0.0)

    def _heads(self) -> Iterator[Item]:
        """The head of every lane: its newest commit, without files if the server supports that."""
        pattern = f"{REFS}/*"
        with self._listing() as git:
            words = ("--depth=1", "--filter=tree:0", "--quiet", "--no-tags", "--end-of-options", self._address)
            if self._remote_tips(git, pattern):
                self._fetch(git, _MOST_LISTED, *words, f"+{pattern}:{pattern.replace(REFS, _MIRROR, 1)}")
            rows = git.run("for-each-ref", "--format=%(refname)%00%(committerdate:unix)%00%(contents)%01", _MIRROR)
            for row in rows.decode("utf-8", "replace").split("\1\n")[:-1]:
                ref, moment, message = row.split("\0", 2)
                lane = ref.removeprefix(f"{_MIRROR}/")
                facts, _, body = message.partition("\n\n")
                about = body.partition("\n")[0]
                if LANE_NAME.fullmatch(lane) and len(about) <= MOST_BYTES:
                    name = head_with_content(f"{HEADS}{lane}/{facts}", _about(about), 2 * MOST_BYTES)
                    yield Item(name, len(about), float(moment) if moment.isdigit() else 0.0)

    @contextmanager
    def _listing(self) -> Iterator[Git]:
        """A repository for one listing, which holds only parts of lanes."""
        made = self._dir.with_name(f"listing-{secrets.token_hex(4)}")
        for other in made.parent.glob("listing-*"):
            if time.time() - other.lstat().st_mtime > 2 * _SECONDS:
                remove_tree(other)  # its process was killed
        _make_repository(made)
        try:
            yield self._bare.bound(git_dir=made)
        finally:
            remove_tree(made)

    def _remote_tips(self, git: Git, pattern: str) -> dict[str, str]:
        """The lanes at the server and their commits."""
        words = ("ls-remote", "--quiet", "--end-of-options", self._address, pattern)
        rows = self._output_of(git.bound(network=True, config=_NETWORK).start(*words)).decode("utf-8", "replace")
        pairs = (row.partition("\t") for row in rows.splitlines())
        return {
            ref.removeprefix(f"{REFS}/"): commit
            for commit, _, ref in pairs
            if is_object_id(commit) and ref.startswith(f"{REFS}/")
        }

    def tip(self, lane: str) -> str:
        """The commit of a lane at the server; empty if there is none."""
        return self._remote_tips(self._git, f"{REFS}/{lane}").get(lane, "")

    def fetched(self, lane: str) -> tuple[Git, str]:
        """A repository that holds all of a lane, and its newest commit, which is empty if there is no lane. It
        holds nothing of this machine's projects, so a lane cannot refer to their objects."""
        return self._git, self._fetched_tip(lane)

    def forget(self) -> None:
        """Remove everything that was fetched."""
        remove_tree(self._dir)
        _make_repository(self._dir)
        self._seen.clear()

    def is_chain(self, lane: str) -> bool:
        """Whether a lane is a chain of carriers, and not of opaque files."""
        commit = self._fetched_tip(lane)
        if not commit:
            return False
        with ObjectReader(self._git) as reader:
            try:
                message = reader.read(commit, b"commit").partition(b"\n\n")[2]
            except (DamagedObject, MalformedObject) as problem:
                raise self._not_a_lane(problem) from None
        return b"\n" in message.partition(b"\n\n")[2].strip()

    def _fetch(self, git: Git, most: int, *words: str) -> None:
        """Fetch. If more than `most` bytes arrive, git is stopped and the repository is emptied."""
        packs = git.git_dir / "objects" / "pack"
        _remove_unfinished(packs, _SECONDS)  # left by processes that were killed
        before = _size_of_folder(packs)
        running = git.bound(network=True, untrusted=True, config=_NETWORK).start("fetch", *words)
        done, too_much = threading.Event(), threading.Event()

        def check_size() -> None:
            if _size_of_folder(packs) - before > most:
                too_much.set()
                running.stop()

        def watch() -> None:
            while not too_much.is_set() and not done.wait(_CHECK_SECONDS):
                check_size()

        watcher = threading.Thread(target=watch, daemon=True)
        watcher.start()
        try:
            self._output_of(running)
            check_size()  # all of it may have arrived since the last check
        except DiskFull:
            _remove_unfinished(packs, 0)
            raise
        except RemoteFailed:
            if not too_much.is_set():
                raise
        finally:
            done.set()
            watcher.join()
        if too_much.is_set():
            # A second attempt would find the objects here, and an unfinished pack would stay forever.
            remove_tree(git.git_dir)
            _make_repository(git.git_dir)
            raise RemoteFailed(url=self.url, why=f"it sends more than {most} bytes")

    def get(self, name: str, most: int) -> bytes | None:
        blob = self._blob(name, most)
        if blob is None:
            return None
        with ObjectReader(self._git) as reader:
            return reader.read(blob, b"blob")

    def get_file(self, name: str, target: Path, most: int) -> bool:
        blob = self._blob(name, most)
        if blob is None:
            return False
        with self._git.conversation("cat-file", "blob", blob) as process, target.open("wb") as file:
            assert process.stdout is not None
            while piece := process.stdout.read(_CHUNK):
                file.write(piece)
        return True

    def size(self, name: str) -> int | None:
        blob = self._blob(name, None)
        return None if blob is None else self._size_of(blob)

    def _blob(self, name: str, most: int | None) -> str | None:
        ref, path = _ref_and_path(name)
        leaf = self._files(ref).get(path)
        if leaf is None:
            return None
        if most is not None and self._size_of(leaf[1]) > most:
            raise TooLarge(name)
        return leaf[1]

    def _size_of(self, blob: str) -> int:
        answer = self._git.run("cat-file", "-s", blob).strip()
        return int(answer) if answer.isdigit() else 0

    def _files(self, ref: str) -> Files:
        """The files of a lane, including those that wait to be sent."""
        if ref in self._waiting:
            return self._waiting[ref][0]
        commit = self._fetched_tip(ref)
        return self._read(commit) if commit else {}

    def _read(self, commit: str) -> Files:
        found: Files = {}
        with ObjectReader(self._git) as reader:
            try:
                tree = self._git.run("rev-parse", "--verify", "-q", f"{commit}^{{tree}}").decode().strip()
                stack = [("", tree)]
                while stack:
                    prefix, each = stack.pop()
                    if prefix.count("/") > 8 or len(found) > 100_000:
                        raise self._not_a_lane("it has too many files")
                    for name, leaf in parse_tree(reader.read(each, b"tree")).items() if each != EMPTY_TREE else ():
                        path = f"{prefix}{name.decode('ascii')}"
                        if leaf[0] == DIRECTORY:
                            stack.append((f"{path}/", leaf[1]))
                        elif leaf[0] == REGULAR:
                            found[path] = leaf
            except (UnsafeTree, MalformedObject, UnicodeError) as problem:
                raise self._not_a_lane(problem) from None
        return found

    def _not_a_lane(self, why: object) -> RemoteFailed:
        return RemoteFailed(url=self.url, why=f"a lane's ref holds something else than a lane: {why}")

    def _fetched_tip(self, ref: str) -> str:
        """Fetch a lane; its commit at the server, empty if there is none."""
        if ref not in self._seen:
            # A pattern, so that a ref which is not there is no error: asking first would be another connection.
            what = f"+{REFS}/{ref}*:{_MIRROR}/{ref}*"
            words = ("--quiet", "--no-tags", "--force", "--prune", "--end-of-options", self._address, what)
            before = read_ref(self._dir, f"{_MIRROR}/{ref}")
            self._fetch(self._git, MOST_PACK_BYTES, *words)
            self._seen[ref] = read_ref(self._dir, f"{_MIRROR}/{ref}") or ""
            if before is not None and not self._leads_to(self._seen[ref], before):
                self._git.run("gc", "--quiet", "--prune=now")  # nothing needs the older generation any more
        return self._seen[ref]

    def _leads_to(self, commit: str, before: str) -> bool:
        """Whether `before` is an ancestor of a commit; False also if there is no such commit."""
        try:
            self._git.run("merge-base", "--is-ancestor", before, commit or "none")
        except GitFailed:
            return False
        return True

    # --- writing --------------------------------------------------------------------------------------

    def put(self, name: str, data: bytes) -> None:
        self._stage(name, (REGULAR, self._objects.write(b"blob", data)))

    def put_file(self, name: str, source: Path) -> None:
        blob = self._git.run("hash-object", "-w", "--no-filters", "--", str(source)).decode().strip()
        self._stage(name, (REGULAR, blob))

    def put_new(self, name: str, data: bytes, head: str = "") -> bool:
        ref, path = _ref_and_path(name)
        if path in self._files(ref):
            return False
        self.put(name, data)
        return self._send(ref, head)

    def delete(self, names: Iterable[str]) -> None:
        for name in names:
            ref, path = _ref_and_path(name)
            files = self._files(ref)
            if path in files:
                left = {each: leaf for each, leaf in files.items() if each != path}
                self._waiting[ref] = left, True  # a new chain: the old one would keep the files at the server

    def finish(self) -> None:
        for ref in list(self._waiting):
            if not self._send(ref):
                raise RemoteFailed(url=self.url, why="another machine wrote to this lane at the same time")

    def _stage(self, name: str, leaf: Leaf) -> None:
        ref, path = _ref_and_path(name)
        anew = self._waiting.get(ref, ({}, False))[1]
        self._waiting[ref] = {**self._files(ref), path: leaf}, anew

    def _send(self, ref: str, message: str = "") -> bool:
        """Push what waits for a lane; False if another machine moved its ref meanwhile."""
        expected = self._fetched_tip(ref)
        files, anew = self._waiting.pop(ref)
        if not files and not expected:
            return True
        if not message and expected:
            message = self._git.run("show", "-s", "--format=%B", expected).decode("utf-8", "replace").strip()
        parents = [expected] if expected and not anew else []
        commit = write_commit(self._objects, self._tree(files), parents, message) if files else ""
        self._seen.pop(ref, None)
        if self.replace(self._git, ref, expected, commit) is None:
            return False
        self._seen[ref] = commit
        mirror = f"{_MIRROR}/{ref}"
        self._git.run("update-ref", *((mirror, commit) if commit else ("-d", mirror)))
        if anew or not commit:
            self._git.run("gc", "--quiet", "--prune=now")
        return True

    def replace(self, git: Git, lane: str, expected: str, commit: str) -> int | None:
        """Move the ref of a lane from the expected commit to another one, and read it back; returns the bytes that
        were sent. None if the ref is elsewhere, or another machine moves it at the same time."""
        lease = f"--force-with-lease={REFS}/{lane}:{expected}"
        words = ("--progress", "--no-verify", lease, "--end-of-options", self._address, f"{commit}:{REFS}/{lane}")
        git = git.bound(network=True, config=_NETWORK, deadline=self._git.deadline)
        running = git.start("push", *words)
        try:
            self._output_of(running)
        except RemoteFailed:
            if self.tip(lane) == expected:
                raise
        found = _BYTES_SENT.search(running.errors)
        sent = round(float(found[1]) * _UNITS[found[2]]) if found else 0
        return sent if self.tip(lane) == commit else None

    def _tree(self, files: Files) -> str:
        here: dict[bytes, Leaf] = {}
        below: dict[str, Files] = {}
        for path, leaf in files.items():
            first, _, rest = path.partition("/")
            if rest:
                below.setdefault(first, {})[rest] = leaf
            else:
                here[first.encode("ascii")] = leaf
        for name, inner in below.items():
            here[name.encode("ascii")] = (DIRECTORY, self._tree(inner))
        return self._objects.write(b"tree", format_tree(here))

    def _output_of(self, running: Running) -> bytes:
        try:
            return running.output()
        except (GitFailed, DeadlineExceeded) as problem:
            lines = re.split(r"[\r\n]+", running.errors.decode("utf-8", "replace"))
            complaints = [line.strip() for line in lines if line.strip() and not _PROGRESS_LINE.search(line)]
            if any("No space left on device" in line and not line.startswith("remote:") for line in complaints):
                raise DiskFull(path=self._dir) from problem
            why = "; ".join(complaints)[:_LONGEST_WHY] or problem
            raise RemoteFailed(url=self.url, why=why) from problem


def write_commit(
    objects: LooseObjects, tree: str, parents: Iterable[str], message: str, at: int | None = None
) -> str:
    who = f"s <s> {int(time.time()) if at is None else at} +0000"
    above = "".join(f"parent {each}\n" for each in parents)
    text = f"tree {tree}\n{above}author {who}\ncommitter {who}\n\n{message or 'lane'}\n"
    return objects.write(b"commit", text.encode())


def head_message(head: str, about: bytes) -> str:
    """A head as the message of a commit; encrypted content is encoded as text."""
    text = about.decode("ascii") if about.startswith(b"{") else base64.urlsafe_b64encode(about).decode("ascii")
    return f"{head.rpartition('/')[2]}\n\n{text}"


def _about(text: str) -> bytes:
    if text.startswith("{"):
        return text.encode()
    try:
        return base64.b64decode(text, b"-_", validate=True)
    except ValueError:
        return b""


def _make_repository(path: Path) -> None:
    if (path / "HEAD").exists():
        return
    for name in ("objects/info", "objects/pack", "refs/heads"):
        (path / name).mkdir(mode=0o700, parents=True, exist_ok=True)
    for name, content in store_files().items():
        if name in ("config", "HEAD"):
            write_bytes(path / name, content)


def _remove_unfinished(packs: Path, seconds: float) -> None:
    """Remove temporary files of git that are older than `seconds`."""
    for each in packs.glob("tmp_*"):
        if time.time() - each.lstat().st_mtime >= seconds:
            each.unlink(missing_ok=True)


def _size_of_folder(path: Path) -> int:
    total = 0
    with os.scandir(path) as found:
        for entry in found:
            try:
                total += entry.stat(follow_symlinks=False).st_size
            except FileNotFoundError:
                continue  # git renamed it
    return total


def _ref_and_path(name: str) -> tuple[str, str]:
    """The ref (below `REFS`) and the path in its tree for a name of the storage."""
    if found := _LANE_NAME.fullmatch(name):
        return found[1], found[2]
    if found := _PROBE_NAME.fullmatch(name):
        return f"probe/{found[1]}", "probe"
    raise AssertionError(name)
