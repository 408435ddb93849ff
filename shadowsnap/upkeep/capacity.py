"""The size limit: which checkpoints go so that the rest fits. Pure; the sizes come from
`accounting`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from shadowsnap.upkeep.accounting import Dropping, Usage

Names = tuple[str, ...]


@dataclass(frozen=True)
class Choice:
    dropped: tuple[str, ...]
    live_after: int
    met: bool
    """Whether the limit is kept after that."""


def choose(usage: Usage, droppable: Mapping[str, Sequence[Names]], limit: int) -> Choice:
    """Drop the oldest of the group that could give most, again and again, until what is left
    fits. `droppable`: per group, what may go together, oldest first. Quiet groups, which have
    little to give, are left alone."""
    queues = {group: list(reversed(bundles)) for group, bundles in droppable.items() if bundles}
    dropping = Dropping(usage, (name for bundles in droppable.values() for names in bundles for name in names))
    dropped: list[str] = []
    live = usage.live
    while live > limit and queues:
        group = max(queues, key=lambda each: dropping.reclaimable.get(each, 0))
        if dropping.reclaimable.get(group, 0) < 1:
            break  # nobody has anything left that would make a difference
        for name in queues[group].pop():
            dropped.append(name)
            live -= dropping.drop(name)
        if not queues[group]:
            del queues[group]
    return Choice(tuple(dropped), live, live <= limit)
