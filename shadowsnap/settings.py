"""Settings: what can be set, the defaults, and reading them from files, variables and keyword arguments."""

from __future__ import annotations

import json
import os
import re
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, TypedDict

from shadowsnap.base import base_folder, config_file, is_moved_by_variable
from shadowsnap.errors import BadArguments
from shadowsnap.files import UnreadableFile, read_bounded
from shadowsnap.patterns import matches

Warnings = list[str]
Granularity = Literal["turn", "tool"]


class SettingValues(TypedDict, total=False):
    """Some of the settings, as keyword arguments. None: not given."""

    enabled: bool | None
    max_snapshots: int | None
    max_total_size_mb: float | None
    max_file_size_mb: float | None
    base: str | os.PathLike[str] | None
    deadline: float | None
    excludes: tuple[str, ...] | None
    include_secrets: bool | None
    capture_secrets: tuple[str, ...] | None
    fsync: bool | None
    import_legacy: bool | None
    retention_days: float | None
    orphan_grace_days: float | None
    attachment_days: float | None
    max_attachments_mb: float | None
    keep_conversations: bool | None
    max_conversation_mb: float | None
    redact: tuple[str, ...] | None
    min_interval_hours: float | None
    upkeep_deadline: float | None
    granularity: Granularity | None
    background_upkeep: bool | None
    sync: bool | None
    resident: bool | None


CHOICES = {"granularity": ("turn", "tool")}
"""The values of settings that are words."""


@dataclass(frozen=True)
class Settings:
    """All settings of a manager; limits of 0 mean "no limit"."""

    enabled: bool = True
    """Take snapshots at all."""
    max_snapshots: int = 20
    """Turns that pruning leaves of each project, and of each host in it that gives its name."""
    max_total_size_mb: float = 500
    """Size of the store that pruning aims at."""
    max_file_size_mb: float = 10
    """Larger files are not captured."""
    base: Path | None = None
    """Where the store lies."""
    deadline: float = 30.0
    """Seconds one operation may take before it gives up (0: as long as it needs)."""
    excludes: tuple[str, ...] = ()
    """More patterns in .gitignore syntax, on top of the defaults."""
    include_secrets: bool = False
    """Capture files that look like secrets too."""
    capture_secrets: tuple[str, ...] = ()
    """Patterns of such names that are captured all the same, as in `secrets.yaml`."""
    fsync: bool = True
    """Flush a checkpoint to the disk before calling it taken."""
    import_legacy: bool = True
    """Import the checkpoints of older tools that are found in the base on first use."""

    retention_days: float = 30
    """Older checkpoints go, except the newest of a project."""
    orphan_grace_days: float = 7
    """How long a project's directory must be gone before its checkpoints go."""
    attachment_days: float = 30
    """Older conversations go; the checkpoints they belong to stay."""
    max_attachments_mb: float = 100
    """Size of all kept conversations that pruning aims at."""
    keep_conversations: bool = True
    """Keep the conversations that agents hand over with the checkpoints."""
    max_conversation_mb: float = 50
    """A larger conversation is not kept."""
    redact: tuple[str, ...] = ()
    """Regular expressions: what they match is taken out of conversations, as secrets are."""
    min_interval_hours: float = 24
    """`auto_prune` does nothing more often than that."""
    upkeep_deadline: float = 600.0
    """Seconds that pruning and repacking may take, outside of any snapshot."""
    granularity: str = "turn"
    """`turn`: a snapshot before the first writing tool of a turn. `tool`: before and after each of them."""
    background_upkeep: bool = True
    """Start upkeep as a process of its own when enough has piled up."""
    resident: bool = True
    """Let hooks start a process that stays, and does the work of the next ones faster."""
    sync: bool = False
    """Push projects that have a remote by itself, in the background, after turns."""

    def __post_init__(self) -> None:
        for name in self.__match_args__:
            if name != "base":
                try:
                    object.__setattr__(self, name, _checked(name, getattr(self, name)))
                except ValueError as problem:
                    raise BadArguments(what=f"{name}: {problem}") from None
        if self.base is not None:  # once: a program may change its current directory later
            object.__setattr__(self, "base", Path(os.path.abspath(os.path.expanduser(self.base))))

    @property
    def max_file_bytes(self) -> int | None:
        return int(self.max_file_size_mb * 1024 * 1024) if self.max_file_size_mb > 0 else None

    @property
    def max_conversation_bytes(self) -> int | None:
        return int(self.max_conversation_mb * 1024 * 1024) if self.max_conversation_mb > 0 else None

    def resolved_base(self) -> Path:
        return Path(os.path.realpath(self.base or base_folder()))


def settings_to_text(settings: Settings) -> str:
    """Settings as an argument for a background process."""
    values = {name: getattr(settings, name) for name in Settings.__match_args__}
    return json.dumps({**values, "base": os.fspath(settings.resolved_base())})


def settings_from_text(text: str) -> Settings:
    """The settings in the argument of a background process, without those that this version does not know."""
    values = json.loads(text)
    facts = {name: values[name] for name in Settings.__match_args__ if name in values}
    return Settings(**{**facts, "base": Path(values["base"])})


def environment_settings() -> dict[str, str]:
    """The values of SHADOWSNAP_* variables by the names of settings, without SHADOWSNAP_HOME, which is the
    base."""
    found = {name[11:].lower(): text for name, text in os.environ.items() if name.startswith("SHADOWSNAP_")}
    return {name: text for name, text in found.items() if name not in ("home", "debug")}


PROJECT_SETTINGS = ("excludes", "max_file_size_mb")
LEAST_FILE_SIZE_MB = 1.0
"""The lowest limit that a project can set: one of a few bytes would protect nothing."""

# A `pyproject.toml` may be long; its table for shadowsnap, or a settings file, is not.
_MOST_BYTES, _MOST_SETTINGS = 1 << 20, 1 << 16
_MOST_DOTS = 300
_MOST_WARNINGS = 20
_MOST_PATTERNS, _LONGEST_PATTERN, _MOST_WILDCARDS = 100, 500, 20
_NAME_OF_LINE = r"""[ \t]*+["']?([\w-]++)["']?[ \t]*+[=.]"""
# Names of ordinary files: one for each initial letter, and one for each kind of text.
_ORDINARY_FILES = (
    "app.py", "base.js", "cart.ts", "database.go", "engine.rs", "file.c", "game.cpp", "handler.java", "index.html",
    "job.rb", "kernel.h", "lib.rs", "main.py", "main.go", "notes.md", "orders.sql", "page.tsx", "query.py",
    "router.js", "server.py", "test_app.py", "util.py", "views.py", "worker.js", "xml.py", "yield.py", "zebra.c",
    "README.md", "Makefile", "Dockerfile", "package.json", "pyproject.toml", "Cargo.toml", "0001_initial.py",
    "_private.py", ".gitignore", "user_service.kt", "client.swift", "controller.php", "model.cs", "build.sh",
    "config.yaml", "settings.yml", "report.txt", "manual.rst", "paper.tex", "analysis.ipynb", "style.css",
    "theme.scss", "layout.less", "component.vue", "widget.svelte", "screen.jsx", "module.mjs", "common.cjs",
    "types.pyi", "parser.pyx", "schema.proto", "api.graphql", "network.tf", "build.gradle", "Jenkinsfile",
    "pipeline.groovy", "object.cc", "vector.cxx", "string.hpp", "view.m", "bridge.mm", "boot.s", "start.asm",
    "token.sol", "memory.zig", "macro.nim", "list.hs", "core.clj", "tree.ml", "actor.ex", "case.exs", "node.erl",
    "stats.r", "matrix.jl", "script.lua", "tool.pl", "screen.dart", "trait.scala", "form.vb", "record.fs",
    "install.ps1", "run.bat", "find.cmake", "rules.mk", "data.csv", "app.ini", "setup.cfg", "feed.xml", "logo.svg",
)  # fmt: skip
_FOLDERS = ("src/", "lib/core/", "app/", "tests/")
_PROBES = (*_ORDINARY_FILES, *(folder + name for folder in _FOLDERS[:2] for name in _ORDINARY_FILES))
# A pattern without a slash matches at every depth, so a few folders are enough.
_SHALLOW_PROBES = (*_ORDINARY_FILES, *(folder + _ORDINARY_FILES[0] for folder in _FOLDERS))
_YES, _NO = ("1", "true", "yes", "on"), ("0", "false", "no", "off")


@dataclass(frozen=True)
class Layers:
    """The settings for every project, and which of them a project's file cannot change."""

    settings: Settings
    warnings: tuple[str, ...] = ()
    fixed: frozenset[str] = frozenset()
    """Settings from a variable or a keyword argument, which a project's file cannot change."""

    def narrowed_by(self, workdir: Path) -> tuple[Settings, Warnings]:
        """The settings for one project, and what was ignored in its files."""
        settings, warnings = self.settings, list[str]()
        for file, table in ((workdir / "pyproject.toml", "tool.shadowsnap"), (workdir / ".shadowsnap.toml", "")):
            for name, value in _read_file(str(file), table, warnings).items():
                where = f"{file}: {name}"
                if name not in PROJECT_SETTINGS:
                    warnings.append(f"{where}: ignored, as only you can set it, not a project")
                elif name == "excludes":
                    extra = tuple(_usable_patterns(value, where, warnings))  # type: ignore[arg-type]
                    settings = replace(settings, excludes=(*settings.excludes, *extra))
                elif name not in self.fixed:
                    limit = _lowered_limit(settings.max_file_size_mb, float(value), where, warnings)  # type: ignore[arg-type]
                    settings = replace(settings, max_file_size_mb=limit)
        return settings, warnings


def load_settings(**flags: object) -> Layers:
    """The person's settings from file, variables and `flags`. A flag of None was not given."""
    warnings: Warnings = []
    values = _read_file(config_file(), "", warnings)
    variables = _read_environment(warnings)
    given = {name: value for name, value in flags.items() if value is not None}
    if is_moved_by_variable():
        values.pop("base", None)
    elif os.environ.get("SHADOWSNAP_HOME"):
        warnings.append("SHADOWSNAP_HOME is ignored: it must be an absolute path")
    settings = Settings(**{**values, **variables, **given})  # type: ignore[arg-type]
    return Layers(settings, tuple(warnings), frozenset({*variables, *given}))


# --- narrowing -------------------------------------------------------------------------------


def _usable_patterns(patterns: Iterable[str], where: str, warnings: Warnings) -> Iterable[str]:
    """The usable patterns of a project."""
    wildcards = 0
    for number, pattern in enumerate(patterns):
        if number >= _MOST_PATTERNS:
            warnings.append(f"{where}: {pattern[:40]!r} and what follows is ignored, as there are too many")
            return
        problem = _problem_of(pattern)
        if problem is None and "*" in pattern.replace("**", "").replace("*.", ""):
            wildcards += 1
            problem = "there are too many with a *" if wildcards > _MOST_WILDCARDS else None
        if problem is None:
            yield pattern
        else:
            warnings.append(f"{where}: {pattern[:_LONGEST_PATTERN]!r} is ignored, as {problem}")


def _problem_of(pattern: str) -> str | None:
    """Why a pattern of a project is not usable. It must be simple enough to be tested, and must not match ordinary
    files: that would switch the protection off."""
    if len(pattern) > _LONGEST_PATTERN:
        return "it is too long"
    if pattern.lstrip().startswith("!"):
        return "a project can only leave out more"
    if set(pattern) & set("?[]\\"):
        return "in a project's file only names, * and ** are allowed"
    parts = [part for part in pattern.strip(" /").split("/") if part != "**"]
    for part in parts:
        if "*" in part and not re.fullmatch(r"\*\.[^*]+", part) and not re.search(r"[^*]{3}", part):
            return "beside a * there must be at least three characters, or the ending of a name (*.bin)"
    probes = _PROBES if "/" in pattern.rstrip(" /") else _SHALLOW_PROBES
    hit = next((probe for probe in probes if matches(pattern, probe)), None)
    return None if hit is None else f"it would leave out ordinary files such as {hit}"


def _lowered_limit(now: float, wanted: float, where: str, warnings: Warnings) -> float:
    if wanted == 0 or 0 < now < wanted:
        warnings.append(f"{where}: ignored, as a project can only lower a limit (it is {now:g})")
        return now
    if wanted < LEAST_FILE_SIZE_MB:
        warnings.append(f"{where}: a project cannot go below {LEAST_FILE_SIZE_MB:g}")
    return max(wanted, min(LEAST_FILE_SIZE_MB, now or LEAST_FILE_SIZE_MB))


# --- reading ---------------------------------------------------------------------------------


def _read_file(path: str, table: str, warnings: Warnings) -> dict[str, object]:
    """The usable settings of a file."""
    data = _read_bytes(path, warnings)
    if data is None or (table and b"shadowsnap" not in data):
        return {}
    try:
        text = data.decode("utf-8-sig")
        found = _parse_table(text, table)
    except (ValueError, RecursionError) as problem:
        where = _line_of_error(problem, data)
        warnings.append(f"{path}{where}: ignored, as it cannot be read: {problem}")
        return {}
    usable, ignored, lines = {}, 0, _lines_of_names(text)
    for name, value in found.items():
        try:
            usable[name] = _checked(name, value)
        except ValueError as problem:
            ignored += 1
            if ignored <= _MOST_WARNINGS:
                shown = name[:_LONGEST_PATTERN]
                warnings.append(f"{path}{lines.get(name, '')}: {shown} is ignored: {problem}")
    if ignored > _MOST_WARNINGS:
        warnings.append(f"{path}: {ignored - _MOST_WARNINGS} more are ignored")
    return usable


def _read_bytes(path: str, warnings: Warnings) -> bytes | None:
    """The content of a file; None if there is none. It may be part of a clone, so it may be anything."""
    try:
        return read_bounded(path, _MOST_BYTES)
    except UnreadableFile as odd:
        why = "it cannot be read" if odd.why == "unreadable" else "it is not a file of settings"
        warnings.append(f"{path}: ignored, as {why}")
        return None


def _parse_table(text: str, table: str) -> dict[str, object]:
    if table:
        text = _lines_of_table(table, text)
    _check_size(text)
    found: object = tomllib.loads(text)
    for part in table.split(".") if table else ():
        found = found.get(part, {}) if isinstance(found, dict) else {}
    return found if isinstance(found, dict) else {}


def _lines_of_table(table: str, text: str) -> str:
    """The text with all lines but those of one table empty: the rest of the file is not parsed."""
    header = re.compile(r"\s*\[\s*" + r"\s*\.\s*".join(table.split(".")) + r"\s*\]\s*(?:#.*)?")
    kept, inside = [], False
    for line in text.split("\n"):
        if line.lstrip().startswith("["):
            inside = header.fullmatch(line) is not None
        kept.append(line if inside else "")
    return "\n".join(kept)


def _check_size(text: str) -> None:
    """Raise ValueError for a text that would be slow to parse. The time and memory for a name grow with the square
    of its parts: 160 KB of `a.a.a...` take gigabytes. The name of a table is parsed again for each of its
    entries."""
    if len(text.replace("\n", "")) > _MOST_SETTINGS:
        raise ValueError(f"it is longer than {_MOST_SETTINGS >> 10} KB")
    if any(line.count(".") > _MOST_DOTS for line in text.split("\n")):
        raise ValueError("a name has too many parts, or a line too many dots")


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
    """The value converted to the type of the setting. Raises ValueError if that is not possible."""
    kind = _kind(name)
    if kind == "bool":
        if not isinstance(value, bool):
            raise ValueError("it must be true or false")
        return value
    if kind == "list":
        # A single text is one pattern: taken letter by letter, a `*` in it would leave out everything.
        patterns = [value] if isinstance(value, str) else value
        if not isinstance(patterns, (list, tuple)) or not all(isinstance(each, str) for each in patterns):
            raise ValueError("it must be a list of strings")
        if any(set(each) & set("\0\n\r") for each in patterns):
            raise ValueError("a pattern must be one line")
        return tuple(patterns)
    if kind == "path":
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
    kind = str(Settings.__annotations__[name])
    return {"Path | None": "path", "tuple[str, ...]": "list"}.get(kind, kind)


# --- line numbers of warnings ----------------------------------------------------------------


def _line_of_error(problem: Exception, data: bytes) -> str:
    """`:3`, if the parser reports a line; if the file ends too early, its last line."""
    if "at end of document" in str(problem):
        return f":{max(1, len(data.splitlines()))}"
    found = re.search(r"at line (\d+)", str(problem))
    return f":{found[1]}" if found else ""


def _lines_of_names(text: str) -> dict[str, str]:
    """`:3` for each name that line 3 sets."""
    found: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if named := re.match(_NAME_OF_LINE, line):
            found.setdefault(named[1], f":{number}")
    return found
