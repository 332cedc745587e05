"""A proxy in front of an object store: it does what it is asked and answers an error, refuses, is late, cuts off, lies.

Which of these comes next is drawn from a seed, for each request anew.
"""

from __future__ import annotations

import http.client
import random
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit

_HOP: frozenset[str] = frozenset({"connection", "transfer-encoding", "keep-alive", "content-length"})
_ERROR = b"<Error><Code>InternalError</Code><Message>InternalError</Message></Error>"


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing of clients that have gone."""


class FaultyStore:
    """A proxy that is running.

    Attributes:
        endpoint: its address, ``127.0.0.1:port``.
        share: of so many requests one meets a fault; 0 for none.
        is_away: every request is refused.
        lies: every PUT is answered as if it had been done, and is not.
        faults: how often each kind has come.
    """

    def __init__(self, store: str, seed: int, share: int) -> None:
        self.share, self.is_away, self.lies = share, False, False
        self.faults = Counter[str]()
        self._store, self._chance, self._lock = urlsplit(store).netloc, random.Random(seed), threading.Lock()
        self.server = _Server(("127.0.0.1", 0), _handler(self))
        self.endpoint = f"127.0.0.1:{self.server.server_address[1]}"

    def drawn(self, method: str) -> str | None:
        """Draw what happens to a request."""
        with self._lock:
            fault = None
            if self.is_away:
                fault = "refused"
            elif self.lies and method == "PUT":
                fault = "lied"
            elif self.share and self._chance.randrange(self.share) == 0:
                fault = self._chance.choice(("done and failed", "refused", "late", "cut off", "done and cut off"))
            if fault:
                self.faults[fault] += 1
            return fault

    def forward(self, method: str, path: str, body: bytes, headers: Any) -> tuple[int, list[tuple[str, str]], bytes]:
        """Have the store answer."""
        connection = http.client.HTTPConnection(self._store, timeout=60)
        try:
            passed = {name: value for name, value in headers.items() if name.lower() not in {*_HOP, "expect"}}
            connection.request(method, path, body, passed)
            answer = connection.getresponse()
            return answer.status, answer.getheaders(), answer.read()
        finally:
            connection.close()


def _handler(proxy: FaultyStore) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _serve(self) -> None:
            body = self._body()
            fault = proxy.drawn(self.command)
            if fault == "late":
                time.sleep(1.5)
            if fault == "cut off":
                self.close_connection = True
                return
            if fault == "refused":
                self._answer(503, [], _ERROR)
                return
            if fault == "lied":
                self._answer(200, [("ETag", '"0"')], b"")
                return
            try:
                status, headers, content = proxy.forward(self.command, self.path, body, self.headers)
            except OSError:  # the store itself is away
                self.close_connection = True
                return
            if fault == "done and cut off":
                self.close_connection = True
            elif fault == "done and failed":
                self._answer(500, [], _ERROR)
            else:
                self._answer(status, headers, content)

        do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = _serve  # noqa: N815 - the names that http.server asks for

        def _body(self) -> bytes:
            if self.headers.get("Expect") == "100-continue":
                self.send_response_only(100)
                self.end_headers()
            if self.headers.get("Transfer-Encoding") != "chunked":
                return self.rfile.read(int(self.headers.get("Content-Length") or 0))
            parts = []
            while size := int(self.rfile.readline().split(b";")[0], 16):
                parts.append(self.rfile.read(size))
                self.rfile.readline()
            self.rfile.readline()
            return b"".join(parts)

        def _answer(self, status: int, headers: list[tuple[str, str]], content: bytes) -> None:
            with suppress(OSError):
                self.send_response_only(status)
                length = next((value for name, value in headers if name.lower() == "content-length"), None)
                for name, value in headers:
                    if name.lower() not in _HOP:
                        self.send_header(name, value)
                is_head = self.command == "HEAD"
                self.send_header("Content-Length", length if is_head and length else str(len(content)))
                self.end_headers()
                if not is_head:
                    self.wfile.write(content)

        def handle_expect_100(self) -> bool:
            return True  # `_body` answers

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    return Handler


@contextmanager
def faulty_store(store: str, seed: int, *, share: int = 5) -> Iterator[FaultyStore]:
    """Serve a proxy in front of a store."""
    proxy = FaultyStore(store, seed, share)
    thread = threading.Thread(target=proxy.server.serve_forever, daemon=True)
    thread.start()
    try:
        yield proxy
    finally:
        proxy.server.shutdown()
        proxy.server.server_close()
