"""Upkeep as a process of its own: `python -m shadowsnap.upkeep.background SETTINGS`. It is nobody's
child, has the lowest priority, and says what it has to say in the store's log."""

from __future__ import annotations

import os
import sys

from shadowsnap.config import settings_from_text
from shadowsnap.errors import ShadowsnapError
from shadowsnap.store.layout import open_store
from shadowsnap.store.log import append_log
from shadowsnap.upkeep.run import prune


def main(arguments: list[str]) -> int:
    settings = settings_from_text(arguments[0])
    _be_modest()
    try:
        result = prune(open_store(settings), settings)
    except (ShadowsnapError, OSError) as problem:
        hint = getattr(problem, "hint", "")
        append_log(settings.resolved_base(), kind="upkeep", what=str(problem), advice=hint)
        return 1
    return 0 if result.error is None else 1


def _be_modest() -> None:
    if hasattr(os, "nice"):  # Windows was told when we were started
        os.nice(19)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
