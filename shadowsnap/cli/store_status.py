"""`status --store`: the store at a glance, and what needs attention."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shadowsnap.cli.context import Context
from shadowsnap.cli.tables import remote_text
from shadowsnap.cli.text import age, ago, count, cut_path, one_line, safe, size, wrapped
from shadowsnap.cli.ui import Ui

if TYPE_CHECKING:
    from shadowsnap.agents.install import Installed
    from shadowsnap.hook.resident import RunningHelper
    from shadowsnap.model import RemoteStatus
    from shadowsnap.upkeep.status import Limit, ProjectStatus, StoreStatus, Trouble

_SHOWN = 10
_HOOKS_READ = 200
_AGENT_FACTS = ("agent", "path", "scope", "current")
_TROUBLED = ("failed", "refused", "partial", "settings")


def show_store(context: Context) -> int:
    """Where the store is, how large, which projects it has, how close the limits are, what was not captured, what
    failed lately and what to do about it, and which agents have the hook."""
    from shadowsnap.agents.install import installed
    from shadowsnap.agents.sandboxes import writable_folders
    from shadowsnap.base import config_file
    from shadowsnap.hook.log import read_log
    from shadowsnap.hook.resident import running_helper
    from shadowsnap.upkeep.status import exposure

    ui = context.ui
    with context.working("looking at the store"):
        status = context.manager.status()
        agents = installed(context.workdir)
    exposed = exposure(Path(status.base), [context.workdir], writable_folders())
    if exposed and not any(text.startswith("the store lies ") for text in status.warnings):
        status = replace(status, warnings=(exposed, *status.warnings))
    hooks = read_log(_HOOKS_READ)
    helper = running_helper(status.base)
    data = {
        **status.to_dict(),
        "settings": {"path": config_file(), "ignored": context.manager.warnings},
        "agents": [{name: getattr(each, name) for name in _AGENT_FACTS} for each in agents],
        "hooks": hooks[:_SHOWN],
        "helper": None if helper is None else helper.to_dict(),
    }
    return ui.answer(data, _Lines(ui).all(status, agents, hooks, helper))


class _Lines:
    """The store for people, section by section; an empty section is left out."""

    def __init__(self, ui: Ui) -> None:
        self._ui = ui
        self._ink = ui.ink
        self._width = ui.width

    def all(
        self,
        status: StoreStatus,
        agents: list[Installed],
        hooks: list[dict[str, Any]],
        helper: RunningHelper | None,
    ) -> Iterator[str]:
        yield from self._summary(status)
        if helper is not None:
            yield f"helper      process {helper.pid}, started {ago(helper.started_at)}"
        yield from self._section("warnings", (self._bullet(text) for text in status.warnings))
        fancy = self._ui.fancy
        shown = status.projects[:_SHOWN]
        table = fancy.project_table(shown, self._width - 2) if fancy and shown else self._projects(shown)
        more = len(status.projects) - len(shown)
        rest = [f"  ... and {more} more (--json has all)"] if more else []
        yield from self._section("projects", [*table, *rest])
        bars = fancy.limit_bars(status.limits) if fancy else [""] * len(status.limits)
        limits = zip(map(_limit, status.limits), bars, strict=True)
        yield from self._section("limits", (f"{text}  {bar}".rstrip() for text, bar in limits))
        yield from self._section("remotes", map(_remote, status.remotes))
        yield from self._section("not captured", map(self._uncaptured, status.uncaptured))
        yield from self._section("failed lately", map(self._failure, status.failures[:_SHOWN]))
        yield from self._section("agents with the hook", map(_agent, agents) if agents else [_NO_AGENT])
        yield from self._section("hooks lately", self._hooks(hooks))

    def _summary(self, status: StoreStatus) -> Iterator[str]:
        spare = f", {size(status.unreachable_bytes)} of it to be freed" if status.unreachable_bytes else ""
        yield f"store       {safe(status.base)}"
        yield f"size        {size(status.store_bytes)}{spare}"
        if status.attachments_bytes:
            yield f"            {size(status.attachments_bytes)} of it conversations"
        if status.legacy_bytes:
            yield f"            and {size(status.legacy_bytes)} in archives of older tools"
        yield f"holds       {count(status.checkpoints, 'checkpoint')} of {count(len(status.projects), 'project')}"
        yield f"last prune  {ago(status.last_prune) if status.last_prune else 'not yet'}"
        held = [project.verified_at for project in status.projects if project.verified_at is not None]
        last = f"{count(len(held), 'project')}, last {ago(max(held))}" if held else "not yet"
        yield f"verified    {last}"

    def _section(self, title: str, items: Any) -> Iterator[str]:
        lines = [line for item in items for line in ([item] if isinstance(item, str) else item)]
        if lines:
            yield ""
            yield self._ink("bold", f"{title}:")
            yield from lines

    def _projects(self, projects: tuple[ProjectStatus, ...]) -> Iterator[str]:
        if projects:
            yield self._ink("dim", f"  {'count':5}  {'newest':10}  {'alone':>7}  {'':8}  directory")
        for project in projects:
            alone = "" if project.bytes_alone is None else size(project.bytes_alone)
            pins = f"{project.pinned} pinned" if project.pinned else ""
            newest = age(project.newest) if project.newest else "empty"
            start = f"  {project.checkpoints:5}  {newest:10}  {alone:>7}  {pins:8}  "
            place = "" if project.exists else f" ({project.place})"
            room = max(20, self._width - len(start) - len(place))
            yield f"{start}{cut_path(safe(project.workdir), room)}{place}"

    def _uncaptured(self, trouble: Trouble) -> Iterator[str]:
        shown = ", ".join(one_line(path) for path in trouble.paths[:3])
        more = f" and {trouble.times - 3} more" if trouble.times > 3 else ""
        yield from self._bullet(f"{trouble.workdir}: {trouble.what}: {shown}{more}")
        yield from self._advice(trouble)

    def _failure(self, trouble: Trouble) -> Iterator[str]:
        times = f" ({trouble.times} times)" if trouble.times > 1 else ""
        where = "" if trouble.workdir in trouble.what else f"{trouble.workdir}: "
        yield from self._bullet(f"{ago(trouble.at)}{times}: {where}{trouble.what}")
        yield from self._advice(trouble)

    def _advice(self, trouble: Trouble) -> Iterator[str]:
        if trouble.advice:
            yield from wrapped(f"-> {trouble.advice}", self._width, "    ")

    def _hooks(self, hooks: list[dict[str, Any]]) -> Iterator[str]:
        """The last one, which shows that they run, and those that went wrong."""
        for at, entry in enumerate(hooks):
            troubled = entry.get("status") in _TROUBLED
            if at == 0 or troubled:
                parts = [entry.get("agent"), entry.get("event"), entry.get("tool"), entry.get("status")]
                what = " ".join(str(each) for each in parts if each)
                error = f": {entry['error']}" if entry.get("error") else ""
                yield from self._bullet(f"{_when(entry)}: {what}{error}")
            if at >= _SHOWN:
                return

    def _bullet(self, text: str) -> list[str]:
        first, *rest = wrapped(text, self._width - 2) or [""]
        return [f"  {first}", *(line for each in rest for line in wrapped(each, self._width, "    "))]


_NO_AGENT = "  none: shadowsnap install AGENT"


def _limit(limit: Limit) -> str:
    if limit.limit <= 0:
        return f"  {limit.name:18}  no limit"
    if limit.used is None:
        return f"  {limit.name:18}  {limit.limit:g}"
    word = "  exceeded" if limit.exceeded else "  nearly reached" if limit.near else ""
    most = " in the largest project" if limit.name == "max_snapshots" else ""
    share = "" if most else f" ({100 * limit.used / limit.limit:.0f}%)"
    return f"  {limit.name:18}  {limit.used:.4g} of {limit.limit:g}{most}{share}{word}"


def _remote(each: RemoteStatus) -> str:
    return f"  {safe(each.workdir)}: {remote_text(each)}"


def _agent(each: Installed) -> str:
    other = "" if each.current else " (starts another program)"
    return f"  {each.agent:9} {each.scope:8} {safe(each.path)}{other}"


def _when(entry: dict[str, Any]) -> str:
    from datetime import datetime

    try:
        return ago(datetime.fromtimestamp(entry["time"], UTC))
    except (KeyError, TypeError, ValueError, OverflowError, OSError):
        return "some time"
