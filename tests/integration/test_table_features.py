"""A table asks of its readers what it cannot be without, from the moment on at which it cannot."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from support.killed_run import run_until_killed
from support.small_mirror import INT4, INT8, TEXT, SmallMirror, forget, relation, row
from support.stopped_run import StoppedError
from support.truth import table_features
from walreplay.delta.commits import COLUMN_MAPPING, DELETION_VECTORS, TIMESTAMP_NTZ, TYPE_WIDENING
from walreplay.errors import TargetError
from walreplay.protocol import messages as m
from walreplay.writing import by_statements, rewrite

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.integration

INT2, DATE, TIMESTAMP, TIMESTAMPTZ = 21, 1082, 1114, 1184

_MAPPED, _WIDER, _LOCAL, _MARKED = "columnMapping", "typeWidening", "timestampNtz", "deletionVectors"

# A mapping comes with a feature for the sake of the list that features stand in, if with no other: see `missing`.

_Columns = dict[str, int]

_BEFORE: Final[_Columns] = {"id": INT4, "a": INT2, "d": DATE, "A.b's_\\\"": TEXT, "z": TEXT}
_ROW: Final = (1, 7, "2024-02-29", "x", "z")


def _but(old: str, *new: tuple[str, int]) -> _Columns:
    """Return the columns with others in one's place."""
    return {k: t for name, kind in _BEFORE.items() for k, t in (new if name == old else [(name, kind)])}


_MOMENT: Final = "2024-03-01 12:00:00"

_ALL: Final = "a column is renamed, one widened, one comes"

_CHANGES: Final[dict[str, tuple[set[str], _Columns, Sequence[object]]]] = {
    "nothing but rows": (set(), _BEFORE, (2, *_ROW[1:])),
    "a column comes": (set(), {**_BEFORE, "n": INT4}, (2, *_ROW[1:], 3)),
    "a column goes and its values are kept": (set(), _but("a"), (2, *_ROW[2:])),
    "a column is renamed": ({_MAPPED, _LOCAL}, _but("a", ("b", INT2)), (2, *_ROW[1:])),
    "a column gets another case": ({_MAPPED, _LOCAL}, _but("a", ("A", INT2)), (2, *_ROW[1:])),
    "a column is widened": ({_WIDER}, _but("a", ("a", INT4)), (2, 70_000, *_ROW[2:])),
    _ALL: ({_MAPPED, _WIDER}, {**_but("a", ("b", INT2)), "id": INT8, "n": TEXT}, (2, *_ROW[1:], "n")),
    "a date gets a time": ({_WIDER, _LOCAL}, _but("d", ("d", TIMESTAMP)), (2, 7, _MOMENT, "x", "z")),
    "a local time comes": ({_LOCAL}, {**_BEFORE, "at": TIMESTAMP}, (2, *_ROW[1:], _MOMENT)),
    "a moment comes": (set(), {**_BEFORE, "at": TIMESTAMPTZ}, (2, *_ROW[1:], f"{_MOMENT}+00")),
    "a name comes that Parquet cannot hold": ({_MAPPED, _LOCAL}, {**_BEFORE, "a b": TEXT}, (2, *_ROW[1:], "ab")),
    "a type changes so that the table is rewritten": (set(), _but("a", ("a", TEXT)), (2, "seven", *_ROW[2:])),
    "a table is rewritten, and a local time comes": (
        {_LOCAL},
        {**_but("a", ("a", TEXT)), "at": TIMESTAMP},
        (2, "seven", *_ROW[2:], _MOMENT),
    ),
}


def _inserted(columns: _Columns, *values: object, oid: int = 1, name: str = "t") -> Sequence[m.AnyMessage]:
    return relation(oid, name, columns), m.Insert(oid, row(*values))


_CHANGED: Final = (_CHANGES[_ALL][1], *_CHANGES[_ALL][2])


def _features(mirror: SmallMirror, table: str = "t") -> set[str]:
    return table_features(mirror.location(table))


@pytest.mark.full
def test_a_feature_comes_with_the_first_change_that_needs_it(mirror: SmallMirror, tmp_path: Path) -> None:
    def all_of(changes: Callable[[int, str], Sequence[m.AnyMessage]]) -> Sequence[m.AnyMessage]:
        return [change for oid, what in enumerate(_CHANGES, 1) for change in changes(oid, what)]

    mirror.apply(*all_of(lambda oid, what: _inserted(_BEFORE, *_ROW, oid=oid, name=what)))
    assert {what: _features(mirror, what) for what in _CHANGES} == {what: set() for what in _CHANGES}
    mirror.apply(*all_of(lambda oid, what: _inserted(_CHANGES[what][1], *_CHANGES[what][2], oid=oid, name=what)))
    assert {what: _features(mirror, what) for what in _CHANGES} == {what: _CHANGES[what][0] for what in _CHANGES}
    # Once more, now that they are there: the key's row is another.
    mirror.apply(*all_of(lambda oid, what: [m.Update(oid, row(*_CHANGES[what][2][:-1], None))]))
    assert {what: _features(mirror, what) for what in _CHANGES} == {what: _CHANGES[what][0] for what in _CHANGES}
    wanted = {what: int(bool(features)) for what, (features, *_) in _CHANGES.items()}
    assert {what: mirror.history(what).count("SET TBLPROPERTIES") for what in _CHANGES} == wanted
    assert mirror.rows() == mirror.expected(tmp_path / "expected")


def test_a_table_made_anew_gets_what_its_new_columns_need(mirror: SmallMirror, tmp_path: Path) -> None:
    mirror.apply(*_inserted(_BEFORE, *_ROW))
    mirror.apply(m.Truncate((1,), 0), *_inserted({"id": INT4, "a;b": TEXT, "at": TIMESTAMP}, 2, "ab", _MOMENT))
    assert _features(mirror) == {_MAPPED, _LOCAL}
    assert mirror.rows() == mirror.expected(tmp_path / "expected")


def test_a_table_has_from_the_beginning_what_its_columns_need(mirror: SmallMirror) -> None:
    mirror.apply(*_inserted({"id": INT4, "at": TIMESTAMP, "a=b": TEXT}, 1, _MOMENT, "x"))
    assert _features(mirror) == {_LOCAL, _MAPPED}
    assert mirror.history("t") == ["WRITE"]


@pytest.mark.full
def test_rows_are_marked_from_the_first_merge_into_a_large_table_on(
    mirror: SmallMirror, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    columns = {"id": INT4, "v": TEXT}
    key, none = relation(1, "key", columns), relation(2, "none", columns, "f")
    mirror.apply(*(one for table in (key, none) for one in (table, *_nine(table.oid))))
    mirror.apply(
        *(key, m.Insert(1, row(10, "old")), m.Update(1, row(2, "new"))),
        *(none, m.Insert(2, row(10, "old")), m.Update(2, row(2, "new"), old=row(2, "old"))),
    )
    assert (_features(mirror, "key"), _features(mirror, "none")) == (set(), set())
    monkeypatch.setattr(by_statements, "_SMALL_TABLE", 0)
    monkeypatch.setattr(rewrite, "_MAX_BYTES", -1)
    mirror.apply(key, m.Delete(1, key=row(3, None)), none, m.Delete(2, old=row(3, "old")))
    assert (_features(mirror, "key"), _features(mirror, "none")) == ({_MARKED}, {_MARKED})
    assert mirror.rows() == mirror.expected(tmp_path / "expected")


def _nine(oid: int) -> Sequence[m.AnyMessage]:
    return [m.Insert(oid, row(number, "old")) for number in range(9)]


@pytest.mark.full
def test_a_table_that_has_the_features_already_goes_on(mirror: SmallMirror, tmp_path: Path) -> None:
    """As those have that were made when every table got all of them."""
    mirror.apply(*_inserted(_BEFORE, *_ROW))
    given = COLUMN_MAPPING | TYPE_WIDENING | TIMESTAMP_NTZ | DELETION_VECTORS
    listed = ", ".join(f"'{name}' = '{value}'" for name, value in given.items())
    mirror.spark.sql(f"ALTER TABLE delta.`{mirror.location('t')}` SET TBLPROPERTIES ({listed})")
    mirror.apply(*_inserted(*_CHANGED))
    mirror.apply(m.Update(1, row(2, 8, *_ROW[2:], "m")))
    assert _features(mirror) == {_MAPPED, _WIDER, _LOCAL, _MARKED}
    assert mirror.history("t").count("SET TBLPROPERTIES") == 1
    assert mirror.rows() == mirror.expected(tmp_path / "expected")


@pytest.mark.both_ways
@pytest.mark.full
def test_a_run_that_stops_anywhere_between_a_feature_and_its_change_is_finished(
    mirror: SmallMirror, tmp_path: Path, stop: Callable[[str], None]
) -> None:
    mirror.apply(*_inserted(_BEFORE, *_ROW))
    mirror.write(*_inserted(*_CHANGED))
    both = {_MAPPED, _WIDER}
    # Each goes on where the one before has stopped.
    for step, there in (("features are to come", set()), ("features have come", both), ("columns are to change", both)):
        stop(step)
        with pytest.raises(StoppedError):
            mirror.apply()
        assert _features(mirror) == there
    mirror.apply()
    assert mirror.history("t").count("SET TBLPROPERTIES") == 1
    assert mirror.rows() == mirror.expected(tmp_path / "expected")


@pytest.mark.full
def test_a_run_that_is_killed_between_a_feature_and_its_change_is_finished(spark: SparkSession, tmp_path: Path) -> None:
    mirror = SmallMirror(spark, tmp_path)
    mirror.apply(*_inserted(_BEFORE, *_ROW))
    mirror.write(*_inserted(*_CHANGED))
    done = run_until_killed(mirror.captures, Path(mirror.target), "features have come", 1, scratch=tmp_path)
    assert not any(step.startswith("columns changed") for step in done)
    assert _features(mirror) == {_MAPPED, _WIDER}
    mirror.apply()
    assert mirror.history("t").count("SET TBLPROPERTIES") == 1
    assert mirror.rows() == mirror.expected(tmp_path / "expected")


@pytest.mark.full
def test_a_ledger_that_goes_back_behind_a_feature_takes_its_tables_along(mirror: SmallMirror, tmp_path: Path) -> None:
    mirror.apply(*_inserted(_BEFORE, *_ROW))
    mirror.save(tmp_path / "ledger")
    mirror.apply(*_inserted(*_CHANGED))
    mirror.put_back(tmp_path / "ledger")
    with pytest.raises(TargetError, match="the ledger was set back") as refused:
        mirror.apply()
    (statement,) = re.findall(r"RESTORE TABLE \S+ TO VERSION AS OF \d+", str(refused.value))
    mirror.spark.sql(statement)
    mirror.apply()
    forget(mirror.spark)
    assert mirror.rows() == mirror.expected(tmp_path / "expected")
    mirror.apply(m.Update(1, row(2, 8, *_ROW[2:], "m")))
    assert mirror.rows() == mirror.expected(tmp_path / "expected again")


@pytest.mark.full
def test_a_name_that_comes_again_is_another_column(mirror: SmallMirror, tmp_path: Path) -> None:
    """Files from before the features call columns as the table did then."""
    mirror.apply(*_inserted({"id": INT4, "a": INT8, "z": TEXT}, 1, 1, "z"))
    mirror.apply(*_inserted({"id": INT4, "b": INT8, "z": TEXT}, 2, 2, "z"))
    mirror.apply(*_inserted({"id": INT4, "b": INT8, "z": TEXT, "a": TEXT}, 3, 3, "z", "new"))
    mirror.apply(m.Update(1, row(1, 11, "z", "new")))
    assert _features(mirror) == {_MAPPED, _LOCAL}
    assert mirror.rows() == mirror.expected(tmp_path / "expected")
