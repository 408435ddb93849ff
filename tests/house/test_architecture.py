"""Keeps the rooms of the package apart: who may import whom, run processes, read the environment.

Each rule is a function from the source of one module to its violations. The first tests apply the
rules to the package; the rest feed them small bad modules, because a check that cannot fail is no check.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

import shadowsnap
from helpers import ROOT

PACKAGE = "shadowsnap"

# Bottom to top. A room imports from lower levels and from itself.
LEVELS = [
    {"model", "results", "events", "errors", "settings", "base", "patterns", "deadline", "files"},
    {"git"},
    {"store"},
    {"snapshot"},
    {"restore", "upkeep", "remote"},
    {"manager", "loop", "access", "lanes", "timeline", "questions", "turns", "aio"},
    {"cli", "tui", "hook", "agents", "integrations", "compat", "__main__"},
]  # fmt: skip
LEVEL_OF = {room: level for level, rooms in enumerate(LEVELS) for room in rooms}
# Levels whose rooms may also import each other: the foundations, what a loop owns, and the front doors.
NEIGHBOURLY = {0, len(LEVELS) - 2, len(LEVELS) - 1}

MAY_RUN_PROCESSES = (
    "git/", "cli/ui.py", "cli/commands/demo.py", "cli/commands/states.py",
    "agents/state.py", "hook/server.py", "snapshot/readers.py",
)  # fmt: skip
# A face reads the variables of the system that it stands for.
MAY_READ_ENVIRONMENT = (
    "cli/", "hook/", "agents/", "settings.py", "base.py", "git/repository.py", "git/process.py",
    "compat/hermes.py", "compat/praisonai.py",
)  # fmt: skip
# One of them is called at the start of a program and must not keep it from starting.
MAY_CATCH_EVERYTHING = (
    "cli/", "hook/", "agents/", "integrations/", "loop.py", "access.py", "manager.py", "aio.py",
    "compat/hermes.py",
)  # fmt: skip

PROCESS_MODULES = {"subprocess", "multiprocessing", "pty", "_posixsubprocess"}
PROCESS_CALLS = ("os.system", "os.popen", "os.spawn", "os.posix_spawn", "os.exec", "os.fork", "os.startfile")
ENVIRONMENT = {"os.environ", "os.environb", "os.getenv", "os.getenvb", "os.putenv", "os.unsetenv"}
ONE_SYSTEM_ONLY = {"fcntl", "grp", "msvcrt", "pwd", "resource", "termios", "tty", "winreg"}

TOP_LEVEL = {"pyproject.toml", "shadowsnap", "tests", "scripts", "README.md", "LICENSE"}
BUILD_OUTPUT = {"build", "dist"}

# What `import shadowsnap` may load on top of an interpreter that does nothing.
CHEAP = {"__future__", "importlib", "importlib._bootstrap", "importlib._bootstrap_external", "warnings"}


@dataclass(frozen=True)
class Module:
    path: str  # below the package, with "/": "git/process.py"
    tree: ast.Module

    @property
    def room(self) -> str:
        """The first part of the path: "git", "model"; "__init__" is the package itself."""
        return self.path.split("/")[0].removesuffix(".py")

    @property
    def package(self) -> list[str]:
        """The package that a relative import starts from."""
        return [PACKAGE, *self.path.split("/")[:-1]]

    def lies_in(self, places: tuple[str, ...]) -> bool:
        return any(
            self.path.startswith(place) if place.endswith("/") else self.path == place for place in places
        )


@cache
def package_modules() -> list[Module]:
    """Every module of the package, parsed once."""
    top = ROOT / PACKAGE
    return [
        Module(file.relative_to(top).as_posix(), ast.parse(file.read_bytes(), str(file)))
        for file in sorted(top.rglob("*.py"))
    ]


# --- the rules --------------------------------------------------------------------------------------


def upward_imports(module: Module) -> Iterator[str]:
    """Anywhere in the module: at the top, inside functions, under TYPE_CHECKING, by import_module()."""
    if module.room == "__init__":
        return  # the public face; that it imports nothing eagerly is checked by running it
    if module.room not in LEVEL_OF:
        yield f"{module.path}: no level is known for {module.room!r}; give it one in LEVELS"
        return
    mine = LEVEL_OF[module.room]
    for line, target in imports(module):
        room = imported_room(target)
        if room is None or room == module.room:
            continue
        level = LEVEL_OF[room]
        if level > mine:
            yield f"{module.path}:{line}: {module.room} imports upward from {room}"
        elif level == mine and mine not in NEIGHBOURLY:
            yield f"{module.path}:{line}: {module.room} imports sideways from {room}"


def processes_outside_git(module: Module) -> Iterator[str]:
    if module.lies_in(MAY_RUN_PROCESSES):
        return
    for line, target in imports(module):
        if target.split(".")[0] in PROCESS_MODULES:
            yield f"{module.path}:{line}: imports {target}"
    for line, name in used_names(module):
        if name.startswith(PROCESS_CALLS) or name.startswith("asyncio.create_subprocess"):
            yield f"{module.path}:{line}: uses {name}"


def environment_reads(module: Module) -> Iterator[str]:
    if module.lies_in(MAY_READ_ENVIRONMENT):
        return
    for line, name in used_names(module):
        if name in ENVIRONMENT:
            yield f"{module.path}:{line}: uses {name}"


def unguarded_system_modules(module: Module) -> Iterator[str]:
    """Modules of one operating system are imported in a function, a try that expects their absence, or
    an `if` that asks for the system."""
    for node in unguarded_statements(module.tree.body):
        for name in imported_names(node, module):
            if name.split(".")[0] in ONE_SYSTEM_ONLY:
                yield f"{module.path}:{node.lineno}: imports {name} on every system"


def broad_excepts(module: Module) -> Iterator[str]:
    for node in ast.walk(module.tree):
        if isinstance(node, ast.ExceptHandler) and node.type is None:
            yield f"{module.path}:{node.lineno}: bare except"
        elif module.lies_in(MAY_CATCH_EVERYTHING):
            continue
        elif isinstance(node, ast.ExceptHandler) and node.type is not None and names_everything([node.type]):
            yield f"{module.path}:{node.lineno}: broad except"
        elif isinstance(node, ast.Call) and is_suppress(node.func) and names_everything(node.args):
            yield f"{module.path}:{node.lineno}: broad suppress"


def code_after_the_start(module: Module) -> Iterator[str]:
    """What stands below `if __name__ == "__main__"` is not there yet when the module runs."""
    for node in module.tree.body[:-1]:
        if isinstance(node, ast.If) and "__name__" in {dotted(each) for each in ast.walk(node.test)}:
            yield f"{module.path}:{node.lineno}: not the end of the module"


def strange_top_level_names(names: set[str]) -> list[str]:
    return sorted(name for name in names - TOP_LEVEL - BUILD_OUTPUT if not name.startswith("."))


RULES: list[Callable[[Module], Iterator[str]]] = [
    upward_imports,
    processes_outside_git,
    environment_reads,
    unguarded_system_modules,
    broad_excepts,
    code_after_the_start,
]


# --- reading a module -------------------------------------------------------------------------------


def imports(module: Module) -> Iterator[tuple[int, str]]:
    for node in ast.walk(module.tree):
        for name in imported_names(node, module):
            yield node.lineno, name  # type: ignore[attr-defined]


def imported_names(node: ast.AST, module: Module) -> Iterator[str]:
    """Absolute dotted names; `from a import b` gives "a.b", whatever b is."""
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        start = module.package[: len(module.package) - node.level + 1] if node.level else []
        source = ".".join([*start, *([node.module] if node.module else [])])
        yield from (f"{source}.{alias.name}" for alias in node.names)
    elif isinstance(node, ast.Call) and dotted(node.func).split(".")[-1] in {"import_module", "__import__"}:
        for argument in node.args[:1]:
            if isinstance(argument, ast.Constant) and isinstance(argument.value, str):
                dots = len(argument.value) - len(argument.value.lstrip("."))
                start = module.package[: len(module.package) - dots + 1] if dots else []
                yield ".".join([*start, argument.value.lstrip(".")])


def imported_room(target: str) -> str | None:
    """The room of the package that an import reaches into; None for other packages."""
    package, _, rest = target.partition(".")
    if package != PACKAGE or rest == "__version__":
        return None
    room = rest.split(".")[0]
    # `import shadowsnap` and `from shadowsnap import CheckpointManager` go through the public face, which
    # leads to the manager. (A module without a level is reported where it lies.)
    return room if room in LEVEL_OF else "manager"


def used_names(module: Module) -> Iterator[tuple[int, str]]:
    """Every dotted name that is used or imported, with the aliases of imports resolved."""
    aliases: dict[str, str] = {}
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Import):
            aliases.update({alias.asname: alias.name for alias in node.names if alias.asname})
    yield from imports(module)
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Attribute):
            first, _, rest = dotted(node).partition(".")
            yield node.lineno, f"{aliases.get(first, first)}.{rest}"


def dotted(node: ast.expr) -> str:
    """ "os.environ" for that expression, "" for one that is not a plain dotted name."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        before = dotted(node.value)
        return f"{before}.{node.attr}" if before else ""
    return ""


def unguarded_statements(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """The statements that run on import whatever the system."""
    for node in body:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            continue
        if isinstance(node, ast.Try) and any(expects_absence(handler) for handler in node.handlers):
            inner = [*node.orelse, *node.finalbody]
        elif isinstance(node, ast.If) and asks_for_system(node.test):
            continue
        else:
            yield node
            inner = [
                statement
                for field in ("body", "orelse", "finalbody")
                for statement in getattr(node, field, [])
                if isinstance(statement, ast.stmt)
            ]
        yield from unguarded_statements(inner)


def expects_absence(handler: ast.ExceptHandler) -> bool:
    caught = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    return any(dotted(name) in {"ImportError", "ModuleNotFoundError"} for name in caught if name)


def asks_for_system(test: ast.expr) -> bool:
    names = {dotted(node) for node in ast.walk(test) if isinstance(node, (ast.Name, ast.Attribute))}
    return bool(names & {"sys.platform", "os.name", "TYPE_CHECKING", "typing.TYPE_CHECKING"})


def is_suppress(function: ast.expr) -> bool:
    return dotted(function).split(".")[-1] == "suppress"


def names_everything(expressions: list[ast.expr]) -> bool:
    return any(
        dotted(node).split(".")[-1] in {"Exception", "BaseException"}
        for expression in expressions
        for node in (expression.elts if isinstance(expression, ast.Tuple) else [expression])
    )


# --- the package keeps the rules --------------------------------------------------------------------


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_the_package_keeps(rule: Callable[[Module], Iterator[str]]) -> None:
    assert [violation for module in package_modules() for violation in rule(module)] == []


def test_nothing_strange_lies_in_the_checkout() -> None:
    assert strange_top_level_names({entry.name for entry in ROOT.iterdir()}) == []


@pytest.mark.skipif(not (ROOT / PACKAGE / "__init__.py").exists(), reason="no package yet")
def test_importing_the_package_loads_nothing_else() -> None:
    assert modules_loaded_by(f"import {PACKAGE}") - {PACKAGE} <= CHEAP


def modules_loaded_by(statement: str) -> set[str]:
    script = f"import sys; before = set(sys.modules); {statement}; print(*set(sys.modules) - before)"
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return set(done.stdout.split())


# --- the rules catch what they are for --------------------------------------------------------------


def violations(rule: Callable[[Module], Iterator[str]], path: str, source: str) -> list[str]:
    return list(rule(Module(path, ast.parse(source))))


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("model.py", "from shadowsnap.git import runner"),
        ("settings.py", "import shadowsnap.manager"),
        ("git/process.py", "from shadowsnap.store.layout import Layout"),
        ("git/process.py", "from ..store import layout"),
        ("git/process.py", "from .. import store"),
        ("git/__init__.py", "from ..store import layout"),
        ("store/locks.py", "def f():\n    from shadowsnap.snapshot import scan"),
        ("store/locks.py", "if TYPE_CHECKING:\n    from shadowsnap.manager import CheckpointManager"),
        ("store/locks.py", "import importlib\nimportlib.import_module('shadowsnap.snapshot.scan')"),
        ("store/deep/er.py", "from ...snapshot import scan"),
        ("snapshot/scan.py", "from shadowsnap import CheckpointManager"),
        ("snapshot/scan.py", "import shadowsnap"),
        ("snapshot/scan.py", "from shadowsnap.upkeep import retention"),
        ("upkeep/retention.py", "from shadowsnap.restore import plan"),
        ("manager.py", "from shadowsnap.cli import main"),
        ("manager.py", "from .agents import hooks"),
        ("utils.py", "x = 1"),
    ],
)
def test_an_upward_import_is_caught(path: str, source: str) -> None:
    assert len(violations(upward_imports, path, source)) == 1


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("settings.py", "from shadowsnap.errors import ShadowsnapError"),
        ("git/process.py", "from shadowsnap.git.repository import build"),
        ("git/process.py", "from . import environment"),
        ("git/process.py", "from .. import errors"),
        ("snapshot/scan.py", "from shadowsnap.model import Checkpoint\nfrom ..store import layout\nimport os"),
        ("snapshot/scan.py", "from shadowsnap import __version__"),
        ("cli/main.py", "from shadowsnap import CheckpointManager\nfrom shadowsnap.agents import hooks"),
        ("__init__.py", "def __getattr__(name):\n    from shadowsnap import manager"),
        ("__main__.py", "from shadowsnap.cli.main import main"),
    ],
)
def test_a_downward_import_is_fine(path: str, source: str) -> None:
    assert violations(upward_imports, path, source) == []


@pytest.mark.parametrize(
    "source",
    [
        "import subprocess",
        "import subprocess as sp",
        "from subprocess import run",
        "def f():\n    import subprocess",
        "import os\nos.system('ls')",
        "import os as o\no.popen('ls')",
        "from os import execvp",
        "import multiprocessing.pool",
        "async def f():\n    await asyncio.create_subprocess_exec('ls')",
    ],
)
def test_a_process_is_caught_outside_git(source: str) -> None:
    assert violations(processes_outside_git, "snapshot/scan.py", source)
    assert violations(processes_outside_git, "git.py", source)
    assert violations(processes_outside_git, "git/process.py", source) == []


@pytest.mark.parametrize(
    "source",
    [
        "import os\nx = os.environ['HOME']",
        "import os\ndef f():\n    return dict(os.environ)",
        "import os\nx = os.getenv('HOME')",
        "import os as system\nx = system.environ.get('HOME')",
        "from os import environ",
        "from os import path, getenv as g",
    ],
)
def test_reading_the_environment_is_caught_outside_its_places(source: str) -> None:
    for path in ("manager.py", "git/packs.py", "store/settings.py", "compat/x.py"):
        assert violations(environment_reads, path, source)
    for path in ("cli/main.py", "agents/hooks/x.py", "settings.py", "git/repository.py"):
        assert violations(environment_reads, path, source) == []


@pytest.mark.parametrize(
    "source",
    [
        "import fcntl",
        "from pwd import getpwnam",
        "class C:\n    import grp",
        "if True:\n    import resource",
        "try:\n    import fcntl\nfinally:\n    pass",
        "try:\n    import fcntl\nexcept OSError:\n    pass",
        "try:\n    pass\nexcept ImportError:\n    pass\nelse:\n    import termios",
        "import os, msvcrt",
    ],
)
def test_a_module_of_one_system_is_caught_at_the_top(source: str) -> None:
    assert len(violations(unguarded_system_modules, "store/locks.py", source)) == 1


@pytest.mark.parametrize(
    "source",
    [
        "def f():\n    import fcntl",
        "class C:\n    def f(self):\n        import fcntl",
        "try:\n    import fcntl\nexcept ImportError:\n    fcntl = None",
        "try:\n    import fcntl\nexcept (ImportError, OSError):\n    import msvcrt",
        "import sys\nif sys.platform == 'win32':\n    import msvcrt\nelse:\n    import fcntl",
        "import os\nif os.name == 'posix':\n    import pwd",
    ],
)
def test_a_guarded_module_of_one_system_is_fine(source: str) -> None:
    assert violations(unguarded_system_modules, "store/locks.py", source) == []


@pytest.mark.parametrize(
    "source",
    [
        "try:\n    f()\nexcept Exception:\n    pass",
        "def g():\n    try:\n        f()\n    except BaseException as error:\n        raise",
        "try:\n    f()\nexcept (OSError, Exception):\n    pass",
        "import builtins\ntry:\n    f()\nexcept builtins.Exception:\n    pass",
        "import contextlib\nwith contextlib.suppress(Exception):\n    f()",
        "from contextlib import suppress\nwith suppress(OSError, BaseException):\n    f()",
    ],
)
def test_a_broad_except_is_caught_outside_the_places_that_never_raise(source: str) -> None:
    assert len(violations(broad_excepts, "snapshot/restore.py", source)) == 1
    for path in ("loop.py", "cli/main.py", "agents/hook.py"):
        assert violations(broad_excepts, path, source) == []


def test_a_bare_except_is_caught_everywhere() -> None:
    for path in ("snapshot/restore.py", "loop.py", "cli/main.py"):
        assert len(violations(broad_excepts, path, "try:\n    f()\nexcept:\n    pass")) == 1


def test_a_narrow_except_is_fine() -> None:
    assert violations(broad_excepts, "snapshot/restore.py", "try:\n    f()\nexcept OSError:\n    pass") == []


def test_code_below_the_start_of_a_module_is_caught() -> None:
    start = "if __name__ == '__main__':\n    main()\n"
    assert len(violations(code_after_the_start, "cli/main.py", f"{start}def main(): ...")) == 1
    assert violations(code_after_the_start, "cli/main.py", f"def main(): ...\n{start}") == []


def test_a_strange_top_level_name_is_caught() -> None:
    assert strange_top_level_names({"notes.txt", "README.md", ".venv", "dist"}) == ["notes.txt"]


def test_a_heavy_import_is_seen(tmp_path: Path) -> None:
    (tmp_path / "heavy.py").write_text("import subprocess, json, dataclasses")
    loaded = modules_loaded_by(f"sys.path.insert(0, {str(tmp_path)!r}); import heavy")
    assert {"heavy", "subprocess", "json", "dataclasses"} <= loaded


def test_type_checkers_find_every_public_name() -> None:
    stub = ast.parse((ROOT / PACKAGE / "__init__.pyi").read_text("utf-8"))
    imports = [node for node in stub.body if isinstance(node, ast.ImportFrom)]
    found = {alias.asname: node.module for node in imports for alias in node.names}
    assert found == {name: f"{PACKAGE}.{home}" for name, home in shadowsnap._HOMES.items()}
