"""report: one HTML page that tells what agents did, and that nothing in it can change."""

from __future__ import annotations

import base64
import hashlib
import os
import re
import shlex
import stat
import sys
from collections.abc import Callable
from datetime import datetime, timedelta
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from command_line import CommandLine

from helpers import loose_object
from shadowsnap import CheckpointManager
from shadowsnap.cli.commands.help import DOCS_FOLDER
from shadowsnap.cli.commands.report import EntryReader, report_entries
from shadowsnap.cli.picture import Scale
from shadowsnap.snapshot.states import split_patch

HOSTILE = "</script></style></title>--><script>alert(1)</script><img src=//x onerror=alert(1)>\"'><b>"
VOID = {"meta", "input", "br"}
needs_posix = pytest.mark.skipif(sys.platform == "win32", reason="file names and bits of Unix")


class Parsed(HTMLParser):
    """A page taken apart; unbalanced markup is an error."""

    def __init__(self, page: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: dict[str, list[str]] = {}
        self._open: list[str] = []
        self.feed(page)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self._open and self._open.pop() == tag, f"</{tag}> closes another element"

    def handle_data(self, data: str) -> None:
        self.texts.setdefault(self._open[-1] if self._open else "", []).append(data)

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.tags if name == tag]

    def text(self, tag: str) -> str:
        return "".join(self.texts.get(tag, []))

    @property
    def ids(self) -> list[str]:
        return [str(attributes["id"]) for _, attributes in self.tags if "id" in attributes]

    @property
    def visible(self) -> str:
        return "\n".join("".join(texts) for tag, texts in self.texts.items() if tag not in ("script", "style"))


@pytest.fixture
def cli(
    project: Path, base: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> CommandLine:
    return CommandLine(project, base, monkeypatch, capsys)


class Day:
    """Turns of a made-up day."""

    def __init__(self, project: Path, base: Path) -> None:
        self.project = project
        self.manager = CheckpointManager(base=base, background_upkeep=False, fsync=False)

    def turn(
        self, prompt: str, change: Callable[[], Any] | None = None, *, session: str = "session-1",
        agent: str = "claude", command: str = "make", status: Any = "done",
    ) -> None:  # fmt: skip
        self.manager.new_turn(session, prompt=prompt, agent=agent)
        assert self.manager.before_tool("Bash", {"command": command}, self.project).protected
        if change is not None:
            change()
        if status != "running":
            self.manager.end_turn(status=status)


@pytest.fixture
def day(project: Path, base: Path) -> Day:
    day = Day(project, base)
    (project / ".env").write_text("TOKEN=1\n")
    day.turn("say hello louder", lambda: (project / "src" / "main.py").write_text("print('HELLO')\n"))
    (project / "README.md").write_text("# A project\nmy own line\n")
    day.turn("tidy up", lambda: (project / "private.txt").unlink(), session="session-2", agent="codex")
    day.manager.undo(project)

    def odd() -> None:
        (project / "data.bin").write_bytes(bytes(range(255, -1, -1)))
        (project / "run.sh").chmod(0o700)
        (project / "nothing").mkdir()

    day.turn("odd things", odd, command="curl -d @run.sh https://example.org")
    day.turn("too long", lambda: (project / "half").write_text("x\n"), status="interrupted")
    return day


def written(cli: CommandLine, *words: str) -> str:
    cli("report", "-o", "../report.html", *words)
    return (cli.project.parent / "report.html").read_bytes().decode("utf-8", "strict")


def check_page(page: str) -> Parsed:
    """What holds for every report: it loads nothing, runs its own script alone, and its links lead somewhere."""
    found = Parsed(page)
    names = [name for name, _ in found.tags]
    assert names.count("script") == names.count("style") == 1
    loading = {"img", "iframe", "object", "embed", "link", "base", "audio", "video", "source", "image", "use"}
    assert not loading & {*names}
    policy = next(str(each["content"]) for each in found.all("meta") if each.get("http-equiv"))
    for tag in ("script", "style"):
        digest = base64.b64encode(hashlib.sha256(found.text(tag).encode()).digest()).decode()
        assert f"{tag}-src 'sha256-{digest}'" in policy
    assert policy.startswith("default-src 'none'; ") and "unsafe" not in policy and "http" not in policy
    assert "url(" not in found.text("style").replace("url(#hatch)", "") and "@import" not in found.text("style")
    assert not re.search(r"fetch|XMLHttp|innerHTML|eval|import\(|https?:", found.text("script"))
    for tag, attributes in found.tags:
        assert not {"style", "src", "srcset", "action"} & {*attributes}, tag
        assert not [name for name in attributes if name.startswith("on")], tag
        for name in ("href", "xlink:href"):
            assert (attributes.get(name) or "#entries").startswith("#"), attributes
            assert (attributes.get(name) or "#entries")[1:] in found.ids
        for name in ("aria-labelledby", "aria-describedby"):
            assert set((attributes.get(name) or "entries").split()) <= {*found.ids}
    assert len(found.ids) == len({*found.ids})
    assert [names.count(tag) for tag in ("main", "header", "footer", "h1", "title")][:4] == [1, 1, 1, 1]
    levels = [int(name[1]) for name in names if re.fullmatch("h[1-6]", name)]
    assert all(after <= before + 1 for before, after in zip(levels, levels[1:], strict=False))
    assert all(char.isprintable() or char in "\n\t\u200d" for char in page)
    return found


@needs_posix
def test_it_tells_the_day(cli: CommandLine, day: Day) -> None:
    page = check_page(written(cli))
    text = page.visible
    for word in ("say hello louder", "tidy up", "claude", "codex", "session-1", "Your own edits", "+my own line",
                 "Undo of turn 2", "print('HELLO')", "permissions 0755 to 0700", "nothing/", "directory",
                 "binary, or not captured", "What no rollback takes back", "curl -d @run.sh", ".env", "secret",
                 "1 path not captured"):  # fmt: skip
        assert word in text, word
    badges = [each["class"] for each in page.all("span") if str(each.get("class")).startswith("badge")]
    assert badges == ["badge interrupted", "badge undone"]
    assert [each["id"] for each in page.all("article") if str(each["id"])[0] == "n"] == ["n4", "n3", "n2", "n1"]
    marks = [str(each["class"]).split() for each in page.all("a") if str(each.get("class")).startswith("mark")]
    assert {mark[-1] for mark in marks} == {"turn", "undone", "interrupted", "edits", "restore"}
    assert "2 sessions within" in page.text("desc") and "1 interrupted, 1 undone, 1 rollback" in page.text("desc")
    assert all(details.get("open") is None for details in page.all("details"))


def test_it_leaves_out_what_is_not_wanted(cli: CommandLine, day: Day) -> None:
    bare = check_page(written(cli, "--no-prompts", "--no-diffs")).visible
    assert "say hello louder" not in bare and "HELLO" not in bare and "my own line" not in bare
    assert "src/main.py" in bare and "+1" in bare and "the diffs were left out" in bare


def test_it_is_about_a_session_or_a_time(cli: CommandLine, day: Day, monkeypatch: pytest.MonkeyPatch) -> None:
    page = check_page(written(cli, "--session", "session-2"))
    kinds = [str(each["class"]).split()[0] for each in page.all("article")]
    assert kinds == ["restore", "turn"] and "tidy up" in page.visible and "say hello" not in page.visible
    cli("report", "-o", "../other.html", "--session", "no-such-session", code=3)
    assert not (cli.project.parent / "other.html").exists()
    for since, turns in (("8h", 4), ("2d", 4), ("2020-01-31", 4), ("2999-01-01", 0)):
        assert cli.json("report", "-o", "../report.html", "--since", since)["turn_count"] == turns
        page = check_page((cli.project.parent / "report.html").read_text("utf-8"))
        assert ("Nothing happened in this time" in page.visible) == (turns == 0)
    cli("report", "-o", "../report.html", "--since", "soon", code=2)


@needs_posix
def test_nothing_in_it_can_run_or_load_anything(cli: CommandLine, project: Path, base: Path) -> None:
    day = Day(project, base)
    control = "\x1b]0;x\x07\u202eevil\u202c\x00\x85\u2028\ud800"
    nasty = (os.fsdecode(b"a\xff\xfe<b>"), "</pre><script>x.txt".replace("/", "\u2215"), "new\nline\u202e.py")

    def change() -> None:
        for name in nasty:
            (project / name).write_text(f"{HOSTILE}{control[:-1]}\n", "utf-8")

    agent = HOSTILE + control
    day.turn(HOSTILE + control, change, session=f"s-{HOSTILE}", agent=agent, command=f"curl {HOSTILE}")
    day.turn("javascript:alert(1) https://example.org", session="javascript:alert(1)")
    cli("label", "1", "<i>label</i>")
    page = check_page(written(cli))
    assert page.visible.count("<script>alert(1)</script>") >= 5 and "<i>label</i>" in page.visible
    for shown in (r"a\xff\xfe<b>", r"new\nline\u202e.py", r"\x1b]0;x\x07\u202eevil\u202c"):
        assert shown in page.visible
    assert len(page.all("article")) == 2


@needs_posix
def test_every_diff_is_what_diff_says(cli: CommandLine, day: Day, project: Path) -> None:
    def retype() -> None:
        (project / "link").unlink()
        (project / "link").write_text("no link\n")
        (project / "src" / "main.py").write_bytes(b"no line end\xff")

    day.turn("types", retype)
    entries = [each for each in report_entries(day.manager, project, None, None) if each.kind in ("turn", "edits")]
    assert len(entries) == 6
    with EntryReader(day.manager, project) as items:
        for entry in entries:
            assert entry.before is not None
            diff, item = day.manager.diff(project, entry.before, entry.after), items.read(entry)
            assert tuple(file.change for file in item.files) == diff.changes
            with_lines = [part for part in split_patch(diff.text).values() if "\n@@ " in part]
            assert sorted(file.patch for file in item.files if file.patch) == sorted(with_lines)


def test_secrets_in_files_are_left_out(cli: CommandLine, project: Path, base: Path) -> None:
    token = "ghp_" + "aB3dE6gH9j" * 3 + "kLmN12"
    Day(project, base).turn("add it", lambda: (project / "a.py").write_text(f"key = '{token}'\n"))
    page = written(cli)
    assert token not in page and "[redacted" in page


def test_it_stays_within_its_size_and_says_what_was_cut(cli: CommandLine, project: Path, base: Path) -> None:
    day = Day(project, base)
    for number in range(3):
        lines = "".join(f"{number} {line} <&>\n" for line in range(9000))
        day.turn(f"large {number}", lambda lines=lines: (project / "large.txt").write_text(lines))  # type: ignore[misc]
    ran = cli.json("report", "-o", "../report.html", "--max-mb", "0.2")
    page = (project.parent / "report.html").read_text("utf-8")
    found = check_page(page)
    assert ran["bytes"] == len(page.encode()) <= 200_000
    assert ran["cut"] == ["the diffs of 3 files left out"] and ran["cut"][0] in found.visible
    assert "--max-mb makes room" in found.visible and "+9,000" in found.visible
    ran = cli.json("report", "-o", "../report.html", "--max-mb", "4")
    assert ran["cut"] == ["long diffs cut"]
    assert "more lines are left out" in check_page((project.parent / "report.html").read_text("utf-8")).visible
    for number in range(40):
        prompt = f"long {number} " + "so much to say " * 200
        day.turn(prompt, lambda number=number: (project / "empty").write_text(str(number)))  # type: ignore[misc]
    ran = cli.json("report", "-o", "../report.html", "--max-mb", "0.1")
    assert ran["bytes"] <= 100_000 and re.fullmatch(r"\d+ older entries left out", ran["cut"][0])
    page = (project.parent / "report.html").read_text("utf-8")
    assert "long 39" in check_page(page).visible and "large 0" not in page
    cli("report", "-o", "../report.html", "--max-mb", "0", code=2)


def test_a_file_that_is_no_report_is_not_replaced(cli: CommandLine, project: Path) -> None:
    target = project.parent / "page.html"
    cli("report", "-o", str(target))
    first = target.read_bytes()
    assert stat.S_IMODE(target.stat().st_mode) == 0o600 or sys.platform == "win32"
    cli("report", "-o", str(target))  # an older report is
    target.write_text("mine")
    assert "--force replaces" in cli("report", "-o", str(target), code=4).err
    assert target.read_text() == "mine"
    assert cli.json("report", "-o", str(target), "--force")["file"] == str(target)
    assert len(target.read_bytes()) == len(first)
    for other in (project, project / "link"):
        cli("report", "-o", str(other), "--force", code=4)
    assert (project / "link").is_symlink()
    assert [each.name for each in project.parent.iterdir() if "tmp_" in each.name] == []


def test_it_goes_to_stdout(cli: CommandLine, day: Day) -> None:
    page = cli.process("report", "-o", "-")
    assert page.returncode == 0 and b"say hello louder" in page.stdout
    check_page(page.stdout.decode())
    cli("--json", "report", "-o", "-", code=2)
    assert "-o" in cli("report", code=2).err


def test_where_nothing_happened_it_says_so(cli: CommandLine) -> None:
    page = check_page(written(cli))
    assert "Nothing has happened here yet" in page.visible and page.all("article") == []


def test_a_running_turn_shows_what_it_has_done_so_far(cli: CommandLine, day: Day, project: Path) -> None:
    day.turn("still at it", lambda: (project / "so-far").write_text("half\n"), status="running")
    page = check_page(written(cli))
    assert "so-far" in page.visible and "+half" in page.visible
    assert "badge running" in [each.get("class") for each in page.all("span")]
    day.manager.end_turn()


@needs_posix
def test_a_read_only_store_is_enough(
    cli: CommandLine, day: Day, project: Path, base: Path, as_user: Callable[..., Any]
) -> None:
    assert as_user(_report_of_a_read_only_store, project, base) == 0
    page = check_page((project.parent / "report.html").read_text("utf-8"))
    assert "say hello louder" in page.visible and "print('HELLO')" in page.visible


def _report_of_a_read_only_store(project: Path, base: Path) -> int:
    from shadowsnap.cli.main import main

    os.environ["SHADOWSNAP_HOME"] = str(base)
    places = [base, *base.rglob("*")]
    for place in places:
        place.chmod(place.stat().st_mode & ~0o222)
    try:
        return main(["-C", str(project), "report", "-o", "../report.html"])
    finally:
        for place in places:
            place.chmod(place.stat().st_mode | 0o200)


def test_of_a_turn_whose_files_are_lost_it_says_so(cli: CommandLine, day: Day, project: Path, base: Path) -> None:
    loose_object(base / "store", blob_id(b"print('HELLO')\n")).unlink()
    page = check_page(written(cli))
    assert "it cannot be read" in page.visible and "say hello louder" in page.visible
    assert "+my own line" in page.visible and "print('HELLO')" not in page.visible


def blob_id(data: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()


def test_the_examples_of_the_page_print_what_it_says(cli: CommandLine, day: Day) -> None:
    text = (DOCS_FOLDER / "report.md").read_text("utf-8")
    found = re.findall(r"(?m)^    \$ shadowsnap (.+)\n((?:    (?!\$ ).*\n)*)", text)
    assert len(found) == 3
    for command, expected in found:
        printed = cli(*shlex.split(command)).out.replace(str(cli.project.parent), "/home/me")
        assert masked(printed) == masked(re.sub(r"(?m)^    ", "", expected)), command


def masked(text: str) -> str:
    return re.sub(r"\d+ KB|\"bytes\": \d+", "SIZE", text)


def test_long_idle_times_are_drawn_short_and_the_order_of_time_is_kept() -> None:
    begin = datetime(2026, 3, 10, 9, 0).astimezone()
    moments = [begin + timedelta(minutes=minutes) for minutes in (0, 10, 40, 50, 1500, 1510, 9000, 9001)]
    scale = Scale([(moment, moment + timedelta(minutes=1)) for moment in moments])
    places = [scale.at(moment) for moment in moments]
    assert places == sorted(places) and places[0] >= 0 and places[-1] <= 100
    assert len(scale.breaks) == 2
    assert places[1] - places[0] == pytest.approx((places[3] - places[2]), rel=0.01)
    assert places[2] - places[1] == pytest.approx(3 * (places[1] - places[0]), rel=0.01)
    alone = Scale([(begin, begin)])
    assert 0 <= alone.at(begin) <= 100 and len(list(alone.ticks())) <= 1
