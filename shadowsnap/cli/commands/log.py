"""The same as list."""

from __future__ import annotations

from shadowsnap.cli.commands.list import GROUP, add_arguments, run

__all__ = ["GROUP", "add_arguments", "run"]
