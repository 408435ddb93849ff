"""Upkeep as a process of its own: `python -m shadowsnap.upkeep.background SETTINGS`. It is nobody's
child, has the lowest priority, and says what it has to say in the store's log."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import fields
from pathlib import Path

from shadowsnap.config import Settings
from shadowsnap.errors import ShadowsnapError
from shadowsnap.store.layout import open_store
from shadowsnap.store.log import append_log
from shadowsnap.upkeep.run import prune


def main(arguments: list[str]) -> int:
    settings = _settings(json.loads(arguments[0]))
    _be_modest()
    try:
        result = prune(open_store(settings), settings)
    except (ShadowsnapError, OSError) as problem:
        hint = getattr(problem, "hint", "")
        append_log(settings.resolved_base(), kind="upkeep", what=str(problem), advice=hint)
        return 1
    return 0 if result.error is None else 1


def _settings(told: dict[str, object]) -> Settings:
    known = {field.name for field in fields(Settings)}
    facts = {name: tuple(value) if isinstance(value, list) else value for name, value in told.items()}
    return Settings(**{**{name: facts[name] for name in known & facts.keys()}, "base": Path(str(told["base"]))})  # type: ignore[arg-type]


def _be_modest() -> None:
    if hasattr(os, "nice"):  # Windows was told when we were started
        os.nice(19)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
