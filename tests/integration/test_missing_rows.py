"""Updates and deletes whose rows are not in their table: a warning that counts them, or a run that stops before it."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import walreplay
from support.extent import further
from support.readers import collect
from support.small_mirror import INT4, TEXT, SmallMirror, relation, row
from support.writing import only_merge
from walreplay.loading.description import Description, write_description
from walreplay.protocol import messages as m
from walreplay.report import TableReport
from walreplay.session import steps

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.integration, pytest.mark.full]

_NAMES = {9: "keyed", 10: "truncated", 11: "whole", 12: "new", 13: "new_whole"}
_KEYED, _TRUNCATED, _WHOLE, _NEW, _NEW_WHOLE = _NAMES


def _relation(oid: int) -> m.Relation:
    return relation(oid, _NAMES[oid], {"id": INT4, "v": TEXT}, "f" if "whole" in _NAMES[oid] else "d")


def _rows(mirror: SmallMirror, name: str) -> list[tuple[Any, ...]]:
    if not (mirror.location(name) / "_delta_log").exists():
        return []
    return sorted(map(tuple, collect(mirror.location(name), "id", "v")))


def _rows_of(oid: int) -> list[m.AnyMessage]:
    return [_relation(oid), *(m.Insert(oid, row(n, "first")) for n in range(3))]


def _lost_of(oid: int) -> list[m.AnyMessage]:
    if "whole" in _NAMES[oid]:
        return [m.Delete(oid, old=row(1, "first")), m.Delete(oid, old=row(8, "lost"))]
    return [m.Update(oid, row(1, "later")), m.Update(oid, row(7, "lost")), m.Delete(oid, key=row(8, None))]


_FIRST = [message for oid in (_KEYED, _TRUNCATED, _WHOLE) for message in _rows_of(oid)]
_SECOND = [
    *(_relation(_KEYED), *_lost_of(_KEYED)),
    *(_relation(_TRUNCATED), m.Truncate((_TRUNCATED,), 0), *_rows_of(_TRUNCATED), *_lost_of(_TRUNCATED)),
    *(_relation(_WHOLE), *_lost_of(_WHOLE)),
    *(*_rows_of(_NEW), *_lost_of(_NEW)),
    *(*_rows_of(_NEW_WHOLE), *_lost_of(_NEW_WHOLE)),
]
"""Every way of a commit: a table that is merged into, one written anew, one that is new; with a key and without."""


_WAYS = ["small tables are written anew", "all are merged into", "Spark writes everything"]


def _go(monkeypatch: pytest.MonkeyPatch, way: str) -> None:
    if way == "all are merged into":
        only_merge(monkeypatch)
    elif way == "Spark writes everything":
        monkeypatch.setenv("WALREPLAY_COMMITS", "spark")


@pytest.mark.parametrize("way", further(_WAYS[:2], but=_WAYS[:2], long=_WAYS[2:]))
def test_rows_that_are_not_there_are_a_warning_with_their_count(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    _go(monkeypatch, way)
    mirror = SmallMirror(spark, tmp_path)
    mirror.write(*_FIRST)
    assert mirror.apply().warnings == ()
    mirror.write(*_SECOND)
    _assert_told(mirror.apply(), mirror)


def _assert_told(report: walreplay.RunReport, mirror: SmallMirror) -> None:
    # Once, with all tables and what brings the rows.
    (warning,) = [warning for warning in report.warnings if "Likely reasons" in warning]
    assert "walreplay load --from BASE --at-lsn LSN --replace" in warning
    for name in _NAMES.values():
        if "whole" in name:
            assert _rows(mirror, name) == [(0, "first"), (2, "first")]
            assert f"s.{name} (1 to be deleted)" in warning
        else:
            assert _rows(mirror, name) == [(0, "first"), (1, "later"), (2, "first"), (7, "lost")]
            assert f"s.{name} (1 to be updated, 1 to be deleted)" in warning


class _Killed(BaseException):
    """As if the process had ended here."""


@pytest.mark.parametrize("way", _WAYS)
def test_a_run_that_goes_on_for_one_that_was_killed_tells_what_that_one_did_not_find(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    _go(monkeypatch, way)
    mirror = SmallMirror(spark, tmp_path)
    mirror.write(*_FIRST)
    mirror.apply()
    mirror.write(*_SECOND)
    applied = itertools.count(1)

    def on_step(name: str) -> None:
        # All tables have their commits, and nothing is recorded.
        if name.startswith("table applied") and next(applied) == len(_NAMES):
            raise _Killed

    with monkeypatch.context() as patched:
        patched.setattr(steps, "on_step", on_step)
        with pytest.raises(_Killed):
            mirror.apply()
    _assert_told(mirror.apply(), mirror)


@pytest.mark.parametrize(
    ("config", "origin"),
    [({"skipped_operations": ["c"]}, None), ({"origin_exclude_list": ["far"]}, "far")],
    ids=["inserts are skipped", "an origin is left out"],
)
def test_nothing_is_told_of_rows_that_the_configuration_leaves_out(
    spark: SparkSession, tmp_path: Path, config: Mapping[str, Any], origin: str | None
) -> None:
    mirror = SmallMirror(spark, tmp_path)
    mirror.write(*([m.Origin(100, origin)] if origin else []), *_rows_of(_KEYED))
    mirror.write(_relation(_KEYED), m.Update(_KEYED, row(1, "later")))
    report = mirror.apply(**config)
    (table,) = report.tables
    assert (table.without_base, report.warnings) == (1, ())
    assert any("not in the table" in note for note in table.notes)


@pytest.mark.parametrize("end", ["load", "rebuild", "truncate"])
def test_a_gap_is_named_until_the_table_has_come_whole_behind_it(spark: SparkSession, tmp_path: Path, end: str) -> None:
    """What the gap may have left in the table hinders no later run, and what it lacks is told with its place."""
    mirror, lost = SmallMirror(spark, tmp_path), tmp_path / "lost"
    of = _relation(_KEYED)
    mirror.apply(of, m.Insert(_KEYED, row(1, "a")))
    mirror.apply(m.Insert(_KEYED, row(2, "b")))
    mirror.write(m.Insert(_KEYED, row(3, "c"))).rename(lost)
    mirror.apply(of, m.Insert(_KEYED, row(4, "d")), allow_gaps=True)

    report = mirror.apply(of, m.Update(_KEYED, row(3, "later")))

    (warning,) = report.warnings
    assert "rows are not in their tables though changed: s.keyed (1 to be updated)" in warning
    assert "A run has gone on over a gap" in warning
    assert "between 002.bin and 004.bin 1 file is missing, such as 003.bin, near LSN 0/190" in warning
    assert "may take over the key" in (_report_of(report).writer_reason or "")
    _end_gap(mirror, lost, end)

    report = mirror.apply(of, m.Insert(_KEYED, row(5, "e")), m.Delete(_KEYED, row(9, None), None))

    assert _report_of(report).writer_reason is None
    (warning,) = report.warnings
    assert "gap" not in warning


def _end_gap(mirror: SmallMirror, lost: Path, end: str) -> None:
    of = _relation(_KEYED)
    if end == "load":
        base = mirror.captures.parent / "base"
        base.mkdir()
        (base / "s.keyed.copy").write_text("1\ta\n2\tb\n3\tlater\n4\td\n")
        described = base.with_suffix(".jsonl")
        described.write_text(write_description([of], Description.of((), ())))
        walreplay.load(mirror.spark, base, mirror.target, 550, describe=described, replace=True)
    elif end == "truncate":
        mirror.apply(of, m.Truncate((_KEYED,), 0))
    else:
        # It proves to be right already: the row was updated as a whole.
        lost.rename(mirror.captures / "003.bin")
        report = walreplay.rebuild(mirror.spark, mirror.captures, mirror.target, r"s\.keyed")
        assert [table.action for table in report.tables] == ["unchanged"]
        # To a run it would be a file that came late.
        (mirror.captures / "003.bin").rename(lost)


def _report_of(report: walreplay.RunReport) -> TableReport:
    (found,) = (table for table in report.tables if table.name == "s.keyed")
    return found
