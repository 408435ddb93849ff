"""shadowsnap keeps people's files safe from their AI agents.

Importing this package imports almost nothing: it is started once per tool call by agent
hooks, so the names below are loaded on first use. Type checkers find them in `__init__.pyi`.
"""

__version__ = "0.2.0.dev0"

_HOMES = {
    "AsyncCheckpointManager": "aio",
    "CheckpointManager": "manager",
    "Settings": "settings",
    "ShadowsnapError": "errors",
    "Event": "events",
    **dict.fromkeys(
        ("Change", "Checkpoint", "Diff", "Entry", "Kept", "Now", "Outcome", "RestoreResult", "Skipped"), "model"
    ),
}
__all__ = ["__version__", *_HOMES]


def __getattr__(name: str) -> object:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module(f"{__name__}.{home}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
