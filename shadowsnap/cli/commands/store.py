"""The commands about the store: status, doctor, verify, import, and those that remove checkpoints: delete, prune,
purge, clear, clear-legacy."""

from __future__ import annotations

import argparse
import os
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from shadowsnap.agents.install import Installed, installed
from shadowsnap.agents.state import (
    PROBED,
    AgentState,
    ProjectAgent,
    checked_states,
    project_agents,
    writable_folders,
)
from shadowsnap.base import config_file
from shadowsnap.cli.commands import Command, Context, add_plan_options
from shadowsnap.cli.commands.timeline import heading
from shadowsnap.cli.tables import checkpoint_title, now_text, state_name, tilde, unpushed_text
from shadowsnap.cli.text import age, ago, count, cut, cut_path, one_line, safe, size, wrapped
from shadowsnap.cli.ui import Ink, Ui
from shadowsnap.errors import NoSuchProject, PinnedCheckpoint, ShadowsnapError, WrongUsage
from shadowsnap.git.repository import missing_fixes
from shadowsnap.hook.server import running_helper
from shadowsnap.hook.session import read_log
from shadowsnap.model import Entry, Now, Skipped
from shadowsnap.results import (
    Checkup,
    ClearedItem,
    ClearReport,
    ImportReport,
    Limit,
    ProjectStatus,
    PruneResult,
    PurgeResult,
    StoreStatus,
    Trouble,
)
from shadowsnap.snapshot.copies import verified_at
from shadowsnap.store.layout import Store
from shadowsnap.store.log import read_troubles
from shadowsnap.store.projects import as_moment, project_of, read_record
from shadowsnap.upkeep.status import exposure, failures

_MOST_SKIPPED = 3
_LONGEST_PATH = 50


class StatusCommand(Command):
    """Show whether this directory is protected, and what changed since.

    By which agent's hook, when it last ran and with what result, what changed since the newest known state, what
    is not captured, how much history there is, and what is wrong with the command that repairs it. --store shows
    the store instead: its size, its projects, and how close the limits are.
    """

    name = "status"
    group = "taking and looking"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--store", action="store_true", help="the store instead of this directory")

    def run(self, args: argparse.Namespace, context: Context) -> int:
        return _show_store(context) if args.store else _show_here(context)


def _show_here(context: Context) -> int:
    with context.working("looking at the files"):
        entries, now, problem = _read_present(context)
        context.hooks = checked_states(context.workdir)
        agents = project_agents(context.workdir, context.hooks)
    protection, verified = context.protection, _verified_at(context)
    remote = next(iter(context.manager.remote_status(context.workdir)), None)
    troubles = [*([(str(problem), problem.hint)] if problem else []), *_troubles(context, agents)]
    known = now is not None and now.name is not None
    counted = now is not None and now.files_changed is not None
    data = {
        "here": {
            "workdir": str(context.workdir),
            "protected": protection.protected,
            "protection": protection.text,
            "since": as_moment(protection.since),
            "agents": agents,
            "newest": _fields_of(now, "name", "number", "checkpoint_id") if known else None,
            "changed_since": _fields_of(now, "files_changed", "insertions", "deletions") if counted else None,
            "not_captured": now.skipped if now is not None else [],
            "remote": remote,
            "turn_count": sum(entry.kind == "turn" for entry in entries),
            "snapshot_count": sum(entry.kind == "snapshot" for entry in entries),
            "verified_at": verified,
        },
        "enabled": context.manager.settings.enabled,
        "troubles": [{"what": what, "advice": advice} for what, advice in troubles],
    }
    ui, width = context.ui, context.ui.width
    rows = [(each.agent, each.text) for each in agents]
    rows += [("changed", now_text(now) if now is not None else "not known" if problem else "no history yet")]
    rows += [("not held", _skipped_text(now.skipped))] if now is not None and now.skipped else []
    rows += [("history", _history_text(entries))] if entries else []
    rows += [("verified", f"the newest state was restored and found exact {ago(verified)}")] if verified else []
    rows += [("remote", f"{safe(remote.name)}, {unpushed_text(remote)}")] if remote is not None else []
    base = cut(tilde(context.manager.settings.resolved_base()), width)
    rows += [("store", f"{base}  (shadowsnap status --store)")]
    lines = [heading(context)]
    if not context.manager.settings.enabled:
        text = f"SNAPSHOTS ARE DISABLED: nothing is protected. {_how_to_enable()}"
        lines += [ui.ink("red", line) for line in wrapped(text, width)]
    for name, text in rows:
        lines += wrapped(text, width, f"{name:8}  ", " " * 10)
    for what, advice in troubles:
        text = f"trouble: {one_line(what)}{f'  -> {one_line(advice)}' if advice else ''}"
        lines += [ui.ink("yellow", line) for line in wrapped(text, width)]
    return ui.answer(data, lines)


def _how_to_enable() -> str:
    value = os.environ.get("SHADOWSNAP_ENABLED")
    if value:
        return f"The variable SHADOWSNAP_ENABLED is {value!r}: unset it."
    return f"Set enabled = true in {tilde(config_file())}."


def _fields_of(record: object, *names: str) -> dict[str, Any]:
    return {name: getattr(record, name) for name in names}


def _verified_at(context: Context) -> datetime | None:
    """When the newest checkpoint of this project was last restored into scratch and found exact."""
    try:
        store = Store(Path(context.manager.settings.resolved_base()))
        return as_moment(verified_at(read_record(store, project_of(context.workdir))))
    except (ShadowsnapError, OSError):
        return None


def _read_present(context: Context) -> tuple[list[Entry], Now | None, ShadowsnapError | None]:
    """The timeline, how the files are now, and the error if one of them could not be read."""
    entries: list[Entry] = []
    try:
        entries = context.manager.timeline(context.workdir)
        return entries, context.manager.now(context.workdir), None
    except NoSuchProject:
        return entries, None, None
    except ShadowsnapError as problem:
        return entries, None, problem


def _skipped_text(skipped: Sequence[Skipped]) -> str:
    paths = [f"{cut_path(safe(item.path), _LONGEST_PATH)} ({item.why})" for item in skipped[:_MOST_SKIPPED]]
    more = f" and {len(skipped) - _MOST_SKIPPED} more" if len(skipped) > _MOST_SKIPPED else ""
    return f"{count(len(skipped), 'path')}: {', '.join(paths)}{more}"


def _history_text(entries: Sequence[Entry]) -> str:
    numbers = Counter[str](entry.kind for entry in entries)
    parts = [count(numbers[kind], kind) for kind in ("turn", "snapshot") if numbers[kind]]
    began = min((entry.began_at for entry in entries if entry.began_at is not None), default=None)
    return ", ".join(parts) + (f"; the first {ago(began)}" if began is not None else "")


def _troubles(context: Context, agents: Sequence[ProjectAgent]) -> Iterator[tuple[str, str]]:
    """What is wrong here, and the command or setting that repairs it."""
    base = Path(context.manager.settings.resolved_base())
    yield from ((each.problem, each.remedy) for each in agents if each.problem)
    last = max((each.last_run_at for each in agents if each.last_run_at is not None), default=None)
    for failure in failures(read_troubles(base)):
        if failure.workdir == str(context.workdir) and (last is None or failure.at >= last):
            yield f"{ago(failure.at)}: {failure.what}", failure.advice
            break
    try:
        unfixed = missing_fixes(Store(base).git())
    except (ShadowsnapError, OSError):
        unfixed = ""  # git or the store is missing, which is reported elsewhere
    if unfixed:
        yield unfixed, "install a newer git"
    exposed = exposure(base, [context.workdir], writable_folders())
    if exposed:
        yield exposed.partition(":")[0], "move it out: shadowsnap docs settings, base"


_SHOWN = 10
_BAR = 20
_HOOKS_READ = 200
_BAD_STATUSES = ("failed", "refused", "partial", "settings")


def _show_store(context: Context) -> int:
    """Show the store: its place and size, its projects, its limits, what was not captured, what failed lately and
    what to do about it, and which agents have the hook."""
    with context.working("looking at the store"):
        status = context.manager.status()
        agents = installed(context.workdir)
    exposed = exposure(Path(status.base), [context.workdir], writable_folders())
    if exposed and not any(text.startswith("the store lies ") for text in status.warnings):
        status = replace(status, warnings=(exposed, *status.warnings))
    # status and doctor run the hooks themselves, to see that they answer: that is not what happened here.
    hooks = [each for each in read_log(_HOOKS_READ) if each.get("status") != PROBED]
    helper = running_helper(status.base)
    data = {
        **status.to_dict(),
        "settings": {"path": config_file(), "ignored": context.manager.warnings},
        "agents": [_fields_of(each, "agent", "path", "scope", "current") for each in agents],
        "hooks": hooks[:_SHOWN],
        "helper": helper,
    }
    ui = context.ui
    sections = {
        "warnings": [line for text in status.warnings for line in _bullet_lines(text, ui.width)],
        "projects": _project_lines(status.projects, ui),
        "limits": [f"{_limit_text(each)}{_bar(each, ui.ink)}" for each in status.limits],
        "remotes": [
            f"  {safe(each.workdir)}: {safe(each.name)}, {unpushed_text(each)}" for each in status.remotes
        ],
        "not captured": [line for each in status.uncaptured for line in _uncaptured_lines(each, ui.width)],
        "failed lately": [line for each in status.failures[:_SHOWN] for line in _failure_lines(each, ui.width)],
        "agents with the hook": [*map(_agent_text, agents)] or ["  none: shadowsnap install AGENT"],
        "hooks lately": [line for text in _hook_texts(hooks) for line in _bullet_lines(text, ui.width)],
    }
    lines = [*_store_facts(status)]
    lines += [f"helper      process {helper.pid}, started {ago(helper.started_at)}"] if helper is not None else []
    for title, rows in sections.items():
        lines += ["", ui.ink("bold", f"{title}:"), *rows] if rows else []
    return ui.answer(data, lines)


def _store_facts(status: StoreStatus) -> Iterator[str]:
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


def _project_lines(projects: Sequence[ProjectStatus], ui: Ui) -> list[str]:
    lines = [ui.ink("dim", f"  {'count':5}  {'newest':10}  {'alone':>7}  {'':8}  directory")] if projects else []
    for project in projects[:_SHOWN]:
        alone = "" if project.bytes_alone is None else size(project.bytes_alone)
        pins = f"{project.pinned} pinned" if project.pinned else ""
        newest = age(project.newest) if project.newest else "empty"
        cells = [("bold", f"{project.checkpoints:5}"), ("dim", f"{newest:10}"), ("cyan", f"{alone:>7}")]
        cells += [("magenta", f"{pins:8}")]
        place = "" if project.exists else f" ({project.place})"
        room = max(20, ui.width - 2 - sum(len(text) + 2 for _, text in cells) - len(place))
        path = f"{cut_path(safe(project.workdir), room)}{ui.ink('yellow', place)}"
        lines.append("  " + "  ".join([*(ui.ink(style, text) for style, text in cells), path]))
    more = len(projects) - _SHOWN
    return lines + ([f"  ... and {more} more (--json has all)"] if more > 0 else [])


def _limit_text(limit: Limit) -> str:
    if limit.limit <= 0:
        return f"  {limit.name:18}  no limit"
    if limit.used is None:
        return f"  {limit.name:18}  {limit.limit:g}"
    word = "  exceeded" if limit.exceeded else "  nearly reached" if limit.near else ""
    most = " turns in the largest project" if limit.name == "max_snapshots" else ""
    share = "" if most else f" ({100 * limit.used / limit.limit:.0f}%)"
    return f"  {limit.name:18}  {limit.used:.4g} of {limit.limit:g}{most}{share}{word}"


def _bar(limit: Limit, ink: Ink) -> str:
    """A bar of how much of a limit is used; none without colours."""
    if not ink.on or limit.limit <= 0 or limit.used is None:
        return ""
    full = min(_BAR, round(_BAR * limit.used / limit.limit))
    style = "red" if limit.exceeded else "yellow" if limit.near else "green"
    return f"  {ink(style, '━' * full)}{ink('dim', '━' * (_BAR - full))}"


def _uncaptured_lines(trouble: Trouble, width: int) -> list[str]:
    shown = ", ".join(one_line(path) for path in trouble.paths[:3])
    more = f" and {trouble.times - 3} more" if trouble.times > 3 else ""
    return _bullet_lines(f"{trouble.workdir}: {trouble.what}: {shown}{more}", width, trouble.advice)


def _failure_lines(trouble: Trouble, width: int) -> list[str]:
    times = f" ({trouble.times} times)" if trouble.times > 1 else ""
    where = "" if trouble.workdir in trouble.what else f"{trouble.workdir}: "
    return _bullet_lines(f"{ago(trouble.at)}{times}: {where}{trouble.what}", width, trouble.advice)


def _agent_text(each: Installed) -> str:
    other = "" if each.current else " (starts another program)"
    return f"  {each.agent:9} {each.scope:8} {safe(each.path)}{other}"


def _hook_texts(hooks: Sequence[dict[str, Any]]) -> Iterator[str]:
    """The newest run of a hook, and those that went wrong."""
    for at, entry in enumerate(hooks[: _SHOWN + 1]):
        if at == 0 or entry.get("status") in _BAD_STATUSES:
            parts = [entry.get("agent"), entry.get("event"), entry.get("tool"), entry.get("status")]
            try:
                when = ago(datetime.fromtimestamp(entry["time"], UTC))
            except (KeyError, TypeError, ValueError, OverflowError, OSError):
                when = "some time"
            error = f": {entry['error']}" if entry.get("error") else ""
            yield f"{when}: {' '.join(str(each) for each in parts if each)}{error}"


def _bullet_lines(text: str, width: int, advice: str = "") -> list[str]:
    return wrapped(text, width, "  ", "    ") + (wrapped(f"-> {advice}", width, "    ") if advice else [])


_STYLES = {"error": "red", "warning": "yellow", "info": "dim"}


class DoctorCommand(Command):
    """Look for damage in the store, and repair it.

    Without --repair nothing is changed: it shows what is wrong, what that means and what would be done.
    What cannot be saved is set aside, never deleted. Each hook that is installed is run once, with an event that
    asks for nothing. The exit code is 1 if something is left that fails or is lost, or a hook does not protect.
    """

    name = "doctor"
    group = "keeping"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--repair", action="store_true", help="repair what can be repaired")
        parser.add_argument(
            "-n", "--dry-run", action="store_true", help="with --repair: only show what it would do"
        )

    def run(self, args: argparse.Namespace, context: Context) -> int:
        ui = context.ui
        with context.working("examining the store and the hooks"):
            checkup = context.manager.doctor(repair=args.repair and not args.dry_run)
            hooks = checked_states(context.workdir)
        data = {**checkup.to_dict(), "agents": hooks}
        failed = not checkup.healthy or any(hook.problem for hook in hooks)
        return ui.answer(data, _doctor_lines(checkup, hooks, ui.width, ui.ink), code=int(failed))


def _doctor_lines(checkup: Checkup, hooks: Sequence[AgentState], width: int, ink: Ink) -> Iterator[str]:
    repairable = 0
    for hook in hooks:
        answer = f"NOT protected: {hook.problem}" if hook.problem else "the hook is installed and answers"
        lines = wrapped(f"{hook.agent}: {one_line(answer)}", width)
        yield from (ink("red", line) if hook.problem else line for line in lines)
    for finding in checkup.findings:
        repaired = finding in checkup.repaired
        word = "repaired" if repaired else finding.severity
        style = "green" if repaired else _STYLES.get(finding.severity, "dim")
        yield f"{ink(style, f'{word:8}')}  {finding.code}: {safe(finding.subject)}"
        yield from wrapped(finding.meaning, width, " " * 10)
        if finding.repair and not repaired:
            repairable += 1
            yield from wrapped(f"repair: {finding.repair}", width, " " * 10)
    if checkup.set_aside:
        yield f"what could not be saved is in {safe(checkup.set_aside)}"
    yield f"{safe(checkup.base)}: {count(checkup.checkpoints, 'checkpoint')}, {checkup.intact} intact"
    what = "the store" if any(hook.problem for hook in hooks) else "everything"
    left = f"{what} is in order" if checkup.healthy else "the rest cannot be repaired"
    if repairable:
        left = f"{count(repairable, 'thing')} to repair: shadowsnap doctor --repair"
    done = f"{count(len(checkup.repaired), 'thing')} repaired; " if checkup.repaired else ""
    yield f"{done}{left}"


class VerifyCommand(Command):
    """Check that a state can be restored exactly.

    REF, or without it the newest state, is restored into a scratch directory and compared byte for byte with what
    the checkpoint says. Upkeep does the same for the newest checkpoint of each project now and then; status shows
    when that last held.
    """

    name = "verify"
    group = "keeping"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("ref", metavar="REF", nargs="?", help="a number of the list, 3:after, a label, an id")

    def run(self, args: argparse.Namespace, context: Context) -> int:
        ref = None if args.ref is None else context.checkpoint(args.ref).id
        with context.working("restoring into a scratch directory"):
            result = context.manager.verify(context.workdir, ref)
        name = result.checkpoint[:8]
        if result.verified:
            text = f"{name} is exact: {count(result.files, 'file')} restored and compared"
            return context.ui.answer(result.to_dict(), text)
        lines = [f"{name} is damaged: {count(result.problem_count, 'problem')}"]
        lines += [f"  {safe(problem)}" for problem in result.problems]
        context.ui.say("hint: shadowsnap doctor --repair repairs what it can; other states are not affected")
        return context.ui.answer(result.to_dict(), lines, code=1)


class ImportCommand(Command):
    """Take over the checkpoints of another tool.

    PATH is a store of Hermes or PraisonAI, or a repository with shadow branches of Entire. They keep
    their dates, reasons and files, and nothing is changed there. What was imported before is skipped.
    """

    name = "import"
    group = "more"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("source", metavar="PATH", help="where the other tool keeps its checkpoints")
        parser.add_argument(
            "-n", "--dry-run", action="store_true", help="show what would be imported and import nothing"
        )

    def run(self, args: argparse.Namespace, context: Context) -> int:
        path = os.path.join(context.here, os.path.expanduser(args.source))
        with context.working("importing") as update:
            report = context.manager.import_from(path, args.dry_run, lambda done, total, _: update(done, total))
        return context.ui.answer(report.to_dict(), _import_lines(report), code=1 if report.failed else 0)


def _import_lines(report: ImportReport) -> Iterator[str]:
    taken = Counter(item.workdir for item in report.items if item.status not in ("skipped", "failed"))
    for workdir, number in sorted(taken.items()):
        yield f"  {count(number, 'checkpoint')} of {safe(workdir)}"
    for item in report.items:
        if item.status == "failed":
            yield f"  failed: {item.original_id[:8]} of {safe(item.workdir)}: {one_line(item.why)}"
    verb = "imported" if report.applied else "to import"
    yield f"{report.imported} {verb}, {report.skipped} skipped, {report.failed} failed"


class DeleteCommand(Command):
    """Drop checkpoints for good.

    Every other checkpoint stays what it is, and so do your files. A pinned one has to be unpinned
    first. Upkeep reclaims the space later; with --now, what no checkpoint holds any more is gone from the
    disk at once. On a terminal you are asked; elsewhere --yes is needed.
    """

    name = "delete"
    group = "keeping"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("refs", metavar="REF", nargs="+", help="the states: numbers of the list, labels, ids")
        parser.add_argument("--now", action="store_true", help="reclaim the space at once")
        add_plan_options(parser)

    def run(self, args: argparse.Namespace, context: Context) -> int:
        ui = context.ui
        named = [(word, context.checkpoint(word)) for word in args.refs]
        chosen = {checkpoint.id: checkpoint for _, checkpoint in named}
        for word, checkpoint in named:
            if checkpoint.pinned:
                name = state_name(word, checkpoint, context.manager.timeline(context.workdir))
                hint = f"unpin it first: {context.command_line('unpin', word)}"
                raise PinnedCheckpoint(ref=name, hint=hint)
        if args.dry_run:
            going = list(chosen.values())
            lines = [f"  delete  {checkpoint.short_id}  {checkpoint_title(checkpoint)}" for checkpoint in going]
            lines.append(f"{count(len(going), 'checkpoint')} would be gone")
            return ui.answer({"checkpoints": going, "dry_run": True}, lines)
        if not args.yes:
            number = count(len(chosen), "checkpoint")
            plan = [f"  {checkpoint.short_id}  {checkpoint_title(checkpoint)}" for checkpoint in chosen.values()]
            if not ui.confirm(f"delete {number} for good?", plan, f"{number} would be gone"):
                return ui.cancelled()
        gone = context.manager.delete(context.workdir, list(chosen))
        answer = {"checkpoints": gone}
        lines = [f"deleted {checkpoint.short_id}  {checkpoint_title(checkpoint)}" for checkpoint in gone]
        if not args.now:
            return ui.answer(answer, lines)
        with context.working("reclaiming"):
            reclaimed = context.manager.reclaim()
        if not reclaimed.complete:
            ui.say(f"{ui.talk_ink('yellow', 'warning:')} the space was not reclaimed: {safe(reclaimed.why)}")
        lines.append(f"freed {size(reclaimed.bytes_freed)}")
        return ui.answer({**answer, **reclaimed.to_dict()}, lines, code=0 if reclaimed.complete else 1)


_LIMITS = {
    "max_snapshots": ("N", int, "turns to keep of each project"),
    "retention_days": ("DAYS", float, "drop what is older"),
    "max_total_size_mb": ("MB", float, "size of the store"),
    "max_attachments_mb": ("MB", float, "size of kept conversations"),
}
_STATUS_TEXTS = {
    "busy": "another process is pruning",
    "skipped": "nothing is stored yet",
    "disabled": "shadowsnap is disabled by its settings",
}


class PruneCommand(Command):
    """Keep the limits now, and reclaim what no checkpoint holds.

    Upkeep keeps the limits by itself from time to time, and reclaims space when that pays. Pinned
    checkpoints and the newest of each project stay. If limits are given here and something would go, it
    asks on a terminal; elsewhere --yes is needed. A limit of 0 means no limit.
    """

    name = "prune"
    group = "keeping"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        for name, (metavar, kind, text) in _LIMITS.items():
            option = f"--{name.replace('_', '-')}"
            parser.add_argument(option, metavar=metavar, type=kind, help=f"{text}, instead of the setting")
        parser.add_argument("--keep-orphans", action="store_true", help="keep those of directories that are gone")
        add_plan_options(parser)

    def run(self, args: argparse.Namespace, context: Context) -> int:
        ui, manager = context.ui, context.manager
        limits = {name: getattr(args, name) for name in _LIMITS if getattr(args, name) is not None}
        for name, value in limits.items():
            if not 0 <= value < float("inf"):
                raise WrongUsage(why=f"--{name.replace('_', '-')} must be a number that is not negative")
        orphans = not args.keep_orphans
        if args.dry_run or (limits and not args.yes):
            with context.working("looking at the store"):
                plan = manager.prune(dry_run=True, orphans=orphans, **limits)
            if args.dry_run:
                return ui.answer(plan.to_dict(), _prune_lines(plan, ui.width))
            if plan.dropped:
                number = count(len(plan.dropped), "checkpoint")
                if not ui.confirm(
                    f"drop {number} for good?", _prune_lines(plan, ui.width), f"{number} would be gone"
                ):
                    return ui.cancelled()
        with context.working("pruning"):
            result = manager.prune(orphans=orphans, **limits)
        for note in result.notes:
            ui.say(safe(note))
        if result.error is not None:
            ui.say(f"{ui.talk_ink('yellow', 'warning:')} the space was not reclaimed: {safe(str(result.error))}")
        done = result.applied and result.error is None
        return ui.answer(result.to_dict(), _prune_lines(result, ui.width), code=0 if done else 1)


def _prune_lines(result: PruneResult, width: int) -> Iterator[str]:
    if result.status in _STATUS_TEXTS:
        yield _STATUS_TEXTS[result.status]
        return
    workdir = None
    for verdict in sorted(result.dropped, key=lambda each: each.checkpoint.workdir):
        checkpoint = verdict.checkpoint
        if checkpoint.workdir != workdir:
            workdir = checkpoint.workdir
            yield safe(workdir)
        why = f"({verdict.reason})"
        start = f"  {checkpoint.short_id}  {age(checkpoint.created_at):10}  "
        yield f"{start}{cut(checkpoint_title(checkpoint), max(12, width - len(start) - len(why) - 2))}  {why}"
    if result.attachments_dropped:
        yield f"  and {count(len(result.attachments_dropped), 'conversation')}"
    yield _prune_counts(result)
    if not result.applied:
        yield from (safe(note) for note in result.notes)


def _prune_counts(result: PruneResult) -> str:
    number = count(len(result.dropped), "checkpoint")
    kept = len(result.verdicts) - len(result.dropped)
    if not result.applied:
        now = "" if result.bytes_before is None else f"; the store has {size(result.bytes_before)}"
        then = "" if result.bytes_after is None else f", what stays needs {size(result.bytes_after)}"
        return f"{number} to drop, {kept} to keep{now}{then}"
    return f"dropped {number}, kept {kept}, freed {size(result.bytes_freed)}"


_MOST_SHOWN = 20


class PurgeCommand(Command):
    """Take files out of every checkpoint of this project for good.

    For the day a key was captured. Each checkpoint that holds PATH, a file or a directory, is recorded
    anew without it; its old id keeps working, and everything else in it stays. Your own files stay as
    they are: what is still on disk is captured again by the next snapshot, unless you move it away or
    exclude it. Prompts and conversations that are kept with checkpoints are not searched. An agent may
    have read the key too: replace it. On a terminal you are asked; elsewhere --yes is needed. If it is
    interrupted, run it again.
    """

    name = "purge"
    group = "keeping"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument(
            "paths", metavar="PATH", nargs="*", help="files or directories, as checkpoints hold them"
        )
        parser.needed = ("paths",)  # type: ignore[attr-defined]  # also after --, which argparse does not see
        add_plan_options(parser)

    def run(self, args: argparse.Namespace, context: Context) -> int:
        ui, manager = context.ui, context.manager
        if not args.paths:
            raise WrongUsage(why="name at least one path to purge")
        paths = context.paths(args.paths)
        if args.dry_run or not args.yes:
            with context.working("looking at the checkpoints"):
                plan = manager.purge(context.workdir, paths, dry_run=True)
            if args.dry_run:
                return ui.answer(plan.to_dict(), _purge_lines(plan))
            number = count(len(plan.checkpoints), "checkpoint")
            if not ui.confirm(
                "purge it for good?", _purge_lines(plan, most=_MOST_SHOWN), f"{number} would be changed"
            ):
                return ui.cancelled()
        try:
            with context.working("purging"):
                result = manager.purge(context.workdir, paths)
        except KeyboardInterrupt:
            ui.say("every checkpoint can be restored; run the same purge again to finish it")
            raise
        for note in result.notes:
            ui.say(f"{ui.talk_ink('yellow', 'note:')} {safe(note)}")
        return ui.answer(result.to_dict(), _purged_text(result), code=0 if result.reclaimed else 1)


def _purge_lines(plan: PurgeResult, most: int | None = None) -> Iterator[str]:
    yield from (f"  purge  {safe(path)}" for path in plan.files[:most])
    if most is not None and len(plan.files) > most:
        yield f"  purge  ... and {len(plan.files) - most} more (--dry-run lists all)"
    yield f"{count(len(plan.checkpoints), 'checkpoint')} to change, {size(plan.bytes)} of content to remove"
    yield from (f"note: {safe(note)}" for note in plan.notes)


def _purged_text(result: PurgeResult) -> str:
    files, changed = count(len(result.files), "file"), count(len(result.checkpoints), "checkpoint")
    if not result.reclaimed:
        return f"purged {files} from {changed}; the bytes are not reclaimed yet"
    proof = "none of it is left in the store"
    if result.contents_left:
        proof = f"{count(result.contents_left, 'content')} still held elsewhere"
    return f"purged {files} from {changed}, freed {size(result.bytes_freed)}; {proof}"


class ClearCommand(Command):
    """Let go of every checkpoint of this project, pinned ones too.

    Your files stay as they are, but nothing can be brought back any more: also prompts, conversations and
    log lines of this project are removed. With --all, every project's checkpoints. On a terminal you are
    asked; elsewhere --yes is needed.
    """

    name = "clear"
    group = "keeping"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--all", action="store_true", help="every project")
        add_plan_options(parser)

    def run(self, args: argparse.Namespace, context: Context) -> int:
        def operation(dry_run: bool) -> ClearReport:
            if args.all:
                return context.manager.clear_all(dry_run)
            return context.manager.clear(context.workdir, dry_run)

        return clear_after_asking(
            context, args, operation, "every checkpoint" if args.all else "these checkpoints"
        )


def clear_after_asking(
    context: Context, args: argparse.Namespace, operation: Callable[[bool], ClearReport], what: str
) -> int:
    """Show what `operation(dry_run)` would remove, ask, and run it."""
    ui = context.ui
    with context.working("looking"):
        plan = operation(True)
    lines = list(_clear_lines(plan))
    if args.dry_run:
        return ui.answer(plan.to_dict(), lines)
    if not plan.items:
        return ui.answer(operation(False).to_dict(), "nothing to clear")
    number = sum(item.checkpoints for item in plan.items)
    gone = f"{count(number, 'checkpoint')} would be gone" if number else f"{what} would be gone"
    if not args.yes and not ui.confirm(f"clear {what} for good?", lines, gone):
        return ui.cancelled()
    with context.working("clearing"):
        report = operation(False)
    later = f"; {size(report.pending_bytes)} will be freed by upkeep" if report.pending_bytes else ""
    cleared = "\n".join(f"cleared {_item_text(item)}" for item in report.items)
    return ui.answer(report.to_dict(), [cleared, f"freed {size(report.bytes_freed)}{later}"])


def _clear_lines(plan: ClearReport) -> Iterator[str]:
    yield from (f"  clear  {_item_text(item)}" for item in plan.items)
    yield f"{size(plan.bytes_freed + plan.pending_bytes)} to free"


def _item_text(item: ClearedItem) -> str:
    parts = [count(item.checkpoints, "checkpoint")] if item.checkpoints else []
    parts += [f"{item.pinned} pinned"] if item.pinned else []
    parts += [size(item.bytes), *([item.note] if item.note else [])]
    return f"{safe(item.subject)} ({', '.join(parts)})"


class ClearLegacyCommand(Command):
    """Remove what older tools left in the store's directory.

    Their repositories were archived there, and their checkpoints imported, on first use. On a terminal
    you are asked; elsewhere --yes is needed.
    """

    name = "clear-legacy"
    group = "keeping"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        add_plan_options(parser)

    def run(self, args: argparse.Namespace, context: Context) -> int:
        return clear_after_asking(context, args, context.manager.clear_legacy, "these archives")
