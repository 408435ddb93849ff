"""A failing test is reported whatever its text holds, also from another process."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from helpers import ROOT


def test_a_failure_with_a_name_that_is_not_utf8_is_reported(tmp_path: Path) -> None:
    test = tmp_path / "test_odd.py"
    test.write_text("def test_odd() -> None:\n    assert 'caf\\udce9' == 'tea', 'caf\\udce9'\n")
    words = [sys.executable, "-m", "pytest", "-n", "1", "-q", "-p", "no:cacheprovider", "-p", "conftest"]
    words += ["-c", str(ROOT / "pyproject.toml"), "--rootdir", str(ROOT), "--confcutdir", str(ROOT), str(test)]
    done = subprocess.run(words, cwd=ROOT / "tests", capture_output=True, text=True, check=False, timeout=120)
    assert "1 failed" in done.stdout and "INTERNALERROR" not in done.stdout, done.stdout
    assert "caf\\udce9" in done.stdout
