"""What proves that something is missing is refused, or left out with one warning where gaps are allowed."""

from dataclasses import replace
from typing import Final

import pytest

from support.framings import frame
from walreplay.decode.files import ScanTask, scan_file
from walreplay.errors import OrderError
from walreplay.protocol import messages as m
from walreplay.protocol.framing import Framing
from walreplay.stream.stitch import Stitch

TABLE: Final = m.Relation(9, "shop", "t", "d", (m.Column("id", 23, -1, True),))
ROW: Final = m.Insert(9, m.TupleData((m.Cell("t", b"1"),)))
IN_STREAM: Final = (replace(TABLE, xid=5), replace(ROW, xid=5))
FIRST: Final = (m.Begin(100, 100, 7), TABLE, ROW, m.Commit(0, 100, 108, 100))
PREPARED: Final = (m.BeginPrepare(200, 208, 200, 8, "mine"), ROW, m.Prepare(0, 200, 208, 200, 8, "mine"))
LAST: Final = (m.Begin(900, 900, 9), ROW, m.Commit(0, 900, 908, 900))

GAPS: Final = {
    "block": ((), (m.StreamStart(5, False), *IN_STREAM, m.StreamStop()), "its first one is not there"),
    "stream commit": ((), (m.StreamCommit(5, 0, 300, 308, 300),), "none of its blocks is there"),
    "stream prepare": ((), (m.StreamPrepare(0, 300, 308, 300, 5, "other"),), "none of its blocks is there"),
    "commit of another gid": (PREPARED, (m.CommitPrepared(0, 300, 308, 300, 8, "other"),), "decides on transaction 8"),
    "commit of another xid": (PREPARED, (m.CommitPrepared(0, 300, 308, 300, 6, "mine"),), "decides on transaction 6"),
    "rollback of another gid": (
        PREPARED,
        (m.RollbackPrepared(0, 208, 300, 200, 300, 8, "other"),),
        "decides on transaction 8",
    ),
    "cut off": ((m.Begin(200, 200, 8), ROW), (m.Begin(300, 300, 6), TABLE, ROW, m.Commit(0, 300, 308, 300)), "0/C8"),
}
"""What the first file ends with, what the second begins with, and what is said of that."""


def stitched(name: str, *, allow_gaps: bool) -> Stitch:
    """Add two files between which something is missing."""
    before, behind, _ = GAPS[name]
    stitch = Stitch(None, allow_gaps=allow_gaps)
    for path, messages in (("a", (*FIRST, *before)), ("b", (*behind, *LAST))):
        data = frame(messages, Framing.RAW)
        stitch.add_exact(scan_file(path, data, stitch.next_scan(Framing.RAW)))
    return stitch


@pytest.mark.parametrize("name", GAPS)
def test_what_is_missing_is_refused_by_file_and_offset(name: str) -> None:
    with pytest.raises(OrderError, match=GAPS[name][2]) as caught:
        stitched(name, allow_gaps=False)
    assert (caught.value.path, caught.value.offset) == ("b", 0)
    assert caught.value.remedy


@pytest.mark.parametrize("name", GAPS)
def test_what_is_missing_is_left_out_where_gaps_are_allowed(name: str) -> None:
    plan = stitched(name, allow_gaps=True).plan()
    warning = next(text for text in plan.warnings if "(gaps are allowed)" in text)
    assert warning.startswith("b, offset 0: ")
    assert GAPS[name][2] in warning
    assert plan.upto_lsn == 900


def test_behind_a_gap_rows_may_come_whose_rollback_was_in_front_of_it() -> None:
    # Nothing of subtransaction 6 had been streamed; the next session, whose begin is missing, streams it.
    stitch = Stitch(None, allow_gaps=True)
    stitch.add_exact(scan_file("a", frame((m.StreamAbort(5, 6), *FIRST), Framing.RAW), stitch.next_scan(Framing.RAW)))
    place = stitch.gap("b", "files are missing")
    rows = (m.StreamStart(5, True), *(replace(item, xid=6) for item in (TABLE, ROW)), m.StreamStop())
    end = (m.StreamAbort(5, 6), m.StreamCommit(5, 0, 300, 308, 300))
    task = ScanTask(Framing.RAW, place, gap=True)
    stitch.add_exact(scan_file("b", frame((*rows, *end, *LAST), Framing.RAW), task))
    assert [commit.commit_lsn for commit in stitch.plan().decided] == [300]
