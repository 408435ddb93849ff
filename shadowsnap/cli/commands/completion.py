"""Print the completion script of a shell.

bash: eval "$(shadowsnap completion bash)" in ~/.bashrc; zsh: the same in ~/.zshrc, after compinit;
fish: shadowsnap completion fish > ~/.config/fish/completions/shadowsnap.fish. Commands and options are completed,
numbers of turns with what was asked, session ids, labels, and the files of a state. The scripts ask
`shadowsnap completion offer`, which prints what fits a line: a word and what it means, with a tab between them.
"""

from __future__ import annotations

import argparse

from shadowsnap.cli.context import Context

GROUP = "more"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("shell", choices=("bash", "zsh", "fish", "offer"), help="which shell")
    parser.set_defaults(paths=[])
    parser.usage_end = ["[-- WORD...]"]  # type: ignore[attr-defined]


def run(args: argparse.Namespace, context: Context) -> int:
    if args.shell == "offer":
        from shadowsnap.cli.completing import offers

        found = offers(args.paths)
        listed = [{"word": word, "about": about} for word, about in found]
        return context.ui.answer({"offers": listed}, [f"{word}\t{about}".rstrip() for word, about in found])
    script = _SCRIPTS[args.shell]
    return context.ui.answer({"shell": args.shell, "script": script}, script.rstrip("\n"))


# Where several words fit, bash shows what they mean; what is completed is the word alone.
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
    done < <(shadowsnap completion offer -- "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null)
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
    done < <(shadowsnap completion offer -- "${(@)words[2,CURRENT]}" 2>/dev/null)
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
    set -l words (commandline -opc)[2..-1] (commandline -ct)
    set -l offered (shadowsnap completion offer -- $words 2>/dev/null)
    if test (count $offered) -gt 0
        printf '%s\\n' $offered
    else
        __fish_complete_path (commandline -ct)
    end
end
complete -c shadowsnap -f -a '(__shadowsnap_offers)'
"""

_SCRIPTS = {"bash": _BASH, "zsh": _ZSH, "fish": _FISH}
