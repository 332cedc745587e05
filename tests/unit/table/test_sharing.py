"""Tables of several sources: columns, the way to write again, and where rows move."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field, replace
from itertools import permutations
from types import SimpleNamespace

import pyarrow as pa
import pytest
from pyspark.sql.types import IntegerType, LongType, StringType, StructField, StructType

from support.evolutions import TYPES, evolve
from walreplay.config import Settings
from walreplay.config.selection import MetadataNames, Share, metadata_of
from walreplay.delta.commits import CommitId
from walreplay.delta.local import ConflictError
from walreplay.delta.target import Target
from walreplay.errors import ConfigError, TargetError
from walreplay.evolution.shapes import Evolution, Policy, SourceColumn, TableShape
from walreplay.names import Output, RowKind
from walreplay.table import placement
from walreplay.table.placement import Use, UsedRelation
from walreplay.table.registry import MirrorEntry
from walreplay.table.sharing import (
    TableColumn,
    check_output,
    check_own_columns,
    columns_in,
    needed,
    with_needed,
)
from walreplay.table.table_run import is_own, table_schema
from walreplay.writing import shared_table as sharing
from walreplay.writing.shared_table import in_turn, moves_values

EU = Share("__source", "eu")
TARGET = Target.parse("/m")


def entry(name, share=EU, *, aside=False):
    table = TARGET.set_aside(1) if aside else TARGET.table("s", name)
    return MirrorEntry(1, f"s.{name}", table, TableShape(), aside, share=share)


def place(known, oid, name, share=EU):
    table = TARGET.table("s", name)
    wanted = UsedRelation(oid, f"s.{name}", table, share=share)
    return placement.plan_moves([known], [wanted], [Use(oid, table.place)], TARGET).moves


def test_what_a_table_needs_is_what_it_lacks():
    kinds = {"__source": StringType(), "id": IntegerType(), "note": StringType(), "n": LongType()}
    there = columns_in(StructType([StructField(*one) for one in kinds.items()]))
    kinds = {"note": pa.int32(), "n": pa.int16(), "id": pa.int64(), "x": pa.bool_()}
    wanted = [TableColumn("ID", "INT"), *columns_in(pa.schema(list(kinds.items())))]
    found = needed(there, wanted)
    assert found.added == (TableColumn("x", "BOOLEAN"),)
    assert found.widened == (TableColumn("id", "BIGINT"),)
    assert [(wanted.text, known.text) for wanted, known in found.conflicts] == [("ID", "id"), ("note", "note")]
    assert [one[:2] for one in with_needed(there, found)] == [
        ("__source", "STRING"),
        ("id", "BIGINT"),
        ("note", "STRING"),
        ("n", "BIGINT"),
        ("x", "BOOLEAN"),
    ]
    assert not needed(with_needed(there, found), [*found.added, *found.widened]).any


def test_old_rows_of_a_change_log_have_the_fields_of_all_sources():
    old = StructType([StructField("id", IntegerType()), StructField("a, b", StringType())])
    there = columns_in(StructType([StructField("id", IntegerType()), StructField("__before", old)]))
    kinds = {"id": pa.int64(), "x`y": pa.float32()}
    wanted = columns_in(pa.schema([*kinds.items(), ("__before", pa.struct(list(kinds.items())))]))
    found = needed(there, wanted)
    assert [one.sql for one in found.added] == ["`x``y`", "`__before`.`x``y`"]
    assert [(one.text, one.kind) for one in found.widened] == [("id", "BIGINT"), ("__before.id", "BIGINT")]
    assert not needed(with_needed(there, found), wanted).any
    ((one, other),) = needed(there, [TableColumn("A, B", "STRING", "__before")]).conflicts
    assert (one.text, other.text) == ("__before.A, B", "__before.a, b")


def plan(metadata, source="us"):
    evolution = Evolution(None, Policy())
    evolution.take([SourceColumn("a", "a", TYPES["int"])])
    epoch = SimpleNamespace(shape=evolution.shape)
    own = replace(metadata, share=Share("__source", source))
    return SimpleNamespace(name="s.a", table=TARGET.table("s", "a"), metadata=own, epochs=[epoch])


def test_a_table_that_others_have_made_has_all_that_is_said_of_rows():
    history, log = (metadata_of(Settings(), output) for output in (Output.HISTORY, Output.CHANGELOG))
    there = columns_in(table_schema(plan(log).epochs[0].shape, plan(log).metadata))
    check_own_columns(plan(log), there)
    # A table whose columns have come later has them.
    check_own_columns(plan(log), [*there, TableColumn("b", "int"), TableColumn("b", "int", "__before")])
    with pytest.raises(ConfigError, match=r"lacks what the source's rows would have [(]__op, __xid[)]"):
        check_own_columns(plan(log), [one for one in there if one.name not in ("__op", "__xid")])
    with pytest.raises(ConfigError, match=r"[(]__before[)]"):
        check_own_columns(plan(log), [one for one in there if one.within is None])
    with pytest.raises(ConfigError, match="__end_lsn"):
        check_own_columns(plan(history), there)


def test_what_one_source_has_as_a_mirror_is_no_history_of_another():
    def made(output, source):
        return CommitId("ledger", 1, oid=output.oid_of(7), source=source)

    def check(output, *commits):
        check_output("s.a", "/m/s/a", output.oid_of(9), "us", commits)

    check(Output.HISTORY)
    check(Output.HISTORY, made(Output.HISTORY, "eu"), CommitId("ledger", 1))
    # Its own commits are another matter: its rows may have moved.
    check(Output.HISTORY, made(Output.MIRROR, "us"))
    for output, other in permutations(Output, 2):
        with pytest.raises(ConfigError, match="of the source eu, and the source us would write its") as refused:
            check(output, made(output, "asia"), made(other, "eu"))
        assert "scd_type" in str(refused.value)


@pytest.mark.parametrize(
    ("versions", "moves"),
    [
        (("a b", "a b c"), False),
        (("a b", "a"), False),
        (("a b:int", "a b:bigint"), False),
        (("a b:int", "a b:text"), True),
        (("a b c", "a x c"), True),
        # Dropped and added again: the old values are gone.
        (("a b c", "a c b"), True),
    ],
)
def test_rows_are_written_anew_where_values_move(versions, moves):
    assert moves_values(evolve(*versions)) is moves


@dataclass
class _Run:
    """As much of a `TableRun` as its turn needs."""

    checked: int = 0
    resumed: bool = False
    standing: object = "known"
    place: str = "/m/s/a"
    asked: list[bool] = field(default_factory=list)

    @property
    def plan(self):
        return SimpleNamespace(table=SimpleNamespace(place=self.place), name="s.a")

    def check_lock(self, *, sure):
        assert sure
        self.asked.append(True)


def conflict(cause="[DELTA_CONCURRENT_APPEND] someone has appended"):
    try:
        try:
            raise RuntimeError(cause)
        except RuntimeError as error:
            raise TargetError("somebody else has written to the table at the same time") from error
    except TargetError as error:
        return error


@pytest.fixture
def at_once(monkeypatch):
    monkeypatch.setattr(sharing.time, "sleep", lambda _: None)


@pytest.mark.usefixtures("at_once")
def test_a_commit_that_came_in_between_has_the_table_brought_up_to_date_again():
    run, seen = _Run(), []

    def apply(one, is_first):
        seen.append((one.resumed, one.standing, is_first))
        if len(seen) < 3:
            raise conflict() if len(seen) == 1 else ConflictError("somebody else has committed version 1")
        return "done"

    assert in_turn(run, apply) == "done"
    # What was committed before the conflict is looked for in the history.
    assert seen == [(False, "known", True), (True, None, False), (True, None, False)]
    assert len(run.asked) == 2


@pytest.mark.usefixtures("at_once")
def test_any_other_error_is_the_end_and_so_are_conflicts_without_end():
    for error in (conflict("no space left"), ValueError("x")):
        calls = []

        def fail(one, is_first, error=error, calls=calls):
            calls.append(one)
            raise error

        with pytest.raises(type(error)):
            in_turn(_Run(), fail)
        assert len(calls) == 1

    def never(one, is_first):
        raise conflict()

    run = _Run()
    with pytest.raises(TargetError):
        in_turn(run, never)
    assert len(run.asked) == sharing._MAX_ATTEMPTS - 1


def test_in_one_process_a_table_is_written_to_by_one_source_at_a_time():
    at_work, most = [0], [0]

    def apply(one, is_first):
        at_work[0] += 1
        most[0] = max(most[0], at_work[0])
        threading.Event().wait(0.01)
        at_work[0] -= 1

    threads = [threading.Thread(target=in_turn, args=(_Run(), apply)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == [1]


def test_rows_of_a_shared_table_move_and_the_table_stays():
    (move,) = place(entry("a"), 2, "a")
    assert (move.oid, move.set_aside, move.leaves, move.joins) == (1, True, EU, None)
    (back,) = place(entry("a", aside=True), 1, "b")
    assert (back.set_aside, back.leaves, back.joins) == (False, None, EU)
    (renamed,) = place(entry("a"), 1, "b")
    assert (renamed.leaves, renamed.joins) == (EU, EU)
    (alone,) = place(entry("a", None), 1, "b", None)
    assert not alone.is_shared
    with pytest.raises(ConfigError, match="and not as s"):
        place(entry("a"), 1, "b", None)


def test_a_source_is_a_literal_and_its_column_a_name():
    assert is_own(Share("so`urce", "eu-1"), "t.") == "t.`so``urce` = 'eu-1'"
    names = MetadataNames("__commit_lsn", None, None, None, RowKind.CURRENT, share=EU)
    assert names.names == ("__source", "__commit_lsn")
