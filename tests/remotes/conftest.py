"""Real servers on loopback. What cannot be started here is skipped, and the run says so."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        found: int = probe.getsockname()[1]
        return found


def wait_for(port: int, process: subprocess.Popen[bytes]) -> bool:
    end = time.monotonic() + 30
    while time.monotonic() < end and process.poll() is None:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return True
        time.sleep(0.1)
    return False


@pytest.fixture(scope="session")
def s3_server() -> Iterator[str]:
    """An S3 server that honours conditions (moto)."""
    pytest.importorskip("moto", reason="moto is not installed")
    pytest.importorskip("obstore", reason="obstore is not installed")
    port = free_port()
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        if not wait_for(port, process):
            pytest.skip("the S3 server (moto) did not start")
        yield f"http://127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait()


@pytest.fixture
def bucket(s3_server: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> str:
    """The address of a new bucket."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    for name in [name for name in os.environ if name.lower().endswith("_proxy")]:
        monkeypatch.delenv(name)
    name = f"lanes-{time.time_ns()}"
    request = urllib.request.Request(f"{s3_server}/{name}", method="PUT", headers={"Host": "s3.amazonaws.com"})
    urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=30).close()
    return f"s3://{name}/some/folder?endpoint={s3_server}&region=us-east-1"
