"""Which directories the sandboxes of agents are set to let them write to, beside the project."""

from __future__ import annotations

import json
import os
import tomllib
from pathlib import Path
from typing import Any

from shadowsnap.files import UnreadableFile, read_bounded

_LONGEST = 1 << 20


def writable_folders() -> list[str]:
    """As the person's own settings of Codex and Claude Code say. Settings that cannot be read say nothing."""
    codex = _inner(_toml(_home("CODEX_HOME", ".codex") / "config.toml"), "sandbox_workspace_write")
    claude = _inner(_json(_home("CLAUDE_CONFIG_DIR", ".claude") / "settings.json"), "sandbox", "filesystem")
    found = [*_texts(codex.get("writable_roots")), *_texts(claude.get("allowWrite"))]
    # `//` in front stands for the root of the file system in the settings of Claude Code.
    paths = [os.path.expanduser(path[1:] if path.startswith("//") else path) for path in found]
    return [path for path in paths if os.path.isabs(path)]


def _home(variable: str, folder: str) -> Path:
    return Path(os.environ.get(variable) or os.path.join(os.path.expanduser("~"), folder))


def _toml(path: Path) -> Any:
    try:
        return tomllib.loads((read_bounded(path, _LONGEST) or b"").decode())
    except (ValueError, RecursionError, UnreadableFile):
        return {}


def _json(path: Path) -> Any:
    try:
        return json.loads(read_bounded(path, _LONGEST) or b"{}")
    except (ValueError, RecursionError, UnreadableFile):
        return {}


def _inner(value: Any, *names: str) -> dict[str, Any]:
    for name in names:
        value = value.get(name) if isinstance(value, dict) else None
    return value if isinstance(value, dict) else {}


def _texts(value: Any) -> list[str]:
    return [each for each in value if isinstance(each, str)] if isinstance(value, list) else []
