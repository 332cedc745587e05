"""What decoding tasks stage beside rows: whole transactions, parts of such that lie in several files, names in use."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import reduce
from operator import xor
from typing import Any

import pytest

from support import runs
from support.framings import frame
from support.runs import cut, plan_run
from walreplay.config import Settings
from walreplay.protocol import messages as m
from walreplay.protocol.framing import Framing
from walreplay.spark.workers.rows import PARTS_TABLE, TRANSACTION, TRANSACTIONS_TABLE, USES_TABLE, unpack_batches
from walreplay.table.versions import Catalogue
from walreplay.task_settings import Origins, TaskSettings

RELATION = m.Relation(9, "s", "t", "d", (m.Column("id", 23, -1, True),))
LAST = 5


def transaction(number: int) -> list[m.AnyMessage]:
    lsn, time = 100 * number, 7 * number
    inserts = [m.Insert(9, m.TupleData((m.Cell("t", b"%d" % (10 * number + row)),))) for row in range(number)]
    origin = [m.Origin(5, "elsewhere")] if number == 2 else []
    relation = [RELATION] if number == 1 else []
    return [m.Begin(lsn, time, number), *origin, *relation, *inserts, m.Commit(0, lsn, lsn + 8, time)]


DATA = [frame(transaction(number), Framing.RAW) for number in range(1, LAST + 1)]
MIDDLE = sum(map(len, DATA[:3])) + len(DATA[3]) // 2
"""Within the fourth transaction."""


def staged(*places: int) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return the rows of whole transactions and of parts, of all files."""
    files = cut(b"".join(DATA), places)
    planned = plan_run(files, None)
    assert planned is not None
    rows = runs.staged(planned.plan, files, {}, settings=TaskSettings(Origins(include=("elsewhere",))))
    found = []
    for table in (TRANSACTIONS_TABLE, PARTS_TABLE):
        of_table = [row.select(["data"]) for row in rows if row.column("table")[0].as_py() == table]
        found.append([item for batch in unpack_batches(of_table) for item in batch.to_pylist()])
    return found[0], found[1]


def test_transactions_of_one_file_are_whole() -> None:
    whole, parts = staged()
    assert parts == []
    assert [list(item) for item in whole] == [TRANSACTION.names] * LAST
    assert [(item["commit_lsn"], item["xid"], item["changes"]) for item in whole] == [
        (100 * number, number, number) for number in range(1, LAST + 1)
    ]
    assert [item["origin"] for item in whole] == [None, "elsewhere", None, None, None]
    assert [item["applied"] for item in whole] == [False, True, False, False, False]
    starts = [sum(map(len, DATA[:number])) for number in range(LAST)]
    assert [(item["path"], item["offset"]) for item in whole] == [("part0000", start) for start in starts]


@pytest.mark.parametrize("places", [(MIDDLE,), (MIDDLE, MIDDLE + 12)])
def test_a_transaction_that_lies_in_several_files_comes_in_parts(places: tuple[int, ...]) -> None:
    whole, parts = staged(*places)
    expected, _ = staged()
    assert [item["xid"] for item in whole] == [1, 2, 3, 5]
    assert {item["xid"] for item in parts} == {4}
    assert sum(item["changes"] for item in parts) == 4
    assert reduce(xor, (item["digest"] for item in parts)) == expected[3]["digest"]
    # One of them has its Begin.
    assert [(item["path"], item["offset"]) for item in parts if item["offset"] >= 0] == [
        ("part0000", expected[3]["offset"])
    ]


@pytest.mark.parametrize("inside", [1, 9, 20])
def test_a_transaction_whose_begin_lies_in_two_files_stands_where_it_begins(inside: int) -> None:
    start = sum(map(len, DATA[:3]))
    whole, parts = staged(start + inside)
    assert {item["xid"] for item in parts} == {4}
    assert [(item["path"], item["offset"]) for item in parts if item["offset"] >= 0] == [("part0000", start)]
    (last,) = (item for item in whole if item["xid"] == LAST)
    assert (last["path"], last["offset"]) == ("part0001", len(DATA[3]) - inside)


def uses(*files: list[m.AnyMessage], **options: Any) -> list[tuple[str, int | None]]:
    """Return the names that are used, each with the commit LSN of its last rows, unit by unit."""
    data = {f"part{number}": frame(messages, Framing.RAW) for number, messages in enumerate(files)}
    planned = plan_run(data, None)
    assert planned is not None
    assigned = Catalogue.of(planned.plan, Settings(), ()).assignments
    names = {to.number: relation.name for relation, to in assigned.items()}
    rows = [row for batch in runs.staged(planned.plan, data, assigned, **options) for row in batch.to_pylist()]
    told = sorted(json.loads(row["info"]) for row in rows if row["table"] == USES_TABLE)
    return [(names[number], lsn) for _, _, *used in told for number, lsn in used]


def rows_of(name: str, lsn: int, *changes: m.AnyMessage) -> list[m.AnyMessage]:
    named = replace(RELATION, name=name)
    return [m.Begin(lsn, lsn, lsn), *([named] if name else []), *changes, m.Commit(0, lsn, lsn + 8, lsn)]


INSERT = m.Insert(9, m.TupleData((m.Cell("t", b"1"),)))
DELETE = m.Delete(9, key=m.TupleData((m.Cell("t", b"1"),)))


def test_a_name_is_used_up_to_its_last_rows_also_where_they_are_left_out() -> None:
    renamed = [*rows_of("t", 100, INSERT), *rows_of("t", 110, INSERT), *rows_of("u", 120, INSERT)]
    assert uses(renamed) == [("t", 110), ("u", 120)]
    deleted = [*rows_of("t", 100, INSERT), *rows_of("t", 110, DELETE)]
    assert uses(deleted, settings=TaskSettings(skipped=frozenset("d"))) == [("t", 110)]
    truncated = [*renamed, *rows_of("u", 130, m.Truncate((9,), 0)), *rows_of("u", 140, INSERT)]
    assert uses(truncated, truncates={9: (130, 0)}) == [("t", 110), ("u", 140)]
    assert uses(truncated[:-4], truncates={9: (130, 0)}) == [("t", 110), ("u", 130)]


def test_what_a_deferred_transaction_announces_ends_no_use_of_the_one_around_it() -> None:
    first = rows_of("t", 100, INSERT)
    streamed = [m.StreamStart(50, True), replace(RELATION, xid=50), replace(INSERT, xid=50), m.StreamStop()]
    assert uses(first, [*first, *streamed, *rows_of("", 200, INSERT)]) == [("t", 100), ("t", 200)]
