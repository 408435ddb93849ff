"""`json.loads` and `json.dumps` without `json`, whose import takes a hook 8 ms, most of it for `re`.

The work is done by the same compiled code that `json` uses. Whatever is out of the ordinary, above
all what is no JSON, is handed to `json`, so that every answer and every error is its own.
"""

from __future__ import annotations

import sys

from shadowsnap.records import Any

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

_SPACE = " \t\n\r"
_DEEPEST = 200
"""What is nested deeper is refused: code that walks through it would run out of stack."""

# Without `json`, the compiled code has no error to raise for what is no JSON, and raises none. Python
# makes that a SystemError, except for a Python that is built to debug itself: it ends the program.
_IS_SAFE = not hasattr(sys, "gettotalrefcount")


class _Rules:
    """How `json` reads."""

    object_hook = object_pairs_hook = array_hook = None
    parse_float = float
    parse_int = int
    parse_constant = {name: float(name) for name in ("NaN", "Infinity", "-Infinity")}.__getitem__

    def __init__(self, strict: bool) -> None:
        self.strict = strict


def loads(data: str | bytes, strict: bool = True) -> Any:
    """The value of a JSON text. Raises ValueError for everything that is none, or is nested too deeply."""
    try:
        value = _loads(data, strict)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    if _may_be_deep(data) and _is_deep(value):
        raise ValueError("it is nested too deeply")
    return value


def _may_be_deep(data: str | bytes) -> bool:
    if isinstance(data, str):
        return data.count("[") + data.count("{") > _DEEPEST
    return data.count(b"[") + data.count(b"{") > _DEEPEST


def _is_deep(value: Any) -> bool:
    level = [value]
    for _ in range(_DEEPEST + 1):
        inner: list[Any] = []
        for each in level:
            if isinstance(each, dict):
                inner += each.values()
            elif isinstance(each, list):
                inner += each
        if not inner:
            return False
        level = inner
    return True


def _loads(data: str | bytes, strict: bool) -> Any:
    if _IS_SAFE:
        try:
            from _json import make_scanner

            text = (data if isinstance(data, str) else _decoded(data)).strip(_SPACE)
            value, end = make_scanner(_Rules(strict))(text, 0)  # type: ignore[arg-type]
            if end == len(text):
                return value
        except (ImportError, AttributeError, TypeError, ValueError, StopIteration, SystemError):
            pass
    import json

    return json.loads(data, strict=strict)


def dumps(
    value: Any,
    *,
    sort_keys: bool = False,
    separators: tuple[str, str] = (", ", ": "),
    default: Callable[[Any], Any] | None = None,
) -> str:
    try:
        from _json import encode_basestring_ascii, make_encoder

        between, after_key = separators
        encoder = make_encoder(
            {}, default or _refused, encode_basestring_ascii, None, after_key, between, sort_keys, False, True
        )
        return "".join(encoder(value, 0))
    except (ImportError, AttributeError, TypeError, ValueError):
        pass
    import json

    return json.dumps(value, sort_keys=sort_keys, separators=separators, default=default)


def _decoded(data: bytes) -> str:
    if data[:1] not in (b"{", b"[") or data[1:2] == b"\0":
        raise ValueError("this may be something else than UTF-8")
    return data.decode("utf-8", "surrogatepass")


def _refused(value: Any) -> Any:
    raise TypeError(f"{type(value).__name__} is nothing that JSON knows")
