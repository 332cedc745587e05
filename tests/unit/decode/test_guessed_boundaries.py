"""The first boundary of a file that begins anywhere is found without walking from every place that could be one."""

from __future__ import annotations

import random

import pytest

from support.captures import case
from support.framings import FORMS, LENGTHS, Form
from support.runs import cut, plan_run
from walreplay.decode.sessions import resync
from walreplay.protocol import messages as m
from walreplay.protocol.framing import Framing
from walreplay.protocol.reader import read_stream
from walreplay.stream.planned import decode_plan

MOST_WALKS = 200
"""A walk from a wrong place takes 20 µs.  Four bytes in front of each of the thousands of messages may be a length."""


def pgbench() -> list[m.AnyMessage]:
    """Return many small transactions."""
    recorded = case("o07")
    return [message for stream in recorded.streams() for _, message in read_stream(stream, framing=recorded.framing)]


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.name)
def test_few_places_are_tried(form: Form, monkeypatch: pytest.MonkeyPatch) -> None:
    data = form.write(pgbench())
    walked: list[int] = []
    fits = resync._fits

    def counted(data: bytes, start: int, *arguments: object, **options: object) -> int:
        walked.append(start)
        return fits(data, start, *arguments, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(resync, "_fits", counted)
    chance = random.Random(form.name)
    for _ in range(5):
        walked.clear()
        guess = resync.guess_framing(data[chance.randrange(len(data) // 2) :])
        assert guess is not None
        assert guess[0] is form.framing
        assert len(walked) <= MOST_WALKS


TABLE = m.Relation(9, "s", "t", "d", (m.Column("id", 23, -1, True),))


def transaction(lsn: int, rows: int) -> list[m.AnyMessage]:
    inserts = [m.Insert(9, m.TupleData((m.Cell("t", b"%d" % row),))) for row in range(rows)]
    return [m.Begin(lsn, lsn, 7), TABLE, *inserts, m.Commit(0, lsn, lsn + 8, lsn)]


@pytest.mark.parametrize("xlogdata", [False, True])
@pytest.mark.parametrize("framing", LENGTHS)
def test_a_commit_torn_in_its_length_is_seen_in_a_file_that_begins_inside_of_its_transaction(
    framing: Framing, xlogdata: bool
) -> None:
    form = Form(framing, xlogdata=xlogdata)
    sent = transaction(1 << 20, 60)
    begun = len(form.write(sent[:-1]))
    for kept in range(1, 4):
        # The session behind it sends the transaction once more.
        data = form.write(sent)[: begun + kept] + form.write([*sent, *transaction(2 << 20, 30)])
        files = cut(data, [begun // 2])
        for guessing in (False, True):
            planned = plan_run(files, None, guessing=guessing, framing=framing)
            assert planned is not None
            assert sum(batch.data.num_rows for batch in decode_plan(planned.plan, files.__getitem__)) == 90
