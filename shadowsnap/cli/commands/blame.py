"""Show which turn brought in each line of a file, or that you did.

Lines that came with shell commands count as the turn's. What you edited between turns is yours; `before` is
what was there when the timeline began.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from shadowsnap.cli.context import Context
from shadowsnap.cli.text import columns, cut, one_line, pad, safe
from shadowsnap.cli.ui import Ink
from shadowsnap.errors import WrongUsage

if TYPE_CHECKING:
    from shadowsnap.model import Author, BlamedLine

GROUP = "taking and looking"

_NO_ID = "0" * 40
_PROMPT = 28
_RANGE = re.compile(r"(\d*)(?:,(\+?\d*))?")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("path", metavar="FILE", help="the file")
    parser.add_argument("-L", dest="lines", metavar="RANGE", help="only these lines: 10,20 or 10,+5 or 10, or 10")
    parser.add_argument("--porcelain", action="store_true", help="as git blame --porcelain has it, for editors")


def run(args: argparse.Namespace, context: Context) -> int:
    path = context.path(args.path)
    everything = context.manager.blame(context.workdir, path)
    lines = everything if args.lines is None else _chosen(everything, args.lines)
    if context.ui.json:
        return context.ui.answer({"lines": [line.to_dict() for line in lines]})
    if args.porcelain:
        context.ui.raw(b"".join(_porcelain(lines, path)))
        return 0
    context.ui.page("".join(f"{row}\n" for row in _rows(lines, context.ui.ink)))
    return 0


def _chosen(lines: Sequence[BlamedLine], word: str) -> Sequence[BlamedLine]:
    """The lines that a range names, as `git blame -L` has it."""
    found = _RANGE.fullmatch(word)
    if found is None or word in ("", ","):
        raise WrongUsage(why=f"-L {word}: a range is 10,20 or 10,+5")
    first = int(found[1] or 1)
    last = found[2]
    if last is None:
        end = first
    elif last.startswith("+"):
        end = first + int(last[1:] or 0) - 1
    else:
        end = int(last) if last else len(lines)
    if not 1 <= first <= end or first > len(lines):
        raise WrongUsage(why=f"-L {word}: the file has {len(lines)} lines")
    return lines[first - 1 : end]


def _rows(lines: Sequence[BlamedLine], ink: Ink) -> Iterator[str]:
    cells = [(_who(line.author), cut(one_line(line.author.prompt or ""), _PROMPT)) for line in lines]
    wide = [max([0, *(columns(cell[at]) for cell in cells)]) for at in range(2)]
    digits = len(str(lines[-1].line)) if lines else 1
    for line, (who, prompt) in zip(lines, cells, strict=True):
        style = {"turn": "cyan", "person": "green"}.get(line.author.who, "dim")
        text = safe(line.text.decode("utf-8", "surrogateescape").removesuffix("\n"), keep="\t")
        left = f"{ink(style, pad(who, wide[0]))}  {ink('dim', pad(prompt, wide[1]))}"
        yield f"{left}  {ink('dim', f'{line.line:>{digits}}')}  {text}".rstrip()


def _who(author: Author) -> str:
    if author.who == "turn":
        return f"turn {author.number}" + (f" {one_line(author.agent)}" if author.agent else "")
    return "you" if author.who == "person" else "before"


def _porcelain(lines: Sequence[BlamedLine], path: str) -> Iterator[bytes]:
    described: set[tuple[str, str, int | None]] = set()
    for at, line in enumerate(lines):
        who, identity = line.author, line.author.checkpoint or _NO_ID
        group = ""
        if at == 0 or not _follows(lines[at - 1], line):
            end = at + 1
            while end < len(lines) and _follows(lines[end - 1], lines[end]):
                end += 1
            group = f" {end - at}"
        yield f"{identity} {line.original_line} {line.line}{group}\n".encode()
        if (identity, who.who, who.number) not in described:
            described.add((identity, who.who, who.number))
            yield from _headers(who, path)
        yield b"\t" + line.text.removesuffix(b"\n") + b"\n"


def _follows(line: BlamedLine, following: BlamedLine) -> bool:
    """Whether a line came in right after another one."""
    return line.author == following.author and line.original_line + 1 == following.original_line


def _headers(who: Author, path: str) -> Iterator[bytes]:
    from shadowsnap.snapshot.states import quoted  # `--help` reads every command

    name = {"turn": one_line(who.agent or "agent"), "person": "you"}.get(who.who, "before the timeline")
    seconds = int(who.at.timestamp()) if who.at is not None else 0
    plain = {"turn": f"turn {who.number}", "person": "your own edits"}.get(who.who, name)
    what = one_line(who.prompt or "") or plain
    for role in ("author", "committer"):
        yield f"{role} {name}\n{role}-mail <>\n{role}-time {seconds}\n{role}-tz +0000\n".encode()
    yield f"summary {what}\n".encode()
    yield f"number {who.number}\n".encode() if who.number is not None else b""
    yield b"boundary\n" if who.who == "before" else b""
    yield f"filename {quoted(path.encode('utf-8', 'surrogateescape'))}\n".encode()
