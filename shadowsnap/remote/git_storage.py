"""Lanes on a git server: each lane is one ref, `refs/shadowsnap-lanes/v1/<project>/<machine>`.

The ref leads to a chain of commits whose trees hold the files of the lane: its manifests, packs and head. A change
is one commit on top of what was seen there, pushed with a lease: it is refused if another machine was first.
When files go, the chain is begun anew, so that they go from the server too. There is one ref for a lane, as a push
makes the server list all its refs.

The person's git configuration and credentials are used for these network commands, and for nothing else. What
comes is kept in a small repository of its own (`<base>/remote/<digest>.git`), never in the store.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

from shadowsnap.deadline import Deadline
from shadowsnap.errors import GitFailed, MalformedObject, RemoteFailed, UnsafeTree
from shadowsnap.files import write_bytes
from shadowsnap.git.objects import EMPTY_TREE, LooseObjects, is_object_id
from shadowsnap.git.reading import ObjectReader
from shadowsnap.git.repository import Git
from shadowsnap.git.trees import DIRECTORY, REGULAR, Leaf, format_tree, parse_tree
from shadowsnap.remote.manifest import HEADS, digest_of
from shadowsnap.remote.storage import TOP, Item, TooLarge
from shadowsnap.store.lanes import LANE_NAME, folder
from shadowsnap.store.layout import Store, store_files

REFS = "refs/shadowsnap-lanes/v1"
_MIRROR = "refs/mirror"
_PLACE = re.compile(rf"{TOP}/(lanes|heads)/([0-9a-f]{{20}}/[0-9a-f]{{12}})/(.+)")
_PROBE = re.compile(rf"{TOP}/probe/([0-9a-f]+)")
_SECONDS = 600.0
_CHUNK = 1 << 20
# Whatever the person configured, this starts no hook, signs nothing and goes over no odd transport.
_NETWORK = (
    f"core.hooksPath={os.devnull}", "push.gpgSign=false", "push.followTags=false", "push.recurseSubmodules=no",
    "fetch.recurseSubmodules=false", "fetch.writeCommitGraph=false", "protocol.ext.allow=never", "gc.auto=0",
    "maintenance.auto=false", "transfer.fsckObjects=true", "core.askPass=",
)  # fmt: skip
Files = dict[str, Leaf]


class GitStorage:
    """A git repository that others can reach."""

    reads_slowly = True

    def __init__(self, url: str, local: Store) -> None:
        self.url = url
        self._dir = folder(local) / f"{digest_of(url.encode())[:16]}.git"
        self._make_mirror()
        self._git = Git(local.git().executable, self._dir, deadline=Deadline(_SECONDS))
        self._objects = LooseObjects(self._dir / "objects", fsync=False)
        self._seen: dict[str, str] = {}
        """The commits that lanes had at the server when they were last looked at; empty: there was no ref."""
        self._waiting: dict[str, tuple[Files, bool]] = {}
        """Files that lanes will have, and whether their chains begin anew."""

    def _make_mirror(self) -> None:
        if (self._dir / "HEAD").exists():
            return
        for name in ("objects/info", "objects/pack", "refs/heads"):
            (self._dir / name).mkdir(mode=0o700, parents=True, exist_ok=True)
        for name, content in store_files().items():
            if name in ("config", "HEAD"):
                write_bytes(self._dir / name, content)

    # --- reading --------------------------------------------------------------------------------------

    def items(self, prefix: str) -> Iterator[Item]:
        place = prefix.removeprefix(f"{TOP}/lanes/").removeprefix(HEADS).strip("/")
        refs = [place] if LANE_NAME.fullmatch(place) else self._lanes(place)
        for ref in refs:
            commit = self._current(ref)
            moment = self._moment(commit) if commit else 0.0
            for path, (_, blob) in self._files(ref).items():
                name = f"{HEADS}{ref}/{path[2:]}" if path.startswith("h/") else f"{TOP}/lanes/{ref}/{path}"
                if name.startswith(prefix):
                    yield Item(name, self._size_of(blob), moment)

    def _lanes(self, project: str) -> list[str]:
        """The lanes at the server (of one project), all of them fetched at once."""
        inside = f"{REFS}/{project}/" if project else f"{REFS}/"
        self._fetch(f"{inside}*", "--prune")
        rows = self._git.run("for-each-ref", "--format=%(objectname) %(refname)", _MIRROR).decode().splitlines()
        found = {ref: row[:40] for row in rows if LANE_NAME.fullmatch(ref := row[41:].removeprefix(f"{_MIRROR}/"))}
        found = {ref: commit for ref, commit in found.items() if ref.startswith(project)}
        self._seen.update(found)
        return list(found)

    def _fetch(self, ref: str, *options: str) -> None:
        words = ("--quiet", "--no-tags", "--force", *options, "--end-of-options", self.url, self._mirrored(ref))
        self._run("fetch", *words)

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
        ref, path = _place(name)
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
        """The files of a lane: as they will be, if something waits to be sent."""
        if ref in self._waiting:
            return self._waiting[ref][0]
        commit = self._current(ref)
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
                        raise RemoteFailed(url=self.url, why="a lane's ref holds something else than a lane")
                    for name, leaf in parse_tree(reader.read(each, b"tree")).items() if each != EMPTY_TREE else ():
                        path = f"{prefix}{name.decode('ascii')}"
                        if leaf[0] == DIRECTORY:
                            stack.append((f"{path}/", leaf[1]))
                        elif leaf[0] == REGULAR:
                            found[path] = leaf
            except (UnsafeTree, MalformedObject, UnicodeError) as problem:
                why = f"a lane's ref holds something else than a lane: {problem}"
                raise RemoteFailed(url=self.url, why=why) from None
        return found

    def _current(self, ref: str) -> str:
        """The commit that a lane has at the server, fetched; empty if there is none."""
        if ref not in self._seen:
            commit = self._at_server(f"{REFS}/{ref}").get(ref, "")
            if commit:
                self._fetch(f"{REFS}/{ref}")
                commit = self._git.run("rev-parse", "--verify", "-q", f"{_MIRROR}/{ref}").decode().strip()
            self._seen[ref] = commit
        return self._seen[ref]

    def _at_server(self, pattern: str) -> dict[str, str]:
        rows = self._run("ls-remote", "--quiet", "--end-of-options", self.url, pattern).decode("utf-8", "replace")
        pairs = (row.partition("\t") for row in rows.splitlines())
        return {
            ref.removeprefix(f"{REFS}/"): commit
            for commit, _, ref in pairs
            if is_object_id(commit) and ref.startswith(f"{REFS}/")
        }

    def _mirrored(self, ref: str) -> str:
        return f"+{ref}:{ref.replace(REFS, _MIRROR, 1)}"

    def _moment(self, commit: str) -> float:
        answer = self._git.run("show", "-s", "--format=%ct", commit).strip()
        return float(answer) if answer.isdigit() else 0.0

    # --- writing --------------------------------------------------------------------------------------

    def put(self, name: str, data: bytes) -> None:
        self._set(name, (REGULAR, self._objects.write(b"blob", data)))

    def put_file(self, name: str, source: Path) -> None:
        blob = self._git.run("hash-object", "-w", "--no-filters", "--", str(source)).decode().strip()
        self._set(name, (REGULAR, blob))

    def put_new(self, name: str, data: bytes) -> bool:
        ref, path = _place(name)
        if path in self._files(ref):
            return False
        self.put(name, data)
        return self._send(ref)

    def delete(self, names: Iterable[str]) -> None:
        for name in names:
            ref, path = _place(name)
            files = self._files(ref)
            if path in files:
                left = {each: leaf for each, leaf in files.items() if each != path}
                # A head is replaced with every push; what is in packs and manifests must go from the server.
                anew = self._waiting.get(ref, ({}, False))[1] or not path.startswith("h/")
                self._waiting[ref] = left, anew

    def finish(self) -> None:
        for ref in list(self._waiting):
            if not self._send(ref):
                raise RemoteFailed(url=self.url, why="another machine wrote to this lane at the same time")

    def _set(self, name: str, leaf: Leaf) -> None:
        ref, path = _place(name)
        anew = self._waiting.get(ref, ({}, False))[1]
        self._waiting[ref] = {**self._files(ref), path: leaf}, anew

    def _send(self, ref: str) -> bool:
        """Push what waits for a lane; False if its ref is not what it was when it was looked at."""
        expected = self._current(ref)
        files, anew = self._waiting.pop(ref)
        commit = self._commit(files, "" if anew else expected) if files else ""
        lease = f"--force-with-lease={REFS}/{ref}:{expected}"
        what = f"{commit}:{REFS}/{ref}" if commit or expected else ""
        if not what:
            return True
        try:
            self._run("push", "--quiet", "--no-verify", "--porcelain", lease, "--end-of-options", self.url, what)
        except RemoteFailed:
            self._seen.pop(ref, None)
            if self._at_server(f"{REFS}/{ref}").get(ref, "") != expected:
                return False
            raise
        there = self._at_server(f"{REFS}/{ref}").get(ref, "")
        if there != commit:
            self._seen.pop(ref, None)
            return False
        self._seen[ref] = commit
        mirror = f"{_MIRROR}/{ref}"
        self._git.run("update-ref", *((mirror, commit) if commit else ("-d", mirror)))
        if anew or not commit:
            self._git.run("gc", "--quiet", "--prune=now")
        return True

    def _commit(self, files: Files, parent: str) -> str:
        who = f"shadowsnap <shadowsnap@localhost> {int(time.time())} +0000"
        above = f"parent {parent}\n" if parent else ""
        text = f"tree {self._tree(files)}\n{above}author {who}\ncommitter {who}\n\nlane\n"
        return self._objects.write(b"commit", text.encode())

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

    def _run(self, *words: str) -> bytes:
        """A command that talks to the server."""
        try:
            return self._git.bound(network=True, config=_NETWORK).run(*words)
        except GitFailed as problem:
            raise RemoteFailed(url=self.url, why=str(problem.facts.get("stderr") or problem)) from problem


def _place(name: str) -> tuple[str, str]:
    """The ref (below `REFS`) and the path in its tree that stand for a name."""
    if found := _PLACE.fullmatch(name):
        return found[2], found[3] if found[1] == "lanes" else f"h/{found[3]}"
    if found := _PROBE.fullmatch(name):
        return f"probe/{found[1]}", "probe"
    raise AssertionError(name)
