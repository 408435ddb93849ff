"""What `shadowsnap docs migrate` says is so, and the faces stay what they are: thin, and loaded when wanted."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from helpers import ROOT, git
from shadowsnap import AsyncCheckpointManager, CheckpointManager
from shadowsnap.cli.commands.docs import topic_files

PAGE = (ROOT / "shadowsnap" / "docs" / "migrate.md").read_text("utf-8")
COMPAT = ROOT / "shadowsnap" / "compat"
FACES = ("hermes", "praisonai", "openjarvis", "entire")
EXAMPLES = dict(zip(FACES, re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL), strict=True))


def test_the_page_is_a_topic_with_a_path_from_each_system() -> None:
    assert topic_files()["migrate"].read_text("utf-8") == PAGE
    parts = re.split(r"(?m)^## ", PAGE)[1:]
    assert [part.partition("\n")[0] for part in parts] == ["Hermes Agent", "PraisonAI", "OpenJarvis", "Entire"]
    for face, part in zip(FACES, parts, strict=True):
        assert f"from shadowsnap.compat.{face} import" in part
        assert "**Your old" in part and "here, directly" in part


@pytest.mark.parametrize("face", FACES)
def test_its_examples_run(face: str, tmp_path: Path, base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHADOWSNAP_HOME", str(base))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "project").mkdir()
    (tmp_path / "project" / "main.py").write_text("print('hello')\n")
    git(tmp_path / "project", "init", "-q")
    exec(compile(EXAMPLES[face], f"migrate.md, {face}", "exec"), {"__name__": "example"})
    assert (base / "store").is_dir()


def test_the_methods_it_names_exist() -> None:
    names = set(re.findall(r"manager\.(\w+)\(", PAGE)) - {"list_all_checkpoints"}
    missing = {name for name in names if not hasattr(CheckpointManager, name)}
    assert names and missing == set()
    assert hasattr(AsyncCheckpointManager, "snapshot")


def test_every_module_of_a_face_is_short() -> None:
    lengths = {path.name: len(path.read_text("utf-8").splitlines()) for path in COMPAT.glob("*.py")}
    assert {f"{face}.py" for face in FACES} <= set(lengths)
    assert {name: length for name, length in lengths.items() if length >= 480} == {}


def test_nothing_loads_a_face_that_was_not_asked_for() -> None:
    script = (
        "import sys, shadowsnap; shadowsnap.CheckpointManager\n"
        "assert not [name for name in sys.modules if name.startswith('shadowsnap.compat')]\n"
        "import shadowsnap.compat\n"
        "assert [name for name in sys.modules if name.startswith('shadowsnap.compat')] == ['shadowsnap.compat']\n"
        "import shadowsnap.compat.hermes\n"
        "assert not {'asyncio', 'sqlite3'} & set(sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
