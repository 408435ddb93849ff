"""Settings in layers: the defaults, the person's settings file, `SHADOWSNAP_*` variables, flags.

Between the file and the variables comes the project: `.shadowsnap.toml`, or `[tool.shadowsnap]` in
its `pyproject.toml`. Such a file may have come with a clone, so it can only narrow what is captured
of that very project: it cannot switch protection off, move the store, let secrets in, or touch limits
that decide about other projects' checkpoints.

Nothing here raises because of what a file says: what cannot be used is ignored, with a warning.
"""

from __future__ import annotations

import os
import re

from shadowsnap.config import CHOICES, Settings, config_file, environment_settings, is_moved_by_variable
from shadowsnap.foreign import OddFile, read_foreign
from shadowsnap.patterns import matches
from shadowsnap.records import dataclass, replace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    Warnings = list[str]

PROJECT_SETTINGS = ("excludes", "max_file_size_mb")
LEAST_FILE_SIZE_MB = 1.0
"""A project cannot go below: a limit of a few bytes would be no protection."""

_MOST_BYTES = 1 << 20
_MOST_PATTERNS, _LONGEST_PATTERN = 200, 500
# What ordinary source files are called, one for each letter that a name may begin with.
_ORDINARY = (
    "app.py", "base.js", "cart.ts", "database.go", "engine.rs", "file.c", "game.cpp", "handler.java", "index.html",
    "job.rb", "kernel.h", "lib.rs", "main.py", "main.go", "notes.md", "orders.sql", "page.tsx", "query.py",
    "router.js", "server.py", "test_app.py", "util.py", "views.py", "worker.js", "xml.py", "yield.py", "zebra.c",
    "README.md", "Makefile", "Dockerfile", "package.json", "pyproject.toml", "Cargo.toml", "0001_initial.py",
    "_private.py", ".gitignore",
)  # fmt: skip
_PROBES = tuple(folder + name for folder in ("", "src/", "lib/core/") for name in _ORDINARY)
_YES, _NO = ("1", "true", "yes", "on"), ("0", "false", "no", "off")


@dataclass(frozen=True)
class Layers:
    """What holds for every project, and what a project's file cannot change."""

    settings: Settings
    warnings: tuple[str, ...] = ()
    firm: frozenset[str] = frozenset()
    """Names that a variable or a flag decides: a project's file does not reach them."""

    def narrowed_by(self, workdir: Path) -> tuple[Settings, Warnings]:
        """The settings for one project, and what was ignored in its files."""
        settings, warnings = self.settings, list[str]()
        for file, table in ((workdir / "pyproject.toml", "tool.shadowsnap"), (workdir / ".shadowsnap.toml", "")):
            for name, value in _read_file(str(file), table, warnings).items():
                where = f"{file}: {name}"
                if name not in PROJECT_SETTINGS:
                    warnings.append(f"{where}: ignored, as only you can set it, not a project")
                elif name == "excludes":
                    extra = tuple(_narrowing(value, where, warnings))  # type: ignore[arg-type]
                    settings = replace(settings, excludes=(*settings.excludes, *extra))
                elif name not in self.firm:
                    limit = _lower(settings.max_file_size_mb, float(value), where, warnings)  # type: ignore[arg-type]
                    settings = replace(settings, max_file_size_mb=limit)
        return settings, warnings


def load_settings(**flags: object) -> Layers:
    """The person's settings. A flag that is None was not given."""
    warnings: Warnings = []
    values = _read_file(config_file(), "", warnings)
    variables = _read_environment(warnings)
    given = {name: value for name, value in flags.items() if value is not None}
    if is_moved_by_variable():
        values.pop("base", None)
    settings = Settings(**{**values, **variables, **given})  # type: ignore[arg-type]
    return Layers(settings, tuple(warnings), frozenset({*variables, *given}))


# --- narrowing -------------------------------------------------------------------------------


def _narrowing(patterns: Iterable[str], where: str, warnings: Warnings) -> Iterable[str]:
    """The patterns of a project that are used. One that matches what ordinary source files are called would
    switch the protection off."""
    for number, pattern in enumerate(patterns):
        if number >= _MOST_PATTERNS or len(pattern) > _LONGEST_PATTERN:
            warnings.append(f"{where}: {pattern[:40]!r} is ignored, as there are too many, or it is too long")
            if number >= _MOST_PATTERNS:
                return
        elif pattern.lstrip().startswith("!"):
            warnings.append(f"{where}: {pattern!r} is ignored, as a project can only leave out more")
        elif (hit := next((probe for probe in _PROBES if matches(pattern, probe)), None)) is not None:
            warnings.append(f"{where}: {pattern!r} is ignored, as it would leave out ordinary files such as {hit}")
        else:
            yield pattern


def _lower(now: float, wanted: float, where: str, warnings: Warnings) -> float:
    if wanted == 0 or 0 < now < wanted:
        warnings.append(f"{where}: ignored, as a project can only lower a limit (it is {now:g})")
        return now
    if wanted < LEAST_FILE_SIZE_MB:
        warnings.append(f"{where}: a project cannot go below {LEAST_FILE_SIZE_MB:g}")
    return max(wanted, min(LEAST_FILE_SIZE_MB, now or LEAST_FILE_SIZE_MB))


# --- reading ---------------------------------------------------------------------------------


def _read_file(path: str, table: str, warnings: Warnings) -> dict[str, object]:
    """The settings of a file, as far as they can be used."""
    data = _content(path, warnings)
    if data is None or (table and b"shadowsnap" not in data):
        return {}
    try:
        text = data.decode("utf-8-sig")
        found = _parsed(text, table)
    except (ValueError, RecursionError) as problem:
        where = _line(problem, data)
        warnings.append(f"{path}{where}: ignored, as it cannot be read: {problem}")
        return {}
    usable = {}
    for name, value in found.items():
        try:
            usable[name] = _checked(name, value)
        except ValueError as problem:
            warnings.append(f"{path}{_line_of(name, text)}: {name} is ignored: {problem}")
    return usable


def _content(path: str, warnings: Warnings) -> bytes | None:
    """What a file says; None if there is none. It may have come with a clone, and be anything."""
    try:
        return read_foreign(path, _MOST_BYTES)
    except OddFile as odd:
        why = "it cannot be read" if odd.why == "unreadable" else "it is not a file of settings"
        warnings.append(f"{path}: ignored, as {why}")
        return None


def _parsed(text: str, table: str) -> dict[str, object]:
    try:
        import tomllib
    except ImportError:
        from shadowsnap.flattoml import read_table

        return read_table(text, table)
    found: object = tomllib.loads(text)
    for part in table.split(".") if table else ():
        found = found.get(part, {}) if isinstance(found, dict) else {}
    return found if isinstance(found, dict) else {}


def _read_environment(warnings: Warnings) -> dict[str, object]:
    usable = {}
    for name, text in environment_settings().items():
        try:
            usable[name] = _checked(name, _from_text(name, text))
        except ValueError as problem:
            warnings.append(f"SHADOWSNAP_{name.upper()} is ignored: {problem}")
    return usable


def _from_text(name: str, text: str) -> object:
    kind = _kind(name)
    if kind == "bool":
        if text.lower() not in (*_YES, *_NO):
            raise ValueError("it must be true or false")
        return text.lower() in _YES
    if kind == "list":
        return [each.strip() for each in text.split(",") if each.strip()]
    if kind == "int" and re.fullmatch(r"\d{1,9}", text.strip()):
        return int(text)
    if kind == "float" and re.fullmatch(r"\d{1,12}(\.\d*)?", text.strip()):
        return float(text)
    if kind == "str":
        return text.strip()
    if kind == "path":
        raise ValueError("the variable for it is SHADOWSNAP_HOME")
    raise ValueError("it must be a number that is not negative")


# --- checking --------------------------------------------------------------------------------


def _checked(name: str, value: object) -> object:
    """The value as the setting has it; ValueError if it cannot have it."""
    kind = _kind(name)
    if kind == "bool":
        if not isinstance(value, bool):
            raise ValueError("it must be true or false")
        return value
    if kind == "list":
        patterns = [value] if isinstance(value, str) else value
        if not isinstance(patterns, list) or not all(isinstance(each, str) for each in patterns):
            raise ValueError("it must be a list of strings")
        if any(set(each) & set("\0\n\r") for each in patterns):
            raise ValueError("a pattern must be one line")
        return tuple(patterns)
    if kind == "path":
        from pathlib import Path

        if not isinstance(value, str) or not os.path.isabs(os.path.expanduser(value)):
            raise ValueError("it must be an absolute path")
        return Path(os.path.expanduser(value))
    if kind == "str":
        if value not in CHOICES[name]:
            raise ValueError(f"it must be {' or '.join(CHOICES[name])}")
        return value
    allowed = (int,) if kind == "int" else (int, float)
    if isinstance(value, bool) or not isinstance(value, allowed) or not 0 <= value < 1e12:
        raise ValueError(f"it must be {'a whole number' if kind == 'int' else 'a number'} that is not negative")
    return value


def _kind(name: str) -> str:
    if name not in Settings.__annotations__:
        raise ValueError("there is no setting of this name")
    told = str(Settings.__annotations__[name])
    return {"Path | None": "path", "tuple[str, ...]": "list"}.get(told, told)


# --- where -----------------------------------------------------------------------------------


def _line(problem: Exception, data: bytes) -> str:
    """`:3`, if a parser said so; of a file that just ends too early, its last line."""
    if "at end of document" in str(problem):
        return f":{max(1, len(data.splitlines()))}"
    found = re.search(r"at line (\d+)", str(problem))
    return f":{found[1]}" if found else ""


def _line_of(name: str, text: str) -> str:
    for number, line in enumerate(text.splitlines(), 1):
        if re.match(rf"\s*[\"']?{re.escape(name)}[\"']?\s*[=.]", line):
            return f":{number}"
    return ""
