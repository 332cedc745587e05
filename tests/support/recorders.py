"""What writes capture files: pg_recvlogical, a walsender's client of our own, and COPY of a slot's changes.

A recorder writes one session after the other, into one file or several, and notes where each began.
"""

from __future__ import annotations

import os
import random
import select
import signal
import struct
import subprocess
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import psycopg
from psycopg import pq

from support.postgres import Server
from support.waiting import wait_until
from walreplay.errors import TruncatedMessage
from walreplay.lsn import format_lsn, parse_lsn
from walreplay.protocol import messages as m
from walreplay.protocol.framing import KEEPALIVE, XLOGDATA, Framing
from walreplay.protocol.reader import read_stream

SLOT: Final = "recorder"
_PATIENCE: Final = 60.0
_STATUS: Final = struct.Struct("!cQQQqB")  # 'r', written, flushed and applied LSN, time, reply requested


class DecodingFailed(Exception):
    """The server could not decode its own WAL, which servers of these versions cannot now and then.

    Seen: ``could not map filenumber … to relation OID``, of a transaction that truncates.
    """


class Recorder(ABC):
    """A slot and the files that hold what it has sent.

    Attributes:
        files: the finished ones, in their order.
        starts: of each session the number of its file, and its place there.
    """

    framing = Framing.RECVLOGICAL

    def __init__(self, server: Server, folder: Path, options: Mapping[str, str]) -> None:
        self.server = server
        self.options = options
        self.files: list[Path] = []
        self.starts: list[tuple[int, int]] = []
        self._folder = folder
        self._growing = folder / "growing"
        server.make_slot(SLOT, options)

    @abstractmethod
    def begin(self) -> None:
        """Begin a session behind what the files hold."""

    @abstractmethod
    def lose(self) -> None:
        """End the session at once, wherever it is."""

    @abstractmethod
    def stop(self) -> None:
        """End the session as a user does, with what has come so far confirmed."""

    @abstractmethod
    def complete(self, lsn: int) -> None:
        """Record everything before an LSN and end."""

    @abstractmethod
    def close(self) -> None:
        """End what still runs, as after a failure."""

    def lose_server(self, restart: Callable[[], None], *, new_file: bool) -> None:
        """Let the server break the connection and begin another session."""
        restart()
        self.lose()
        if new_file:
            self.next_file()
        self.begin()

    def next_file(self) -> None:
        """Let what comes next go into a new file."""
        if self._size():
            self.files.append(self._growing.rename(self._folder / f"part{len(self.files) + 1:03}.bin"))

    def tear(self, chance: random.Random) -> None:
        """Cut off a part of the end that the server was not told of, as a machine that crashes does."""
        if not self._size():
            return
        number, at = self.starts[-1]
        before = b""
        if number < len(self.files):
            before, at = b"".join(file.read_bytes() for file in self.files[number:])[at:], 0
        tail = self._growing.read_bytes()[at:]
        safe = max(0, _confirmed(before + tail, self.framing, self.confirmed()) - len(before))
        os.truncate(self._growing, at + safe + chance.randrange(len(tail) - safe + 1))

    def confirmed(self) -> int:
        """Return the LSN from which the server will go on, once it knows that the session is over."""
        self._wait_until_idle()
        query = "SELECT confirmed_flush_lsn::text FROM pg_replication_slots WHERE slot_name = %s"
        return parse_lsn(self.server.value(query, SLOT))

    def wait_until_sent(self) -> None:
        """Wait until the server has sent what it has to send by now."""
        self.flush()
        query = "SELECT coalesce(bool_and(sent_lsn >= %s::pg_lsn), false) FROM pg_stat_replication"
        lsn = format_lsn(self.server.lsn())
        self.flush()
        wait_until(lambda: self.server.value(query, lsn) or self._ended(), f"{lsn} to be sent")
        time.sleep(0.1)  # until it is in the file

    def flush(self) -> None:
        """Make the server write its WAL, which decoding waits for."""
        self.server.execute("SELECT pg_logical_emit_message(true, 'flush', '')")

    def session_starts(self) -> list[int]:
        """Return where each session begins in the joined files."""
        sizes = [file.stat().st_size for file in self.files]
        return [sum(sizes[:number]) + at for number, at in self.starts]

    def sessions(self) -> list[list[str]]:
        """Name the files of each session; one that begins inside a file has that of the one before."""
        sessions: list[list[str]] = []
        heads = {number for number, at in self.starts if at == 0}
        for number, file in enumerate(self.files):
            if number in heads or not sessions:
                sessions.append([])
            sessions[-1].append(file.name)
        return sessions

    def _ended(self) -> bool:
        """Return whether the session has ended by itself."""
        return False

    def _size(self) -> int:
        return self._growing.stat().st_size if self._growing.exists() else 0

    def _mark(self) -> None:
        self.starts.append((len(self.files), self._size()))

    def _wait_until_idle(self) -> None:
        query = "SELECT NOT active FROM pg_replication_slots WHERE slot_name = %s"
        wait_until(lambda: self.server.value(query, SLOT), "the end of the session")


class PgRecvlogical(Recorder):
    """Record by pg_recvlogical.

    Args:
        confirms_every: seconds; what was received since is sent again after a loss.
        reconnects: it begins a new session by itself when the server breaks the connection.
    """

    def __init__(
        self, server: Server, folder: Path, options: Mapping[str, str], *, confirms_every: int, reconnects: bool
    ) -> None:
        super().__init__(server, folder, options)
        self._interval = confirms_every
        self._reconnects = reconnects
        self._errors = server.home / "recorder.stderr"
        self._process: subprocess.Popen[bytes] | None = None
        self._known_losses = 0

    def begin(self) -> None:
        self._begin(*([] if self._reconnects else ["--no-loop"]))

    def _begin(self, *arguments: str) -> None:
        self._wait_until_idle()
        self._mark()
        intervals = ("--status-interval", str(self._interval), "--fsync-interval", str(self._interval))
        self._process = self.server.receive(
            self._growing, SLOT, self.options, *intervals, *arguments, errors=self._errors
        )

    def lose(self) -> None:
        self._signal(signal.SIGKILL)

    def stop(self) -> None:
        self._signal(signal.SIGINT)

    def _check(self) -> None:
        """Make sure that no session has ended which was not meant to."""
        said = self._errors.read_text()
        if "ERROR:" in said or self._losses() != self._known_losses:
            raise DecodingFailed(said)

    def _signal(self, number: int) -> None:
        assert self._process is not None
        self._check()
        self._process.send_signal(number)
        self._process.wait(_PATIENCE)

    def lose_server(self, restart: Callable[[], None], *, new_file: bool) -> None:
        if not self._reconnects:
            super().lose_server(restart, new_file=new_file)
            return
        self._check()
        self._known_losses += 1
        restart()
        wait_until(lambda: self._losses() >= self._known_losses, "pg_recvlogical to notice")
        # It waits for five seconds, so the file is as the last session left it.
        self._mark()
        query = "SELECT active FROM pg_replication_slots WHERE slot_name = %s"
        wait_until(lambda: self.server.value(query, SLOT), "pg_recvlogical to reconnect")

    def rotate(self) -> None:
        """Go on with the same session in a new file, as logrotate makes it do."""
        assert self._process is not None
        self.next_file()
        self._process.send_signal(signal.SIGHUP)

    def complete(self, lsn: int) -> None:
        assert self._process is not None
        if self._interval == 1:
            query = "SELECT confirmed_flush_lsn >= %s::pg_lsn FROM pg_replication_slots WHERE slot_name = %s"
            wait_until(lambda: self.server.value(query, format_lsn(lsn), SLOT) or self._ended(), "the end")
            self.stop()
        else:
            self.stop()
            self._begin("--no-loop", "--endpos", format_lsn(lsn))
            code = self._process.wait(_PATIENCE)
            self._check()
            assert code == 0, self._errors.read_text()
        self.next_file()

    def close(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait(_PATIENCE)

    def _ended(self) -> bool:
        return self._process is not None and self._process.poll() is not None

    def _losses(self) -> int:
        return self._errors.read_text().count("disconnected; waiting")


class Walsender(Recorder):
    """Record as a client of our own, in any framing that a stream can have."""

    def __init__(
        self, server: Server, folder: Path, options: Mapping[str, str], *, confirms_every: float, framing: Framing
    ) -> None:
        super().__init__(server, folder, options)
        self.framing = framing
        self._interval = confirms_every
        self._ending = threading.Event()
        self._thread: threading.Thread | None = None
        self._position = 0
        self._failure = ""

    def begin(self) -> None:
        self._wait_until_idle()
        self._mark()
        options = ", ".join(f"\"{name}\" '{value}'" for name, value in self.options.items())
        target = f"host={self.server.home} user=postgres dbname=postgres replication=database client_encoding=utf8"
        connection = pq.PGconn.connect(target.encode())
        result = connection.exec_(f"START_REPLICATION SLOT {SLOT} LOGICAL 0/0 ({options})".encode())
        assert result.status == pq.ExecStatus.COPY_BOTH, connection.error_message
        self._position, self._failure = 0, ""
        self._ending.clear()
        self._thread = threading.Thread(target=self._receive, args=(connection,))
        self._thread.start()

    def lose(self) -> None:
        assert self._thread is not None
        self.close()
        if "could not map" in self._failure:
            raise DecodingFailed(self._failure)

    def stop(self) -> None:
        interval, self._interval = self._interval, 0
        time.sleep(0.2)
        self.lose()
        self._interval = interval

    def complete(self, lsn: int) -> None:
        wait_until(lambda: self._position >= lsn or self._ended(), "the end")
        self.lose()
        self.next_file()

    def close(self) -> None:
        self._ending.set()
        if self._thread is not None:
            self._thread.join()

    def _ended(self) -> bool:
        return bool(self._failure)

    def _receive(self, connection: pq.abc.PGconn) -> None:
        last, told, asked = time.monotonic(), 0, False
        with self._growing.open("ab") as file:
            while not self._ending.is_set():
                size, data = connection.get_copy_data(1)
                if size < 0:
                    self._failure = connection.get_result().error_message.decode()
                    break
                if size > 0:
                    asked |= self._take(file, bytes(data))
                    continue
                if asked or time.monotonic() - last >= self._interval:
                    file.flush()
                    # A sign of life need not confirm anything.
                    told = told if asked and self._interval else self._position
                    last, asked = time.monotonic(), False
                    connection.put_copy_data(_STATUS.pack(b"r", told, told, told, 0, 0))
                    connection.flush()
                select.select([connection.socket], [], [], 0.02)
                if not _consume(connection):
                    break
        connection.finish()

    def _take(self, file: Any, data: bytes) -> bool:
        """Write a CopyData message; say whether the server wants to hear of us."""
        is_message = data[:1] == b"w"
        if self.framing is Framing.COPYDATA:
            file.write(self.framing.layout.header(len(data)) + data)
        elif is_message:
            file.write(data[XLOGDATA.size :] + self.framing.layout.trailer)
        if is_message:
            self._position = max(self._position, XLOGDATA.unpack_from(data)[1])
            return False
        _, position, _, asked = KEEPALIVE.unpack_from(data)
        self._position = max(self._position, position)
        return bool(asked)


class CopyOut(Recorder):
    """Record by COPY of a slot's changes: each file is a session of its own.

    Args:
        peeks: how often (0 to 1) changes are copied but not consumed, so that they come again.
    """

    framing = Framing.PGCOPY

    def __init__(
        self, server: Server, folder: Path, options: Mapping[str, str], *, chance: random.Random, peeks: float
    ) -> None:
        super().__init__(server, folder, options)
        self._chance = chance
        self._peeks = peeks

    def begin(self) -> None:
        pass

    def lose(self) -> None:
        self._copy("peek" if self._chance.random() < self._peeks else "get")

    def stop(self) -> None:
        self._copy("get")

    def lose_server(self, restart: Callable[[], None], *, new_file: bool) -> None:
        # What was consumed since the last checkpoint comes again.
        self._copy("get")
        restart()

    def complete(self, lsn: int) -> None:
        self._copy("get")

    def close(self) -> None:
        pass

    def wait_until_sent(self) -> None:
        self.flush()

    def tear(self, chance: random.Random) -> None:
        pass

    def _copy(self, how: str) -> None:
        self._mark()
        try:
            self.server.copy_changes(self._growing, SLOT, self.options, how=how)
        except psycopg.Error as error:
            raise DecodingFailed(str(error)) from error
        self.next_file()


def _consume(connection: pq.abc.PGconn) -> bool:
    try:
        connection.consume_input()
    except Exception:
        return False
    return True


def _confirmed(data: bytes, framing: Framing, lsn: int) -> int:
    """Return the place behind the last message that the server will not send again."""
    safe, pending = 0, False
    try:
        for offset, message in read_stream(data, framing=framing):
            if pending:
                safe, pending = offset, False
            end = _end_of(message)
            pending = end is not None and end <= lsn
    except TruncatedMessage:
        return safe
    return len(data) if pending else safe


def _end_of(message: m.AnyMessage) -> int | None:
    if isinstance(message, m.RollbackPrepared):
        return message.rollback_end_lsn
    if isinstance(message, m.Commit | m.StreamCommit | m.Prepare | m.StreamPrepare | m.CommitPrepared):
        return message.end_lsn
    return None
