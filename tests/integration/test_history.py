"""A history has every version of each row, and the rows as of any LSN and any moment."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any

import pytest

import walreplay
from support.change_model import logged
from support.extent import further
from support.framings import frame
from support.history_model import as_of_time
from support.readers import read
from support.small_mirror import INT4, INT8, TEXT, SmallMirror, forget, relation, row
from support.stopped_run import StoppedError
from walreplay.errors import TargetError
from walreplay.lsn import POSTGRES_EPOCH_UNIX_MICROS
from walreplay.protocol import messages as m
from walreplay.protocol.framing import Framing

pytestmark = pytest.mark.integration

# Small tables, by both ways of writing.

DATE, INTERVAL = 1082, 1186

BOTH = {"outputs": ["mirror", "history"]}


def spans(mirror: SmallMirror, name: str, *columns: str) -> list[tuple[Any, ...]]:
    """Return a history's versions: some columns, where they begin and end, and what has opened them."""
    rows = read(mirror.location(name)).to_pylist()
    rows.sort(key=lambda one: (one["__start_lsn"], one["__ordinal"]))
    return [(*(one[name] for name in columns), one["__start_lsn"], one["__end_lsn"], one["__op"]) for one in rows]


def test_versions_are_ended_by_whatever_ends_their_rows(mirror: SmallMirror) -> None:
    t = relation(1, "t", {"id": INT4, "note": TEXT})
    kept = m.TupleData((m.Cell("t", b"1"), m.UNCHANGED_CELL))
    moved = m.TupleData((m.Cell("t", b"5"), m.UNCHANGED_CELL))
    mirror.apply(t, m.Insert(1, row(1, "a")), m.Insert(1, row(2, "b")), m.Insert(1, row(3, "c")), **BOTH)
    report = mirror.apply(
        m.Update(1, kept),
        m.Update(1, moved, key=row(2, None)),
        m.Delete(1, key=row(3, None)),
        m.Update(1, row(9, "?")),
        **BOTH,
    )
    told = {one.name: (one.inserted, one.updated, one.without_base) for one in report.tables}
    assert told["s.t (history)"] == (3, 3, 1)
    mirror.apply(m.Insert(1, row(7, "d")), m.Truncate((1,), 0), m.Insert(1, row(1, "e")), **BOTH)
    mirror.apply(m.Truncate((1,), 0), **BOTH)
    assert spans(mirror, "t__history", "id", "note") == [
        (1, "a", 100, 200, "c"),
        (2, "b", 100, 200, "c"),
        (3, "c", 100, 200, "c"),
        (1, "a", 200, 300, "u"),
        (5, "b", 200, 300, "u"),
        (9, "?", 200, 300, "u"),
        (1, "e", 300, 400, "c"),
    ]


def test_of_equal_rows_the_newest_is_ended_first(mirror: SmallMirror) -> None:
    t = relation(1, "t", {"id": INT4, "note": TEXT}, "f")
    report = mirror.apply(t, m.Insert(1, row(1, "a")), m.Insert(1, row(2, None)), m.Delete(1, old=row(5, "?")), **BOTH)
    assert {(one.without_base, one.deletes_without_row) for one in report.tables} == {(0, 1)}
    mirror.apply(m.Insert(1, row(1, "a")), m.Insert(1, row(1, "a")), **BOTH)
    mirror.apply(m.Update(1, row(3, "x"), old=row(1, "a")), m.Delete(1, old=row(1, "a")), **BOTH)
    report = mirror.apply(
        m.Delete(1, old=row(2, None)), m.Delete(1, old=row(4, "?")), m.Delete(1, old=row(1, "a")), **BOTH
    )
    assert {one.deletes_without_row for one in report.tables} == {1}
    assert spans(mirror, "t__history", "id", "note") == [
        (1, "a", 100, 400, "c"),
        (2, None, 100, 400, "c"),
        (1, "a", 200, 300, "c"),
        (1, "a", 200, 300, "c"),
        (3, "x", 300, None, "u"),
    ]


@pytest.mark.full
def test_a_truncate_ends_rows_that_are_older_than_their_key(mirror: SmallMirror) -> None:
    bare, keyed = relation(1, "t", {"note": TEXT}, "f"), relation(1, "t", {"note": TEXT, "id": INT4})
    mirror.apply(bare, m.Insert(1, row("a")), m.Insert(1, row("b")), **BOTH)
    # Neither row is sent again when the column comes, so both have NULL in it.
    mirror.apply(keyed, m.Insert(1, row("c", 1)), m.Insert(1, row("d", 2)), m.Insert(1, row("e", 3)), **BOTH)
    mirror.apply(m.Update(1, row("f", 1)), m.Delete(1, key=row(None, 2)), **BOTH)
    mirror.write(m.Delete(1, key=row(None, 1)))
    mirror.apply(m.Truncate((1,), 0), m.Insert(1, row("g", 1)), **BOTH)
    assert spans(mirror, "t__history", "id", "note") == [
        (None, "a", 100, 500, "c"),
        (None, "b", 100, 500, "c"),
        (1, "c", 200, 300, "c"),
        (2, "d", 200, 300, "c"),
        (3, "e", 200, 500, "c"),
        (1, "f", 300, 400, "u"),
        (1, "g", 500, None, "c"),
    ]


@pytest.mark.full
def test_equal_rows_are_found_whatever_texts_were_sent(mirror: SmallMirror) -> None:
    t = relation(1, "t", {"id": INT4, "wait": INTERVAL, "note": TEXT}, "f")
    mirror.apply(t, *(m.Insert(1, row(1, "1 day 02:00:00", "a")) for _ in range(2)), **BOTH)
    mirror.apply(m.Insert(1, row(1, "P1DT2H", "a")), m.Insert(1, row(1, "P1DT3H", "a")), **BOTH)
    report = mirror.apply(
        m.Delete(1, old=row(1, "@ 1 day 2 hours", "a")),
        m.Update(1, row(1, "00:00:00", "b"), old=row(1, "P1DT2H", "a")),
        m.Delete(1, old=row(1, "@ 1 day 3 hours", "b")),
        **BOTH,
    )
    assert [one.deletes_without_row for one in report.tables] == [1, 1]
    # The newest goes first.
    assert spans(mirror, "t__history", "wait", "note") == [
        ("1 day 02:00:00", "a", 100, None, "c"),
        ("1 day 02:00:00", "a", 100, 300, "c"),
        ("1 day 02:00:00", "a", 200, 300, "c"),
        ("1 day 03:00:00", "a", 200, None, "c"),
        ("00:00:00", "b", 300, None, "u"),
    ]


def watching(**lists: list[str]) -> dict[str, Any]:
    """Return the configuration of histories, with what it says of the table s.t."""
    return {"outputs": ["history"], "objects": [{"table": {"source_schema": "s", "source_table": "t", **lists}}]}


def test_changes_of_other_columns_are_made_in_the_open_version(mirror: SmallMirror) -> None:
    t = relation(1, "t", {"id": INT4, "state": TEXT, "seen": DATE, "note": TEXT})

    def kept(number: int, state: str, seen: str) -> m.TupleData:
        return m.TupleData((*row(number, state, seen).cells, m.UNCHANGED_CELL))

    def day(number: int) -> date:
        return date(2024, 1, number)

    but_seen, but_text = (
        watching(track_history_except_column_list=["seen"]),
        watching(track_history_column_list=["note", "seen"]),
    )
    mirror.apply(
        t, *(m.Insert(1, row(number, "a", "2024-01-01", f"note {number}")) for number in range(1, 6)), **but_seen
    )
    mirror.apply(
        m.Update(1, kept(1, "a", "infinity")),
        m.Update(1, kept(2, "a", "2024-01-02")),
        m.Update(1, kept(2, "b", "2024-01-02")),
        m.Update(1, row(3, "a", "2024-01-02", "note 3")),
        m.Update(1, kept(6, "a", "2024-01-02"), key=row(4, None, None, None)),
        m.Update(1, kept(7, "a", "2024-01-02")),
        **but_seen,
    )
    # What a list says holds from the run on that has it; the column has another name by then.
    renamed = relation(1, "t", {"id": INT4, "state": TEXT, "noticed": DATE, "note": TEXT})
    mirror.write(renamed, m.Update(1, kept(1, "c", "infinity")), m.Update(1, kept(2, "c", "2024-01-03")))
    mirror.write(
        m.Update(1, kept(3, "d", "2024-01-02")),
        m.Delete(1, key=row(3, None, None, None)),
        m.Update(1, kept(5, "d", "2024-01-01")),
    )
    mirror.write(
        m.Update(1, kept(1, "e", "infinity")), m.Truncate((1,), 0), m.Insert(1, row(1, "f", "2024-01-01", "new"))
    )
    report = mirror.apply(**but_text)
    assert {one.without_base for one in report.tables} == {0}
    assert spans(mirror, "t__history", "id", "state", "noticed", "note") == [
        (1, "c", None, "note 1", 100, 500, "c"),
        (2, "a", day(1), "note 2", 100, 200, "c"),
        (3, "a", day(2), "note 3", 100, 400, "c"),
        (4, "a", day(1), "note 4", 100, 200, "c"),
        (5, "d", day(1), "note 5", 100, 500, "c"),
        (2, "b", day(2), "note 2", 200, 300, "u"),
        (6, "a", day(2), "note 4", 200, 500, "u"),
        (7, "a", day(2), None, 200, 500, "u"),
        (2, "c", day(3), "note 2", 300, 500, "u"),
        (1, "f", day(1), "new", 500, None, "c"),
    ]
    rescued = read(mirror.location("t__history")).column("_rescued_data").to_pylist()
    assert [one for one in rescued if one] == ['{"noticed":"infinity"}']


def test_times_never_go_back_over_runs_and_tables(mirror: SmallMirror) -> None:
    one, other = relation(1, "one", {"id": INT4}), relation(2, "other", {"id": INT4})
    times = {100: 50, 200: 90, 300: 70, 400: 80, 500: 95}
    told = {100: (one, other, m.Insert(1, row(1))), 200: (m.Insert(2, row(1)),), 300: (m.Delete(1, key=row(1)),)}
    told |= {400: (m.Insert(1, row(2)),), 500: (m.Truncate((1, 2), 0),)}
    for number, (lsn, changes) in enumerate(told.items(), start=1):
        messages = [m.Begin(lsn, times[lsn], number), *changes, m.Commit(0, lsn, lsn + 8, times[lsn])]
        mirror.captures.joinpath(f"{number:03}.bin").write_bytes(frame(messages, Framing.RAW))
        if number in (2, 4, 5):
            mirror.apply(**BOTH)
    found = {name: read(mirror.location(f"{name}__history")) for name in ("one", "other")}
    micros = {
        name: sorted(
            zip(*(table.column(end).cast("int64").to_pylist() for end in ("__START_AT", "__END_AT")), strict=True)
        )
        for name, table in found.items()
    }
    since = POSTGRES_EPOCH_UNIX_MICROS
    assert micros["one"] == [(since + 50, since + 90), (since + 90, since + 95)]
    assert micros["other"] == [(since + 90, since + 95)]
    assert as_of_time(found["one"], since + 94).column("id").to_pylist() == [2]


@pytest.mark.both_ways
@pytest.mark.full
def test_a_version_that_would_end_before_it_begins_is_refused(mirror: SmallMirror, tmp_path: Path) -> None:
    t, history = relation(1, "t", {"id": INT4, "note": TEXT}), {"outputs": ["history"]}
    mirror.apply(t, m.Insert(1, row(1, "one")), **history)
    place = mirror.location("t__history")
    mirror.spark.sql(f"UPDATE delta.`{place}` SET __start_lsn = 900")
    before = read(place)
    with pytest.raises(TargetError, match="would end before it begins") as caught:
        mirror.apply(m.Update(1, row(1, "two")), accept_changed_tables=True, **history)
    assert caught.value.table == "s.t (history)"
    assert read(place) == before
    # The remedy.
    shutil.move(place, tmp_path / "away")
    forget(mirror.spark)
    mirror.apply(**history)
    walreplay.rebuild(mirror.spark, mirror.captures, mirror.target, r"s\.t", outputs=["history"], config=history)
    assert spans(mirror, "t__history", "id", "note") == [(1, "one", 100, 200, "c"), (1, "two", 200, None, "u")]


@pytest.mark.both_ways
@pytest.mark.full
def test_a_history_follows_its_sources_columns(mirror: SmallMirror) -> None:
    mirror.apply(relation(1, "t", {"id": INT4, "a": INT4, "b": TEXT}), m.Insert(1, row(1, 10, "x")), **BOTH)
    wider = relation(1, "t", {"id": INT8, "a": INT8, "b": TEXT, "c": TEXT})
    mirror.apply(wider, m.Update(1, row(1, 11, "x", "z")), m.Insert(1, row(1 << 40, 12, "y", None)), **BOTH)
    renamed = relation(1, "t", {"id": INT8, "n": INT8, "b": TEXT, "c": TEXT})
    mirror.apply(renamed, m.Delete(1, key=row(1, None, None, None)), **BOTH)
    assert spans(mirror, "t__history", "id", "n", "b", "c") == [
        (1, 10, "x", None, 100, 200, "c"),
        (1, 11, "x", "z", 200, 300, "u"),
        (1 << 40, 12, "y", None, 200, None, "c"),
    ]
    assert "OVERWRITE" not in mirror.history("t__history")


@pytest.mark.parametrize(
    "step", further(["plan written", "table applied", "transactions written"], but=("table applied",))
)
def test_a_run_that_is_stopped_writes_no_version_and_no_change_twice(
    mirror: SmallMirror, stop: Callable[[str], None], step: str
) -> None:
    t = relation(1, "t", {"id": INT4, "note": TEXT})
    outputs = {"outputs": ["mirror", "history", "changelog"]}
    mirror.apply(t, m.Insert(1, row(1, "a")), **outputs)
    stop(step)
    with pytest.raises(StoppedError):
        mirror.apply(m.Update(1, row(1, "b")), m.Insert(1, row(2, "c")), **outputs)
    mirror.apply(**outputs)
    mirror.apply(m.Delete(1, key=row(2, None)), **outputs)
    assert spans(mirror, "t__history", "id", "note") == [
        (1, "a", 100, 200, "c"),
        (1, "b", 200, None, "u"),
        (2, "c", 200, 300, "c"),
    ]
    found = logged(mirror.spark, mirror.location("t__changes"))
    assert [(one["__op"], one["id"], one["note"]) for one in found] == [
        ("c", 1, "a"),
        ("u", 1, "b"),
        ("c", 2, "c"),
        ("d", 2, None),
    ]


@pytest.mark.full
def test_what_has_ended_is_not_touched_again(mirror: SmallMirror) -> None:
    config = {"outputs": ["history"], "table_properties": {"delta.enableDeletionVectors": "false"}}
    t = relation(1, "t", {"id": INT4, "note": TEXT})
    mirror.write(t, *(m.Insert(1, row(number, "a")) for number in range(5)))
    mirror.apply(m.Truncate((1,), 0), **config)
    location = mirror.location("t__history")
    ended = {Path(path).name for path in mirror.spark.read.format("delta").load(str(location)).inputFiles()}
    mirror.apply(m.Insert(1, row(1, "b")), m.Insert(1, row(2, "b")), **config)
    mirror.apply(m.Delete(1, key=row(1, None)), m.Truncate((1,), 0), **config)
    files = {Path(path).name for path in mirror.spark.read.format("delta").load(str(location)).inputFiles()}
    assert ended <= files
    assert [one[2:4] for one in spans(mirror, "t__history", "id", "note")] == [(100, 200)] * 5 + [(300, 400)] * 2
