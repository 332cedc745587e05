"""What a recorder sees of a server that it cannot connect to, by a socket that answers as such a server does."""

from __future__ import annotations

import multiprocessing
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from struct import pack

import pytest

from walreplay.recording.server import is_starting


@contextmanager
def _answering(sqlstate: str) -> Iterator[int]:
    """Answer each connection with an error; yield the port."""
    fields = b"".join(tag + text + b"\0" for tag, text in ((b"S", b"FATAL"), (b"C", sqlstate.encode()), (b"M", b"no")))
    answer = b"E" + pack(">I", len(fields) + 5) + fields + b"\0"
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer_each() -> None:
            while True:
                connection, _ = server.accept()
                with connection:
                    connection.recv(1024)  # the packet that begins a session
                    connection.sendall(answer)

        # No thread: libpq's functions that wait let none run.
        process = multiprocessing.get_context("fork").Process(target=answer_each)
        process.start()
        try:
            yield server.getsockname()[1]
        finally:
            process.kill()
            process.join()


@pytest.mark.parametrize(
    ("sqlstate", "starting"),
    [("57P03", True), ("28P01", False), ("3D000", False)],
    ids=["it starts", "another password", "no such database"],
)
def test_only_a_server_that_takes_no_connections_yet_is_waited_for(sqlstate: str, starting: bool) -> None:
    with _answering(sqlstate) as port:
        assert is_starting(f"host=127.0.0.1 port={port} dbname=shop sslmode=disable gssencmode=disable") is starting


def test_an_address_at_which_there_is_no_server_is_not_waited_for() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    assert not is_starting(f"host=127.0.0.1 port={port} dbname=shop")
