"""Plays the stories with real agents: see scripts/test.

First the agents are installed, with the network. Then this program starts itself again in a namespace that has
only loopback, and plays. Processes that an agent leaves behind end with that namespace.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import traceback
from pathlib import Path

from judge import Settings, judge_settings
from model import Model
from programs import PROGRAMS, Home, NotAvailable, Program, default_cache
from stage import Failed, Stage
from stories import PLAYED_IN, STORIES, NotThere
from terminal import TerminalChat

COLUMNS = [*STORIES, "uninstall"]
PLAYED = Path(__file__).parents[2] / "shadowsnap" / "agents" / "played.json"


def main(words: list[str]) -> int:
    args = _arguments(words)
    chosen = [kind(args.cache) for kind in PROGRAMS if not args.agents or kind.name in args.agents]
    if args.play:
        _play_all(chosen, args)
        return 0
    rows: dict[str, dict[str, str]] = {}
    for program in chosen:
        try:
            program.install(update=args.update)
        except (NotAvailable, OSError, subprocess.SubprocessError) as problem:
            rows[program.name] = {"why": f"could not be installed: {problem}"}
    ready = [program for program in chosen if program.name not in rows]
    with tempfile.TemporaryDirectory(prefix="shadowsnap-agents-") as folder:
        scratch = args.keep or Path(folder)
        scratch.mkdir(parents=True, exist_ok=True)
        for program in ready:
            rows[program.name] = _play_alone(program, scratch, args)
    _report(chosen, rows)
    if args.record:
        _record(rows)
    return int(any(cell.startswith("no") for row in rows.values() for cell in row.values()))


def _arguments(words: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="scripts/test --agents", description="Play stories with real agents.")
    parser.add_argument("agents", nargs="*", metavar="AGENT", help="only these")
    parser.add_argument("--story", action="append", choices=list(STORIES), help="only this one; may be repeated")
    parser.add_argument("--cache", type=Path, default=default_cache(), help="where agents are installed")
    parser.add_argument("--keep", type=Path, help="play in this directory and leave it there")
    parser.add_argument("--update", action="store_true", help="install the newest versions first")
    parser.add_argument(
        "--record", action="store_true", help="write the table into the package's documentation data"
    )
    parser.add_argument("--play", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args(words)
    args.cache = args.cache.absolute()
    return args


def _play_alone(program: Program, scratch: Path, args: argparse.Namespace) -> dict[str, str]:
    """Play with one agent where only loopback exists; returns its row."""
    result = scratch / f"{program.name}.json"
    result.unlink(missing_ok=True)
    shutil.rmtree(scratch / program.name, ignore_errors=True)
    stories = [word for story in args.story or () for word in ("--story", story)]
    again = [sys.executable, str(Path(__file__).parent), program.name, "--cache", str(args.cache), *stories]
    as_root = [] if os.geteuid() == 0 else ["--map-root-user"]
    alone = ["unshare", *as_root, "--net", "--pid", "--fork", "--kill-child", "--mount", "--mount-proc"]
    # A shell brings loopback up, then becomes the player.
    script = 'ip link set lo up && exec "$@"'
    began = time.monotonic()
    done = subprocess.run([*alone, "sh", "-c", script, "sh", *again, "--play", str(result)], check=False)
    if not result.is_file():
        return {"why": f"could not be played: exit code {done.returncode}"}
    row: dict[str, str] = json.loads(result.read_text())
    print(f"{program.title} {row.get('version', '')}: {time.monotonic() - began:.0f} s", flush=True)
    return row


def _play_all(chosen: list[Program], args: argparse.Namespace) -> None:
    (program,) = chosen
    model = Model()
    home = Home(args.play.parent / program.name, model.port, Path(sys.executable).parent)
    stage = Stage(program, model, home, [])
    row = {"version": program.version()}
    try:
        row |= _play(stage, args.story or list(STORIES))
    except (NotAvailable, Failed, OSError, subprocess.SubprocessError) as problem:
        row["why"] = f"could not be started: {problem}"
    _write_notes(stage)
    args.play.write_text(json.dumps(row))


def _write_notes(stage: Stage) -> None:
    """What was shown and which tools were offered, to look at when a story fails (with --keep)."""
    (stage.home.path / "shown.txt").write_text("\n\n".join(stage.notes))
    (stage.home.path / "tools.json").write_text(json.dumps(stage.model.tools, indent=1))


def _play(stage: Stage, chosen: list[str]) -> dict[str, str]:
    program, home = stage.program, stage.home
    home.projects.mkdir(parents=True)
    for name in {"consent", *(PLAYED_IN[story] for story in STORIES)}:
        stage.make_project(name)
    program.prepare(home)
    ours = _ours(stage)
    names = (*program.settings, *ours)
    before = Settings.of(home.path, names)
    _must(stage, "install", program.name)
    installed = Settings.of(home.path, names)
    program.consent(home)
    if program.consents_in_terminal:
        TerminalChat(stage, home.projects / "consent", must_ask=True).close()
    row = {}
    for story in chosen:
        stage.notes.append(f"=== {story}")
        project = home.projects / PLAYED_IN[story]
        try:
            STORIES[story](stage, project)
            row[story] = "yes"
        except NotThere as reason:
            row[story] = f"- ({reason})"
        except Failed as problem:
            row[story] = f"no: {problem}"
        except (OSError, KeyError, subprocess.SubprocessError) as problem:
            stage.notes.append(traceback.format_exc())
            row[story] = f"no: {problem!r}"
        print(f"  {program.title}, {story}: {row[story]}", flush=True)
        _write_notes(stage)
    used = Settings.of(home.path, names)
    _must(stage, "uninstall", program.name)
    try:
        changed = judge_settings(before, installed, used, Settings.of(home.path, names), ours)
        row["uninstall"] = f"yes (it changed {changed} itself)" if changed else "yes"
    except Failed as problem:
        row["uninstall"] = f"no: {problem}"
    print(f"  {program.title}, uninstall: {row['uninstall']}", flush=True)
    return row


def _ours(stage: Stage) -> list[str]:
    """Every file below the home directory that an installation would write, except in our own directory."""
    plan = stage.shadowsnap(stage.home.path, "install", stage.program.name, "--dry-run", "--json")
    try:
        changes = json.loads(plan.stdout)["settings_files"]
    except (ValueError, KeyError):
        raise Failed(f"install --dry-run: {plan.stderr[-300:]}") from None
    paths = [Path(change["path"]) for change in changes]
    return [str(path.relative_to(stage.home.path)) for path in paths if path.parent.name != "bin"]


def _must(stage: Stage, *words: str) -> None:
    done = stage.shadowsnap(stage.home.path, *words)
    stage.notes.append(f"$ shadowsnap {' '.join(words)}\n{done.stdout}{done.stderr}")
    if done.returncode:
        raise Failed(f"shadowsnap {' '.join(words)}: {done.stderr[-300:]}")


def _record(rows: dict[str, dict[str, str]]) -> None:
    """Write what was played into the package, beside what is known of the other agents."""
    known = json.loads(PLAYED.read_text()) if PLAYED.is_file() else {}
    for name, row in rows.items():
        before = known.get(name, {})
        cells = before if before.get("version") == row.get("version") else {}
        cells = {**cells, **{column: row[column] for column in COLUMNS if column in row}}
        if "why" not in row and set(COLUMNS) <= set(cells):
            ordered = {column: cells[column] for column in COLUMNS}
            known[name] = {"version": row["version"], "month": time.strftime("%B %Y"), **ordered}
    PLAYED.write_text(json.dumps(dict(sorted(known.items())), indent=1, ensure_ascii=False) + "\n")


def _report(chosen: list[Program], rows: dict[str, dict[str, str]]) -> None:
    """Print the table."""
    print(f"\n| agent | version | {' | '.join(COLUMNS)} |\n|{'---|' * (len(COLUMNS) + 2)}")
    for program in chosen:
        row = rows[program.name]
        cells = [row.get(name, "not played").split(":")[0] for name in COLUMNS]
        print(f"| {program.title} | {row.get('version', '-')} | {' | '.join(cells)} |")
    for program in chosen:
        row = rows[program.name]
        if "why" in row:
            print(f"{program.title} {row['why']}")
        for name in COLUMNS:
            if row.get(name, "").startswith("no:"):
                print(f"{program.title}, {name}: {row[name][4:]}")


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
