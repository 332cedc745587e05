"""What the soak test compares with, and its network: a fault that they do not notice would never be noticed."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from soak.comparison import Impossible, as_of, folded, oracle_difference
from soak.link import Link, link_to
from support.truth import SourceColumn, SourceTable, arrow_table, row_images

_COLUMNS = (SourceColumn("id", "integer"), SourceColumn("v", "text"))
_BEFORE = pa.struct([("id", pa.int32()), ("v", pa.string())])


def _table(*rows: tuple[str, str | None], key: tuple[str, ...] = ("id",)) -> SourceTable:
    return SourceTable("s", "t", _COLUMNS, [list(row) for row in rows], key)


def _log(*changes: tuple[int, str, int | None, str | None, dict[str, Any] | None, list[str]]) -> pa.Table:
    lsns, ops, ids, texts, before, unchanged = map(list, zip(*changes, strict=True))
    columns = {
        "id": pa.array(ids, pa.int32()),
        "v": pa.array(texts, pa.string()),
        "__op": ops,
        "__commit_lsn": lsns,
        "__ordinal": list(range(len(ops))),
        "__before": pa.array(before, _BEFORE),
        "__unchanged": pa.array(unchanged, pa.list_(pa.string())),
        "_rescued_data": pa.array([None] * len(ops), pa.string()),
    }
    return pa.table(columns)


_CHANGES = (
    (1, "c", 1, "a", None, []),
    (1, "c", 2, "b", None, []),
    (2, "u", 3, None, {"id": 1, "v": None}, ["v"]),
    (3, "d", 2, None, {"id": 2, "v": None}, []),
)


def _images(table: SourceTable) -> list[Any]:
    return sorted(row_images(table, arrow_table(table)), key=repr)


@pytest.mark.parametrize(
    ("lsn", "rows"),
    [(1, [("1", "a"), ("2", "b")]), (2, [("2", "b"), ("3", "a")]), (3, [("3", "a")]), (9, [("3", "a")])],
)
def test_a_change_log_is_played_up_to_an_lsn(lsn: int, rows: list[tuple[str, str]]) -> None:
    table = _table(*rows)
    assert sorted(folded(table, None, _log(*_CHANGES), lsn), key=repr) == _images(table)


@pytest.mark.parametrize("lost", range(len(_CHANGES)))
def test_a_change_that_is_lost_is_noticed(lost: int) -> None:
    left = [change for number, change in enumerate(_CHANGES) if number != lost]
    try:
        rows = folded(_table(), None, _log(*left), 9)
    except Impossible:  # a row is changed that is not there
        return
    assert sorted(rows, key=repr) != _images(_table(("3", "a")))


def test_rows_without_a_key_are_counted() -> None:
    table = _table(("1", "a"), ("1", "a"), key=())
    first = _table(("1", "a"), ("1", "b"), key=())
    log = _log((1, "c", 1, "a", None, []), (2, "d", 1, "b", {"id": 1, "v": "b"}, []))
    assert folded(table, first, log, 2) == _images(table)
    with pytest.raises(Impossible):
        folded(table, _table(key=()), log, 2)


def test_a_history_is_read_as_of_an_lsn() -> None:
    versions = pa.table({"id": [1, 2, 3], "__start_lsn": [1, 2, 3], "__end_lsn": pa.array([3, None, None], pa.int64())})
    assert [as_of(versions, lsn)["id"].to_pylist() for lsn in (1, 2, 3)] == [[1], [1, 2], [2, 3]]


def test_rows_that_a_subscriber_lacks_or_has_alone_are_named() -> None:
    assert not [*oracle_difference(_table(("1", "a")), _table(("1", "a")))]
    (text,) = oracle_difference(_table(("1", "a"), ("2", None)), _table(("1", "A"), ("2", None)))
    assert "lacks 1 rows and has 1 others" in text


class _Echo:
    """Something that answers what it is sent."""

    port, database = "5432", "postgres"

    def __init__(self, home: Path) -> None:
        self.home, self.listener = home, socket.socket(socket.AF_UNIX)
        self.listener.bind(str(home / ".s.PGSQL.5432"))
        self.listener.listen()
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                end, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self._answer, args=[end], daemon=True).start()

    def _answer(self, end: socket.socket) -> None:
        with end:
            while data := end.recv(100):
                end.sendall(data)


@pytest.fixture
def link(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Link]:
    echo = _Echo(tmp_path_factory.mktemp("e"))
    with link_to(echo) as made:  # type: ignore[arg-type]
        yield made
    echo.listener.close()


def _connected(link: Link) -> socket.socket:
    end = socket.socket(socket.AF_UNIX)
    end.settimeout(10)
    end.connect(str(link.home / ".s.PGSQL.5432"))
    return end


def test_a_link_is_silent_and_goes_on(link: Link) -> None:
    with _connected(link) as end:
        end.sendall(b"a")
        assert end.recv(9) == b"a"
        link.silence()
        end.sendall(b"b")
        end.settimeout(0.1)
        with pytest.raises(TimeoutError):
            end.recv(9)
        link.restore()
        end.settimeout(10)
        assert end.recv(9) == b"b"


def test_a_link_that_is_cut_ends_connections_and_takes_none(link: Link) -> None:
    with _connected(link) as end:
        end.sendall(b"a")
        assert end.recv(9) == b"a"
        link.cut()
        assert end.recv(9) == b""
    with _connected(link) as end:
        assert end.recv(9) == b""
    link.restore()
    with _connected(link) as end:
        end.sendall(b"c")
        assert end.recv(9) == b"c"
