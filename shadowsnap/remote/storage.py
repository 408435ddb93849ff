"""Storages for lanes: a directory, an object store, or a git server, with the same few operations."""

from __future__ import annotations

import errno
import os
import re
import stat
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from io import FileIO
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeVar
from urllib.parse import parse_qs, unquote, urlsplit

from shadowsnap.errors import BadRemote, ExtraMissing, RemoteFailed
from shadowsnap.files import READ_FLAGS, open_temporary, sync_directory
from shadowsnap.store.layout import Store as LocalStore
from shadowsnap.store.layout import is_repository

TOP = "shadowsnap-lanes/v1"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._=-]*(?:/[A-Za-z0-9][A-Za-z0-9._=-]*)*")
_SCP = re.compile(r"[^/:]+@[^/:]+:")
"""`git@host:path`, as git takes it."""
_CHUNK = 1 << 20
_DEEPEST = 16
"""Slashes in the longest name, which is that of a head with its content in it."""
_CLIENT_OPTIONS = {"timeout": "60s", "connect_timeout": "10s"}
_RETRY_OPTIONS = {"max_retries": 3}
_T = TypeVar("_T")
_PART_SIZE = 8 << 20
"""Larger objects are sent and fetched in parts of this size, each of which must arrive within the timeout."""
_PLAIN_MESSAGES = {
    "NoSuchBucket": "there is no such bucket",
    "Missing AccessKeyId": "no credentials were found for it (AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY)",
    "169.254.169.254": "no credentials were found for it",
    "403 Forbidden": "it refuses the credentials (403 Forbidden)",
    "401 Unauthorized": "it refuses the credentials (401 Unauthorized)",
    "operation timed out": "it did not answer in time",
    "error sending request": "it cannot be reached",
}
_NO_LINKS = frozenset({errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK})


class Item(NamedTuple):
    name: str
    size: int
    modified: float


class TooLarge(Exception):
    """Something at the remote is larger than it may be."""


class Storage(Protocol):
    """Named byte strings. Every method raises `RemoteFailed` if the remote fails."""

    url: str
    reads_slowly: bool
    """Whether each read costs a round trip, as in an object store."""
    keeps_heads: bool
    """Whether the head that comes with a manifest is all that `lanes` needs."""

    def items(self, prefix: str) -> Iterator[Item]:
        """Everything below a prefix that ends in a slash, in any order."""

    def get(self, name: str, most: int) -> bytes | None:
        """The content; None if there is none. Raises `TooLarge`."""

    def get_file(self, name: str, target: Path, most: int) -> bool:
        """Copy the content to a file; False if there is none. Raises `TooLarge`."""

    def size(self, name: str) -> int | None:
        """Its size in bytes; None if it does not exist."""

    def put(self, name: str, data: bytes) -> None: ...

    def put_file(self, name: str, source: Path) -> None: ...

    def put_new(self, name: str, data: bytes, head: str = "") -> bool:
        """Write it, atomically, only if the name is free; else return False. `head`: what `lanes` shows from then
        on, for storages that keep it with the manifest."""

    def delete(self, names: Iterable[str]) -> None:
        """Remove those of these names that exist."""

    def finish(self) -> None:
        """Send what was held back: the other methods may wait for this, `put_new` never does."""


def open_storage(url: str, local: LocalStore) -> Storage:
    """The storage at an address."""
    scheme = urlsplit(url).scheme.lower() if "://" in url else ""
    if scheme in ("s3", "gs", "az"):
        return ObjectStorage(url)
    if scheme in ("ssh", "https", "http") or (not scheme and _SCP.match(url)):
        from shadowsnap.remote.git_storage import GitStorage  # most remotes need no git

        return GitStorage(url, local)
    path = local_path(url)
    if path is None:
        raise BadRemote(url=url, why=f"there is no way to reach {scheme}://")
    if not path.is_absolute():
        raise BadRemote(url=url, why="it must be an absolute path")
    if is_repository(path):
        from shadowsnap.remote.git_storage import GitStorage

        return GitStorage(str(path), local)
    if is_repository(path / ".git"):
        raise BadRemote(url=url, why="it is a checkout; name a bare repository, or another directory")
    if not path.is_dir():
        raise BadRemote(url=url, why="there is no such directory")
    return DirectoryStorage(path, url)


def local_path(url: str) -> Path | None:
    """The directory that an address names; None if it names something else."""
    if "://" not in url:
        return None if _SCP.match(url) else Path(os.path.expanduser(url))
    parts = urlsplit(url)
    return Path(unquote(parts.path)) if parts.scheme.lower() == "file" else None


def normal_url(url: str, here: str) -> str:
    """An address as it is stored, with an absolute path."""
    if "://" in url or _SCP.match(url):
        return url
    return os.path.normpath(os.path.join(here, os.path.expanduser(url)))


def probe(storage: Storage, name: str) -> bool:
    """Whether the storage refuses to overwrite what must be new. Tested with a small object, which is removed
    again."""
    key = f"{TOP}/probe/{name}"
    try:
        storage.put_new(key, b"first")
        refused = not storage.put_new(key, b"second")
        kept = storage.get(key, 100)
        if kept is None:
            raise RemoteFailed(url=storage.url, why="what is written there cannot be read back")
        return refused and kept == b"first"
    finally:
        storage.delete([key])
        storage.finish()


# --- directories ------------------------------------------------------------------------------------


class DirectoryStorage:
    """A directory: a mounted disk, a share, or a folder that another program synchronizes."""

    reads_slowly = keeps_heads = False

    def __init__(self, root: Path, url: str) -> None:
        self.url = url
        self._root = root

    def items(self, prefix: str) -> Iterator[Item]:
        top = prefix.rstrip("/")
        waiting = [top]
        with self._raising_remote_failed():
            while waiting:
                folder = waiting.pop()
                try:
                    with os.scandir(self._root / folder) as found:
                        entries = list(found)
                except (FileNotFoundError, NotADirectoryError):
                    continue
                except PermissionError:
                    if folder == top:
                        raise
                    continue  # an unreadable lane of another person does not hide the others
                for entry in entries:
                    name = f"{folder}/{entry.name}"
                    if not _NAME.fullmatch(entry.name):
                        continue  # not ours; what is being written begins with a dot
                    if entry.is_dir(follow_symlinks=False):
                        waiting += [name] if name.count("/") < _DEEPEST else []
                    elif entry.is_file(follow_symlinks=False):
                        seen = entry.stat(follow_symlinks=False)
                        yield Item(name, seen.st_size, seen.st_mtime)

    def get(self, name: str, most: int) -> bytes | None:
        try:
            return b"".join(self._read(name, most))
        except FileNotFoundError:
            return None

    def get_file(self, name: str, target: Path, most: int) -> bool:
        with target.open("wb") as file:
            try:
                file.writelines(self._read(name, most))
            except FileNotFoundError:
                return False
        return True

    def _read(self, name: str, most: int) -> Iterator[bytes]:
        """The content, piece by piece. Only reading can raise RemoteFailed: failing to write a piece here is
        another error."""
        if self.size(name) is None:
            raise FileNotFoundError(name)
        with self._raising_remote_failed():
            file = self._open(name)
        with file:
            left, piece = most, b"x"
            while piece:
                with self._raising_remote_failed():
                    piece = file.read(min(_CHUNK, left + 1))
                left -= len(piece)
                if left < 0:
                    raise TooLarge(name)
                yield piece

    def _open(self, name: str) -> FileIO:
        descriptor = os.open(self._path(name), READ_FLAGS | getattr(os, "O_NOFOLLOW", 0))
        if stat.S_ISREG(os.fstat(descriptor).st_mode):
            return FileIO(descriptor)
        os.close(descriptor)
        raise RemoteFailed(url=self.url, why=f"{name} is not a regular file")

    def size(self, name: str) -> int | None:
        with self._raising_remote_failed():
            try:
                return os.lstat(self._path(name)).st_size
            except (FileNotFoundError, NotADirectoryError):
                return None

    def put(self, name: str, data: bytes) -> None:
        with self._raising_remote_failed():
            self._write_in_place(name, lambda target: _write(target, [data]))

    def put_file(self, name: str, source: Path) -> None:
        with self._raising_remote_failed(), source.open("rb") as file:
            self._write_in_place(name, lambda target: _write(target, iter(lambda: file.read(_CHUNK), b"")))

    def put_new(self, name: str, data: bytes, head: str = "") -> bool:
        with self._raising_remote_failed():
            return self._write_in_place(name, lambda target: _write(target, [data]), only_new=True)

    def delete(self, names: Iterable[str]) -> None:
        with self._raising_remote_failed():
            for name in names:
                self._path(name).unlink(missing_ok=True)

    def finish(self) -> None:
        pass  # everything is there at once

    def _write_in_place(self, name: str, fill: Callable[[int], None], *, only_new: bool = False) -> bool:
        """Write a temporary file, flush it, and rename it."""
        target = self._path(name)
        descriptor, temporary = open_temporary(target.parent, ".writing_")
        try:
            try:
                fill(descriptor)
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
            if not only_new:
                os.replace(temporary, target)
            elif not _link_new(temporary, target):
                return False
            sync_directory(target.parent)
            return True
        finally:
            temporary.unlink(missing_ok=True)

    def _path(self, name: str) -> Path:
        assert _NAME.fullmatch(name), name
        return self._root / name

    @contextmanager
    def _raising_remote_failed(self) -> Iterator[None]:
        """Turn errors of the system into `RemoteFailed`."""
        try:
            yield
        except OSError as problem:
            raise RemoteFailed(url=self.url, why=problem.strerror or problem) from problem


def _link_new(source: Path, target: Path) -> bool:
    """Give a file another name, which must be free; False if it is taken."""
    try:
        os.link(source, target)
    except FileExistsError:
        return False
    except OSError as problem:
        if problem.errno not in _NO_LINKS:
            raise
        return _copy_new(source, target)
    return True


def _copy_new(source: Path, target: Path) -> bool:
    """`_link_new` for a file system without links. A crash can leave half a file: then the project goes on with a
    new lane."""
    try:
        descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        return False
    try:
        _write(descriptor, [source.read_bytes()])
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    return True


def _write(descriptor: int, pieces: Iterable[bytes]) -> None:
    for piece in pieces:
        view = memoryview(piece)
        while view:
            view = view[os.write(descriptor, view) :]


# --- object stores ----------------------------------------------------------------------------------


class ObjectStorage:
    """A bucket, or a folder in one, through the package `obstore`: S3, Google Cloud Storage, Azure. Credentials
    are found where the provider's own tools look for them (variables, the role of the instance). The address may
    have `?endpoint=http://host:port`, for another server with the same protocol, and `?region=`."""

    reads_slowly, keeps_heads = True, False

    def __init__(self, url: str) -> None:
        try:
            import obstore  # an extra: only object stores need it
            import obstore.store
        except ImportError:
            raise ExtraMissing(what=url.partition("://")[0] + "://", extra="remote") from None
        self.url = url
        self._api: Any = obstore
        self._errors = (obstore.exceptions.BaseError, OSError, ValueError)
        self._store = self._open(url)

    def _open(self, url: str) -> Any:
        parts = urlsplit(url)
        if not parts.netloc:
            raise BadRemote(url=url, why="the bucket is missing")
        options = {name: values[-1] for name, values in parse_qs(parts.query).items()}
        unknown = options.keys() - {"endpoint", "region"}
        if unknown:
            raise BadRemote(url=url, why=f"there is no option {min(unknown)}")
        client: dict[str, Any] = dict(_CLIENT_OPTIONS)
        more: dict[str, Any] = {}
        if "endpoint" in options and parts.scheme == "s3":
            more["endpoint"] = options["endpoint"]
        if "region" in options and parts.scheme == "s3":
            more["region"] = options["region"]
        if options.get("endpoint", "").startswith("http://"):
            client["allow_http"] = True
        plain = parts._replace(query="").geturl()
        try:
            return self._api.store.from_url(plain, client_options=client, retry_config=_RETRY_OPTIONS, **more)
        except self._errors as problem:
            raise BadRemote(url=url, why=_short_message(problem)) from None

    def items(self, prefix: str) -> Iterator[Item]:
        try:
            for chunk in self._api.list(self._store, prefix=prefix.rstrip("/"), chunk_size=1000):
                for each in chunk:
                    if each["path"].startswith(prefix):
                        yield Item(each["path"], each["size"], each["last_modified"].timestamp())
        except self._errors as problem:
            raise RemoteFailed(url=self.url, why=_short_message(problem)) from problem

    def get(self, name: str, most: int) -> bytes | None:
        found = self._call_or_none(lambda: self._api.get(self._store, name))
        if found is None:
            return None
        if found.meta["size"] > most:
            raise TooLarge(name)
        data = self._call_or_none(lambda: bytes(found.bytes()))
        if data is None or len(data) > most:
            raise TooLarge(name)
        return data

    def get_file(self, name: str, target: Path, most: int) -> bool:
        found = self._call_or_none(lambda: self._api.get(self._store, name))
        if found is None:
            return False
        size = found.meta["size"]
        if size > most:
            raise TooLarge(name)
        with target.open("wb") as file:
            if size <= _PART_SIZE:
                file.write(self._call(found.bytes))
            else:
                for start in range(0, size, _PART_SIZE):
                    file.write(self._call(partial(self._range, name, start, size)))
        return True

    def _range(self, name: str, start: int, size: int) -> Any:
        return self._api.get_range(self._store, name, start=start, end=min(start + _PART_SIZE, size))

    def size(self, name: str) -> int | None:
        found = self._call_or_none(lambda: self._api.head(self._store, name))
        return None if found is None else int(found["size"])

    def put(self, name: str, data: bytes) -> None:
        self._call(lambda: self._api.put(self._store, name, data))

    def put_file(self, name: str, source: Path) -> None:
        more = {"chunk_size": _PART_SIZE, "max_concurrency": 2}
        self._call(lambda: self._api.put(self._store, name, source, **more))

    def put_new(self, name: str, data: bytes, head: str = "") -> bool:
        def put() -> bool:
            try:
                self._api.put(self._store, name, data, mode="create")
            except (self._api.exceptions.AlreadyExistsError, self._api.exceptions.PreconditionError):
                return False
            return True

        return self._call(put)

    def delete(self, names: Iterable[str]) -> None:
        for name in names:
            self._call_or_none(lambda name=name: self._api.delete(self._store, name))  # type: ignore[misc]

    def finish(self) -> None:
        pass  # everything is there at once

    def _call_or_none(self, ask: Callable[[], _T]) -> _T | None:
        """The answer of a call; None if the object does not exist."""

        def answer() -> _T | None:
            try:
                return ask()
            except (self._api.exceptions.NotFoundError, FileNotFoundError):
                return None

        return self._call(answer)

    def _call(self, ask: Callable[[], _T]) -> _T:
        try:
            return ask()
        except self._errors as problem:
            raise RemoteFailed(url=self.url, why=_short_message(problem)) from problem


def _short_message(problem: Exception) -> str:
    """A short message from an error text that names every layer it went through."""
    text = str(problem).strip()
    for words, plainly in _PLAIN_MESSAGES.items():
        if words in text:
            return plainly
    if answer := re.search(r"<Message>([^<]+)", text):
        return f"it answered: {answer[1][:300]}"
    return text.partition("\n")[0].rpartition(" - ")[2][:300] or type(problem).__name__
