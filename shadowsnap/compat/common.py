"""What the drop-in faces share: the capture rules of the original, which base is shared, and errors as answers."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import wraps
from typing import Any, ParamSpec, TypeVar

from shadowsnap.base import configured_base
from shadowsnap.errors import ShadowsnapError
from shadowsnap.manager import CheckpointManager
from shadowsnap.settings import load_settings

ERRORS = (ShadowsnapError, OSError, ValueError, TypeError, AttributeError, RuntimeError)
"""The errors that a face which never raises turns into an answer."""
# Of the default excludes only repositories stay, and the staging directories of a restore.
_NO_DEFAULTS = ("!*", ".git/", ".shadowsnap-restore-*/")
_LIMITS = ("max_snapshots", "max_total_size_mb", "retention_days")

_P = ParamSpec("_P")
_Result = TypeVar("_Result")
_Call = Callable[_P, _Result]


def open_manager(base: str | os.PathLike[str], excludes: list[str], **settings: Any) -> CheckpointManager:
    """A manager that captures what the original captured: with its excludes instead of the defaults, with files
    that look like secrets, and without limits that are not given here. In the store that all hosts share, the
    person's own limits apply, because upkeep keeps them for every project."""
    limits: dict[str, Any] = dict.fromkeys((*_LIMITS, "max_file_size_mb"), 0) | settings
    if is_shared(base):
        person = load_settings().settings
        limits |= {name: getattr(person, name) for name in _LIMITS}
    return CheckpointManager(base=base, excludes=(*_NO_DEFAULTS, *excludes), include_secrets=True, **limits)


def is_shared(base: str | os.PathLike[str]) -> bool:
    """Whether this is the base that all hosts share."""
    return os.path.realpath(base) == os.path.realpath(configured_base())


def maintenance_host(base: str | os.PathLike[str], host: str) -> str | None:
    """The host that maintenance is limited to; None in a base of its own, where it may touch everything."""
    return host if is_shared(base) else None


def errors_as(answer: Callable[[str], _Result]) -> Callable[[_Call[_P, _Result]], _Call[_P, _Result]]:
    """Decorate a function so that it returns `answer(message)` instead of raising."""

    def decorate(call: _Call[_P, _Result]) -> _Call[_P, _Result]:
        @wraps(call)
        def attempt(*args: _P.args, **more: _P.kwargs) -> _Result:
            try:
                return call(*args, **more)
            except ERRORS as problem:
                return answer(str(problem))

        return attempt

    return decorate
