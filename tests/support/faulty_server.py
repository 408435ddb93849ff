"""A server that fails in the way that is asked for."""

from __future__ import annotations

import http.client
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit


class Faulty:
    """A server between the client and a real one, which fails in the way that is asked for."""

    def __init__(self, target: str) -> None:
        self.how = "pass"
        self.requests: list[str] = []
        self._target = urlsplit(target)
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                outer.answer(self)

            do_PUT = do_POST = do_HEAD = do_DELETE = do_GET

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def answer(self, request: BaseHTTPRequestHandler) -> None:
        self.requests.append(f"{request.command} {request.path}")
        body = request.rfile.read(int(request.headers.get("Content-Length") or 0))
        if self.how == "hang":
            time.sleep(30)
            return
        if self.how == "full" and request.command in ("PUT", "POST"):
            request.send_response(507)
            request.send_header("Content-Length", "0")
            request.end_headers()
            return
        headers = dict(request.headers.items())
        if self.how == "careless":  # it lies: it takes conditions and does not heed them
            headers = {name: value for name, value in headers.items() if name.lower() != "if-none-match"}
        back = http.client.HTTPConnection(str(self._target.hostname), self._target.port, timeout=60)
        back.request(request.command, request.path, body, headers)
        answer = back.getresponse()
        data = answer.read()
        back.close()
        request.send_response(answer.status)
        for name, value in answer.getheaders():
            if name.lower() not in ("transfer-encoding", "content-length", "connection"):
                request.send_header(name, value)
        length = answer.headers["Content-Length"] if request.command == "HEAD" else len(data)
        request.send_header("Content-Length", str(length))
        request.end_headers()
        cut = self.how == "cut" and request.command in ("GET", "POST") and len(data) > 100
        if request.command != "HEAD":
            request.wfile.write(data[: len(data) // 2] if cut else data)
        request.close_connection = request.close_connection or cut

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
