"""The network between a server and those who read its changes: it can be cut, and it can be silent."""

from __future__ import annotations

import shutil
import socket
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from support.postgres import Server

_SOCKET = ".s.PGSQL.5432"


class Link:
    """A folder with a socket, behind which a server is reached; whose it is may change (a failover).

    Attributes:
        home: the folder, a host for libpq.
    """

    def __init__(self, server: Server, home: Path) -> None:
        self.home, self._server = home, server
        self._is_cut, self._passes = False, threading.Event()
        self._passes.set()
        self._ends = set[socket.socket]()
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(home / _SOCKET))
        (home / _SOCKET).chmod(0o777)  # the subscriber is of another account
        self._listener.listen(50)
        threading.Thread(target=self._accept, daemon=True).start()

    def dsn(self, **more: str) -> str:
        given = {"host": str(self.home), "port": "5432", "user": "postgres", "dbname": self._server.database, **more}
        return " ".join(f"{name}={value}" for name, value in given.items())

    def cut(self) -> None:
        """End all connections, and let none come to be."""
        self._is_cut = True
        for end in list(self._ends):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def silence(self) -> None:
        """Pass nothing on, in either direction; nobody is told."""
        self._passes.clear()

    def restore(self) -> None:
        self._is_cut = False
        self._passes.set()

    def close(self) -> None:
        self._passes.set()
        self.cut()
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                reader, _ = self._listener.accept()
            except OSError:
                return
            server = socket.socket(socket.AF_UNIX)
            try:
                if self._is_cut:
                    raise ConnectionError
                server.connect(str(self._server.home / f".s.PGSQL.{self._server.port}"))
            except OSError:
                server.close()
                reader.close()
                continue
            self._ends |= {reader, server}
            for source, into in ((reader, server), (server, reader)):
                threading.Thread(target=self._pass_on, args=(source, into), daemon=True).start()

    def _pass_on(self, source: socket.socket, into: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(1 << 16):
                self._passes.wait()
                into.sendall(data)
        for end in (source, into):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
        self._ends.discard(source)
        source.close()


@contextmanager
def link_to(server: Server) -> Iterator[Link]:
    """Have a link until the block ends."""
    home = Path(tempfile.mkdtemp(prefix="pg"))
    home.chmod(0o755)
    link = Link(server, home)
    try:
        yield link
    finally:
        link.close()
        shutil.rmtree(home, ignore_errors=True)
