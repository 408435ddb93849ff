"""The size limit: which checkpoints go so that the rest fits. Pure; the sizes come from
`accounting`.

Every project may use its share of the limit, and what others leave of theirs. Those that use
more give first, the oldest checkpoints of the one with most to give. Only if that is not
enough, and only if it helps, the others give too: a project that is too large by itself must
not cost its quiet neighbours their past.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
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
    """What goes. `droppable`: per project, what may go together, oldest first."""
    giving = _Giving(usage, droppable)
    share = _fair_share(giving.uses().values(), limit)
    # Who has next to nothing to give loses its past for nothing.
    worth = max(1.0, (usage.live - limit) / 100)
    fair = giving.until(limit, share, worth)
    for least in (worth, 1.0):
        all_together = fair if fair.met else giving.until(limit, 0, least)
        if all_together.met:
            return all_together
    return fair


class _Giving:
    def __init__(self, usage: Usage, droppable: Mapping[str, Sequence[Names]]) -> None:
        may_go = {name for bundles in droppable.values() for names in bundles for name in names}
        self._queues = {group: list(reversed(bundles)) for group, bundles in droppable.items()}
        self._dropping = Dropping(usage, may_go)
        self._firm = _firm_uses(usage, may_go)
        self._dropped: list[str] = []
        self._live = usage.live

    def uses(self) -> dict[str, float]:
        """What each project uses; what several hold counts in parts."""
        return {group: firm + self._can_give(group) for group, firm in self._firm.items()}

    def until(self, limit: int, share: float, worth: float) -> Choice:
        """Let those who use more than their share, and have something worth it, give until the
        limit is kept."""
        while self._live > limit:
            uses = self.uses()
            givers = [group for group in self._queues if uses[group] > share and self._can_give(group) >= worth]
            if not givers:
                break
            group = max(givers, key=self._can_give)
            for name in self._queues[group].pop():
                self._dropped.append(name)
                self._live -= self._dropping.drop(name)
        return Choice(tuple(self._dropped), self._live, self._live <= limit)

    def _can_give(self, group: str) -> float:
        return self._dropping.reclaimable.get(group, 0.0) if self._queues.get(group) else 0.0


def _firm_uses(usage: Usage, may_go: set[str]) -> dict[str, float]:
    """What each group holds and cannot let go of."""
    found = dict.fromkeys(usage.group_of.values(), 0.0)
    for names, size in usage.shares.items():
        staying = [name for name in names if name not in may_go]
        for name in staying:
            found[usage.group_of[name]] += size / len(staying)
    return found


def _fair_share(uses: Iterable[float], limit: int) -> float:
    """How much each may use so that all together fit."""
    left, waiting = float(limit), sorted(uses)
    for number, use in enumerate(waiting):
        share = left / (len(waiting) - number)
        if use > share:
            return share
        left -= use
    return left
