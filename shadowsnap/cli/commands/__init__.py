"""One module per command, found by its name; adding a command is adding a module.

The first line of its docstring is the help of the command, the rest its description. It has
`GROUP` (the heading it stands under in the help), `add_arguments(parser)` and
`run(args, context)`, which returns an exit code, or None for 0. Neither the manager nor the
model is imported at the top of a module: the help imports every one of them.
"""

from __future__ import annotations

import re
from importlib import import_module
from types import ModuleType

GROUPS = ("taking and looking", "going back", "keeping", "other machines", "more")


def load_command(name: str) -> ModuleType | None:
    """The module of a command; None if there is none of that name."""
    if not re.fullmatch(r"[a-z][a-z-]*", name):
        return None
    module = f"{__name__}.{name.replace('-', '_')}"
    try:
        return import_module(module)
    except ModuleNotFoundError as problem:
        if problem.name == module:
            return None
        raise


def command_names() -> list[str]:
    from pkgutil import iter_modules

    return sorted(module.name.replace("_", "-") for module in iter_modules(__path__))


def load_all() -> dict[str, ModuleType]:
    """Every command, in the order of the help."""
    found = {name: import_module(f"{__name__}.{name.replace('-', '_')}") for name in command_names()}
    return dict(sorted(found.items(), key=lambda item: (GROUPS.index(item[1].GROUP), item[0])))
