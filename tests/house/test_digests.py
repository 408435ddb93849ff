"""Digests are what hashlib says, and who hashes little does not pay for OpenSSL."""

from __future__ import annotations

import hashlib
import subprocess
import sys

import pytest

from helpers import ROOT
from shadowsnap import digests

NAMES = ["sha1", "sha256"]


def in_a_new_python(script: str) -> list[str]:
    start = "import sys; from shadowsnap.digests import sha1, sha256; loaded = lambda: 'hashlib' in sys.modules"
    words = [sys.executable, "-c", f"{start}\n{script}"]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, check=True, text=True)
    return done.stdout.split()


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("size", [0, 1, 1000, 1_000_000])
def test_digests_are_those_of_hashlib(name: str, size: int) -> None:
    data = b"x" * size
    expected = getattr(hashlib, name)(data + b"more").hexdigest()
    digest = getattr(digests, name)(data, 4)
    digest.update(memoryview(b"more"))
    assert (digest.hexdigest(), digest.digest().hex()) == (expected, expected)
    script = f"d = {name}(b'x' * {size}); d.update(b'more'); print(d.hexdigest())"
    assert in_a_new_python(script) == [expected]


@pytest.mark.parametrize("name", NAMES)
def test_little_data_needs_no_openssl_and_much_gets_it(name: str) -> None:
    assert in_a_new_python(f"{name}(b'x' * 1000); print(loaded())") == ["False"]
    assert in_a_new_python(f"{name}(b'x' * 1_000_000); print(loaded())") == ["True"]
    assert in_a_new_python(f"{name}(b'', 1_000_000); print(loaded())") == ["True"]
    assert in_a_new_python(f"for _ in range(1000): {name}(b'x' * 1000)\nprint(loaded())") == ["True"]


@pytest.mark.parametrize("name", NAMES)
def test_a_python_without_code_of_its_own_has_openssl(name: str) -> None:
    script = f"sys.modules.update(_sha1=None, _sha2=None, _sha256=None); print({name}().hexdigest(), loaded())"
    assert in_a_new_python(script) == [getattr(hashlib, name)().hexdigest(), "True"]
