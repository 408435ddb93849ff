"""`shadowsnap hook AGENT`: what agents run before a tool and at the other events of a session.

It always ends with 0 and prints nothing: several agents take any other answer for a veto, and some show what a
hook prints to the model. Messages go to the hook log.

The resident helper (`server.py`) does the work if it runs and answers at once; else this process does it
(`handle.py`). Before that, almost nothing is imported: agents wait for this program before every tool.
"""

import gc
import os
import sys
import time

import shadowsnap
from shadowsnap.base import configured_base

try:
    import _socket as socket  # `socket` takes as long to import as Python to start
except ImportError:
    import socket  # type: ignore[no-redef]

# The process ends after this, whatever hangs: a dead network drive, an agent that never closes the input.
_MOST_SECONDS = 17
_ends_at = float("inf")
# How long to wait for the end of an input that is complete JSON already, and then for more of one that is not.
_WAIT_FOR_END_SECONDS = 1.0
_WAIT_FOR_MORE_SECONDS = 4.0
# Left for the files that the tool names, if there was no time for everything.
_NAMED_SECONDS = 2.5
# A longer input is cut: the tool and its files come before the content that it writes.
MOST_INPUT = 64 << 20


def main(words: list[str]) -> int:
    """Run the hook and end the process: always with 0, and without output except the answer to a `/rollback`."""
    try:
        stdout = _silence_output()
        agent, event_name = (*words, "", "")[:2]
        end_at_last(agent)
        gc.disable()  # in so short a process, collecting costs more than it saves
        data = _read_input()
        try:
            helper = ask_helper(agent, event_name, data)
        except Exception:  # the files must be safe without the helper, too
            helper = BUSY
        if helper != SERVED:
            from shadowsnap.hook import handle

            handle.DEADLINE = min(handle.DEADLINE, max(1.0, _seconds_left() - _NAMED_SECONDS))
            answer = handle.run_hook(agent, data, event_name)
            if answer:
                os.write(stdout, answer)
            if helper == ABSENT:
                base = configured_base()
                if wants_helper(base):
                    from shadowsnap.hook.server import start_helper

                    start_helper(base)
    finally:
        os._exit(0)


# --- the resident helper -----------------------------------------------------------------------------

SOCKET = os.path.join("run", "helper.socket")
RECORD = os.path.join("run", "helper.pid")
"""Locked by the helper while it runs. Its modification time is when a helper was last started."""
_PAUSE_SECONDS = 60.0
_OFF_WORDS = ("0", "false", "no", "off")
# The name of a socket has at most 103 bytes on macOS, and 107 on Linux.
_LONGEST_PATH = 103

SERVED, ABSENT, BUSY = "served", "absent", "busy"
READY, GO, DONE, REFUSED = b"R", b"G", b"D", b"N"

# A helper answers at once that it is ready. Then it may take as long as a hook needs at most, unless this process
# could not do the work any more after that.
_READY_SECONDS = 0.4
_ANSWER_SECONDS = 11.0
_OWN_SECONDS = 5.5

VARIABLES = frozenset(
    (
        "HOME", "XDG_STATE_HOME", "XDG_CONFIG_HOME", "LANG", "LC_ALL", "LC_CTYPE", "CLAUDE_CONFIG_DIR",
        "CODEX_HOME", "GEMINI_CLI_HOME", "QWEN_RUNTIME_DIR", "QWEN_HOME", "COPILOT_HOME", "HERMES_HOME",
        "XDG_DATA_HOME",
    )
)  # fmt: skip
"""The variables that affect a hook, besides PATH and those that begin with SHADOWSNAP_."""


def ask_helper(agent: str, event_name: str, data: bytes) -> str:
    """Let the helper do the work: SERVED if it did, else this process must do it. It is never done twice: the
    helper begins only after GO, and stops when the connection is closed."""
    if sys.platform == "win32":
        return BUSY
    base = configured_base()
    path = os.path.join(base, SOCKET)
    if len(os.fsencode(path)) > _LONGEST_PATH:
        return BUSY
    if not os.path.lexists(path):
        return ABSENT
    try:
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    except OSError:
        return BUSY  # a sandbox
    try:
        connection.settimeout(_READY_SECONDS)
        if sys.platform == "linux":
            connection.setsockopt(1, 16, 1)  # SOL_SOCKET, SO_PASSCRED
        connection.connect(path)
        if peer_uid(connection) != os.geteuid():
            return BUSY
        connection.sendall(_request(base, agent, event_name, data))
        worker = _ready_worker(connection)
        return _await_helper(connection, worker) if worker else BUSY
    except ConnectionRefusedError:
        return ABSENT
    except OSError:
        return BUSY
    finally:
        connection.close()


def wants_helper(base: str) -> bool:
    """Whether to start a helper: the person and the system allow it, and none was started within a minute."""
    folder, record = os.path.join(base, "run"), os.path.join(base, RECORD)
    if os.environ.get("SHADOWSNAP_RESIDENT", "").lower() in _OFF_WORDS or not os.access(folder, os.W_OK | os.X_OK):
        return False  # no store yet, or one that cannot be written to
    try:
        if 0 <= time.time() - os.stat(record).st_mtime < _PAUSE_SECONDS:
            return False
    except OSError:
        pass  # none was ever started
    from shadowsnap.files import ownership_problem  # here and in `main`: a hook that is served needs none of it
    from shadowsnap.settings import load_settings

    return not ownership_problem(os.path.realpath(base)) and load_settings().settings.resident


def _ready_worker(connection: socket.socket) -> int:
    """The process that is ready to do the work; 0 if none is."""
    if sys.platform != "linux":
        ready = connection.recv(5)
        return int.from_bytes(ready[1:], "big") if ready[:1] == READY else 0
    # Not the number in the message: it will be killed if it hangs, and must not be another process. The system
    # adds the true one (SOL_SOCKET, SCM_CREDENTIALS).
    ready, extra, *_ = connection.recvmsg(5, socket.CMSG_SPACE(12))
    sender = [data for level, kind, data in extra if (level, kind) == (1, 2)]
    return int.from_bytes(sender[0][:4], sys.byteorder) if ready[:1] == READY and sender else 0


def _await_helper(connection: socket.socket, worker: int) -> str:
    connection.settimeout(max(_READY_SECONDS, min(_ANSWER_SECONDS, _seconds_left() - _OWN_SECONDS)))
    connection.sendall(GO)
    try:
        return SERVED if connection.recv(1) == DONE else BUSY
    except TimeoutError:
        os.kill(worker, 9)  # it may hold locks; the connection is open, so the id is still the worker's
        return BUSY


def _request(base: str, agent: str, event_name: str, data: bytes) -> bytes:
    try:
        cwd = os.getcwd()
    except OSError:
        cwd = ""
    words = "\0".join((agent, event_name, cwd)).encode("utf-8", "surrogateescape")
    return b"".join(len(part).to_bytes(4, "big") + part for part in (facts(base), words, data))


def facts(base: str) -> bytes:
    """What must be equal in two processes, so that both do the work of a hook in the same way: the program, the
    store, the variables, the git on the PATH, the mounts, and the rights."""
    variables = os.environ
    names = sorted(name for name in variables if name in VARIABLES or name.startswith("SHADOWSNAP_"))
    parts = [shadowsnap.__version__, str(shadowsnap.__file__), base, _git_path(), _mount_namespace(), _rights()]
    return os.fsencode("\0".join((*parts, *(f"{name}={variables[name]}" for name in names))))


def _git_path() -> str:
    for folder in os.environ.get("PATH", os.defpath).split(os.pathsep):
        path = os.path.join(folder, "git")
        if os.path.isabs(folder) and os.access(path, os.X_OK) and os.path.isfile(path):
            return path
    return ""


def _mount_namespace() -> str:
    """Identifies what is mounted where: a sandbox may have other files at the same paths."""
    try:
        root = os.stat("/")
        return f"{root.st_dev} {root.st_ino} {os.readlink('/proc/self/ns/mnt')}"
    except OSError:
        return ""


_RIGHTS = (b"Gid:", b"Groups:", b"CapEff:", b"NoNewPrivs:", b"Seccomp:")


def _rights() -> str:
    """What decides which files this process may read, besides the user: a sandbox may forbid some without other
    mounts, and what cannot be read is not captured."""
    try:
        with open("/proc/self/status", "rb") as file:
            return b"".join(line for line in file if line.startswith(_RIGHTS)).decode()
    except OSError:
        return str(os.getgroups())


def peer_uid(connection: socket.socket) -> int:
    """The user at the other end."""
    if sys.platform == "linux":
        return int.from_bytes(connection.getsockopt(1, 17, 12)[4:8], sys.byteorder)  # SOL_SOCKET, SO_PEERCRED
    return int.from_bytes(connection.getsockopt(0, 1, 76)[4:8], sys.byteorder)  # SOL_LOCAL, LOCAL_PEERCRED


# --- this process ------------------------------------------------------------------------------------


def _read_input() -> bytes:
    """The input from the agent; empty on a terminal. Some agents never close the input, so complete JSON is
    enough, and after a while whatever came."""
    stream = sys.stdin
    if stream is None or stream.isatty():
        return b""
    if sys.platform == "win32":
        return stream.buffer.read()
    import select

    descriptor, pieces, size = stream.fileno(), list[bytes](), 0

    def comes(seconds: float) -> bool:
        return bool(select.select([descriptor], [], [], seconds)[0])

    # Checked only when no more comes, because each check parses all of it.
    while comes(_WAIT_FOR_END_SECONDS) or (not _is_whole(pieces) and comes(_WAIT_FOR_MORE_SECONDS)):
        try:
            piece = os.read(descriptor, 1 << 20)
        except OSError:
            break  # it cannot be read: a tool may be about to run all the same
        if not piece:
            break
        if size < MOST_INPUT:  # the rest is read, so that the agent does not block, and discarded
            pieces.append(piece)
        size += len(piece)
    return b"".join(pieces)[:MOST_INPUT]


def _is_whole(pieces: list[bytes]) -> bool:
    import json

    try:
        return isinstance(json.loads(b"".join(pieces)), dict)
    except (ValueError, RecursionError):
        return False


def _silence_output() -> int:
    """Discard all output, also that of git and of a failing interpreter. Returns the descriptor for an answer."""
    # Some agents close streams. They are opened first, so that no file takes their place.
    while (nowhere := os.open(os.devnull, os.O_RDWR)) < 3:
        pass
    stdout = os.dup(1)
    for stream in (1, 2):
        os.dup2(nowhere, stream)
    return stdout


def _seconds_left() -> float:
    return _ends_at - time.monotonic()


def end_at_last(agent: str, seconds: int = 0) -> None:
    """End this process after `seconds`, whatever it does."""
    global _ends_at
    seconds = seconds or _MOST_SECONDS
    _ends_at = time.monotonic() + seconds
    if sys.platform != "win32":
        try:
            import _signal as signal  # type: ignore[import-not-found] # `signal` first makes enums of the numbers
        except ImportError:
            import signal
        signal.signal(signal.SIGALRM, lambda *_: _end_process(agent))
        signal.alarm(seconds)
    else:
        import threading

        timer = threading.Timer(seconds, _end_process, [agent])
        timer.daemon = True
        timer.start()


def _end_process(agent: str) -> None:
    """Log that the hook timed out, for the status, and end the process."""
    try:
        from shadowsnap.hook.session import log_event

        log_event(agent, None, "failed", TimeoutError(f"the hook had not ended after {_MOST_SECONDS} s"))
    finally:
        os._exit(0)
