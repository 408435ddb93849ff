"""The documentation that is made from the code: `python -m shadowsnap.cli.reference` writes it."""

from __future__ import annotations

import argparse
import ast
import inspect
import re
import textwrap
from collections.abc import Iterator
from pathlib import Path

import shadowsnap
from shadowsnap import aio, errors, events, manager, model, results
from shadowsnap import settings as config
from shadowsnap.cli import schema
from shadowsnap.cli.commands import (
    GLOBAL_OPTIONS,
    GROUPS,
    USAGE,
    command_parser,
    load_all,
    own_options,
    placeholder,
    usage,
)
from shadowsnap.cli.commands.help import FOLDER
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
- Without a command it shows the timeline.
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


# --- the Python API --------------------------------------------------------------------------------------
# `aio.pyi` for type checkers and the page `docs api` are made from the source of `CheckpointManager`, so that a
# method is written down once.


STUB = Path(aio.__file__).with_suffix(".pyi")

_Function = ast.FunctionDef | ast.AsyncFunctionDef
_STUB_HEAD = '''\
"""The types of `aio`, made from `manager` by `python -m shadowsnap.cli.reference`: do not edit."""

'''
_API_HEAD = """\
# The Python API

Made from the docstrings of the code. `docs embedding` shows how these calls go together; `help(CheckpointManager)`
has the same text.

    from shadowsnap import CheckpointManager

Paths are `str` or `os.PathLike`. A *reference* is the number of a turn (the state before it) or of a snapshot,
`"3:after"`, `"last"`, `"last~2"`, a label, 4 or more digits of a checkpoint's id, a `Checkpoint`, or an `Entry`.
Settings are keyword arguments: see `docs settings`. Errors are subclasses of `ShadowsnapError`: see `docs errors`.

`AsyncCheckpointManager` has the same methods, awaited (`async with manager.stage(...)`), and `sync`, the manager
that does the work; `AsyncCheckpointManager.of(manager)` makes one of a manager.
"""
_RECORDS = (
    model.Entry, model.Now, model.Outcome, model.Checkpoint, model.Skipped, model.Diff, model.Change,
    model.RestoreResult, model.Kept, model.Conflict, model.Session, model.SessionTurn, model.TurnPlace,
    model.EditOutcome, model.Conversation, results.Checkup, results.Finding, results.ImportReport,
    results.ImportedItem, results.ClearReport, results.ClearedItem, results.SweepReport,
)  # fmt: skip


# --- the stub ----------------------------------------------------------------------------------------


def stub_text() -> str:
    """The types of the asynchronous manager: every public method of the manager, awaited."""
    methods = [_as_stub(method) for _, method in _methods()]
    staged = [_as_stub(method) for method in _body(_class_of(_source(aio), "AsyncStage"), private=False)]
    parts = [
        "class AsyncCheckpointManager:",
        "    sync: CheckpointManager",
        "    @property",
        "    def settings(self) -> Settings: ...",
        "    @property",
        "    def warnings(self) -> list[str]: ...",
        "    @classmethod",
        "    def of(cls, manager: CheckpointManager) -> AsyncCheckpointManager: ...",
        *methods,
        "",
        "class AsyncStage:",
        *staged,
    ]
    text = "\n".join(parts) + "\n"
    return _STUB_HEAD + "\n".join(_imports(text)) + "\n\n" + text


def _as_stub(function: _Function) -> str:
    """One method; those of the manager become coroutines."""
    name, given = function.name, _split(function.args)
    returns = ast.unparse(function.returns) if function.returns else "None"
    decorators = [ast.unparse(each) for each in function.decorator_list]
    kept = [f"    @{each}" for each in decorators if each in ("classmethod", "property")]
    returns = {"CheckpointManager": "AsyncCheckpointManager", "Stage": "AsyncStage"}.get(returns, returns)
    waits = isinstance(function, ast.AsyncFunctionDef) or name not in ("__init__", "stage", "checkpoint", "before")
    start = f"    {'async ' if waits else ''}def {name}("
    line = f"{start}{', '.join(given)}) -> {returns}: ..."
    if len(line) > 115:
        line = "\n".join([start, *(f"        {each}," for each in given), f"    ) -> {returns}: ..."])
    return "\n".join([*kept, line])


def _split(arguments: ast.arguments) -> list[str]:
    """The arguments, one by one, as they are written."""
    plain = [*arguments.posonlyargs, *arguments.args]
    defaults = [None] * (len(plain) - len(arguments.defaults)) + list(arguments.defaults)
    found = [_argument(each, default) for each, default in zip(plain, defaults, strict=True)]
    if arguments.vararg or arguments.kwonlyargs:
        found.append(f"*{ast.unparse(arguments.vararg)}" if arguments.vararg else "*")
    found += [
        _argument(each, default)
        for each, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
    ]
    return found + ([f"**{ast.unparse(arguments.kwarg)}"] if arguments.kwarg else [])


def _argument(argument: ast.arg, default: ast.expr | None) -> str:
    if default is None:
        return ast.unparse(argument)
    text = isinstance(default, ast.Constant) and isinstance(default.value, str)
    value = f'"{ast.literal_eval(default)}"' if text else ast.unparse(default)
    return f"{ast.unparse(argument)} = {value}"


def _imports(text: str) -> Iterator[str]:
    """Import statements for the names that a stub uses: where the manager, or `aio`, has them from."""
    used = {node.id for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Name)}
    homes: dict[str, str] = {}
    for module in (aio, manager):
        for node in ast.walk(_source(module)):
            if isinstance(node, ast.ImportFrom) and node.module:
                homes |= {each.asname or each.name: node.module for each in node.names}
        for node in _top_level(_source(module)):
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                homes[node.targets[0].id] = module.__name__
    homes["Any"] = "typing"
    homes["CheckpointManager"] = manager.__name__
    by_module: dict[str, set[str]] = {}
    for name in used & homes.keys():
        by_module.setdefault(homes[name], set()).add(name)
    ours = [name for name in by_module if name.startswith("shadowsnap")]
    others = [name for name in by_module if not name.startswith("shadowsnap")]
    for group in (others, ours):
        for home in sorted(group):
            names = sorted(by_module[home], key=str.lower)
            line = f"from {home} import {', '.join(names)}"
            wrapped = [f"from {home} import (", *(f"    {each}," for each in names), ")"]
            yield line if len(line) <= 115 else "\n".join(wrapped)
        if group is others:
            yield ""


# --- the page ----------------------------------------------------------------------------------------


def api_markdown() -> str:
    parts = [_API_HEAD, "## CheckpointManager\n", _paragraphs(manager.CheckpointManager.__doc__ or "")]
    section = ""
    for title, method in _methods():
        if title != section:
            section = title
            parts.append(f"\n### {section[0].upper()}{section[1:]}\n")
        parts.append(_method(method))
    parts.append("\n## Results\n\nFrozen dataclasses; each has `to_dict()` for JSON.\n")
    parts += [_record(record) for record in _RECORDS]
    parts.append("\n## Events\n\nWhat `on_event` is called with. Each has `workdir`, and `to_dict()`.\n")
    parts += [_record(kind) for kind in _events()]
    names = ", ".join(f"`{name}`" for name in sorted(shadowsnap.__all__) if not name.startswith("_"))
    parts.append(f"\n## Names\n\n`shadowsnap` itself has {names}. Everything else may move.\n")
    return "\n".join(parts)


def _methods() -> Iterator[tuple[str, _Function]]:
    """The public methods of the manager in the order of the source, with the titles of its parts."""
    source = inspect.getsource(manager)
    titles = {
        number: found[1].partition(":")[0]
        for number, line in enumerate(source.splitlines(), 1)
        if (found := re.match(r"    # --- (.*?) -+$", line))
    }
    for method in _body(_class_of(ast.parse(source), "CheckpointManager"), private=False):
        title = [text for number, text in titles.items() if number < method.lineno]
        yield title[-1] if title else "making one", method


def _method(function: _Function) -> str:
    given = [each for each in _split(function.args) if each not in ("self", "cls")]
    name = function.name.replace("__init__", "CheckpointManager")
    returns = "" if function.name == "__init__" else f" -> {ast.unparse(function.returns or ast.Constant(None))}"
    call = f"{name}({', '.join(given)}){returns}"
    if len(call) > 100:
        call = "\n".join([f"{name}(", *(f"    {each}," for each in given), f"){returns}"])
    about = _paragraphs(ast.get_docstring(function) or "See `docs settings` for what each means.")
    return f"#### {name}\n\n{textwrap.indent(call, '    ')}\n\n{about}\n"


def _record(kind: type) -> str:
    tree = _class_of(_source(inspect.getmodule(kind)), kind.__name__)
    rows = []
    for node, after in zip(tree.body, [*tree.body[1:], None], strict=True):
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            about = after.value if isinstance(after, ast.Expr) else None
            text = " ".join(str(ast.literal_eval(about)).split()) if about is not None else ""
            rows.append(f"- `{node.target.id}: {ast.unparse(node.annotation)}`" + (f": {text}" if text else ""))
        elif isinstance(node, ast.FunctionDef) and "property" in map(ast.unparse, node.decorator_list):
            text = " ".join((ast.get_docstring(node) or "").split())
            rows.append(f"- `{node.name}`" + (f": {text}" if text else ""))
    return f"### {kind.__name__}\n\n{_paragraphs(ast.get_docstring(tree) or '')}\n\n" + "\n".join(rows) + "\n"


def _events() -> list[type]:
    found = [each for each in vars(events).values() if inspect.isclass(each) and issubclass(each, events.Event)]
    return [each for each in found if each is not events.Event]


# --- source ------------------------------------------------------------------------------------------


def _source(module: object) -> ast.Module:
    return ast.parse(Path(str(inspect.getsourcefile(module))).read_text("utf-8"))  # type: ignore[arg-type]


def _top_level(tree: ast.Module) -> Iterator[ast.stmt]:
    for node in tree.body:
        yield from node.body if isinstance(node, ast.If) else [node]


def _class_of(tree: ast.Module, name: str) -> ast.ClassDef:
    return next(node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == name)


def _body(tree: ast.ClassDef, *, private: bool) -> list[_Function]:
    special = ("__init__", "__aenter__", "__aexit__")
    return [
        node
        for node in tree.body
        if isinstance(node, _Function)
        and (private or not node.name.startswith("_") or node.name in special)
        and not (tree.name == "AsyncStage" and node.name == "__init__")
    ]


def _paragraphs(text: str) -> str:
    return inspect.cleandoc(text)


if __name__ == "__main__":
    write_all()
