"""Take over the checkpoints of another tool.

PATH is a store of Hermes or PraisonAI, or a repository with shadow branches of Entire. They keep
their dates, reasons and files, and nothing is changed there. What was imported before is skipped.
"""

from __future__ import annotations

import argparse
import os
from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

from shadowsnap.cli.context import Context
from shadowsnap.cli.text import count, one_line, safe
from shadowsnap.cli.ui import working

if TYPE_CHECKING:
    from shadowsnap.model import ImportReport

GROUP = "more"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("source", metavar="PATH", help="where the other tool keeps its checkpoints")
    parser.add_argument("--dry-run", action="store_true", help="show what would be imported and import nothing")


def run(args: argparse.Namespace, context: Context) -> int:
    path = os.path.join(context.here, os.path.expanduser(args.source))
    with working(context.ui, "importing") as update:
        report = context.manager.import_from(path, args.dry_run, lambda done, total, _: update(done, total))
    return context.ui.answer(report.to_dict(), _lines(report), code=1 if report.failed else 0)


def _lines(report: ImportReport) -> Iterator[str]:
    taken = Counter(item.workdir for item in report.items if item.status not in ("skipped", "failed"))
    for workdir, number in sorted(taken.items()):
        yield f"  {count(number, 'checkpoint')} of {safe(workdir)}"
    for item in report.items:
        if item.status == "failed":
            yield f"  failed: {item.original_id[:8]} of {safe(item.workdir)}: {one_line(item.why)}"
    verb = "imported" if report.applied else "to import"
    yield f"{report.imported} {verb}, {report.skipped} skipped, {report.failed} failed"
