"""Print the completion script of a shell.

bash: eval "$(shadowsnap completion bash)" in ~/.bashrc; zsh: the same in ~/.zshrc, after compinit;
fish: shadowsnap completion fish > ~/.config/fish/completions/shadowsnap.fish.
"""

from __future__ import annotations

import argparse
from typing import NamedTuple

from shadowsnap.cli.context import Context

GROUP = "more"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("shell", choices=("bash", "zsh", "fish"), help="which shell")


def run(args: argparse.Namespace, context: Context) -> int:
    script = {"bash": _bash, "zsh": _zsh, "fish": _fish}[args.shell](_known())
    return context.ui.answer({"shell": args.shell, "script": script}, script.rstrip("\n"))


class _Known(NamedTuple):
    """What there is to complete after one command."""

    name: str
    summary: str
    options: tuple[tuple[str, str, bool], ...]
    """Name, help, whether it takes a value."""
    words: tuple[str, ...]
    takes_checkpoints: bool
    takes_files: bool


def _known() -> list[_Known]:
    from shadowsnap.agents import NAMES
    from shadowsnap.cli.commands import load_all
    from shadowsnap.cli.commands.docs import topic_files
    from shadowsnap.cli.parser import command_parser, summary

    found = []
    for name, module in load_all().items():
        parser = command_parser(name, module)
        plain = [action for action in parser._actions if not action.option_strings]
        metavars = {action.metavar for action in plain}
        words = [str(word) for action in plain for word in action.choices or ()]
        words += [*(topic_files() if "TOPIC" in metavars else ()), *(NAMES if "AGENT" in metavars else ())]
        options = tuple(
            (option, action.help or "", action.nargs != 0)
            for action in parser._actions
            for option in action.option_strings
        )
        found.append(
            _Known(
                name,
                summary(module),
                options,
                tuple(words),
                takes_checkpoints=bool(metavars & {"ID", "A", "B"}),
                takes_files=parser.get_default("paths") is not None or "PATH" in metavars,
            )
        )
    return found


# --- bash ------------------------------------------------------------------------------------

_BASH = """\
# bash completion of shadowsnap
_shadowsnap() {{
    local current=${{COMP_WORDS[COMP_CWORD]}} command="" choices="" at
    for ((at = 1; at < COMP_CWORD; at++)); do
        case ${{COMP_WORDS[at]}} in
            -C) ((at++)) ;;
            -*) ;;
            *) command=${{COMP_WORDS[at]}}; break ;;
        esac
    done
    case $command in
        "") choices="{commands} {options}" ;;
{cases}
    esac
    COMPREPLY=($(compgen -W "$choices" -- "$current"))
}}
_shadowsnap_ids() {{
    shadowsnap list --limit 0 2>/dev/null | awk '{{ print $2 }}'
}}
complete -o default -F _shadowsnap shadowsnap
"""

_GLOBAL = "-C --json --no-color --version --help"


def _bash(known: list[_Known]) -> str:
    cases = []
    for each in known:
        choices = [*(name for name, _, _ in each.options), *each.words]
        choices += ["last", "$(_shadowsnap_ids)"] if each.takes_checkpoints else []
        cases.append(f'        {each.name}) choices="{" ".join(choices)}" ;;')
    return _BASH.format(commands=" ".join(each.name for each in known), options=_GLOBAL, cases="\n".join(cases))


# --- zsh -------------------------------------------------------------------------------------

_ZSH = """\
#compdef shadowsnap
_shadowsnap() {{
    local command="" at
    local -a commands ids
    commands=({commands})
    for ((at = 2; at < CURRENT; at++)); do
        case $words[at] in
            -C) ((at++)) ;;
            -*) ;;
            *) command=$words[at]; break ;;
        esac
    done
    case $command in
        "") _describe command commands; compadd -- {options} ;;
{cases}
    esac
}}
_shadowsnap_ids() {{
    ids=(last ${{(f)"$(shadowsnap list --limit 0 2>/dev/null | awk '{{ print $2 }}')"}})
    compadd -a ids
}}
compdef _shadowsnap shadowsnap
"""


def _zsh(known: list[_Known]) -> str:
    cases = []
    for each in known:
        deeds = ["compadd -- " + " ".join([*(name for name, _, _ in each.options), *each.words])]
        deeds += ["_shadowsnap_ids"] if each.takes_checkpoints else []
        deeds += ["_files"] if each.takes_files else []
        cases.append(f"        {each.name}) {'; '.join(deeds)} ;;")
    commands = " ".join(_quoted(f"{each.name}:{each.summary.replace(':', ' -')}") for each in known)
    return _ZSH.format(commands=commands, options=_GLOBAL, cases="\n".join(cases))


# --- fish ------------------------------------------------------------------------------------


def _fish(known: list[_Known]) -> str:
    lines = [
        "# fish completion of shadowsnap",
        "function __shadowsnap_ids",
        "    echo last",
        "    shadowsnap list --limit 0 2>/dev/null | awk '{ print $2 }'",
        "end",
        "complete -c shadowsnap -f",
        "complete -c shadowsnap -n __fish_use_subcommand -l version",
    ]
    for each in known:
        start = f"complete -c shadowsnap -n '__fish_seen_subcommand_from {each.name}'"
        lines.append(f"complete -c shadowsnap -n __fish_use_subcommand -a {each.name} -d {_quoted(each.summary)}")
        for name, text, takes_value in each.options:
            kind = f"-l {name[2:]}" if name.startswith("--") else f"-s {name[1:]}"
            lines.append(f"{start} {kind}{' -r' if takes_value else ''} -d {_quoted(text)}")
        if each.words:
            lines.append(f"{start} -a {_quoted(' '.join(each.words))}")
        if each.takes_checkpoints:
            lines.append(f"{start} -a '(__shadowsnap_ids)'")
        if each.takes_files:
            lines.append(f"{start} -F")
    return "\n".join(lines) + "\n"


def _quoted(text: str) -> str:
    return "'" + text.replace("\\", "").replace("'", "") + "'"
