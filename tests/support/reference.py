"""The documentation that is made from the code: `scripts/reference` writes it.

A page in `docs` is written by hand, except for what stands between `<!-- made: NAME -->` and `<!-- end -->`.
"""

from __future__ import annotations

import argparse
import ast
import inspect
import json
import re
import textwrap
from collections.abc import Iterator, Mapping
from pathlib import Path

import shadowsnap
from shadowsnap import aio, errors, events, manager, model, results
from shadowsnap import settings as config
from shadowsnap.agents import agent as spec
from shadowsnap.agents.agent import SECONDS_TO_WAIT, Agent, Event
from shadowsnap.agents.catalog import AGENTS
from shadowsnap.agents.slash import HELP
from shadowsnap.cli.commands import (
    GLOBAL_OPTIONS,
    GROUPS,
    USAGE,
    command_arguments,
    command_parser,
    load_all,
    placeholder,
    usage,
)
from shadowsnap.cli.commands.help import DOCS_FOLDER

EXIT_CODES = {
    0: "done",
    1: "failed",
    2: "wrong usage",
    3: "no such checkpoint, project or path",
    4: "refused, because something would be lost or confirmation is missing",
    130: "interrupted by Ctrl-C; nothing was left half done",
}

def pages() -> dict[str, str]:
    """The pages that have parts that are made."""
    made = {
        "agents": agents_parts(),
        "api": {"api": _api()},
        "cli": {"options": _options(), "codes": _code_list(), "commands": _commands()},
        "errors": {"codes": _code_list(), "errors": _error_table()},
        "settings": {"settings": _settings_table()},
    }
    pages = {name: (DOCS_FOLDER / f"{name}.md").read_text("utf-8") for name in made}
    return {name: with_parts(pages[name], parts) for name, parts in made.items()}


def with_parts(page: str, parts: Mapping[str, str]) -> str:
    for name, part in parts.items():
        before, mark, rest = page.partition(f"<!-- made: {name} -->\n")
        _, end, after = rest.partition("<!-- end -->\n")
        if not (mark and end):
            raise ValueError(f"the page has no place for {name}")
        page = "".join((before, mark, part.strip("\n"), "\n", end, after))
    return page


def write_all() -> None:
    for name, text in pages().items():
        (DOCS_FOLDER / f"{name}.md").write_text(text, "utf-8")
    STUB.write_text(stub_text(), "utf-8")


# --- the command line ------------------------------------------------------------------------------------


def _options() -> str:
    return "\n".join([f"    {USAGE}", "", *(f"- `{option}`: {text}" for option, text in GLOBAL_OPTIONS)])


def _code_list() -> str:
    return "\n".join(f"- {code}: {meaning}" for code, meaning in EXIT_CODES.items())


def _commands() -> str:
    parts, commands = [], load_all()
    for group in GROUPS:
        parts.append(f"## {group[0].upper()}{group[1:]}\n")
        for command in commands.values():
            if command.group == group:
                parser = command_parser(command)
                lines = [f"### {command.name}", "", f"    {usage(parser)}", "", command.description, ""]
                parts.append("\n".join([*lines, *_arguments(parser)]))
    return "\n".join(parts)


def _arguments(parser: argparse.ArgumentParser) -> Iterator[str]:
    # The shared options are described once, at the top.
    own = command_arguments(parser)
    for action in own:
        value = "" if action.nargs == 0 else f" {placeholder(action)}"
        names = [f"`{option}{value}`" for option in action.option_strings] or [f"`{placeholder(action)}`"]
        yield f"- {', '.join(names)}: {action.help}"
    if own:
        yield ""


# --- errors and settings ---------------------------------------------------------------------------------


def _error_table() -> str:
    lines = ["| error | exit code | message | hint |", "|---|---|---|---|"]
    for kind in error_classes():
        cells = (f"`{kind.__name__}`", str(kind.exit_code), kind.__doc__ or "", kind.hint)
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(lines)


def error_classes() -> list[type[errors.ShadowsnapError]]:
    """In the order of the source, which is by subject."""
    base = errors.ShadowsnapError
    found = [value for value in vars(errors).values() if isinstance(value, type) and issubclass(value, base)]
    return [kind for kind in found if kind is not base]


def _settings_table() -> str:
    defaults = config.Settings()
    rows = [
        f"| `{name}` | {_default(getattr(defaults, name))} | {about} |" for name, about in setting_texts().items()
    ]
    return "\n".join(["| setting | default | |", "|---|---|---|", *rows])


def setting_texts() -> dict[str, str]:
    """What each setting is about, as it stands below it in the source."""
    return {name: about for name, _, about in _fields_of(_class_of(_source(config), "Settings"))}


def _default(value: object) -> str:
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    if isinstance(value, (int, float)):
        return f"{value:g}"
    return "none" if value == () else "see how-it-works"


# --- the agents ------------------------------------------------------------------------------------------

PLAYED = Path(spec.__file__).parent / "played.json"
"""What `scripts/test --agents` recorded."""
_KINDS = {
    "tool": "before a tool",
    "prompt": "a prompt",
    "slash": "a slash command",
    "session-start": "start",
    "stop": "stop",
    "session-end": "end of the session",
}


def agents_parts() -> dict[str, str]:
    table = ["| agent | settings | of a project | events | consent |", "|---|---|---|---|---|"]
    return {
        "table": "\n".join([*table, *(_row(agent) for agent in AGENTS.values())]),
        "agents": "\n\n".join("\n".join(_section(agent)) for agent in AGENTS.values()),
        "played": "\n".join(_played()),
        "rollback": "\n".join(f"- {agent.title}: {agent.rollback}." for agent in AGENTS.values()),
        "help": textwrap.indent(HELP, "    "),
    }


def _row(agent: Agent) -> str:
    user, project = _places(agent)
    kinds = ", ".join(dict.fromkeys(event.kind for event in agent.events))
    consent = "needed" if agent.consent else "-"
    return f"| {agent.name} ({agent.title}) | {user} | {project} | {kinds} | {consent} |"


def _played() -> Iterator[str]:
    """The table of the stories that were played, with what did not go well below it."""
    rows: dict[str, dict[str, str]] = json.loads(PLAYED.read_text("utf-8"))
    stories = [name for name in next(iter(rows.values())) if name not in ("version", "month")]
    yield f"| agent | version | when | {' | '.join(stories)} |"
    yield f"|---|---|---|{'---|' * len(stories)}"
    for agent in AGENTS.values():
        if agent.name in rows:
            row = rows[agent.name]
            cells = [row[story].partition(":")[0] for story in stories]
            yield f"| {agent.title} | {row['version']} | {row['month']} | {' | '.join(cells)} |"
    for agent in AGENTS.values():
        for story in stories if agent.name in rows else ():
            cell = rows[agent.name][story]
            if cell.startswith("no:"):
                yield f"\n{agent.title}, {story}: {cell[4:]}"


def _section(agent: Agent) -> Iterator[str]:
    yield f"## {agent.title}"
    yield ""
    user, project = _places(agent)
    of_project = f"; of a project {project}" if project != "-" else ""
    yield f"- Hook: {user}{of_project}."
    more = [f"`{file.path}`" for file in agent.files if isinstance(file, spec.TextFile) and not file.is_hook]
    if more:
        yield f"- Beside it: {', '.join(more)}."
    limit = f" It waits at most {SECONDS_TO_WAIT} s for the hook." if _is_limited(agent) else ""
    yield f"- Events: {', '.join(map(_event, agent.events))}.{limit}"
    if agent.readers:
        yield f"- Not run for: {', '.join(f'`{name}`' for name in agent.readers)}."
    if agent.consent:
        yield f"- Consent: {agent.consent.step}. Recorded as {agent.consent.record}."
    else:
        yield "- Consent: none is needed."
    yield "- You see nothing of the hook." + (" A status line is optional." if agent.status_line else "")
    yield f"- `/rollback`: {agent.rollback}."
    yield f"- Conversation: {agent.transcript}."
    if agent.versions:
        yield f"- Run with: {', '.join(agent.versions)} ({agent.tested})."
    else:
        yield "- Its program was not run with the hook yet."
    for note in agent.notes:
        yield f"- {note}"
    for gap in agent.gaps:
        yield f"- Known gap: {gap}"


def _event(event: Event) -> str:
    limit = f", {event.seconds} s" if event.seconds != SECONDS_TO_WAIT else ""
    return f"`{event.name}` ({_KINDS[event.kind]}{limit})"


def _is_limited(agent: Agent) -> bool:
    """Whether we tell the agent how long to wait."""
    file = agent.files[0]
    if isinstance(file, spec.HooksFile):
        return bool({spec.SECONDS, spec.MILLISECONDS} & {str(value) for value in file.entry.values()})
    return isinstance(file, spec.TextFile)


def _places(agent: Agent) -> tuple[str, str]:
    """The file with the hook, of the person and of a project; scripts have a folder of their own."""
    hook = next(file for file in agent.files if not isinstance(file, spec.Retired))
    name = "" if isinstance(hook, spec.HookScripts) else hook.path
    user = f"`~/{agent.folder.user}/{name}`"
    return user, "-" if agent.folder.project is None else f"`{agent.folder.project}/{name}`"


# --- the Python API --------------------------------------------------------------------------------------
# `aio.pyi` for type checkers and the page `docs api` are made from the source of `CheckpointManager`, so that a
# method is written down once.


STUB = Path(aio.__file__).with_suffix(".pyi")

_Function = ast.FunctionDef | ast.AsyncFunctionDef
_STUB = '''\
"""The types of `aio`, made from `manager` by `scripts/reference`: do not edit."""
# ruff: noqa

{imports}

class AsyncCheckpointManager:
    sync: CheckpointManager
    @property
    def settings(self) -> Settings: ...
    @property
    def warnings(self) -> list[str]: ...
    @classmethod
    def of(cls, manager: CheckpointManager) -> AsyncCheckpointManager: ...
{methods}

class AsyncStage:
{staged}
'''
_RECORDS = (
    model.Entry, model.Now, model.Outcome, model.Checkpoint, model.Skipped, model.Diff, model.Change,
    model.RestoreResult, model.Kept, model.Conflict, model.Session, model.SessionTurn, model.TurnPlace,
    model.EditOutcome, model.Conversation, results.Checkup, results.Finding, results.ImportReport,
    results.ImportedItem, results.ClearReport, results.ClearedItem, results.SweepReport,
)  # fmt: skip


def stub_text() -> str:
    """The types of the asynchronous manager: every public method of the manager, awaited."""
    methods = "\n".join(_as_stub(method) for _, method in _methods())
    staged = "\n".join(map(_as_stub, _public_methods(_class_of(_source(aio), "AsyncStage"))))
    text = _STUB.format(imports="", methods=methods, staged=staged)
    return _STUB.format(imports="\n".join(_imports(text)), methods=methods, staged=staged)


def _as_stub(function: _Function) -> str:
    """One method; those of the manager become coroutines."""
    returns = ast.unparse(function.returns) if function.returns else "None"
    returns = {"CheckpointManager": "AsyncCheckpointManager", "Stage": "AsyncStage"}.get(returns, returns)
    kept = [each for each in map(ast.unparse, function.decorator_list) if each in ("classmethod", "property")]
    at_once = function.name in ("__init__", "stage", "checkpoint", "before")
    line = f"{'' if at_once else 'async '}def {function.name}({_arguments_of(function)}) -> {returns}: ..."
    return "\n".join([*(f"    @{each}" for each in kept), f"    {line}"])


def _arguments_of(function: _Function) -> str:
    return re.sub(r"(?<=[^ =])=(?=[^ =])", " = ", ast.unparse(function.args)).replace("'", '"')


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
    yield from (f"from {home} import {', '.join(sorted(by_module[home]))}" for home in sorted(by_module))


# --- the page ----------------------------------------------------------------------------------------


def _api() -> str:
    parts = ["## CheckpointManager\n", inspect.cleandoc(manager.CheckpointManager.__doc__ or "")]
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
    for method in _public_methods(_class_of(ast.parse(source), "CheckpointManager")):
        if {"property", "settings.setter"} & {*map(ast.unparse, method.decorator_list)}:
            continue
        title = [text for number, text in titles.items() if number < method.lineno]
        yield title[-1] if title else "making one", method


def _method(function: _Function) -> str:
    name = function.name.replace("__init__", "CheckpointManager")
    returns = "" if function.name == "__init__" else f" -> {ast.unparse(function.returns or ast.Constant(None))}"
    given = re.sub(r"^(self|cls)(, )?", "", _arguments_of(function))
    call = f"{name}({given}){returns}"
    if len(call) > 100:
        split = re.split(r", (?![^\[(]*[\])])", given)  # at commas that are not within brackets
        call = "\n".join([f"{name}(", *(f"    {each}," for each in split), f"){returns}"])
    about = ast.get_docstring(function) or "See `docs settings` for what each means."
    return f"#### {name}\n\n{textwrap.indent(call, '    ')}\n\n{about}\n"


def _record(kind: type) -> str:
    tree = _class_of(_source(inspect.getmodule(kind)), kind.__name__)
    fields = _fields_of(tree)
    rows = [f"- `{name}: {annotation}`" + (f": {text}" if text else "") for name, annotation, text in fields]
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and "property" in map(ast.unparse, node.decorator_list):
            text = " ".join((ast.get_docstring(node) or "").split())
            rows.append(f"- `{node.name}`" + (f": {text}" if text else ""))
    return f"### {kind.__name__}\n\n{ast.get_docstring(tree) or ''}\n\n" + "\n".join(rows) + "\n"


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


def _public_methods(tree: ast.ClassDef) -> list[_Function]:
    special = ("__aenter__", "__aexit__", *(("__init__",) if tree.name == "CheckpointManager" else ()))
    methods = [node for node in tree.body if isinstance(node, _Function)]
    return [node for node in methods if not node.name.startswith("_") or node.name in special]


def _fields_of(tree: ast.ClassDef) -> Iterator[tuple[str, str, str]]:
    """The name, the type and the text of each field of a class; the text stands below it."""
    for node, after in zip(tree.body, [*tree.body[1:], None], strict=True):
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            about = str(ast.literal_eval(after.value)) if isinstance(after, ast.Expr) else ""
            yield node.target.id, ast.unparse(node.annotation), " ".join(about.split())


if __name__ == "__main__":
    write_all()
