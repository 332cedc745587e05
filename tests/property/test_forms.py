"""In whatever form a stream was written, cut and torn, it gives the same changes."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from contextlib import redirect_stdout
from functools import cache
from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.batches import listed
from support.captures import case
from support.extent import examples, further
from support.framings import NEW, Form, Keepalive
from support.runs import Files, cut, grown_to, plan_runs
from walreplay import read_changes
from walreplay.archive.messages import inspect_captures, transcribe
from walreplay.changes import decode_plan
from walreplay.errors import OrderError
from walreplay.protocol import messages as m
from walreplay.protocol.framing import Framing
from walreplay.protocol.reader import read_stream

CAPTURES: Final = ["o01", "o08", "o09", "o11", "o17", "o18", "o19", "o20", "o21"]
"""Captures of one session: text and binary, streamed, prepared, with logical messages and origins."""

Rows = dict[str, list[str]]


def rows_of(runs: Iterator[tuple[Files, Any]]) -> Rows:
    """Return each relation's row changes in their order."""
    found: Rows = {}
    for files, planned in runs:
        for batch in decode_plan(planned.plan, files.__getitem__):
            found.setdefault(batch.relation.qualified_name, []).extend(text for _, text in listed(batch))
    return found


def rows_in(paths: list[Path]) -> Rows:
    found: Rows = {}
    for batch in read_changes(paths):
        found.setdefault(batch.relation.qualified_name, []).extend(map(repr, batch.data.to_pylist()))
    return found


@cache
def recorded(name: str) -> tuple[bytes, Framing]:
    (data,) = case(name).streams()
    return data, case(name).framing


@cache
def expected(name: str) -> Rows:
    data, framing = recorded(name)
    return rows_of(plan_runs([{"whole": data}], framing=framing))


@cache
def rewritten(name: str, form: Form) -> bytes:
    return form.rewrite(*recorded(name))


@pytest.mark.parametrize("form", NEW, ids=lambda form: form.name)
@pytest.mark.parametrize("name", further(CAPTURES, but=("o09", "o18", "o20")))
@settings(max_examples=examples(2))
@given(data=st.data())
def test_a_capture_in_another_form_cut_anywhere_gives_the_same_changes(
    name: str, form: Form, data: st.DataObject
) -> None:
    stream = rewritten(name, form)
    files = cut(stream, data.draw(st.lists(st.integers(0, len(stream)), max_size=5), label="cuts"))
    forced = data.draw(st.sampled_from([None, form.framing]), label="forced")
    stages = [grown_to(files, size) for size in data.draw(st.lists(st.integers(64, len(stream)), max_size=2))]
    stages.sort(key=lambda files: sum(map(len, files.values())))
    guessing = data.draw(st.booleans(), label="guessing")
    assert rows_of(plan_runs([*stages, files], guessing=guessing, framing=forced)) == expected(name)


@pytest.mark.parametrize("form", NEW, ids=lambda form: form.name)
def test_all_ways_to_read_agree(tmp_path: Path, form: Form) -> None:
    data, framing = recorded("o01")
    messages = [message for _, message in read_stream(data, framing=framing)]
    for number, file in enumerate(cut(form.write(messages), [1000, 20_001, 20_002]).values()):
        (tmp_path / str(number)).write_bytes(file)
    (tmp_path / "whole.old").write_bytes(data)
    found, old = inspect_captures([tmp_path / str(n) for n in range(4)]), inspect_captures(tmp_path / "whole.old")
    assert {file.framing for file in found.files if file.framing} == {form.framing.value}
    assert (found.messages, found.relations, found.changes) == (old.messages, old.relations, old.changes)
    with redirect_stdout(io.StringIO()):
        lines = list(transcribe([tmp_path / str(n) for n in range(4)]))
    assert [line.message for line in lines] == [type(message).__name__ for message in messages]
    assert rows_in([tmp_path / str(n) for n in range(4)]) == rows_in([tmp_path / "whole.old"])


TABLE: Final = m.Relation(16500, "shop", "t", "d", (m.Column("id", 23, -1, True), m.Column("note", 25, -1, False)))


def row(number: int, note: str = "note") -> m.Insert:
    return m.Insert(16500, m.TupleData((m.Cell("t", b"%d" % number), m.Cell("t", note.encode()))))


def transaction(lsn: int, *changes: m.AnyMessage) -> list[m.AnyMessage | Keepalive]:
    return [
        Keepalive(lsn, 800_000_000_000_000),
        m.Begin(lsn, 800_000_000_000_000, 700 + lsn % 100),
        *changes,
        m.Commit(0, lsn, lsn + 8, 800_000_000_000_000),
    ]


LSN: Final = 0x162_3748
"""None of its bytes is a frame's first."""

FIRST: Final = [*transaction(LSN, TABLE, row(1), row(2)), *transaction(LSN + 100, row(3))]
SECOND: Final = transaction(LSN + 200, TABLE, row(4), row(5))
"""What a session sends again that begins behind the first two transactions."""


def ids(files: Sequence[bytes], *, guessing: bool, framing: Framing | None = None) -> list[int]:
    named = {f"part{number}": content for number, content in enumerate(files)}
    found: list[int] = []
    for held, planned in plan_runs([named], guessing=guessing, framing=framing):
        for batch in decode_plan(planned.plan, held.__getitem__):
            found += batch.data.column("id").to_pylist()
    return found


@pytest.mark.parametrize("form", further(NEW, but=NEW[:2]), ids=lambda form: form.name)
def test_a_stream_may_be_cut_at_every_byte(form: Form) -> None:
    stream = form.write(FIRST[:6])
    for at in range(len(stream) + 1):
        assert ids([stream[:at], stream[at:]], guessing=at % 2 == 0) == [1, 2], at


@pytest.mark.parametrize("in_one_file", [True, False])
@pytest.mark.parametrize("form", further(NEW, but=NEW[:2]), ids=lambda form: form.name)
def test_a_session_may_be_torn_at_every_byte(form: Form, in_one_file: bool) -> None:
    """The transaction that it was in comes again in the next one."""
    whole = form.write(FIRST, trailer=False)
    more = form.write([*FIRST, *SECOND], trailer=False)
    again = form.write([*SECOND, *transaction(LSN + 300, row(6))])
    refused: list[tuple[int, str]] = []
    for at in range(len(whole), len(more)):
        files = [more[:at] + again] if in_one_file else [more[:at], again]
        try:
            assert ids(files, guessing=at % 2 == 0) == [1, 2, 3, 4, 5, 6], at
        except OrderError as error:
            refused.append((at, str(error)))
    # Where the next file's first bytes may be the rest of a Begin, it says so.
    assert len(refused) <= (0 if in_one_file else 1), refused
    assert all("two ways" in problem for _, problem in refused), refused
