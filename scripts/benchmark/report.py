"""What a run found: a table for people, JSON for programs, and the machine it was found on."""

from __future__ import annotations

import os
import platform
import subprocess
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

from benchmark import operations as op
from benchmark.operations import Result
from benchmark.race import Samples
from benchmark.targets import Verdict
from benchmark.trees import Tree
from shadowsnap import __version__

_RIVALS = (op.STATUS, op.SHADOW_STATUS, op.ADD_COMMIT, op.READ_TREE, op.COPY)
_COLUMNS = (op.OURS, "x status", op.WATCHING, *_RIVALS, "other", "git", "peak MB", "runs")
_OTHERS = (op.CHECKOUT, op.DIFF_TREE, op.FOR_EACH_REF)


def machine(scratch: Path) -> dict[str, object]:
    return {
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "processor": _processor(),
        "cores": os.cpu_count(),
        "memory_mb": _memory_mb(),
        "file_system": _file_system(scratch),
        "load_average": [round(load, 2) for load in os.getloadavg()] if hasattr(os, "getloadavg") else None,
    }


def versions() -> dict[str, str]:
    git = subprocess.run(["git", "version"], capture_output=True, text=True, check=True).stdout.strip()
    python = platform.python_version()
    return {"shadowsnap": __version__, "python": python, "git": git.removeprefix("git version ")}


def now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


# --- for people ------------------------------------------------------------------------------


def headline(machine: Mapping[str, object], versions: Mapping[str, str], command: str) -> str:
    named = " · ".join(f"{name} {version}" for name, version in versions.items())
    busy = "\nThe machine is busy with other work: times are too long, and ratios uncertain." if _busy() else ""
    return (
        f"{named}\n{machine['system']}, {machine['processor']}, {machine['cores']} cores, "
        f"{machine['memory_mb']} MB, {machine['file_system']}, load {machine['load_average']}\n"
        f"Repeat with: {command}\n"
        "Medians in ms of interleaved runs with a warm cache; git = git processes; peak MB = a fresh Python\n"
        f"doing it once; x status = against the faster of `{op.STATUS}` through the same index and in the\n"
        f"shadow repository; {op.WATCHING} = shadowsnap while it watches the directory.{busy}"
    )


def table(tree: Tree, results: Sequence[Result]) -> str:
    size = f"{tree.bytes / 1e6:.1f} MB"
    rows = [["operation", *_COLUMNS], *(_row(result) for result in results)]
    lines = [f"{tree.name}: {tree.files:,} files in {tree.directories:,} directories, {size}", *_aligned(rows)]
    for result in results:
        if result.operation == op.FIRST:
            ours, theirs = (int(str(result.facts[name])) / 1e6 for name in ("store_bytes", "shadow_bytes"))
            lines.append(f"store after the first snapshot: {ours:.1f} MB; shadow repository: {theirs:.1f} MB")
    return "\n".join(lines)


def starts_table(starts: Mapping[str, Samples]) -> str:
    rows = [["fresh process", "ms", "runs"]]
    rows += [[name, _ms(samples.median), str(len(samples.milliseconds))] for name, samples in starts.items()]
    return "\n".join(_aligned(rows))


def verdict_table(verdicts: Sequence[Verdict]) -> str:
    rows = [["target", "where", "value", "limit", "unit", ""]]
    for verdict in verdicts:
        numbers, word = (f"{verdict.value:.2f}", f"{verdict.limit:g}"), "met" if verdict.met else "MISSED"
        rows.append([verdict.what, verdict.where, *numbers, verdict.unit, word])
    return "\n".join(_aligned(rows, left=(0, 1, 4, 5)))


def _row(result: Result) -> list[str]:
    ours, status = result.median(op.OURS), result.status()
    other = next((f"{name} {_ms(result.median(name))}" for name in _OTHERS if name in result.samples), "-")
    return [
        _label(result),
        _ms(ours),
        "-" if ours is None or status is None else f"{ours / status:.2f}",
        _ms(result.median(op.WATCHING)),
        *(_ms(result.median(each)) for each in _RIVALS),
        other,
        str(result.samples[op.OURS].processes),
        "-" if result.peak_mb is None else f"{result.peak_mb:.1f}",
        str(len(result.samples[op.OURS].milliseconds)),
    ]


def _label(result: Result) -> str:
    if result.operation == op.LIST:
        return f"{op.LIST} of {result.facts['checkpoints']}"
    changed, stated = result.facts.get("files_changed", 0), op.FILES.get(result.operation)
    return result.operation if stated in (None, changed) else f"{result.operation} ({changed})"  # in a small tree


def _ms(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:.1f}" if value < 100 else f"{value:,.0f}"


def _aligned(rows: Sequence[Sequence[str]], left: Sequence[int] = (0,)) -> list[str]:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return [
        "  ".join(
            cell.ljust(width) if column in left else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]


# --- the machine -----------------------------------------------------------------------------


def _busy() -> bool:
    return hasattr(os, "getloadavg") and os.getloadavg()[0] > 0.5 * (os.cpu_count() or 1)


def _processor() -> str:
    for line in _lines("/proc/cpuinfo"):
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor() or "unknown processor"


def _memory_mb() -> int | None:
    for line in _lines("/proc/meminfo"):
        if line.startswith("MemTotal:"):
            return int(line.split()[1]) // 1024
    return None


def _file_system(path: Path) -> str:
    """The type of the file system that holds a path, where the system shows it."""
    best, kind = "", "unknown file system"
    for line in _lines("/proc/mounts"):
        place, name = line.split()[1:3]
        if path.resolve().is_relative_to(place) and len(place) >= len(best):
            best, kind = place, name
    return kind


def _lines(path: str) -> list[str]:
    try:
        return Path(path).read_text("utf-8", "replace").splitlines()
    except OSError:
        return []
