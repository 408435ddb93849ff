"""Show whether this directory is protected, and what changed since.

By which agent's hook, when it last ran and with what result, what changed since the newest known state, what is
not captured, how much history there is, and what is wrong with the command that mends it. --store shows the
store instead: its size, its projects, and how close the limits are.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shadowsnap.cli.context import Context
from shadowsnap.cli.states import tilde
from shadowsnap.cli.tables import now_text, remote_text
from shadowsnap.cli.text import ago, count, cut, cut_path, one_line, safe, wrapped
from shadowsnap.errors import NoSuchProject, ShadowsnapError

if TYPE_CHECKING:
    from shadowsnap.agents.protection import AgentHere
    from shadowsnap.model import Entry, Now, RemoteStatus

GROUP = "taking and looking"

_MOST_NAMED = 3
_LONGEST_PATH = 50


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--store", action="store_true", help="the store instead of this directory")


def run(args: argparse.Namespace, context: Context) -> int:
    if args.store:
        from shadowsnap.cli.store_status import show_store

        return show_store(context)
    return _show_here(context)


def _show_here(context: Context) -> int:
    from shadowsnap.agents.protection import agents_here, moment_of

    with context.working("looking at the files"):
        entries, now, problem = _look(context)
        agents = agents_here(context.workdir)
    protection = context.protection
    remote = next(iter(context.manager.remote_status(context.workdir)), None)
    troubles = [*([(str(problem), problem.hint)] if problem else []), *_troubles(context, agents)]
    newest = None
    if now is not None and now.name is not None:
        newest = {"name": now.name, "number": now.number, "checkpoint_id": now.checkpoint_id}
    since = None if now is None or now.files_changed is None else {
        "files_changed": now.files_changed, "insertions": now.insertions, "deletions": now.deletions,
    }  # fmt: skip
    here: dict[str, Any] = {
        "workdir": str(context.workdir),
        "protected": protection.protected,
        "protection": protection.text,
        "since": _iso(moment_of(protection.since)),
        "agents": [each.to_dict() for each in agents],
        "newest": newest,
        "changed_since": since,
        "not_captured": [item.to_dict() for item in now.skipped] if now is not None else [],
        "remote": remote.to_dict() if remote is not None else None,
        "turn_count": sum(entry.kind == "turn" for entry in entries),
        "snapshot_count": sum(entry.kind == "snapshot" for entry in entries),
        "verified_at": _iso(_verified_at(context)),
    }
    data = {
        "here": here,
        "enabled": context.manager.settings.enabled,
        "troubles": [{"what": what, "advice": advice} for what, advice in troubles],
    }
    return context.ui.answer(data, _lines(context, entries, now, agents, troubles, remote))


def _iso(when: datetime | None) -> str | None:
    return None if when is None else when.isoformat()


def _verified_at(context: Context) -> datetime | None:
    """When the newest checkpoint of this project was last restored into scratch and found exact."""
    from shadowsnap.agents.protection import moment_of
    from shadowsnap.store.layout import Store
    from shadowsnap.store.projects import project_of, read_record
    from shadowsnap.upkeep.verify import verified_at

    try:
        store = Store(Path(context.manager.settings.resolved_base()))
        return moment_of(verified_at(read_record(store, project_of(context.workdir))))
    except (ShadowsnapError, OSError):
        return None


def _look(context: Context) -> tuple[list[Entry], Now | None, ShadowsnapError | None]:
    """What happened here, how the files are, and what kept us from seeing that."""
    entries: list[Entry] = []
    try:
        entries = context.manager.timeline(context.workdir)
        return entries, context.manager.now(context.workdir), None
    except NoSuchProject:
        return entries, None, None
    except ShadowsnapError as problem:
        return entries, None, problem


def _lines(
    context: Context,
    entries: Sequence[Entry],
    now: Now | None,
    agents: Sequence[AgentHere],
    troubles: Sequence[tuple[str, str]],
    remote: RemoteStatus | None,
) -> Iterator[str]:
    from shadowsnap.base import config_file
    from shadowsnap.cli.commands.list import heading

    ui = context.ui
    yield heading(context)
    if not context.manager.settings.enabled:
        yield ui.ink("red", "SNAPSHOTS ARE DISABLED: nothing is protected. Set enabled = true, and see that")
        yield ui.ink("red", f"SHADOWSNAP_ENABLED is not set: {cut_path(tilde(config_file()), ui.width - 34)}")
    for each in agents:
        yield from _row(context, each.agent, each.text)
    yield from _row(context, "changed", now_text(now) if now is not None else "no history yet")
    if now is not None and now.skipped:
        paths = [(cut_path(safe(item.path), _LONGEST_PATH), item.why) for item in now.skipped[:_MOST_NAMED]]
        named = ", ".join(f"{path} ({why})" for path, why in paths)
        more = f" and {len(now.skipped) - _MOST_NAMED} more" if len(now.skipped) > _MOST_NAMED else ""
        yield from _row(context, "not held", f"{count(len(now.skipped), 'path')}: {named}{more}")
    if entries:
        yield from _row(context, "history", _history(entries))
    if (verified := _verified_at(context)) is not None:
        yield from _row(context, "verified", f"the newest state was restored and found exact {ago(verified)}")
    if remote is not None:
        yield from _row(context, "remote", remote_text(remote))
    yield from _row(context, "store", f"{_base(context)}  (shadowsnap status --store)")
    for what, advice in troubles:
        text = f"trouble: {one_line(what)}{f'  -> {one_line(advice)}' if advice else ''}"
        yield from (ui.ink("yellow", line) for line in wrapped(text, ui.width))


def _row(context: Context, name: str, text: str) -> Iterator[str]:
    first, *rest = wrapped(text, context.ui.width - 10) or [""]
    yield f"{name:8}  {first}"
    yield from (f"{'':10}{line}" for line in rest)


def _history(entries: Sequence[Entry]) -> str:
    turns, snapshots = (sum(entry.kind == kind for entry in entries) for kind in ("turn", "snapshot"))
    parts = [count(turns, "turn")] if turns else []
    parts += [count(snapshots, "snapshot")] if snapshots else []
    began = min((entry.began_at for entry in entries if entry.began_at is not None), default=None)
    return ", ".join(parts) + (f"; the first {ago(began)}" if began is not None else "")


def _base(context: Context) -> str:
    return cut(tilde(context.manager.settings.resolved_base()), context.ui.width)


def _troubles(context: Context, agents: Sequence[AgentHere]) -> Iterator[tuple[str, str]]:
    """What is wrong here, and the command or setting that mends it."""
    from shadowsnap.agents.sandboxes import writable_folders
    from shadowsnap.git.repository import missing_fixes
    from shadowsnap.store.layout import Store
    from shadowsnap.store.troubles import read_log
    from shadowsnap.upkeep.status import exposure, failures

    manager = context.manager
    base = Path(manager.settings.resolved_base())
    yield from ((each.problem, each.mend) for each in agents if each.problem)
    last = max((each.last_run_at for each in agents if each.last_run_at is not None), default=None)
    for failure in failures(read_log(base)):
        if failure.workdir == str(context.workdir) and (last is None or failure.at >= last):
            yield f"{ago(failure.at)}: {failure.what}", failure.advice
            break
    try:
        unfixed = missing_fixes(Store(base).git())
    except (ShadowsnapError, OSError):
        unfixed = ""  # without git, or without a store, there are other troubles
    if unfixed:
        yield unfixed, "install a newer git"
    exposed = exposure(base, [context.workdir], writable_folders())
    if exposed:
        yield exposed.partition(":")[0], "move it out: shadowsnap docs settings, base"
