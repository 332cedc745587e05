from dataclasses import replace

import pytest

from support.framings import frame, transaction
from support.runs import plan_runs
from support.wire import encode
from walreplay.changes import plan_files
from walreplay.decode.files import ScanTask, scan_file
from walreplay.errors import OrderError, UnknownRelation
from walreplay.protocol import messages as m
from walreplay.protocol.framing import Framing
from walreplay.stream.stitch import Stitch

TABLE = m.Relation(9, "shop", "t", "d", (m.Column("id", 23, -1, True),))
WIDE = replace(TABLE, columns=(*TABLE.columns, m.Column("note", 25, -1, False)))
MOVED = replace(WIDE, name="u")
LONG = m.Message(False, 90, "prefix", b"x" * 10_000)


def row(*values):
    return m.Insert(9, m.TupleData(tuple(m.Cell("t", value) for value in values)))


def files(tmp_path, *parts):
    paths = []
    for number, data in enumerate(parts):
        path = tmp_path / f"{number}.bin"
        path.write_bytes(data)
        paths.append(str(path))
    return paths


def raw(messages):
    return frame(messages, Framing.RAW)


def test_a_plan_goes_up_to_the_last_transaction_that_is_whole(tmp_path):
    data = raw([*transaction(100, TABLE, row(b"1")), *transaction(200, row(b"2")), m.Begin(300, 3, 8), row(b"3")])
    plan = plan_files(files(tmp_path, data))
    assert (plan.after_lsn, plan.upto_lsn, plan.transactions) == (-1, 200, 2)
    assert [(item.kind, item.xid, item.lsn) for item in plan.resume.open_transactions] == [("ordinary", 8, 300)]
    assert plan.resume.place.transaction is None
    assert data[plan.resume.offset] == ord("B")
    assert "transaction 8 (commit LSN 0/12C) is open" in plan.warnings[0]


@pytest.mark.parametrize("at_once", [True, False], ids=["in one file", "a file for each session"])
def test_a_truncate_holds_though_a_copy_of_its_transaction_is_cut_off(tmp_path, at_once):
    before = transaction(100, TABLE, row(b"1"))
    emptied = transaction(200, TABLE, m.Truncate((9,), 0), row(b"2"))
    sessions = [raw([*before, *emptied]), raw([*before, *emptied[:3]]), raw(before)]
    plan = plan_files(files(tmp_path, *([b"".join(sessions)] if at_once else sessions)))
    assert plan.upto_lsn == 200
    assert [(item.oid, item.lsn, item.ordinal) for item in plan.truncates] == [(9, 200, 0)]


def test_a_truncate_that_was_only_begun_does_not_count(tmp_path):
    emptied = transaction(200, TABLE, m.Truncate((9,), 0), row(b"2"))
    data = raw([*transaction(100, TABLE, row(b"1")), *emptied[:3], *transaction(150, TABLE, row(b"3"))])
    assert plan_files(files(tmp_path, data)).truncates == ()


def test_an_unfinished_message_is_told_with_its_place(tmp_path):
    data = raw([*transaction(100, TABLE, row(b"1"))]) + encode(m.Begin(200, 2, 8))[:10]
    plan = plan_files(files(tmp_path, data))
    assert plan.torn == (str(tmp_path / "0.bin"), len(data) - 10, 10)
    assert "unfinished message" in plan.warnings[0]


def test_a_transaction_that_began_in_the_second_of_two_tiny_files_is_found_again(tmp_path):
    data = frame([m.Begin(100, 100, 7), TABLE, row(b"1"), m.Commit(0, 100, 108, 100)], Framing.PGCOPY)
    # The header of a pgcopy file has 19 bytes, its first row 47.
    before = plan_files(files(tmp_path, data[:17], data[17:20], data[20:66]))
    assert (before.resume.path, before.resume.offset) == (str(tmp_path / "1.bin"), 2)
    stitch = Stitch(before.resume)
    stitch.add_exact(scan_file("1", data[17:20], ScanTask(place=before.resume.place, start=2)))
    if not stitch.add(scan_file("2", data[20:], ScanTask())):
        stitch.add_exact(scan_file("2", data[20:], stitch.next_scan()))
    assert stitch.plan().transactions == 1


def test_a_streams_first_bytes_may_be_one_unfinished_message(tmp_path):
    data = frame([LONG, *transaction(100, TABLE, row(b"1"))], Framing.COPYDATA)
    plan = plan_files(files(tmp_path, data[:30], data[30:100]))
    assert plan.torn == (str(tmp_path / "0.bin"), 0, 100)
    assert (plan.upto_lsn, plan.resume.offset, plan.resume.done) == (-1, 0, False)


def test_a_stream_may_begin_with_a_long_message(tmp_path):
    data = raw([LONG, *transaction(100, TABLE, row(b"1"))])
    assert plan_files(files(tmp_path, data)).transactions == 1
    assert plan_files(files(tmp_path, data[:10], data[10:])).transactions == 1


@pytest.mark.parametrize("runs", [1, 2])
def test_every_version_that_a_streamed_transaction_has_announced_is_in_the_plan(runs):
    block = [replace(WIDE, xid=5), replace(row(b"1", b"a"), xid=5), replace(MOVED, xid=5)]
    first = raw([*transaction(100, TABLE, row(b"1")), m.StreamStart(5, True), *block, m.StreamStop()])
    last = raw([m.StreamCommit(5, 0, 200, 208, 200)])
    stages = [{"0": first}, {"0": first, "1": last}][-runs:]
    *_, (_, planned) = plan_runs(stages)
    assert planned.plan.relations == (TABLE, WIDE, MOVED)


def test_a_version_that_only_an_open_transaction_still_needs_is_in_the_plan_of_its_commit():
    # A publication's list of columns changes without a wait for transactions that are open.
    block = [m.StreamStart(5, True), replace(row(b"2"), xid=5), m.StreamStop()]
    first = raw([*transaction(100, TABLE, row(b"1")), *block, *transaction(200, WIDE, row(b"3", b"c"))])
    last = raw([m.StreamCommit(5, 0, 300, 308, 300)])
    *_, (_, planned) = plan_runs([{"0": first}, {"0": first, "1": last}])
    assert planned.plan.relations == (TABLE, WIDE)


def test_a_relation_that_was_never_announced_means_a_missing_file(tmp_path):
    paths = files(
        tmp_path, raw(transaction(100, TABLE, row(b"1"))), raw(transaction(200, m.Delete(8, key=row(b"2").new)))
    )
    with pytest.raises(UnknownRelation, match="relation 8") as caught:
        plan_files(paths)
    assert (caught.value.path, caught.value.offset) == (paths[1], 21)


def test_a_commit_of_another_transaction_is_refused(tmp_path):
    paths = files(tmp_path, raw([m.Begin(100, 1, 7), TABLE, row(b"1")]), raw([row(b"2"), m.Commit(0, 300, 308, 1)]))
    with pytest.raises(OrderError, match="not that of the transaction that is open"):
        plan_files(paths)


def prepared(lsn, xid, value):
    return [m.BeginPrepare(lsn, lsn + 8, lsn, xid, "g"), row(value), m.Prepare(0, lsn, lsn + 8, lsn, xid, "g")]


@pytest.mark.parametrize("streams", [False, True])
def test_a_gid_that_is_prepared_again_ends_the_transaction_that_had_it(tmp_path, streams):
    first, second = prepared(200, 8, b"2"), prepared(300, 9, b"3")
    if streams:
        second = [m.StreamStart(9, True), *second[1:2], m.StreamStop(), m.StreamPrepare(0, 300, 308, 300, 9, "g")]
        second[1] = replace(second[1], xid=9)
    ended = [m.CommitPrepared(0, 400, 408, 400, 9, "g")]
    plan = plan_files(files(tmp_path, raw([*transaction(100, TABLE, row(b"1")), *first, *second, *ended])))
    assert plan.resume.open_transactions == ()
    assert [item.xid for item in plan.decided if item.complete] == [9]
    (told,) = plan.warnings
    assert "transaction 8 was prepared as 'g'" in told
    # One whose end is there may have had the gid before; and what is sent again ends nothing.
    rolled_back = [m.RollbackPrepared(0, 208, 250, 200, 250, 8, "g")]
    for between in ([*rolled_back], [*rolled_back, *second]):
        whole = [*transaction(100, TABLE, row(b"1")), *first, *between, *second, *ended]
        assert plan_files(files(tmp_path, raw(whole))).warnings == ()
