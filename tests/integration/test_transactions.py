"""Transactions of every kind reach the tables whole and once, and the ledger tells of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from struct import pack
from typing import TYPE_CHECKING, Any

import pytest

import walreplay
from support.captures import Case, case
from support.extent import further
from support.fault_cases import FAULTS
from support.framings import frame, transaction
from support.readers import collect
from support.truth import assert_mirror_equals, mirror_tables
from support.wire import encode
from walreplay.config import Settings
from walreplay.errors import OrderError
from walreplay.protocol import messages as m
from walreplay.protocol.framing import Framing
from walreplay.protocol.reader import read_stream

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.integration

TABLE = m.Relation(9, "public", "t", "d", (m.Column("id", 23, -1, True), m.Column("body", 25, -1, False)))


def row(key: int, body: str = "x") -> m.Insert:
    return m.Insert(9, m.TupleData((m.Cell("t", str(key).encode()), m.Cell("t", body.encode()))))


def write(captures: Path, name: str, messages: Sequence[m.AnyMessage]) -> Path:
    captures.mkdir(exist_ok=True)
    path = captures / name
    path.write_bytes(frame(messages, Framing.RECVLOGICAL))
    return path


def ledger(spark: SparkSession, target: Path, name: str) -> list[Any]:
    return collect(target / "_walreplay" / name)


def keys(spark: SparkSession, target: Path) -> list[int]:
    rows = collect(mirror_tables(target)["public.t"], "id")
    return sorted(found.id for found in rows)


def apply(
    spark: SparkSession, captures: Path, target: Path, config: dict[str, Any] | None = None
) -> walreplay.RunReport:
    return walreplay.apply(spark, captures=str(captures), target=str(target), config=config)


@pytest.mark.full
@pytest.mark.parametrize("name", ["o18", "o19"])
def test_a_run_for_every_few_bytes_gives_the_truth(spark: SparkSession, tmp_path: Path, name: str) -> None:
    recorded = case(name)
    captures, target = tmp_path / "captures", tmp_path / "mirror"
    captures.mkdir()
    (data,) = recorded.streams()
    for number, (start, stop) in enumerate(pairwise(range(0, len(data) + 1, len(data) // 4))):
        end = len(data) if number == 3 else stop
        (captures / f"{number}.bin").write_bytes(data[start:end])
        apply(spark, captures, target)
    assert_mirror_equals(spark, target, recorded)


@pytest.mark.full
def test_sessions_that_come_again_are_applied_once_in_one_run_and_in_many(spark: SparkSession, tmp_path: Path) -> None:
    recorded = case("o26")
    whole, stepwise, captures = tmp_path / "whole", tmp_path / "stepwise", tmp_path / "captures"
    apply(spark, recorded.folder, whole)
    assert_mirror_equals(spark, whole, recorded)
    captures.mkdir()
    for file in recorded.files:
        (captures / file.name).write_bytes(file.read_bytes())
        apply(spark, captures, stepwise)
    assert_mirror_equals(spark, stepwise, recorded)
    for target in (whole, stepwise):
        lsns = [found.commit_lsn for found in ledger(spark, target, "transactions")]
        assert len(lsns) == len(set(lsns)) == recorded.info["transactions_committed"]


def _committed(recorded: Case) -> dict[int, m.Begin]:
    (data,) = recorded.streams()
    return {
        message.final_lsn: message
        for _, message in read_stream(data, framing=recorded.framing)
        if isinstance(message, m.Begin)
    }


def test_the_ledger_has_every_transaction_with_its_origin(spark: SparkSession, tmp_path: Path) -> None:
    recorded, target = case("o21"), tmp_path / "mirror"
    apply(spark, recorded.folder, target)
    found = {item.commit_lsn: item for item in ledger(spark, target, "transactions")}
    assert {lsn: item.xid for lsn, item in found.items()} == {
        lsn: begin.xid for lsn, begin in _committed(recorded).items()
    }
    (data,) = recorded.streams()
    origins = {
        message.name for _, message in read_stream(data, framing=recorded.framing) if isinstance(message, m.Origin)
    }
    assert {item.origin for item in found.values()} - {None} == origins
    assert all(item.applied for item in found.values())


@pytest.mark.parametrize(
    ("origins", "expected"),
    [
        ({"origin_exclude_list": ["node_b"]}, [1, 3]),
        ({"origin_include_list": ["none"]}, [1]),
        ({"origin_include_list": ["node_b"]}, [2]),
    ],
    ids=["without one", "local ones alone", "one alone"],
)
def test_origins_can_be_left_out(
    spark: SparkSession, tmp_path: Path, origins: dict[str, list[str]], expected: list[int]
) -> None:
    captures, target = tmp_path / "captures", tmp_path / "mirror"
    messages = [
        *transaction(100, TABLE, row(1)),
        *transaction(200, m.Origin(199, "node_b"), row(2)),
        *transaction(300, m.Origin(299, "node_c"), row(3)),
    ]
    write(captures, "1.bin", messages)
    apply(spark, captures, target, origins)
    assert keys(spark, target) == expected
    found = {item.commit_lsn: item.applied for item in ledger(spark, target, "transactions")}
    assert [lsn // 100 for lsn, applied in sorted(found.items()) if applied] == expected


def test_logical_messages_hold_when_their_transaction_does(spark: SparkSession, tmp_path: Path) -> None:
    recorded, target = case("o20"), tmp_path / "mirror"
    apply(spark, recorded.folder, target)
    (data,) = recorded.streams()
    sent = [message for _, message in read_stream(data, framing=recorded.framing) if isinstance(message, m.Message)]
    found = ledger(spark, target, "messages")
    assert sorted((item.lsn, item.prefix, bytes(item.content), item.transactional) for item in found) == sorted(
        (message.lsn, message.prefix, message.content, message.transactional) for message in sent
    )
    assert {item.commit_lsn is not None for item in found if item.transactional} == {True}


@pytest.mark.parametrize(
    ("later", "said", "named"),
    [
        (
            {"2.bin": [*transaction(200, TABLE, row(2, "other")), *transaction(300, row(3))]},
            "comes again, but differs",
            ["0/C8", "2.bin"],
        ),
        (
            {"2.bin": [*transaction(150, TABLE, row(5)), *transaction(300, row(3))]},
            "lies below what was read before",
            ["0/96", "2.bin"],
        ),
        (
            {
                "0.bin": [*transaction(50, TABLE, row(1)), *transaction(75, row(7))],
                "2.bin": transaction(300, row(3)),
            },
            "newer files have been read",
            ["0.bin"],
        ),
    ],
    ids=["a transaction that comes again as another", "one below what is applied", "an older file that changed"],
)
def test_what_does_not_follow_is_refused(
    spark: SparkSession, tmp_path: Path, later: Mapping[str, Sequence[m.AnyMessage]], said: str, named: Sequence[str]
) -> None:
    captures, target = tmp_path / "captures", tmp_path / "mirror"
    write(captures, "0.bin", transaction(50, TABLE, row(1)))
    write(captures, "1.bin", transaction(200, row(2, "first")))
    apply(spark, captures, target)
    for name, messages in later.items():
        write(captures, name, messages)
    with pytest.raises(OrderError, match=said) as caught:
        apply(spark, captures, target)
    assert all(text in str(caught.value) for text in named)
    assert keys(spark, target) == [1, 2]


MOMENTS = m.Relation(
    9,
    "public",
    "t",
    "d",
    (m.Column("id", 23, -1, True), m.Column("at", 1184, -1, False), m.Column("spans", 1186, -1, False)),
)


def moment(key: int, at: str, spans: str) -> m.Insert:
    return m.Insert(9, m.TupleData(tuple(m.Cell("t", text.encode()) for text in (str(key), at, spans))))


def moment_in_binary(key: int) -> m.Insert:
    cells = (pack(">i", key), pack(">q", key * 86_400_000_000), pack(">qii", 0, 1, 0))
    return m.Insert(9, m.TupleData(tuple(m.Cell("b", cell) for cell in cells)))


@pytest.mark.parametrize("in_one_run", further([False, True], but=(True,)))
def test_sessions_of_other_settings_send_the_same_transactions(
    spark: SparkSession, tmp_path: Path, in_one_run: bool
) -> None:
    captures, target = tmp_path / "captures", tmp_path / "mirror"
    sessions: list[dict[int, m.Insert]] = [
        {key: moment(key, f"2000-01-0{key + 1} 00:00:00+00", "1 day") for key in (1, 2)},
        {key: moment(key, f"2000-01-0{key + 1} 05:45:00+05:45", "P1D") for key in (1, 2, 3)},
        {key: moment_in_binary(key) for key in (1, 2, 3, 4)},
        {key: moment(key, f"2000-01-0{key} 19:00:00-05", "@ 1 day") for key in (4, 5)},
    ]
    for number, rows in enumerate(sessions):
        sent = [transaction(100 * key, *([] if key > min(rows) else [MOMENTS]), row) for key, row in rows.items()]
        write(captures, f"{number}.bin", [message for one in sent for message in one])
        if not in_one_run:
            assert apply(spark, captures, target).warnings == ()
    if in_one_run:
        assert apply(spark, captures, target).warnings == ()
    rows = collect(mirror_tables(target)["public.t"], "id", "at", "spans")
    assert sorted((one.id, f"{one.at:%F %T}", one.spans) for one in rows) == [
        (key, f"2000-01-0{key + 1} 00:00:00", "1 day") for key in range(1, 6)
    ]
    found = walreplay.audit(spark, str(captures))
    assert (found.problems, found.resent) == ((), 6)


def test_who_separates_what_differs_from_its_first_copy_or_restores_it_goes_on(
    spark: SparkSession, tmp_path: Path
) -> None:
    captures, target = tmp_path / "captures", tmp_path / "mirror"
    write(captures, "1.bin", [*transaction(100, TABLE, row(1)), *transaction(200, row(2))])
    apply(spark, captures, target)
    again = [*transaction(300, row(3)), *transaction(400, row(4))]
    damaged = write(captures, "2.bin", [*transaction(200, TABLE, row(2, "damaged")), *again])
    with pytest.raises(OrderError, match="differs from its first copy") as caught:
        apply(spark, captures, target)
    assert caught.value.remedy is not None
    assert caught.value.remedy.startswith("Restore what is damaged; or move the files of the other slot, or with the")
    # Of other publications, it is the beginning of another target.
    (tmp_path / "others").mkdir()
    moved = damaged.rename(tmp_path / "others" / "2.bin")
    apply(spark, moved.parent, tmp_path / "others mirror")
    assert keys(spark, tmp_path / "others mirror") == [2, 3, 4]
    assert apply(spark, captures, target).files == 0
    write(captures, "2.bin", [*transaction(200, TABLE, row(2)), *again])
    apply(spark, captures, target)
    assert keys(spark, target) == [1, 2, 3, 4]


@pytest.mark.parametrize("in_one_run", further([False, True], but=(True,)))
def test_what_a_server_has_lost_is_told(spark: SparkSession, tmp_path: Path, in_one_run: bool) -> None:
    """A standby that was behind takes its server's place, and goes on with LSNs of its own."""
    captures, target = tmp_path / "captures", tmp_path / "mirror"
    first = [transaction(lsn, *changes) for lsn, *changes in ((100, TABLE, row(1)), (200, row(2)), (300, row(3)))]
    empty = transaction(250)
    write(captures, "1.bin", [*first[0], *first[1], *empty, *first[2]])
    if not in_one_run:
        assert apply(spark, captures, target).warnings == ()
    again = [*transaction(100, TABLE, row(1))]
    write(captures, "2.bin", again)
    write(captures, "3.bin", [*transaction(400, row(4)), *transaction(500, row(5))])
    (told,) = apply(spark, captures, target).warnings
    assert (
        "2.bin, offset 0: what is sent again from here on lacks the transaction 200 (commit LSN 0/C8) and 1 more"
        in told
    )
    assert "walreplay load --replace" in told
    assert keys(spark, target) == [1, 2, 3, 4, 5]
    # What nobody has lost is not told: all comes again, or it goes on where the session before has ended.
    write(captures, "4.bin", [*transaction(400, TABLE, row(4)), *transaction(500, row(5)), *transaction(600, row(6))])
    assert apply(spark, captures, target).warnings == ()


def test_equal_files_of_a_recorder_that_was_killed_twice_are_applied(spark: SparkSession, tmp_path: Path) -> None:
    apply(spark, FAULTS / "equal_files_of_a_reconnect" / "capture", tmp_path / "mirror")
    rows = collect(mirror_tables(tmp_path / "mirror")["shop.g"], "id")
    assert sorted(found.id for found in rows) == [1, 2, 3, 4]


def test_the_same_bytes_twice_in_a_session_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    captures, target = tmp_path / "captures", tmp_path / "mirror"
    write(captures, "1.bin", transaction(100, TABLE, row(1))[:-1])
    for name in ("2.bin", "2.bin (copy)"):
        write(captures, name, [row(2, "x" * 64), row(3)])
    write(captures, "3.bin", transaction(100)[1:])
    with pytest.raises(OrderError, match="the same bytes as") as caught:
        apply(spark, captures, target)
    assert "2.bin (copy)" in str(caught.value)
    assert mirror_tables(target) == {}
    (captures / "2.bin (copy)").unlink()
    apply(spark, captures, target)
    assert keys(spark, target) == [1, 2, 3]


def test_a_gap_in_the_names_is_refused_unless_gaps_are_allowed(spark: SparkSession, tmp_path: Path) -> None:
    captures, target = tmp_path / "captures", tmp_path / "mirror"
    for number in (1, 2, 3, 5):
        announced = [TABLE] if number == 1 else []
        write(captures, f"cap.{number:04}", transaction(100 * number, *announced, row(number)))
    with pytest.raises(OrderError, match="1 file is missing"):
        apply(spark, captures, target)
    assert mirror_tables(target) == {}
    report = apply(spark, captures, target, Settings().allowing_gaps())
    assert keys(spark, target) == [1, 2, 3, 5]
    assert any("missing" in warning for warning in report.warnings)


def test_what_a_missing_file_cuts_off_is_refused_unless_gaps_are_allowed(spark: SparkSession, tmp_path: Path) -> None:
    captures, target = tmp_path / "captures", tmp_path / "mirror"
    data = frame(
        [*transaction(100, TABLE, row(1)), *transaction(200, row(2), row(3)), *transaction(300, row(4))],
        Framing.RECVLOGICAL,
    )
    captures.mkdir()
    cut = data.index(encode(row(3)))
    (captures / "a.bin").write_bytes(data[:cut])
    (captures / "c.bin").write_bytes(data[cut + 9 :])
    with pytest.raises(OrderError):
        apply(spark, captures, target)
    assert mirror_tables(target) == {}
    report = apply(spark, captures, target, Settings().allowing_gaps())
    assert keys(spark, target) == [1, 4]
    assert any("c.bin" in warning for warning in report.warnings)


FULL = m.Relation(9, "public", "t", "f", tuple(m.Column(one.name, one.type_oid, -1, True) for one in TABLE.columns))
KEYED = {"objects": [{"table": {"source_schema": "public", "source_table": "t", "keys": ["id"]}}]}


def test_rows_that_a_gap_has_kept_give_way_in_later_runs_too(spark: SparkSession, tmp_path: Path) -> None:
    captures, target = tmp_path / "captures", tmp_path / "mirror"
    write(captures, "cap.1", transaction(100, FULL, row(1, "old"), row(2)))
    # cap.2 would delete row 1.
    write(captures, "cap.3", transaction(300, row(3)))
    apply(spark, captures, target, Settings.from_mapping(KEYED).allowing_gaps())
    write(captures, "cap.4", transaction(400, row(1, "new")))
    apply(spark, captures, target, KEYED)
    rows = collect(mirror_tables(target)["public.t"], "id", "body")
    assert [(one.id, one.body) for one in rows] == [(1, "new"), (2, "x"), (3, "x")]


@pytest.mark.full
def test_rows_that_a_rebuild_with_a_gap_has_brought_back_give_way_in_later_runs(
    spark: SparkSession, tmp_path: Path
) -> None:
    captures, target = tmp_path / "captures", tmp_path / "mirror"
    write(captures, "a.bin", transaction(100, FULL, row(1, "old"), row(2)))
    write(captures, "b.bin", transaction(200, FULL, m.Delete(9, old=row(1, "old").new)))
    write(captures, "c.bin", transaction(300, FULL, row(3)))
    apply(spark, captures, target, KEYED)
    (captures / "b.bin").unlink()
    walreplay.rebuild(spark, captures, target, ".*", config=Settings.from_mapping(KEYED).allowing_gaps())
    rows = collect(mirror_tables(target)["public.t"], "id", "body")
    assert [(one.id, one.body) for one in rows] == [(1, "old"), (2, "x"), (3, "x")]
    write(captures, "d.bin", transaction(400, row(1, "new")))
    apply(spark, captures, target, KEYED)
    rows = collect(mirror_tables(target)["public.t"], "id", "body")
    assert [(one.id, one.body) for one in rows] == [(1, "new"), (2, "x"), (3, "x")]


def test_a_file_that_an_open_transaction_needs_has_to_stay(spark: SparkSession, tmp_path: Path) -> None:
    captures, target = tmp_path / "captures", tmp_path / "mirror"
    block = [m.StreamStart(7, True), m.Relation(9, *_shape(), xid=7), _with_xid(row(1), 7), m.StreamStop()]
    first = write(captures, "1.bin", [*block, *transaction(100, TABLE, row(5))])
    apply(spark, captures, target)
    kept = first.read_bytes()
    first.unlink()
    write(captures, "2.bin", [m.StreamCommit(7, 0, 200, 208, 200), *transaction(300, row(6))])
    with pytest.raises(OrderError, match="the file is gone"):
        apply(spark, captures, target)
    first.write_bytes(kept)
    apply(spark, captures, target)
    assert keys(spark, target) == [1, 5, 6]


def test_a_prepared_transaction_that_commits_as_an_ordinary_one_is_not_open_any_more(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Its slot has sent PREPARE, and sends it no more when it commits (two_phase was switched off)."""
    captures, target = tmp_path / "captures", tmp_path / "mirror"

    def prepared(lsn: int, xid: int, gid: str, key: int) -> list[m.AnyMessage]:
        return [m.BeginPrepare(lsn, lsn + 8, lsn, xid, gid), row(key), m.Prepare(0, lsn, lsn + 8, lsn, xid, gid)]

    def open_xids() -> list[int]:
        return sorted(one.xid for one in walreplay.status(spark, target).open_transactions)

    # The number 7 was another transaction's before.
    messages = [*transaction(7, TABLE, row(1)), *prepared(100, 7, "a", 2), *prepared(200, 8, "b", 3)]
    first = write(captures, "1.bin", [*messages, *transaction(301, row(4))])
    apply(spark, captures, target)
    assert open_xids() == [7, 8]
    write(captures, "2.bin", transaction(1007, TABLE, row(2)))
    apply(spark, captures, target)
    assert (open_xids(), keys(spark, target)) == ([8], [1, 2, 4])
    # A gid is used again once its transaction has ended.
    write(captures, "3.bin", [*prepared(1100, 9, "b", 5), *transaction(1201, row(6))])
    apply(spark, captures, target)
    assert open_xids() == [9]
    first.unlink()
    write(captures, "4.bin", [m.CommitPrepared(0, 1300, 1308, 1300, 9, "b"), *transaction(1401, row(7))])
    apply(spark, captures, target)
    assert (open_xids(), keys(spark, target)) == ([], [1, 2, 4, 5, 6, 7])


def _shape() -> tuple[str, str, str, tuple[m.Column, ...]]:
    return TABLE.namespace, TABLE.name, TABLE.replica_identity, TABLE.columns


def _with_xid(change: m.Insert, xid: int) -> m.Insert:
    return m.Insert(change.relation_oid, change.new, xid)
