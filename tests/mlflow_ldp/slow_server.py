"""Servers on loopback that take their time."""

from __future__ import annotations

import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@contextmanager
def slow_server(
    seconds: float = 3600.0, behind: str | None = None, drip: bool = False
) -> Iterator[str]:
    """URL of a server that accepts at once and answers late.

    Args:
        seconds: until the answer; an hour stands for never.
        behind: server that gives the answer; None: none is ever given.
        drip: send headers at once and then a byte now and then, so that no read times out.
    """
    over = threading.Event()

    class Handler(BaseHTTPRequestHandler):
        def _answer(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            if drip:
                self.send_response(200)
                self.send_header("Content-Length", "1000000")
                self.end_headers()
                while not over.wait(0.2):
                    self.wfile.write(b" ")
                return
            if over.wait(seconds) or behind is None:
                return
            request = urllib.request.Request(
                behind + self.path, body or None, method=self.command,
                headers={"Content-Type": self.headers.get("Content-Type", "application/json")},
            )  # fmt: skip
            try:
                with urllib.request.urlopen(request, timeout=60) as found:
                    status, content = found.status, found.read()
            except urllib.error.HTTPError as error:
                status, content = error.code, error.read()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        do_GET = do_POST = do_PUT = do_PATCH = _answer

        def log_message(self, *_: object) -> None:
            pass

    class Server(ThreadingHTTPServer):
        def handle_error(self, *_: object) -> None:
            """Clients that went away are what is tested."""

    server = Server(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        over.set()
        server.shutdown()
        server.server_close()
        time.sleep(0)
