"""Fixtures. Every test runs sealed: its own home, no inherited git or shadowsnap settings."""

from __future__ import annotations

import gc
import os
import re
import signal
import tempfile
from collections.abc import Callable, Generator, Iterator
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import fastpaths
import hypothesis
import pytest
import thorough
from hypothesis import strategies
from hypothesis.database import DirectoryBasedExampleDatabase

import helpers

# --- the whole run ----------------------------------------------------------------------------------

EXAMPLES = {"default": thorough.depth(8, 40), "random": 100, "long": 2000}
"""The default tells the same stories each time, so that a run means the same anywhere; others tell new ones."""

for profile, max_examples in EXAMPLES.items():
    same = profile == "default"
    hypothesis.settings.register_profile(
        profile,
        max_examples=max_examples,
        deadline=None,
        derandomize=same,
        print_blob=True,
        database=None if same else DirectoryBasedExampleDatabase(helpers.ROOT / ".hypothesis" / "examples"),
        # Examples run real git, and make a fresh directory each below the fixture's one.
        suppress_health_check=[
            hypothesis.HealthCheck.too_slow,
            hypothesis.HealthCheck.function_scoped_fixture,
        ],
    )
# A shell lets its background jobs ignore Ctrl-C, and programs that tests interrupt would inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE") or "default")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--fast-paths", choices=fastpaths.WAYS, help="force every shortcut of the engine on or off")


def pytest_configure(config: pytest.Config) -> None:
    for marker in thorough.MARKERS:
        config.addinivalue_line("markers", marker)
    if hasattr(config, "workerinput"):
        return  # a worker of a parallel run: the controller watches for all of them
    # A root of our own for tmp_path: pytest's shared one is closed to other users (see `as_user`) again
    # by every other pytest that starts on this machine.
    temproot = tempfile.mkdtemp(prefix="ss-")
    os.chmod(temproot, 0o711)
    helpers.spread_directories(temproot)
    inside = os.path.join(temproot, "t")
    os.mkdir(inside)
    os.chmod(inside, 0o711)
    os.environ["PYTEST_DEBUG_TEMPROOT"] = inside
    config.stash[_TEMPROOT] = temproot
    config.stash[_PLACES] = helpers.real_places()
    config.stash[_BEFORE] = helpers.fingerprint(config.stash[_PLACES])


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """As deep as this run goes. A test of a shortcut itself says nothing where all of them are forced."""
    chosen = thorough.chosen(items)
    left_out = {*items} - {*chosen}
    if left_out:
        config.hook.pytest_deselected(items=[item for item in items if item in left_out])
        items[:] = chosen
    if config.getoption("--fast-paths"):
        items[:] = [item for item in items if item.get_closest_marker("shortcut") is None]


@hypothesis.given(strategies.none())
def _first_story(_: None) -> None:
    """Lets hypothesis make what it makes once."""


def pytest_collection_finish() -> None:
    """What is in memory now stays: the collector need not look at it again, nor need children copy it."""
    # Hypothesis makes a random generator when it is first used, and asks the collector whether something holds it.
    # The collector finds no holder that is frozen.
    _first_story()
    gc.collect()
    gc.freeze()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Generator[None, Any, Any]:
    """Note which directories can go at the end: those of tests that passed."""
    report = yield
    item.stash[_FAILED] = report.failed or item.stash.get(_FAILED, False)
    if call.when == "teardown" and not item.stash[_FAILED]:
        made = getattr(item, "funcargs", {}).get("tmp_path")
        if made is not None:
            item.config.stash.setdefault(_DONE_WITH, []).append(made)
    return report


def pytest_sessionfinish(session: pytest.Session) -> None:
    config = session.config
    # Not after each test: for minutes ext4 does not reuse the inode of a deleted file, but looks at it for every
    # new file. Deleting while tests run doubles the time that the kernel needs.
    for path in config.stash.get(_DONE_WITH, []):
        helpers.remove_tree(path)
    if _BEFORE in config.stash:
        after = helpers.fingerprint(config.stash[_PLACES])
        config.stash[_TOUCHED] = helpers.differences(config.stash[_BEFORE], after)
        if config.stash[_TOUCHED]:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED
        config.stash[_KEEP] = session.exitstatus == pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    for path in config.stash.get(_TOUCHED, []):
        terminalreporter.write_line(f"ERROR: the real {path} was created or changed during the run", red=True)
    if config.stash.get(_KEEP, False):
        terminalreporter.write_line(f"files of failed tests: {config.stash[_TEMPROOT]}")


def pytest_unconfigure(config: pytest.Config) -> None:
    if _TEMPROOT in config.stash and not config.stash.get(_KEEP, False):
        helpers.remove_tree(config.stash[_TEMPROOT])


_TEMPROOT = pytest.StashKey[str]()
_PLACES = pytest.StashKey[list[Path]]()
_BEFORE = pytest.StashKey[dict[Path, int | None]]()
_TOUCHED = pytest.StashKey[list[Path]]()
_KEEP = pytest.StashKey[bool]()
_FAILED = pytest.StashKey[bool]()
_DONE_WITH = pytest.StashKey[list[Path]]()


# --- every test -------------------------------------------------------------------------------------


@pytest.fixture(scope="session", autouse=True)
def _sealed_session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """For fixtures that outlive one test."""
    with helpers.sealed_environment(tmp_path_factory.mktemp("session-home")):
        yield


@pytest.fixture(scope="session", autouse=True)
def _shortcuts(request: pytest.FixtureRequest) -> Iterator[None]:
    """As `--fast-paths` says."""
    way = request.config.getoption("--fast-paths")
    with fastpaths.forced(way) if way else nullcontext():
        yield


@pytest.fixture(scope="session")
def homes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the homes of all tests are. pytest searches the directory that `tmp_path` is made in, for every test:
    thousands of homes there would cost more than many a test."""
    return tmp_path_factory.mktemp("homes")


@pytest.fixture(autouse=True)
def home(homes: Path, _sealed_session: None) -> Iterator[Path]:
    """The sealed home of this test. It does not lie below `tmp_path`: a directory above $HOME is refused."""
    home = Path(tempfile.mkdtemp(prefix="home-", dir=homes))
    with helpers.sealed_environment(home):
        yield home


@pytest.fixture
def tmp_path(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Path:
    """As pytest makes it, but without a look at the directories of all tests before."""
    name = re.sub(r"\W", "_", request.node.name)[:30]
    return Path(tempfile.mkdtemp(prefix=name, dir=tmp_path_factory.getbasetemp()))


@pytest.fixture
def base(tmp_path: Path) -> Path:
    """Where the store goes; not made yet."""
    return tmp_path / "base"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A directory with a few files: text, binary, executable, private, empty, a link, a subdirectory."""
    project = tmp_path / "project"
    (project / "src").mkdir(parents=True)
    (project / "README.md").write_text("# A project\n")
    (project / "src" / "main.py").write_text("print('hello')\n")
    (project / "data.bin").write_bytes(bytes(range(256)))
    (project / "empty").touch()
    (project / "run.sh").write_text("#!/bin/sh\necho run\n")
    (project / "run.sh").chmod(0o755)
    (project / "private.txt").write_text("mine\n")
    (project / "private.txt").chmod(0o600)
    (project / "link").symlink_to("src/main.py")
    return project


@pytest.fixture
def as_user(tmp_path: Path, home: Path) -> Callable[..., Any]:
    """`as_user(function, *args)`: call it in a child that is not root and owns `tmp_path` and `home`."""
    return partial(helpers.call_unprivileged, owning=(tmp_path, home))


@pytest.hookimpl(wrapper=True)
def pytest_report_to_serializable() -> Generator[None, Any, Any]:
    """A report goes from one process to another as UTF-8. Names that are not would bring the whole run down."""
    return _encodable((yield))


def _encodable(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode()
    if isinstance(value, dict):
        return {_encodable(key): _encodable(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [*map(_encodable, value)] if isinstance(value, list) else tuple(map(_encodable, value))
    return value
