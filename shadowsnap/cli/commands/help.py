"""The commands about the program itself: help, docs, ui, completion."""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path

from shadowsnap.agents import NAMES
from shadowsnap.cli.bash_words import read_line
from shadowsnap.cli.commands import (
    GLOBAL_OPTIONS,
    Command,
    Context,
    command_parser,
    load_all,
    load_command,
    split_words,
    top_help,
)
from shadowsnap.cli.text import cut, one_line
from shadowsnap.cli.ui import Ui
from shadowsnap.errors import ExtraMissing, NoSuchTopic, WrongUsage


class HelpCommand(Command):
    """Show all commands, or explain one: shadowsnap help COMMAND."""

    name = "help"
    group = "more"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("command", metavar="COMMAND", nargs="?", help="the command to explain")

    def run(self, args: argparse.Namespace, context: Context) -> int:
        if args.command is None:
            return context.ui.answer({"help": top_help()}, top_help())
        text = command_parser(load_command(args.command)).format_help()
        return context.ui.answer({"help": text}, text.removesuffix("\n"))


DOCS_FOLDER = Path(__file__).parents[2] / "docs"


class DocsCommand(Command):
    """Read the documentation; without TOPIC, list what there is."""

    name = "docs"
    group = "more"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("topic", metavar="TOPIC", nargs="?", help="what to read")

    def run(self, args: argparse.Namespace, context: Context) -> int:
        ui, topics = context.ui, topic_files()
        if args.topic is None:
            titles = {
                name: path.read_text("utf-8").partition("\n")[0].lstrip("# ") for name, path in topics.items()
            }
            wide = max(map(len, titles))
            return ui.answer({"topics": titles}, [f"{name:{wide}}  {title}" for name, title in titles.items()])
        if args.topic not in topics:
            raise NoSuchTopic(topic=args.topic, topics=", ".join(topics))
        text = re.sub(r"<!-- .* -->\n", "", topics[args.topic].read_text("utf-8"))  # marks for `scripts/reference`
        if ui.json:
            return ui.answer({"topic": args.topic, "text": text})
        ui.page(text)
        return 0


def topic_files() -> dict[str, Path]:
    return {path.stem: path for path in sorted(DOCS_FOLDER.glob("*.md"))}


class UiCommand(Command):
    """Look at the timeline, its files and diffs on a screen of its own.

    Turns are on the left, the files and the diff of one of them on the right; ? shows the keys. From there you go
    back, take a turn out, undo and redo; each shows its plan and asks. Needs the extra: pip install
    'shadowsnap[ui]'. Without it, `shadowsnap restore` lets you choose from the timeline.
    """

    name = "ui"
    group = "taking and looking"

    def run(self, args: argparse.Namespace, context: Context) -> int:
        if find_spec("textual") is None:
            hint = "without it, shadowsnap restore lets you choose from the timeline"
            raise ExtraMissing(what="`shadowsnap ui`", extra="ui", hint=hint)
        if not (context.ui.interactive and context.ui.on_terminal and context.ui.redraws):
            hint = "shadowsnap list has the same timeline, --json for programs"
            raise WrongUsage(why="ui needs a terminal, and there is none", hint=hint)
        # The timeline is read while textual is imported: both are slow, and git runs in a process of its own.
        manager, workdir = context.manager, context.workdir
        with ThreadPoolExecutor(1) as reader:
            first = reader.submit(manager.timeline, workdir)
            if context.ui.ink.on:
                os.environ.pop("NO_COLOR", None)
            else:
                os.environ["NO_COLOR"] = "1"
            from shadowsnap.tui.viewer import Viewer

            return Viewer(context, first).run() or 0


# --- completion ------------------------------------------------------------------------------------------


# bash shows a meaning beside each word only while it lists several; it completes the word alone. It puts the word
# into the line as it stands, so words come quoted. zsh and fish take plain words, one on a line, and quote them.
_BASH = """\
# bash completion of shadowsnap
_shadowsnap() {
    local line word about wide=0
    local -a words=() abouts=()
    while IFS= read -r line; do
        word=${line%%$'\\t'*} about=""
        [[ $line == *$'\\t'* ]] && about=${line#*$'\\t'}
        words+=("$word") abouts+=("$about")
        ((${#word} > wide)) && wide=${#word}
    done < <(shadowsnap completion offer --bash -- "${COMP_LINE:0:COMP_POINT}" "$2" 2>/dev/null)
    COMPREPLY=()
    local at
    for at in "${!words[@]}"; do
        if ((${#words[@]} > 1)) && [[ -n ${abouts[at]} && ${COMP_TYPE:-0} == 63 ]]; then
            COMPREPLY+=("$(printf '%-*s  (%s)' "$wide" "${words[at]}" "${abouts[at]}")")
        else
            COMPREPLY+=("${words[at]}")
        fi
    done
    [[ ${COMPREPLY[0]:-} == */ ]] && compopt -o nospace 2>/dev/null
    return 0
}
complete -o default -F _shadowsnap shadowsnap
"""
_ZSH = """\
#compdef shadowsnap
_shadowsnap() {
    local line word
    local -a offered shown
    while IFS= read -r line; do
        word=${line%%$'\\t'*}
        offered+=("$word")
        [[ $line == *$'\\t'* ]] && shown+=("$word  -- ${line#*$'\\t'}") || shown+=("$word")
    done < <(shadowsnap completion offer -- "${(@Q)words[2,CURRENT-1]}" "${(Q)PREFIX}" 2>/dev/null)
    if ((${#offered})); then
        compadd -l -d shown -a offered
    else
        _files
    fi
}
compdef _shadowsnap shadowsnap
"""
_FISH = """\
# fish completion of shadowsnap
function __shadowsnap_offers
    set -l words (commandline -opc)
    set -e words[1]
    set -l current (commandline -ct)
    set -l plain (string unescape -- $current); or set plain (string trim --left --chars='"\\'' -- $current)
    set -l offered (shadowsnap completion offer -- $words "$plain" 2>/dev/null)
    if test (count $offered) -gt 0
        printf '%s\\n' $offered
    else
        __fish_complete_path (commandline -ct)
    end
end
complete -c shadowsnap -f -a '(__shadowsnap_offers)'
"""
_SCRIPTS = {"bash": _BASH, "zsh": _ZSH, "fish": _FISH}


class CompletionCommand(Command):
    """Print the completion script of a shell.

    bash: eval "$(shadowsnap completion bash)" in ~/.bashrc; zsh: the same in ~/.zshrc, after compinit; fish:
    shadowsnap completion fish > ~/.config/fish/completions/shadowsnap.fish. Commands and options are completed,
    numbers of turns with what was asked, session ids, labels, and the files of a state. The scripts ask
    `shadowsnap completion offer`, which prints what fits a line: a word and what it means, with a tab between
    them. With --bash, the words after -- are the line up to the cursor and the part of it that bash replaces, and
    what comes is quoted.
    """

    name = "completion"
    group = "more"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("shell", choices=("bash", "zsh", "fish", "offer"), help="which shell")
        parser.add_argument("--bash", action="store_true", help="with offer: quoted, for a line of bash")
        parser.set_defaults(paths=[])
        parser.usage_end = ["[-- WORD...]"]  # type: ignore[attr-defined]

    def run(self, args: argparse.Namespace, context: Context) -> int:
        if args.shell == "offer":
            found = bash_offers(args.paths) if args.bash else offers(args.paths)
            listed = [{"word": word, "about": about} for word, about in found]
            lines = [f"{word}\t{about}" if about else word for word, about in found if word.isprintable()]
            return context.ui.answer({"offers": listed}, lines)
        script = _SCRIPTS[args.shell]
        return context.ui.answer({"shell": args.shell, "script": script}, script.rstrip("\n"))


Offer = tuple[str, str]
"""A word, and what it means."""

_LONGEST_ABOUT = 60
_MOST_OFFERS = 500


def offers(words: Sequence[str]) -> list[Offer]:
    """The completions of the last of these words; none if anything goes wrong."""
    *before, current = words or [""]
    try:
        directories, name, rest = split_words(before)
        found = list(_offers(Context(Ui(json=True), directories), name, rest, current))
    except Exception:  # an error message would appear in the line that is being typed
        return []
    return [(word, cut(one_line(about), _LONGEST_ABOUT)) for word, about in found if word.startswith(current)][
        :_MOST_OFFERS
    ]


def bash_offers(words: Sequence[str]) -> list[Offer]:
    """The completions of a line of bash, quoted. `words`: the line up to the cursor, and the end of it that bash
    replaces."""
    typed = read_line(*words) if len(words) == 2 else None
    if typed is None:
        return []
    found = ((typed.completion(word), about) for word, about in offers(typed.words))
    return [(word, about) for word, about in found if word is not None]


def _offers(context: Context, name: str, rest: list[str], current: str) -> Iterator[Offer]:
    if not name and current.startswith("-"):
        for options, about in GLOBAL_OPTIONS:
            yield from ((option.split()[0], about) for option in options.split(", "))
        return
    if not name:
        yield from ((command.name, command.summary) for command in load_all().values())
        return
    parser = command_parser(load_command(name))
    taking = _waiting_for_value(parser, rest)
    if taking is not None:
        yield from _words_for(taking, context)
    elif "--" in rest:
        yield from _files(context, rest[0] if rest[0] != "--" else "last", current)
    elif current.startswith("-"):
        yield from ((option, each.help or "") for each in parser._actions for option in each.option_strings)
    else:
        yield from _arguments(parser, _positional_words(parser, rest), context, current)


def _waiting_for_value(parser: argparse.ArgumentParser, rest: Sequence[str]) -> argparse.Action | None:
    """The option whose value is being typed, if any."""
    last = rest[-1] if rest else ""
    return next((each for each in parser._actions if last in each.option_strings and each.nargs != 0), None)


def _positional_words(parser: argparse.ArgumentParser, rest: Sequence[str]) -> list[str]:
    """The words that are neither options nor their values."""
    found, skip = [], False
    for word in rest:
        if skip:
            skip = False
        elif word.startswith("-"):
            skip = _waiting_for_value(parser, [word]) is not None
        else:
            found.append(word)
    return found


def _arguments(
    parser: argparse.ArgumentParser, given: Sequence[str], context: Context, current: str
) -> Iterator[Offer]:
    """Completions of the next positional argument, or of the last one if that takes several."""
    positionals = [each for each in parser._actions if not each.option_strings]
    if not positionals:
        return
    action = positionals[min(len(given), len(positionals) - 1)]
    if len(given) >= len(positionals) and action.nargs not in ("*", "+"):
        return
    if action.metavar == "PATH" and positionals[0].metavar == "REF" and given:
        yield from _files(context, given[0], current)
    else:
        yield from _words_for(action, context)


def _words_for(action: argparse.Action, context: Context) -> Iterator[Offer]:
    """Completions of an argument, or of the value of an option."""
    kind = action.metavar
    if action.option_strings:  # most options that take N mean another number than that of a turn
        kind = {"session": "SESSION", "turn": "N"}.get(action.dest)
    plain: Iterable[object] = action.choices or ()
    if kind in ("REF", "REF2", "N"):
        for entry in context.manager.timeline(context.workdir):
            if entry.number is not None and (entry.kind == "turn" or (entry.kind == "snapshot" and kind != "N")):
                yield str(entry.number), entry.prompt or entry.reason
    if kind in ("REF", "REF2"):
        yield "last", "the newest turn or snapshot that is not undone"
        labels = (each.label for each in context.manager.list_checkpoints(context.workdir))
        yield from ((label, "a label") for label in labels if label)
    if kind == "REF2":
        yield "@", "the files as they are now"
    elif kind == "SESSION":
        for session in context.manager.sessions(working_dir=context.workdir):
            yield session.id, next((turn.prompt for turn in session.turns if turn.prompt), "")
    elif kind == "COMMAND":
        yield from ((command.name, command.summary) for command in load_all().values())
    elif kind == "TOPIC":
        plain = topic_files()
    elif kind == "AGENT":
        plain = NAMES
    elif kind == "WORD":
        plain = ("list", "diff", "turn", "session", "undo", "redo", "pin", "help")
    yield from ((str(word), "") for word in plain)


def _files(context: Context, ref: str, current: str) -> Iterator[Offer]:
    """The files of a state, one directory at a time. Unlike the shell, this knows those that are gone from the
    disk."""
    inside = os.path.relpath(context.here, context.workdir)
    base = "" if inside == os.curdir else f"{inside}/"
    folder, slash, _ = current.rpartition("/")
    start = f"{base}{folder}{slash}"
    names: dict[str, None] = {}
    for path in context.manager.files(context.workdir, ref):
        if path.startswith(start):
            name, below, _ = path[len(start) :].partition("/")
            names[f"{folder}{slash}{name}{below}"] = None
    yield from ((name, "") for name in names)
