"""Lanes in an object store (S3, Google Cloud Storage, Azure), through the package `obstore`.

Credentials come from where each provider's own tools look for them: variables, the instance's role. The address
may have `?endpoint=http://host:port` for a server that speaks the same protocol elsewhere, and `?region=`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import parse_qs, urlsplit

from shadowsnap.errors import BadRemote, ExtraMissing, RemoteFailed
from shadowsnap.remote.storage import Item, TooLarge

_CLIENT = {"timeout": "60s", "connect_timeout": "10s"}
_RETRY = {"max_retries": 3}
_T = TypeVar("_T")


class ObjectStorage:
    """A bucket, or a folder in one."""

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
        client: dict[str, Any] = dict(_CLIENT)
        more: dict[str, Any] = {}
        if "endpoint" in options and parts.scheme == "s3":
            more["endpoint"] = options["endpoint"]
        if "region" in options and parts.scheme == "s3":
            more["region"] = options["region"]
        if options.get("endpoint", "").startswith("http://"):
            client["allow_http"] = True
        plain = parts._replace(query="").geturl()
        try:
            return self._api.store.from_url(plain, client_options=client, retry_config=_RETRY, **more)
        except self._errors as problem:
            raise BadRemote(url=url, why=_in_short(problem)) from None

    def items(self, prefix: str) -> Iterator[Item]:
        try:
            for chunk in self._api.list(self._store, prefix=prefix.rstrip("/")):
                for each in chunk:
                    if each["path"].startswith(prefix):
                        yield Item(each["path"], each["size"], each["last_modified"].timestamp())
        except self._errors as problem:
            raise RemoteFailed(url=self.url, why=_in_short(problem)) from problem

    def get(self, name: str, most: int) -> bytes | None:
        found = self._asked(lambda: self._api.get(self._store, name))
        if found is None:
            return None
        if found.meta["size"] > most:
            raise TooLarge(name)
        data = self._asked(lambda: bytes(found.bytes()))
        if data is None or len(data) > most:
            raise TooLarge(name)
        return data

    def get_file(self, name: str, target: Path, most: int) -> bool:
        found = self._asked(lambda: self._api.get(self._store, name))
        if found is None:
            return False
        left = most
        try:
            with target.open("wb") as file:
                for piece in found.stream():
                    left -= len(piece)
                    if left < 0:
                        raise TooLarge(name)
                    file.write(piece)
        except self._errors as problem:
            raise RemoteFailed(url=self.url, why=_in_short(problem)) from problem
        return True

    def size(self, name: str) -> int | None:
        found = self._asked(lambda: self._api.head(self._store, name))
        return None if found is None else int(found["size"])

    def put(self, name: str, data: bytes) -> None:
        self._asked(lambda: self._api.put(self._store, name, data))

    def put_file(self, name: str, source: Path) -> None:
        self._asked(lambda: self._api.put(self._store, name, source))

    def put_new(self, name: str, data: bytes, head: str = "") -> bool:
        exists = (self._api.exceptions.AlreadyExistsError, self._api.exceptions.PreconditionError)
        try:
            self._api.put(self._store, name, data, mode="create")
        except exists:
            return False
        except self._errors as problem:
            raise RemoteFailed(url=self.url, why=_in_short(problem)) from problem
        return True

    def delete(self, names: Iterable[str]) -> None:
        for name in names:
            self._asked(lambda name=name: self._api.delete(self._store, name))  # type: ignore[misc]

    def finish(self) -> None:
        pass  # everything is there at once

    def _asked(self, ask: Callable[[], _T]) -> _T | None:
        """The answer; None if there is nothing of that name."""
        try:
            return ask()
        except (self._api.exceptions.NotFoundError, FileNotFoundError):
            return None
        except self._errors as problem:
            raise RemoteFailed(url=self.url, why=_in_short(problem)) from problem


def _in_short(problem: Exception) -> str:
    """What a person can use of an error that names every layer it went through."""
    first = str(problem).strip().partition("\n")[0]
    return first[:300] or type(problem).__name__
