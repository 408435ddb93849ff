"""The benchmark measures what it says: a tiny run of it, and its own measuring rods."""

from __future__ import annotations

import contextlib
import importlib
import io
import json
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any
from xml.etree import ElementTree

import pytest

from helpers import ROOT, git, manifest, snapshot_dotgit
from shadowsnap import CheckpointManager
from shadowsnap.store.layout import Store
from shadowsnap.store.projects import project_of

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="cp")

ALWAYS = {"shadowsnap", "git status", "git status (shadow)", "git add + commit", "read-tree flow", "cp -r"}
WATCHED = {"watching"} if sys.platform == "linux" else set()


@pytest.fixture(scope="module")
def bench() -> Iterator[dict[str, ModuleType]]:
    """The modules of the benchmark, which does not wait for the clock."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(ROOT / "scripts")
        names = ("chart", "main", "operations", "plot", "race", "report", "rivals", "targets", "trees")
        modules = {name: importlib.import_module(f"benchmark.{name}") for name in names}
        patch.setattr(modules["operations"], "wait_for_next_second", lambda: None)
        yield modules


def run(bench: dict[str, ModuleType], tmp_path: Path, *options: str) -> dict[str, Any]:
    scratch, file = tmp_path / "scratch", tmp_path / "found.json"
    scratch.mkdir()
    few = ("--rounds", "2", "--patience", "0.01", "--checkpoints", "4")
    assert bench["main"].main([*options, *few, "--scratch", str(scratch), "--json", str(file)]) == 0
    assert list(scratch.iterdir()) == []
    found: dict[str, Any] = json.loads(file.read_bytes())
    return found


@pytest.fixture(scope="module")
def tiny(bench: dict[str, ModuleType], tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], str]:
    """What a run on a tiny tree found, and what it showed."""
    with contextlib.redirect_stdout(io.StringIO()) as shown:
        found = run(bench, tmp_path_factory.mktemp("tiny"), "--files", "30")
    return found, shown.getvalue()


def by_operation(found: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {result["operation"]: result for result in found["results"]}


@pytest.mark.only_thorough
def test_a_run_tells_times_processes_memory_and_the_machine(tiny: tuple[dict[str, Any], str]) -> None:
    found, shown = tiny
    assert found["command"].startswith("scripts/bench --files 30 ")
    assert found["versions"].keys() == {"shadowsnap", "python", "git"}
    assert {"system", "processor", "cores", "memory_mb", "file_system", "load_average"} <= found["machine"].keys()
    assert [(tree["name"], tree["files"], tree["directories"]) for tree in found["trees"]] == [("30 files", 30, 3)]
    results = by_operation(found)
    assert list(results) == [
        "first snapshot", "unchanged", "1 file changed", "100 files changed", "diff against disk",
        "restore 1 file", "restore 1,000 files", "restore 1,000 unsaved", "list",
    ]  # fmt: skip
    for result in results.values():
        assert 5 < result["peak_mb"] < 200
        for contender in result["contenders"].values():
            assert len(contender["milliseconds"]) == contender["runs"] >= 1
            assert contender["median_ms"] > 0
    for operation in ("unchanged", "1 file changed", "100 files changed"):
        assert results[operation]["contenders"].keys() == ALWAYS | WATCHED
    assert results["first snapshot"]["store_bytes"] > 0
    assert results["list"]["checkpoints"] == 4
    assert set(found["starts"]) == {
        "python -c pass", "import shadowsnap", "import CheckpointManager", "hook, unchanged"
    }  # fmt: skip
    assert found["targets"][0].keys() == {"what", "where", "value", "limit", "unit", "met"}
    assert "30 files: 30 files in 3 directories" in shown and "targets met" in shown


@pytest.mark.only_thorough
def test_a_run_does_what_it_measures(tiny: tuple[dict[str, Any], str]) -> None:
    found = by_operation(tiny[0])
    lines = {name: result["status_lines"] for name, result in found.items() if "status_lines" in result}
    assert lines == {"unchanged": 0, "1 file changed": 1, "100 files changed": 30}
    processes = {name: result["contenders"]["shadowsnap"]["git_processes"] for name, result in found.items()}
    assert processes["unchanged"] == 1
    assert all(0 < number <= 12 for number in processes.values())
    rivals = found["unchanged"]["contenders"]
    assert {name: each["git_processes"] for name, each in rivals.items() if name != "shadowsnap"} == {
        "git status": 1, "git status (shadow)": 1, "git add + commit": 2, "read-tree flow": 5, "cp -r": 0,
        **dict.fromkeys(WATCHED, 0),
    }  # fmt: skip


@pytest.mark.only_thorough
def test_a_real_tree_is_copied_and_not_touched(
    bench: dict[str, ModuleType], tmp_path: Path, project: Path
) -> None:
    git(project, "init", "-q")
    git(project, "add", "README.md")
    before, dotgit = manifest(project), snapshot_dotgit(project)
    found = run(bench, tmp_path, "--tree", str(project), "--quick")
    assert [tree["name"] for tree in found["trees"]] == ["project"]
    assert (manifest(project), snapshot_dotgit(project)) == (before, dotgit)


def test_the_same_tree_is_generated_each_time(bench: dict[str, ModuleType], tmp_path: Path) -> None:
    generate = bench["trees"].generate
    one, other = generate(tmp_path / "one", 50), generate(tmp_path / "other", 50)
    assert (one.files, one.bytes) == (other.files, other.bytes) == (50, other.bytes)
    assert manifest(one.path) == manifest(other.path)


def test_status_through_our_index_finds_what_changed_and_writes_nothing(
    bench: dict[str, ModuleType], tmp_path: Path, base: Path, project: Path
) -> None:
    manager = CheckpointManager(base=base)
    store, mine = Store(base), project_of(project)
    taken = manager.ensure_checkpoint(project).checkpoint
    assert taken is not None
    index = store.index_file(mine.id)
    status = bench["rivals"].StatusThroughOurIndex(
        tmp_path / "status", store.git_dir, index, project, store.exclude_file(mine.id)
    )
    status.follow(taken.id)
    assert (tmp_path / "status" / "index").stat().st_mtime_ns == index.stat().st_mtime_ns  # which git looks at
    before = manifest(base), manifest(tmp_path / "status"), index.stat().st_mtime_ns
    assert status.changes() == 0
    (project / "README.md").write_text("changed")
    (project / "src" / "new.py").write_text("new")
    assert status.changes() == 2
    assert (manifest(base), manifest(tmp_path / "status"), index.stat().st_mtime_ns) == before


@pytest.mark.parametrize(
    ("patience", "preparing", "order"),
    [(1.0, 0.01, "abcbcacab"), (0.04, 0.01, "abcbaab"), (0.04, 0.2, "abc")],
    ids=["patient", "slow contender", "slow preparation"],
)
def test_contenders_take_turns_as_long_as_patience_lasts(
    bench: dict[str, ModuleType], monkeypatch: pytest.MonkeyPatch, patience: float, preparing: float, order: str
) -> None:
    race, ran = bench["race"], []

    class Clock:
        now = 0.0

        def perf_counter(self) -> float:
            return self.now

    clock = Clock()
    monkeypatch.setattr(race, "time", clock)

    def contender(name: str, seconds: float) -> Any:
        def run() -> None:
            ran.append(name)
            clock.now += seconds

        return race.Contender(name, run, lambda: len(ran))

    def prepare() -> None:
        clock.now += preparing

    contenders = [contender("a", 0.01), contender("b", 0.01), contender("c", 0.05)]
    found = race.race(contenders, race.Pace(3, patience), prepare)
    assert "".join(ran) == order
    assert found["c"].milliseconds == pytest.approx([50.0] * order.count("c"))
    assert found["a"].processes == 1


@pytest.mark.parametrize(("ours", "met"), [(12.9, True), (13.1, False)])
def test_a_target_is_met_up_to_its_limit(bench: dict[str, ModuleType], ours: float, met: bool) -> None:
    operations, samples = bench["operations"], bench["race"].Samples
    tree = bench["trees"].Tree("t", Path("t"), 5000, 10, 1000)
    times = {"shadowsnap": samples([ours, 999.0, 1.0], 2), "git status": samples([10.0]),
             "git status (shadow)": samples([5.0])}  # fmt: skip
    verdicts = bench["targets"].judge([tree], [operations.Result("t", "unchanged", times)], {})
    assert [(each.unit, each.met) for each in verdicts] == [
        ("x git status, same index", met),
        ("x git status", False),
        ("git processes", True),
    ]


@pytest.mark.parametrize(("stored", "met"), [(500_000, True), (500_001, False)])
def test_the_size_of_the_store_is_a_target_after_the_first_snapshot(
    bench: dict[str, ModuleType], stored: int, met: bool
) -> None:
    operations, samples = bench["operations"], bench["race"].Samples
    tree = bench["trees"].Tree("t", Path("t"), 1000, 10, 1_000_000)
    times = {"shadowsnap": samples([15.0], 1), "cp -r": samples([10.0])}
    first = operations.Result("t", operations.FIRST, times, facts={"store_bytes": stored})
    verdicts = bench["targets"].judge([tree], [first], {})
    assert [(each.unit, each.met) for each in verdicts] == [
        ("x cp -r", True), ("x size of the tree", met), ("git processes", True)
    ]  # fmt: skip


def test_memory_is_judged_between_the_small_and_the_large_tree(bench: dict[str, ModuleType]) -> None:
    operations, samples = bench["operations"], bench["race"].Samples
    trees = [bench["trees"].Tree(str(files), Path("t"), files, 1, 1) for files in (1_000, 50_000)]
    results = [
        operations.Result(tree.name, "unchanged", {"shadowsnap": samples([1.0])}, peak)
        for tree, peak in zip(trees, (20.0, 45.0), strict=True)
    ]
    [verdict] = [each for each in bench["targets"].judge(trees, results, {}) if "memory" in each.unit]
    assert (verdict.value, verdict.met) == (25.0, False)


@pytest.mark.parametrize(("check", "code"), [([], 0), (["--check"], 1)])
def test_a_missed_target_fails_a_run_that_checks(
    bench: dict[str, ModuleType], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, check: list[str], code: int
) -> None:
    missed = bench["targets"].Verdict("unchanged", "t", 2.0, 1.3, "x git status")
    monkeypatch.setattr(bench["main"], "judge", lambda *_: [missed])
    monkeypatch.setattr(bench["main"], "_trees", lambda *_: [])
    assert bench["main"].main(["--scratch", str(tmp_path), *check]) == code


def test_a_tree_without_files_to_capture_is_refused(
    bench: dict[str, ModuleType], tmp_path: Path, project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (project / ".gitignore").write_text("/*\n")
    assert bench["main"].main(["--tree", str(project), "--quick", "--scratch", str(tmp_path)]) == 2
    assert "error: there is nothing to capture in project" in capsys.readouterr().err


def test_without_the_package_of_the_kernel_it_says_so(
    bench: dict[str, ModuleType],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "git").symlink_to(shutil.which("git") or "git")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert bench["main"].main(["--kernel", "--scratch", str(tmp_path)]) == 2
    assert "error: apt-get cannot be run here" in capsys.readouterr().err


# --- pictures -----------------------------------------------------------------------------------------


@pytest.mark.only_thorough
def test_the_pictures_show_what_was_measured(bench: dict[str, ModuleType], tmp_path: Path) -> None:
    numbers = tmp_path / "numbers.json"
    arguments = ["--files", "20,40", "--turns", "10", "--rounds", "2", "--scratch", str(tmp_path)]
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(io.StringIO()):
        patch.setattr(bench["plot"], "_TURN_FILES", 30)
        assert bench["plot"].main([*arguments, "--to", str(tmp_path / "to"), "--json", str(numbers)]) == 0
    found = json.loads(numbers.read_bytes())
    assert {name: [x for x, _ in line] for name, line in found["times"].items()} == dict.fromkeys(
        ("shadowsnap", "git status", "git add + commit", "read-tree flow"), [20, 40]
    )
    assert [x for x, _ in found["sizes"]["shadowsnap"]] == [1, 10]
    assert found["sizes"]["copies"][1][1] > 5 * found["sizes"]["copies"][0][1]
    for name, lines in (("times.svg", 4), ("sizes.svg", 2)):
        picture = ElementTree.parse(tmp_path / "to" / name).getroot()
        drawn = [element for element in picture.iter() if element.tag.endswith("polyline")]
        assert len(drawn) == lines
        words = {element.text for element in picture.iter() if element.tag.endswith("text")}
        assert {"shadowsnap", "git add + commit"} <= words


def test_a_line_goes_where_its_numbers_are(bench: dict[str, ModuleType]) -> None:
    chart = bench["chart"]
    lines = [chart.Line("a <b>", [(1, 10), (10, 100), (100, 1000)]), chart.Line("c", [(1, 1000), (100, 1000)])]
    picture = ElementTree.fromstring(chart.chart("t", lines, "x", "y", powers=True))
    first, second = (each for each in picture.iter() if each.tag.endswith("polyline"))
    places = [tuple(map(float, place.split(","))) for place in first.attrib["points"].split()]
    (left, low), (middle, half), (right, high) = places
    assert middle == pytest.approx((left + right) / 2, abs=0.2)
    assert half == pytest.approx((low + high) / 2, abs=0.2)
    assert low > high, "more is further up"
    assert second.attrib["points"].split()[1] == first.attrib["points"].split()[2]
    names = {each.text: float(each.attrib["y"]) for each in picture.iter() if each.text in ("a <b>", "c")}
    assert abs(names["a <b>"] - names["c"]) >= 15, "two names lie on each other"
