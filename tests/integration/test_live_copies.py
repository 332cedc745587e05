"""COPY of a slot's changes from a real server, whatever columns it gives, is read the same."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.extent import further
from support.postgres import running_server, server_versions
from walreplay import read_changes
from walreplay.archive.messages import inspect_captures

pytestmark = [pytest.mark.live, pytest.mark.full]

_CHANGES = """
SELECT {columns} FROM pg_logical_slot_peek_binary_changes('copies', NULL, NULL,
    'proto_version', '1', 'publication_names', 'everything')
"""


@pytest.mark.parametrize("version", further(server_versions(), but=server_versions()[-1:]))
def test_a_copy_of_fewer_columns_gives_the_same_changes(tmp_path: Path, version: int) -> None:
    with running_server(version) as server:
        server.execute(
            "CREATE TABLE t (id int PRIMARY KEY, note text)",
            "CREATE PUBLICATION everything FOR ALL TABLES",
            "SELECT pg_create_logical_replication_slot('copies', 'pgoutput')",
            "INSERT INTO t SELECT n, repeat('x', n) FROM generate_series(1, 200) n",
            "UPDATE t SET note = NULL WHERE id % 3 = 0",
            "DELETE FROM t WHERE id % 5 = 0",
        )
        with server.connect() as connection:
            for columns in ("lsn, xid, data", "lsn, data", "data"):
                query = f"COPY ({_CHANGES.format(columns=columns)}) TO STDOUT (FORMAT binary)"
                with connection.cursor() as cursor, cursor.copy(query) as copy:
                    (tmp_path / columns).write_bytes(b"".join(bytes(part) for part in copy))
    found = []
    for columns in ("lsn, xid, data", "lsn, data", "data"):
        inspection = inspect_captures(tmp_path / columns)
        assert {file.framing for file in inspection.files} == {"pgcopy"}
        assert inspection.changes == 200 + 66 + 40
        found.append([batch.data.to_pylist() for batch in read_changes(tmp_path / columns)])
    assert found[0] == found[1] == found[2]
