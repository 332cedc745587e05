"""Base loads into histories: the rows are versions, which what comes behind the load's LSN ends."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

import walreplay
from support.history_model import as_of_lsn, as_of_time
from support.readers import read
from support.small_mirror import INT4, TEXT, SmallMirror, relation, row
from support.stopped_run import StoppedError
from walreplay.errors import TargetError
from walreplay.loading.description import Description, write_description
from walreplay.lsn import POSTGRES_EPOCH_UNIX_MICROS
from walreplay.protocol import messages as m

pytestmark = [pytest.mark.integration, pytest.mark.full]

ALL = {"outputs": ["mirror", "history", "changelog"]}
COLUMNS = {"id": INT4, "note": TEXT}
ITEMS, BAG = relation(9, "items", COLUMNS), relation(10, "bag", COLUMNS, "f")


class Base:
    """A folder of copies, and what loads them with histories."""

    def __init__(self, mirror: SmallMirror, folder: Path) -> None:
        self.mirror = mirror
        self.folder = folder / "base"
        self.folder.mkdir()
        self.description = folder / "tables.jsonl"
        self.description.write_text(write_description([ITEMS, BAG], Description.of((), ())))

    def write(self, items: Sequence[str], bag: Sequence[str]) -> None:
        # Several files are several parts.
        for number, line in enumerate(bag):
            (self.folder / f"s.bag.{number}.copy").write_text(f"{line}\n")
        for number in range(len(bag), 9):
            (self.folder / f"s.bag.{number}.copy").write_text("")
        (self.folder / "s.items.copy").write_text("".join(f"{line}\n" for line in items))

    def load(self, lsn: int, **options: Any) -> walreplay.RunReport:
        mirror = self.mirror
        found = {"describe": self.description, "captures": mirror.captures, "config": ALL, **options}
        return walreplay.load(mirror.spark, self.folder, mirror.target, lsn, **found)

    def versions(self, name: str) -> list[tuple[Any, ...]]:
        rows = read(self.mirror.location(f"{name}__history")).to_pylist()
        rows.sort(key=lambda one: (one["__start_lsn"], one["id"], one["note"] or "", one["__end_lsn"] or 999))
        assert len({(one["__start_lsn"], one["__ordinal"]) for one in rows}) == len(rows)
        return [(one["id"], one["note"], one["__start_lsn"], one["__end_lsn"], one["__op"]) for one in rows]


def test_loaded_rows_are_versions_from_the_loads_lsn_on(
    mirror: SmallMirror, tmp_path: Path, stop: Callable[[str], None]
) -> None:
    base, spark = Base(mirror, tmp_path), mirror.spark
    base.write(["1\tone", "2\ttwo", "3\t\\N"], ["1\tx", "2\ty", "1\tx", "1\tx"])
    # Of these all is among the rows, but the change log has them nevertheless.
    mirror.write(ITEMS, m.Insert(9, row(2, "two")), BAG, m.Insert(10, row(1, "x")), m.Truncate((10,), 0))
    report = base.load(150)
    assert {(one.name, one.inserted) for one in report.tables} == {
        (f"s.{name}{output}", count) for name, count in (("items", 3), ("bag", 4)) for output in ("", " (history)")
    }
    assert report.changes == 7
    mirror.apply(
        ITEMS,
        m.Update(9, row(1, "later")),
        m.Delete(9, key=row(3, None)),
        BAG,
        m.Delete(10, old=row(1, "x")),
        m.Update(10, row(3, "z"), old=row(1, "x")),
        **ALL,
    )
    assert base.versions("items") == [
        (1, "one", 150, 200, "r"),
        (2, "two", 150, None, "r"),
        (3, None, 150, 200, "r"),
        (1, "later", 200, None, "u"),
    ]
    assert base.versions("bag") == [
        (1, "x", 150, 200, "r"),
        (1, "x", 150, 200, "r"),
        (1, "x", 150, None, "r"),
        (2, "y", 150, None, "r"),
        (3, "z", 200, None, "u"),
    ]
    found, since = read(mirror.location("items__history")), POSTGRES_EPOCH_UNIX_MICROS
    for at in (as_of_lsn(found, 199), as_of_time(found, since + 199), as_of_time(found, since)):
        assert sorted(at.column("id").to_pylist()) == [1, 2, 3]
    for name, ops in (("items", "cdu"), ("bag", "cdtu")):
        assert sorted(read(mirror.location(f"{name}__changes")).column("__op").to_pylist()) == sorted(ops)
    assert read(mirror.location("bag")).num_rows == 3
    report = walreplay.rebuild(spark, mirror.captures, mirror.target, r"s\.items", outputs=["history"], config=ALL)
    assert [(one.name, one.action) for one in report.tables] == [("s.items (history)", "unchanged")]

    # Again: what is open ends there, and the rows begin.  A load that was stopped is finished, once.
    base.write(["1\tagain", "4\tfour"], [])
    with pytest.raises(TargetError, match="the table is there already"):
        base.load(250)
    stop("table applied")
    with pytest.raises(StoppedError):
        base.load(250, replace=True)
    with pytest.raises(TargetError, match="histories may have its rows"):
        base.load(240, replace=True)
    base.load(250, replace=True)
    mirror.apply(m.Insert(9, row(5, "five")), m.Delete(9, key=row(1, None)), m.Insert(10, row(1, "x")), **ALL)
    assert base.versions("items") == [
        (1, "one", 150, 200, "r"),
        (2, "two", 150, 250, "r"),
        (3, None, 150, 200, "r"),
        (1, "later", 200, 250, "u"),
        (1, "again", 250, 300, "r"),
        (4, "four", 250, None, "r"),
        (5, "five", 300, None, "c"),
    ]
    assert base.versions("bag") == [
        (1, "x", 150, 200, "r"),
        (1, "x", 150, 200, "r"),
        (1, "x", 150, 250, "r"),
        (2, "y", 150, 250, "r"),
        (3, "z", 200, 250, "u"),
        (1, "x", 300, None, "c"),
    ]
    found = read(mirror.location("items__history"))
    assert sorted(as_of_time(found, since + 199).column("note").to_pylist(), key=str) == [None, "one", "two"]
    for at in (as_of_lsn(found, 299), as_of_time(found, since + 299)):
        assert sorted(at.column("note").to_pylist()) == ["again", "four"]
    assert sorted(as_of_time(found, since + 300).column("note").to_pylist()) == ["five", "four"]


def test_rows_of_before_those_that_a_history_has_are_refused_and_both_remedies_work(
    mirror: SmallMirror, tmp_path: Path
) -> None:
    base = Base(mirror, tmp_path)
    base.write(["1\tone"], [])
    mirror.apply(ITEMS, m.Insert(9, row(1, "one")), **ALL)
    base.load(350, replace=True)
    for remedy in (lambda: base.load(360, replace=True), lambda: None):
        with pytest.raises(
            TargetError, match=r"a load as of a later LSN, 0/(15E|168)\. .*apply captures beyond the LSN"
        ):
            base.load(250, replace=True)
        remedy()
    for number in (2, 3, 4):
        mirror.apply(ITEMS, m.Insert(9, row(number, "sent")), **ALL)
    base.load(250, replace=True)
    assert base.versions("items") == [
        (1, "one", 250, None, "r"),
        (3, "sent", 300, None, "c"),
        (4, "sent", 400, None, "c"),
    ]


def test_a_history_that_is_gone_is_not_made_of_a_loads_versions_alone(
    mirror: SmallMirror, tmp_path: Path, stop: Callable[[str], None]
) -> None:
    base, history, away = Base(mirror, tmp_path), mirror.location("items__history"), tmp_path / "away"
    mirror.apply(ITEMS, m.Insert(9, row(7, "seven")), BAG, m.Insert(10, row(1, "x")), **ALL)
    base.write(["1\tone"], ["1\tx"])
    stop("plan written")
    with pytest.raises(StoppedError):
        base.load(150, replace=True)
    shutil.move(history, away)
    shutil.rmtree(mirror.location("items"))  # the load has all rows of a mirror: it is made again
    with pytest.raises(TargetError, match="the table is gone") as caught:
        base.load(150, replace=True)
    assert (caught.value.table, caught.value.path) == ("s.items (history)", str(history))
    assert not history.exists()
    shutil.move(away, history)
    base.load(150, replace=True)
    assert read(mirror.location("items")).column("id").to_pylist() == [1]
    assert base.versions("items") == [(7, "seven", 100, 150, "c"), (1, "one", 150, None, "r")]
