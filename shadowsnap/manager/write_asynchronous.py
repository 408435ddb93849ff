"""Writes `asynchronous.py`, the awaitable twin of the manager: `python -m shadowsnap.manager.write_asynchronous`.

Every public method becomes one of the same name, arguments and words. A test keeps the file current.
"""

from __future__ import annotations

import ast
import inspect
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import ModuleType

from shadowsnap.manager.whole import CheckpointManager

FILE = Path(__file__).with_name("asynchronous.py")

_WIDTH = 115
_OWN = ("__init__", "from_settings", "stage")
_TOP = '''\
"""The manager for programs with an event loop: the same methods, awaitable, in threads of their own.

Someone who is cancelled stops waiting; what was begun is finished in its thread, so that nothing is left half
done, and the next call finds everything in order.

Written by `python -m shadowsnap.manager.write_asynchronous`, not by hand.
"""

from __future__ import annotations

{imports}

TYPE_CHECKING = False
if TYPE_CHECKING:
{typing}


class AsyncCheckpointManager:
    """`CheckpointManager`, whose methods are awaited. Listeners are called in those threads, too."""

    {init}
        self.sync = {init_call}
        """The manager that does the work; for where nobody waits."""

    @classmethod
    async {from_settings}
        manager = cls()
        manager.sync = await {from_settings_call}
        return manager

    @property
    def settings(self) -> Settings:
        return self.sync.settings

    @property
    def warnings(self) -> list[str]:
        """What was ignored in settings files and variables, and why."""
        return self.sync.warnings

    {stage}
        return AsyncStage(lambda: {stage_call})
'''
_METHOD = """
    async {head}
        return await {call}
"""
_ALWAYS = {
    "asyncio": "import asyncio",
    "AsyncStage": "from shadowsnap.manager.asyncstage import AsyncStage",
    "CheckpointManager": "from shadowsnap.manager.whole import CheckpointManager",
}


def main() -> None:
    FILE.write_text(source(), "utf-8")


def source() -> str:
    """What belongs into the file."""
    found = {method.name: (method, module) for method, module in _methods()}
    methods = [found[name] for name in sorted(found) if name not in _OWN]
    init, create, stage = (found[name][0] for name in _OWN)
    create.returns = ast.Name("AsyncCheckpointManager")
    create.args.args[0].annotation = None
    stage.returns = ast.Name("AsyncStage")
    imports = {**_imported(list(found.values())), "Settings": "from shadowsnap.settings import Settings"}
    for name in _ALWAYS.keys() & imports.keys():
        del imports[name]
    return _TOP.format(
        imports=_import_block([*_ALWAYS.values()], ""),
        typing=_import_block(imports.values(), "    "),
        init=_head(init, awaited=False),
        init_call=_call("CheckpointManager", init),
        from_settings=_head(create),
        from_settings_call=_call("asyncio.to_thread", create, "CheckpointManager.from_settings"),
        stage=_head(stage, awaited=False),
        stage_call=_call("self.sync.stage", stage),
    ) + "".join(_METHOD.format(head=_head(each), call=_threaded(each)) for each, _ in methods)


# --- reading the manager ---------------------------------------------------------------------


def _methods() -> Iterator[tuple[ast.FunctionDef, ModuleType]]:
    """The public methods, and the constructor, with the modules they are in."""
    for part in reversed(CheckpointManager.__mro__[:-1]):
        module = sys.modules[part.__module__]
        (body,) = [
            node.body
            for node in ast.parse(inspect.getsource(module)).body
            if isinstance(node, ast.ClassDef) and node.name == part.__name__
        ]
        for node in body:
            if isinstance(node, ast.FunctionDef) and (node.name == "__init__" or node.name[0] != "_"):
                yield node, module


def _imported(methods: list[tuple[ast.FunctionDef, ModuleType]]) -> dict[str, str]:
    """How each name in the annotations is imported."""
    found = {}
    for method, module in methods:
        sources = _sources(module)
        for name in _names(method):
            if name in sources:
                found[name] = sources[name]
    return found


def _names(method: ast.FunctionDef) -> set[str]:
    arguments = method.args
    every = (*arguments.args, *arguments.kwonlyargs, arguments.vararg, arguments.kwarg)
    annotations = [each.annotation for each in every if each is not None and each.annotation is not None]
    told = [*annotations, *([method.returns] if method.returns is not None else [])]
    return {node.id for each in told for node in ast.walk(each) if isinstance(node, ast.Name)}


def _sources(module: ModuleType) -> dict[str, str]:
    """Where the names of a module come from: itself, or what it imports."""
    tree, found = ast.parse(inspect.getsource(module)), dict[str, str]()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            found.update((alias.name, f"from {node.module} import {alias.name}") for alias in node.names)
    for node in tree.body:
        targets = node.targets if isinstance(node, ast.Assign) else ()
        names = {target.id for target in targets if isinstance(target, ast.Name)}
        found.update((name, f"from {module.__name__} import {name}") for name in names)
    return found


# --- writing the twin ------------------------------------------------------------------------


def _head(method: ast.FunctionDef, awaited: bool = True) -> str:
    """Everything of a method down to its docstring, laid out as a formatter would."""
    returns = f" -> {ast.unparse(method.returns)}:" if method.returns is not None else ":"
    opening = f"def {method.name}("
    parts = _parameters(method.args)
    room = _WIDTH - 4 - (len("async ") if awaited else 0)
    if len(flat := f"{opening}{', '.join(parts)}){returns}") <= room:
        head = flat
    elif len(inner := ", ".join(parts)) + 8 <= _WIDTH:
        head = f"{opening}\n        {inner}\n    ){returns}"
    else:
        head = opening + "".join(f"\n        {part}," for part in parts) + f"\n    ){returns}"
    told = ast.get_docstring(method, clean=False)
    return head if told is None else f'{head}\n        """{told}"""'


def _parameters(arguments: ast.arguments) -> list[str]:
    plain = [*arguments.posonlyargs, *arguments.args]
    defaults = [None] * (len(plain) - len(arguments.defaults)) + list(arguments.defaults)
    parts = [_parameter(*each) for each in zip(plain, defaults, strict=True)]
    if arguments.kwonlyargs:
        parts += ["*"] if arguments.vararg is None else [f"*{_parameter(arguments.vararg, None)}"]
        parts += [_parameter(*each) for each in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)]
    return parts + ([f"**{_parameter(arguments.kwarg, None)}"] if arguments.kwarg is not None else [])


def _parameter(argument: ast.arg, default: ast.expr | None) -> str:
    told = argument.arg if argument.annotation is None else f"{argument.arg}: {ast.unparse(argument.annotation)}"
    if default is None:
        return told
    sign = "=" if argument.annotation is None else " = "
    return told + sign + ast.unparse(default).replace("'", '"')


def _threaded(method: ast.FunctionDef) -> str:
    return _call("asyncio.to_thread", method, f"self.sync.{method.name}")


def _call(function: str, method: ast.FunctionDef, *first: str) -> str:
    """A call that hands the parameters of a method on."""
    arguments = method.args
    given = [*first, *(each.arg for each in arguments.args[1:])]
    given += [f"{each.arg}={each.arg}" for each in arguments.kwonlyargs]
    given += [f"**{arguments.kwarg.arg}"] if arguments.kwarg is not None else []
    inner = ", ".join(given)
    if len(f"        return await {function}({inner})") <= _WIDTH:
        return f"{function}({inner})"
    if len(inner) + 12 <= _WIDTH:
        return f"{function}(\n            {inner}\n        )"
    return f"{function}(" + "".join(f"\n            {each}," for each in given) + "\n        )"


def _import_block(lines: Iterable[str], indent: str) -> str:
    """Sorted as a linter wants it: the library, a blank line, ours; one line per module."""
    modules: dict[str, set[str]] = {}
    for line in lines:
        module, _, name = line.removeprefix("from ").removeprefix("import ").partition(" import ")
        modules.setdefault(module, set()).add(name)
    blocks = []
    for ours in (False, True):
        chosen = sorted(module for module in modules if module.startswith("shadowsnap") == ours)
        blocks.append("\n".join(_import(module, modules[module], indent) for module in chosen))
    return "\n\n".join(filter(None, blocks))


def _import(module: str, names: set[str], indent: str) -> str:
    if names == {""}:
        return f"{indent}import {module}"
    ordered = sorted(names, key=str.lower)
    if len(line := f"{indent}from {module} import {', '.join(ordered)}") <= _WIDTH:
        return line
    return (
        f"{indent}from {module} import (\n" + "".join(f"{indent}    {name},\n" for name in ordered) + f"{indent})"
    )


if __name__ == "__main__":
    main()
