"""The documentation that is made from the code: `python -m shadowsnap.cli.reference` writes it."""

from __future__ import annotations

import argparse
import ast
from collections.abc import Iterator
from pathlib import Path

from shadowsnap import errors
from shadowsnap import settings as config
from shadowsnap.cli import schema
from shadowsnap.cli.api_reference import STUB, api_markdown, stub_text
from shadowsnap.cli.commands import GROUPS, load_all
from shadowsnap.cli.commands.help import FOLDER
from shadowsnap.cli.parser import (
    GLOBAL_OPTIONS,
    USAGE,
    command_parser,
    own_options,
    placeholder,
    usage,
)
from shadowsnap.settings import LEAST_FILE_SIZE_MB, PROJECT_SETTINGS

EXIT_CODES = {
    0: "done",
    1: "failed",
    2: "wrong usage",
    3: "no such checkpoint, project or path",
    4: "refused, because something would be lost or confirmation is missing",
    130: "interrupted by Ctrl-C; nothing was left half done",
}

_CLI = """\
# The command line

    {usage}

{options}

The options `-C`, `--json` and `--no-color` can stand before or after the command. Everything
after `--` is a path.

- The project is the nearest directory, at or above the current one, that has checkpoints, as far up
  as your repository reaches.
- A REF is a number of the list (`3`: the state before turn 3; of a snapshot, the snapshot), `3:after` (the end of
  turn 3), `last`, `last~2`, a label, or 4 and more digits of an id with a letter among them. In `diff`, `@` is the
  files as they are now. Numbers never change and are never used again.
- The id of a session may be shortened to any part of 4 or more characters that no other one has.
- Without a command, on a terminal, it shows the timeline. Elsewhere a command is needed.
- stdout is data, stderr is talk. With `--json`, stdout is one object with `"schema": 2`; `shadowsnap docs json`
  has every answer. An error is `{{"schema": 2, "error": {{"type", "message", "hint"}}}}`.
- What takes longer than half a second shows its progress on stderr.
- Colour only on a terminal; `NO_COLOR` and `FORCE_COLOR` are respected.
- Diffs and documentation go through `GIT_PAGER`, `PAGER` or `less` on a terminal.
- What changes or drops something asks on a terminal; to decline is no error. Elsewhere it needs `--yes`.
- `SHADOWSNAP_DEBUG=1` adds a traceback to an error.

Exit codes:

{codes}
"""

_SETTINGS = """\
# Settings

Each layer goes over the ones before it:

1. the defaults below;
2. your own file: `$XDG_CONFIG_HOME/shadowsnap/config.toml` or `~/.config/shadowsnap/config.toml` (macOS:
   `~/Library/Application Support/shadowsnap/config.toml`, Windows: `%APPDATA%\\shadowsnap\\config.toml`);
3. the project: `[tool.shadowsnap]` in its `pyproject.toml`, then its `.shadowsnap.toml`;
4. variables: `SHADOWSNAP_` and the name in capitals, lists with commas, as in
   `SHADOWSNAP_EXCLUDES='*.bin,tmp/'`; the base is `SHADOWSNAP_HOME`;
5. flags of a command.

The files are TOML with one name per line:

    max_snapshots = 50
    excludes = ["*.parquet", "/data/"]

A project's file may have come with a clone, so it can only narrow what is captured of that project:
{narrowing}. Its patterns are names with `*` and `**`
(`*.parquet`, `/data/`, `models/**`, `fixtures/large-*`), at most 100 of them, and none that matches what
ordinary files are called. In a `pyproject.toml`, the table is written `[tool.shadowsnap]`.
Everything else in it is ignored with a warning: it cannot switch protection off, move the store, let
secrets in, take a default exclude back, or change limits that decide about checkpoints.

What cannot be read is ignored with a warning that names the file and the line. `shadowsnap status --store` shows
what hooks had to ignore.

A limit of 0 means no limit. In Python, `CheckpointManager(...)` takes these as arguments and reads no
file; `CheckpointManager.from_settings(...)` goes through the layers.
"""

_NARROWING = {
    "excludes": "it can add `excludes`",
    "max_file_size_mb": "lower `max_file_size_mb` (not below {least:g})",
}

_ERRORS = """\
# Errors

Every error has a fixed name and a fixed exit code. In Python they are subclasses of
`shadowsnap.ShadowsnapError`, in `shadowsnap.errors`. With `--json` the name is `error.type`. What stands in
braces is filled in.

{codes}
"""


def cli_markdown() -> str:
    options = "\n".join(f"- `{option}`: {text}" for option, text in GLOBAL_OPTIONS)
    parts = [_CLI.format(usage=USAGE, options=options, codes=_code_list())]
    commands = load_all()
    for group in GROUPS:
        parts.append(f"## {group[0].upper()}{group[1:]}\n")
        for command in commands.values():
            if command.group == group:
                parts.append(_command(command_parser(command), command.name, command.description))
    return "\n".join(parts)


def errors_markdown() -> str:
    lines = [_ERRORS.format(codes=_code_list())]
    lines += ["| error | exit code | message | hint |", "|---|---|---|---|"]
    for kind in error_classes():
        cells = (f"`{kind.__name__}`", str(kind.exit_code), kind.__doc__ or "", kind.hint)
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(lines) + "\n"


def settings_markdown() -> str:
    narrowing = " and ".join(_NARROWING[name] for name in PROJECT_SETTINGS).format(least=LEAST_FILE_SIZE_MB)
    lines = [_SETTINGS.format(narrowing=narrowing), "| setting | default | |", "|---|---|---|"]
    defaults = config.Settings()
    for name, about in setting_texts().items():
        lines.append(f"| `{name}` | {_default(getattr(defaults, name))} | {about} |")
    return "\n".join(lines) + "\n"


def setting_texts() -> dict[str, str]:
    """What each setting is about, as it stands below it in the source."""
    tree = ast.parse(Path(config.__file__).read_text("utf-8"))
    body = next(node.body for node in tree.body if isinstance(node, ast.ClassDef) and node.name == "Settings")
    texts = {}
    for node, after in zip(body, body[1:], strict=False):
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            about = ast.literal_eval(after.value) if isinstance(after, ast.Expr) else ""
            texts[node.target.id] = " ".join(about.split())
    return texts


def _default(value: object) -> str:
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    if isinstance(value, (int, float)):
        return f"{value:g}"
    return "none" if value == () else "see how-it-works"


def error_classes() -> list[type[errors.ShadowsnapError]]:
    """In the order of the source, which is by subject."""
    base = errors.ShadowsnapError
    found = [value for value in vars(errors).values() if isinstance(value, type) and issubclass(value, base)]
    return [kind for kind in found if kind is not base]


def write_all() -> None:
    made = {"cli": cli_markdown(), "errors": errors_markdown(), "settings": settings_markdown()}
    made["api"] = api_markdown()
    made["json"] = schema.markdown()
    for name, text in made.items():
        (FOLDER / f"{name}.md").write_text(text, "utf-8")
    STUB.write_text(stub_text(), "utf-8")


def _code_list() -> str:
    return "\n".join(f"- {code}: {meaning}" for code, meaning in EXIT_CODES.items())


def _command(parser: argparse.ArgumentParser, name: str, about: str) -> str:
    return "\n".join([f"### {name}", "", f"    {usage(parser)}", "", about, "", *_arguments(parser)])


def _arguments(parser: argparse.ArgumentParser) -> Iterator[str]:
    # The shared options are described once, at the top.
    own = [action for action in parser._actions if not action.option_strings] + own_options(parser)
    for action in own:
        value = "" if action.nargs == 0 else f" {placeholder(action)}"
        names = [f"`{option}{value}`" for option in action.option_strings] or [f"`{placeholder(action)}`"]
        yield f"- {', '.join(names)}: {action.help}"
    if own:
        yield ""


if __name__ == "__main__":
    write_all()
