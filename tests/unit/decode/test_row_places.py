"""Each row says in which file its message begins, where there, and of which origin its transaction is."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pytest

from support.captures import case
from support.change_model import CHANGED
from support.extent import further
from support.framings import frame
from support.runs import cut, plan_runs
from walreplay.archive.messages import transcribe
from walreplay.decode import gathered
from walreplay.decode.change_batch import ChangeBatch
from walreplay.decode.decoder import Decoder
from walreplay.protocol import messages as m
from walreplay.protocol.framing import Framing
from walreplay.protocol.opening import open_file
from walreplay.stream.plan import Plan
from walreplay.stream.planned import PlannedBytes

Place = tuple[str | None, str, int]


def decode(
    plan: Plan, files: Mapping[str, bytes], framing: Framing, tile_bytes: int = 1 << 20
) -> Iterator[ChangeBatch]:
    """Decode a plan file by file, as the tasks of a run do."""
    for file in plan.files:
        if not file.steps:
            continue
        decoder = Decoder(framing, with_places={*plan.relations}, tile_bytes=tile_bytes)
        opened = PlannedBytes.of(file, files[file.path])
        for step in file.steps:
            yield from opened.decode(decoder, step, plan.versions, plan.type_versions)
        yield from decoder.rest()


def places_of(batches: Iterator[ChangeBatch]) -> list[tuple[int, int, str, Place]]:
    """Return commit LSN, ordinal, operation and place of each row."""
    found = []
    for batch in batches:
        assert batch.places is not None
        places = (batch.places.origin, batch.places.path, batch.places.offset)
        columns = (*places, batch.commit_lsns, batch.data.column("__ordinal"), batch.ops)
        for origin, path, offset, lsn, ordinal, op in zip(*(column.to_pylist() for column in columns), strict=True):
            found.append((lsn, ordinal, op, (origin, path, offset)))
    return sorted(found)


_CAPTURES = ["o02", "o03", "o04", "o05", "o06", "o07", "o11", "o13", "o18", "o19", "o21", "o26"]


@pytest.mark.parametrize("tile_bytes", [256, 1 << 20])
@pytest.mark.parametrize("name", further(_CAPTURES, but=("o02", "o03", "o06", "o13", "o18")))
def test_a_rows_place_is_that_of_its_message(name: str, tile_bytes: int) -> None:
    recorded = case(name)
    files = {str(path): path.read_bytes() for path in recorded.files}
    letters = {"c": "Insert", "u": "Update", "d": "Delete", "t": "Truncate"}
    lines = {(line.path, line.offset): line.message for line in transcribe(list(files)) if line.message in CHANGED}
    ((_, planned),) = plan_runs([files], framing=Framing(recorded.info["framing"]))
    found = places_of(decode(planned.plan, files, Framing(recorded.info["framing"]), tile_bytes))
    assert found
    for _, _, op, (_, path, offset) in found:
        assert lines[path, offset] == letters[op]
    single = [(path, offset) for _, _, op, (_, path, offset) in found if op != "t"]
    assert len(set(single)) == len(single)


ORDERS = m.Relation(1, "s", "orders", "d", (m.Column("id", 23, -1, True), m.Column("note", 25, -1, False)))


def insert(number: int) -> m.Insert:
    return m.Insert(1, m.TupleData((m.Cell("t", b"%d" % number), m.Cell("t", b"x" * 7))))


def stream(transactions: int) -> list[m.AnyMessage]:
    found: list[m.AnyMessage] = []
    for number in range(transactions):
        lsn = 100 + 100 * number
        begin = [m.Begin(lsn, lsn, number)]
        origin = [m.Origin(5, "elsewhere")] if number % 3 == 1 else []
        found += [*begin, *origin, *([ORDERS] if not number else []), insert(number), insert(number)]
        found += [m.Truncate((1,), 0)] if number % 4 == 3 else []
        found.append(m.Commit(0, lsn, lsn + 8, lsn))
    return found


@pytest.mark.parametrize("framing", [Framing.RAW, Framing.RECVLOGICAL, Framing.COPYDATA])
def test_wherever_files_are_cut_a_message_begins_in_the_file_that_has_its_first_byte(
    monkeypatch: pytest.MonkeyPatch, framing: Framing
) -> None:
    monkeypatch.setattr(gathered, "BATCH_ROWS", 4)
    data = frame(stream(12), framing)
    ((_, whole),) = plan_runs([{"whole": data}], framing=framing)
    expected = places_of(decode(whole.plan, {"whole": data}, framing))
    assert {origin for _, _, _, (origin, _, _) in expected} == {None, "elsewhere"}
    # A frame that begins in one file, and ends in the next but one, has its message in neither.
    for size in range(100 if framing.is_sized else 40, 260, 13):
        starts = list(range(0, len(data), size))
        files = cut(data, starts[1:])
        names = list(files)
        ((_, planned),) = plan_runs([files], framing=framing)
        found = places_of(decode(planned.plan, files, framing))
        moved = []
        for lsn, ordinal, op, (origin, _, offset) in expected:
            number = offset // size
            moved.append((lsn, ordinal, op, (origin, names[number], offset - starts[number])))
        assert found == moved, size


def test_nobody_who_does_not_ask_is_told() -> None:
    data = frame(stream(2), Framing.RAW)
    ((_, planned),) = plan_runs([{"file": data}], framing=Framing.RAW)
    (file,) = planned.plan.files
    decoder = Decoder(Framing.RAW)
    for step in file.steps:
        list(PlannedBytes("file", open_file(data).data).decode(decoder, step, planned.plan.versions, ()))
    (batch,) = decoder.rest()
    assert batch.places is None
