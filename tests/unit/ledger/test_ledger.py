"""The ledger's one row, as runs write and read it; the table itself is held in memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, cast

import pytest

from walreplay.decode.walk import Place
from walreplay.delta.target import TableName, Target
from walreplay.errors import TargetError
from walreplay.evolution.shapes import TableShape
from walreplay.job.side_tables import MadeTables
from walreplay.ledger.ledger import Ledger
from walreplay.ledger.state import (
    FORMAT,
    LOADING,
    PLANNED,
    REBUILDING,
    SCHEMA,
    WORK,
    Load,
    Rebuild,
    State,
    values_of,
)
from walreplay.protocol.framing import Framing
from walreplay.stream.plan import Plan, Resume
from walreplay.table.registry import MirrorEntry
from walreplay.writing.by_statements import Condition

TARGET = Target.parse("/data/mirror")
ENTRIES = tuple(MirrorEntry(oid, f"s.t{oid}", TableName(f"/data/mirror/s/t{oid}"), TableShape()) for oid in (3, 7))
RESUME = Resume("/c/0001", 10, 20, 30, True, "/c/0001", 20, Place(Framing.RAW), (), ())
PLAN = Plan(
    files=(),
    versions=(),
    type_versions=(),
    after_lsn=5,
    upto_lsn=9,
    upto_commit_time=0,
    truncates=(),
    resume=RESUME,
    transactions=1,
    resent=0,
    announced=(),
    before=(),
    types=(),
)
LOAD = Load("a load", 4, ((3, "s.t3"),), "/base")
REBUILD = Rebuild("a rebuild", "0f", ())
SEEN = "1f"


@dataclass
class Row:
    """A table of one row, in memory."""

    values: dict[str, Any] | None = None

    def exists(self) -> bool:
        return self.values is not None

    def read(self) -> Mapping[str, Any] | None:
        return self.values

    def create(self, values: Mapping[str, Any], *, exists: bool) -> bool:
        assert not exists
        self.values = dict(values)
        return True

    def change(self, values: Mapping[str, Any], condition: Condition) -> bool:
        assert self.values is not None
        if not condition.is_in(self.values):
            return False
        self.values |= values
        return True

    def one_row(self, *_: object) -> Row:
        return self


def _ledger(row: Row, *, loads: bool = False) -> Ledger:
    return Ledger(cast("Any", object()), TARGET, cast("Any", row), loads=loads)


@pytest.fixture
def row() -> Row:
    return Row()


@pytest.fixture
def ledger(row: Row) -> Iterator[Ledger]:
    ledger = _ledger(row, loads=True)
    assert ledger.acquire() is None
    yield ledger
    ledger.release()


def _applied(ledger: Ledger) -> State:
    assert ledger.holder is not None
    since = ledger.holder.since
    applied = State(ledger.id, "a", 1, since, "/c", resume=RESUME, tables=ENTRIES, seen=SEEN)
    ledger.write(applied)
    assert ledger.acquire() == applied
    return applied


def _plan(ledger: Ledger, before: State | None, places: tuple[str, ...] = ()) -> State:
    captures = {"source": "b", "captures": "/d", "files": 2, "bytes": 8, "seen": SEEN}
    return ledger.begin(before, 5, places, plan=PLAN, resume=None, **captures)


def test_a_plan_keeps_nothing_of_an_interrupted_base_load(row: Row, ledger: Ledger) -> None:
    before = _applied(ledger)
    loading = ledger.begin(before, 4, ("s/t3",), load=LOAD, source="a", files=1, bytes=3)
    loading = ledger.write(replace(loading, load=replace(LOAD, writing=True), vacated=True))
    planned = _plan(ledger, loading)
    assert (planned.phase, planned.run, planned.plan) == (PLANNED, 5, PLAN)
    assert (planned.load, planned.rebuild, planned.resume, planned.finished_at) == (None, None, None, None)
    assert (planned.places, planned.vacated, planned.tables) == ((), False, ENTRIES)
    assert (planned.source, planned.captures, planned.files, planned.bytes) == ("b", "/d", 2, 8)
    # Its commits are those of the plan, and of no load.
    assert planned.run_id.id == PLAN.id
    assert _ledger(row).read() == planned


def test_a_rebuild_keeps_nothing_of_what_was_begun_before_and_goes_on_where_the_target_is(
    row: Row, ledger: Ledger
) -> None:
    before = _applied(ledger)
    loading = ledger.begin(before, 4, load=LOAD, source="a", files=1, bytes=3)
    rebuilding = ledger.begin(loading, 6, ("s/t7",), rebuild=REBUILD)
    assert (rebuilding.phase, rebuilding.run, rebuilding.rebuild) == (REBUILDING, 6, REBUILD)
    assert (rebuilding.load, rebuilding.plan, rebuilding.files, rebuilding.bytes) == (None, None, 0, 0)
    assert (rebuilding.resume, rebuilding.seen, rebuilding.captures) == (RESUME, SEEN, "/c")
    assert rebuilding.places == ("s/t7",)
    assert _ledger(row).read() == rebuilding


def test_a_load_leaves_where_the_next_run_starts(row: Row, ledger: Ledger) -> None:
    before = _applied(ledger)
    loading = ledger.begin(before, 4, load=LOAD, source="a", files=1, bytes=3)
    assert (loading.phase, loading.load, loading.plan) == (LOADING, LOAD, None)
    assert (loading.resume, loading.seen, loading.captures, loading.tables) == (RESUME, SEEN, "/c", ENTRIES)
    assert _ledger(row, loads=True).read() == loading


def test_what_a_comparison_has_noted_since_the_row_was_read_is_kept(row: Row, ledger: Ledger) -> None:
    before = _applied(ledger)
    ledger.release()
    later = _ledger(row)
    assert later.read() == before
    ledger.acquire()
    noted = ledger.write(MadeTables(before, cast("Any", None), before, cast("Any", None)).noted({}))
    assert later.acquire() == noted != before
    later.release()


def test_the_first_plan_of_a_target_begins_its_ledger(row: Row, ledger: Ledger) -> None:
    planned = _plan(ledger, None, ("s/t3",))
    assert ledger.id
    assert (planned.ledger, planned.tables, planned.places) == (ledger.id, (), ("s/t3",))
    assert _ledger(row).read() == planned


@pytest.mark.parametrize("other", [FORMAT - 1, FORMAT + 1, 7])
def test_any_other_format_of_the_ledger_is_refused(row: Row, ledger: Ledger, other: int) -> None:
    _applied(ledger)
    assert row.values is not None
    assert row.values["format"] == FORMAT == 2
    row.values["format"] = other
    with pytest.raises(TargetError, match=f"the ledger has the format {other}, this walreplay knows 2") as caught:
        _ledger(row).read()
    assert caught.value.remedy == "Use the walreplay that wrote it; or apply the captures to a new target"


def test_an_interrupted_load_is_refused_by_all_but_loads(row: Row, ledger: Ledger) -> None:
    loading = ledger.begin(_applied(ledger), 4, load=LOAD, source="a", files=1, bytes=3)
    ledger.release()
    with pytest.raises(TargetError, match=r"a base load of s\.t3 as of LSN 0/4 was interrupted"):
        _ledger(row).read()
    with pytest.raises(TargetError, match=r"a base load of s\.t3 as of LSN 0/4 was interrupted"):
        _ledger(row).acquire()
    # Whoever is refused has left the lock.
    other = _ledger(row, loads=True)
    assert other.acquire() == loading
    given_up = other.write(loading.ended(loading.tables))
    assert _ledger(row).read() == given_up


def test_the_row_has_the_columns_of_the_table_in_their_order(ledger: Ledger) -> None:
    assert list(values_of(_applied(ledger), None, TARGET)) == SCHEMA.names


def test_what_a_run_does_is_its_phase(ledger: Ledger) -> None:
    work = {"plan": PLAN, "load": LOAD, "rebuild": REBUILD}
    applied = _applied(ledger)
    assert {phase: replace(applied, **{name: work[name]}).phase for phase, name in WORK.items()} == {
        phase: phase for phase in WORK
    }
    assert applied.phase == "applied"
    assert replace(applied, run=0).phase == "new"
