"""These tests run by `scripts/test --frameworks` only."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[1]))  # for `from frameworks.contract import ...`


def pytest_configure(config: pytest.Config) -> None:
    # The frameworks warn about each other and themselves; here, only our own warnings are errors.
    config.addinivalue_line("filterwarnings", "ignore")
    config.addinivalue_line("filterwarnings", "error:::shadowsnap")
