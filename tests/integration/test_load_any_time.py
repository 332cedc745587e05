"""A base load may come at any time, be killed at any time, and be the beginning of a table that is made again."""

from __future__ import annotations

import shlex
import shutil
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import Row

import walreplay
from support.extent import further
from support.pages import block, with_places
from support.readers import collect
from support.small_mirror import INT4, TEXT, SmallMirror, relation, row
from support.stopped_run import StoppedError
from walreplay.cli.program import main
from walreplay.errors import CaptureError, ConfigError, OrderError, TargetError
from walreplay.loading.description import Description, write_description
from walreplay.protocol import messages as m

pytestmark = pytest.mark.integration

COLUMNS = {"id": INT4, "note": TEXT}
ITEMS, BAG = relation(9, "items", COLUMNS), relation(10, "bag", COLUMNS, "f")
OTHERS = relation(11, "others", COLUMNS)
NOTHING = Description.of((), ())
LOADED = 150
"""Between the first two files of a `SmallMirror`."""

ALL = {"outputs": ["mirror", "history", "changelog"]}


@pytest.fixture
def base(tmp_path: Path) -> Path:
    """Copy two tables, as of an LSN; give the folder, with their description beside it."""
    folder = tmp_path / "base"
    folder.mkdir()
    (folder / "s.items.copy").write_text("1\tone\n2\ttwo\n3\t\\N\n")
    (folder / "s.bag.copy").write_text("1\tx\n1\tx\n2\ty\n")
    folder.with_suffix(".jsonl").write_text(write_description([ITEMS, BAG], NOTHING))
    return folder


def load(mirror: SmallMirror, base: Path, lsn: int = LOADED, **options: Any) -> walreplay.RunReport:
    described = base.with_suffix(".jsonl")
    found = {"describe": described if described.exists() else None, "captures": mirror.captures, **options}
    return walreplay.load(mirror.spark, base, mirror.target, lsn, **found)


def write_captures(mirror: SmallMirror) -> None:
    """Bring three transactions: the first is among the loaded rows."""
    mirror.write(ITEMS, m.Insert(9, row(2, "two")), BAG, m.Insert(10, row(2, "y")), OTHERS, m.Insert(11, row(1, "a")))
    mirror.write(
        ITEMS, m.Update(9, row(1, "later")), BAG, m.Delete(10, old=row(1, "x")), OTHERS, m.Insert(11, row(2, "b"))
    )
    mirror.write(ITEMS, m.Delete(9, key=row(3, None)), m.Insert(9, row(4, "new")), BAG, m.Insert(10, row(5, "z")))


def all_rows(mirror: SmallMirror) -> dict[str, list[tuple[Any, ...]]]:
    """Return the rows of all tables, every column of them but the capture file's path."""
    tables = sorted(path for path in Path(mirror.target, "s").iterdir() if (path / "_delta_log").exists())
    return {path.name: sorted(map(_values, collect(path)), key=repr) for path in tables}


def _values(found: Row) -> tuple[Any, ...]:
    return tuple(value for name, value in found.asDict().items() if name != "__file")


@pytest.mark.parametrize("config", further([None, ALL], but=(None,)))
def test_a_load_behind_apply_is_as_one_in_front_of_it(mirror, base, tmp_path, config) -> None:
    write_captures(mirror)
    first = SmallMirror(mirror.spark, tmp_path / "first")
    shutil.copytree(mirror.captures, first.captures, dirs_exist_ok=True)
    first.files = mirror.files
    load(first, base, config=config)
    first.apply(**config or {})
    mirror.apply(**config or {})
    made = mirror.history("others")

    report = load(mirror, base, config=config)
    names = ["s.bag", "s.items"] if config is None else ["s.bag", "s.bag (history)", "s.items", "s.items (history)"]
    assert [(table.name, table.action) for table in report.tables] == [(name, "overwritten") for name in names]
    # In the runs before it the tables lack rows.
    before, behind = (walreplay.versions_at(mirror.spark, mirror.target, run) for run in (1, 2))
    assert {one.name for one in before.tables if one.sql is None and "which run 2 has loaded" in one.note} == {*names}
    assert {one.name for one in behind.tables if one.sql is None} == set()
    assert (report.status, report.changes, report.applied_lsn) == ("loaded", 6, 300)
    assert all_rows(mirror) == all_rows(first)
    assert mirror.history("others") == made
    with pytest.raises(TargetError, match="the table was loaded already"):
        load(mirror, base, config=config)
    for one in (mirror, first):
        one.apply(ITEMS, m.Update(9, row(2, "again")), BAG, m.Delete(10, old=row(1, "x")), **config or {})
    assert all_rows(mirror) == all_rows(first)


@pytest.mark.full
def test_a_table_that_was_left_out_is_loaded_later_in_one_commit(mirror, base) -> None:
    write_captures(mirror)
    mirror.apply(table_exclude_list=[r"s\.items"])
    load(mirror, base)
    assert mirror.history("items") == ["CREATE TABLE AS SELECT"] or len(mirror.history("items")) == 1
    assert {(found[0], found[1]) for found in all_rows(mirror)["items"]} == {(1, "later"), (2, "two"), (4, "new")}


@pytest.mark.parametrize("config", further([{}, ALL], but=({},)))
@pytest.mark.parametrize(
    "step",
    further(
        ["runs written", "rows replaced"],
        but=("rows replaced",),
        long=["load written down", "side base loaded", "side target made", "rebuild written", "side removed"],
    ),
)
def test_a_load_behind_apply_that_is_stopped_is_finished_and_runs_come_in_between(
    mirror, base, stop, step, config
) -> None:
    write_captures(mirror)
    mirror.apply(**config)
    stop(step)
    with pytest.raises(StoppedError):
        load(mirror, base, config=config)
    # Nothing is half done for a run that comes in between.
    mirror.apply(ITEMS, m.Insert(9, row(6, "six")), **config)
    if step in ("rebuild written", "rows replaced", "side removed"):
        with pytest.raises(TargetError, match="was loaded already"):  # the run has finished it
            load(mirror, base, config=config)
    else:
        load(mirror, base, config=config)
    found = all_rows(mirror)
    assert {(one[0], one[1]) for one in found["items"]} == {(1, "later"), (2, "two"), (4, "new"), (6, "six")}
    assert sorted((one[0], one[1]) for one in found["bag"]) == [(1, "x"), (2, "y"), (5, "z")]
    assert not list(Path(mirror.target, "_walreplay").glob("rebuild/*"))


@pytest.mark.full
@pytest.mark.parametrize("other", ["Items", "others"])
def test_a_table_that_has_the_name_of_one_loaded_behind_apply_keeps_its_base(mirror, base, tmp_path, other) -> None:
    # By its case, or since the two have changed their names.
    second, first_later, second_later = relation(11, other, COLUMNS), ITEMS, relation(11, other, COLUMNS)
    if other == "others":
        first_later, second_later = relation(9, "others", COLUMNS), relation(11, "items", COLUMNS)
    mirror.write(BAG, m.Insert(10, row(1, "x")))
    (base / "s.bag.copy").unlink()
    (base / f"s.{other}.copy").write_text("1\tits own\n")
    base.with_suffix(".jsonl").write_text(write_description([ITEMS, second], NOTHING))
    load(mirror, base)
    mirror.write(ITEMS, m.Insert(9, row(4, "new")), second, m.Insert(11, row(2, "b")))
    mirror.apply(first_later, m.Insert(9, row(5, "later")), second_later, m.Insert(11, row(3, "c")))
    made = all_rows(mirror)[second_later.name]
    assert [one[:2] for one in made] == [(1, "its own"), (2, "b"), (3, "c")]

    (base / f"s.{other}.copy").unlink()
    report = load(mirror, base, 250, replace=True)
    assert [table.name for table in report.tables] == [first_later.qualified_name]
    found = all_rows(mirror)
    assert found[second_later.name] == made
    assert [one[:2] for one in found[first_later.name]] == [(1, "one"), (2, "two"), (3, None), (5, "later")]


def test_rows_of_a_table_whose_name_is_another_ones_are_refused_behind_apply(mirror, base) -> None:
    (base / "s.bag.copy").unlink()
    mirror.write(ITEMS, m.Insert(9, row(1, "one")))
    mirror.write(ITEMS, m.Insert(9, row(5, "five")))
    mirror.apply(relation(19, "items", COLUMNS), m.Insert(19, row(6, "six")))
    made = all_rows(mirror)
    with pytest.raises(TargetError, match="other tables have their names"):
        load(mirror, base)
    assert all_rows(mirror) == made


@pytest.mark.full
@pytest.mark.parametrize("other", [8, 10])
def test_a_loaded_table_that_no_row_has_named_yet_is_refused_behind_apply(mirror, base, other) -> None:
    # Its name is still that of a table which was dropped before the load; or only one of two tables has its place.
    mirror.write(relation(other, "items", COLUMNS), m.Insert(other, row(7, "dropped")))
    mirror.write(OTHERS, m.Insert(11, row(1, "later")))
    mirror.apply()
    made = all_rows(mirror)
    if other == 8:
        (base / "s.bag.copy").unlink()
    with pytest.raises(TargetError, match="other tables have their names") as caught:
        load(mirror, base)
    assert caught.value.table == "s.items"
    assert all_rows(mirror) == made
    # As the remedy says.
    mirror.apply(ITEMS, m.Insert(9, row(4, "new")))
    load(mirror, base)
    assert [found[:2] for found in all_rows(mirror)["items"]] == [(1, "one"), (2, "two"), (3, None), (4, "new")]


@pytest.mark.full
def test_an_archive_that_lacks_what_is_behind_the_rows_is_refused(mirror, base) -> None:
    write_captures(mirror)
    mirror.apply()
    before = all_rows(mirror)
    lost = (mirror.captures / "002.bin").read_bytes()
    (mirror.captures / "002.bin").unlink()
    with pytest.raises(OrderError, match="the target was made of 2"):
        load(mirror, base)
    assert all_rows(mirror) == before
    (mirror.captures / "002.bin").write_bytes(lost)
    # What the rows have needs not be there any more.
    (mirror.captures / "001.bin").unlink()
    load(mirror, base)
    assert {(one[0], one[1]) for one in all_rows(mirror)["items"]} == {(1, "later"), (2, "two"), (4, "new")}


@pytest.mark.parametrize("step", further(["decoded"], but=("decoded",), long=["load written down"]))
def test_a_load_that_is_stopped_while_it_reads_is_finished_or_given_up(mirror, base, stop, step, capsys) -> None:
    write_captures(mirror)
    stop(step)
    with pytest.raises(StoppedError):
        load(mirror, base)
    with pytest.raises(TargetError, match=r"a base load of s\.items, s\.bag as of LSN 0/96 was interrupted") as caught:
        mirror.apply()
    assert "walreplay load --replace, without rows" in caught.value.remedy
    # A copy as of another LSN may take its place, if it has all of these tables.
    (base / "s.bag.copy").rename(base.parent / "bag")
    with pytest.raises(TargetError, match="was interrupted"):
        load(mirror, base, 160)
    (base.parent / "bag").rename(base / "s.bag.copy")
    stop(step)
    with pytest.raises(StoppedError):
        load(mirror, base, 160)
    command = block("docs/starting.md", "walreplay load --replace --target").text
    _, *arguments = shlex.split(with_places(command, {"/data/mirror": mirror.target}))
    assert main(arguments) == 0
    assert "is forgotten" in capsys.readouterr().out
    with pytest.raises(TargetError, match="no load was interrupted"):
        walreplay.give_up_load(mirror.spark, mirror.target)
    mirror.apply()
    assert {one[0] for one in all_rows(mirror)["items"]} == {1, 2, 4}
    load(mirror, base)
    assert {one[:2] for one in all_rows(mirror)["items"]} == {(1, "later"), (2, "two"), (4, "new")}


def test_a_load_whose_files_are_at_fault_keeps_apply_waiting(mirror, base) -> None:
    write_captures(mirror)
    good = (base / "s.items.copy").read_text()
    (base / "s.items.copy").write_text("one\tone\n")
    with pytest.raises(walreplay.WalReplayError):
        load(mirror, base)
    with pytest.raises(TargetError, match="was interrupted, or has failed"):
        mirror.apply()
    (base / "s.items.copy").write_text(good)
    load(mirror, base)
    mirror.apply()
    assert {one[:2] for one in all_rows(mirror)["items"]} == {(1, "later"), (2, "two"), (4, "new")}


def test_what_may_have_rows_of_a_load_is_not_given_up(mirror, base, stop) -> None:
    stop("table applied")
    with pytest.raises(StoppedError):
        load(mirror, base)
    with pytest.raises(TargetError, match="tables may have rows of the load"):
        walreplay.give_up_load(mirror.spark, mirror.target)


def test_a_table_that_was_dropped_before_a_load_does_not_take_the_loaded_ones_name(mirror, base) -> None:
    # The loaded one was made, and filled, before it was published: no row of it is in the captures.
    load(mirror, base, config=ALL)
    loaded = all_rows(mirror)
    old = relation(8, "items", COLUMNS)
    mirror.write(old, m.Insert(8, row(7, "dropped")))
    mirror.write(OTHERS, m.Insert(11, row(1, "later")))
    report = mirror.apply(**ALL)
    assert loaded.items() <= all_rows(mirror).items()
    assert {table.name: table.set_aside for table in report.tables if table.name.startswith("s.items")} == {
        "s.items": True,
        "s.items (history)": True,
        "s.items (changelog)": False,  # a load leaves nothing in a change log, so that the name is free
    }
    mirror.apply(ITEMS, m.Insert(9, row(4, "new")), **ALL)
    assert {found[:2] for found in all_rows(mirror)["items"]} == {(1, "one"), (2, "two"), (3, None), (4, "new")}


@pytest.mark.full
@pytest.mark.parametrize("late", [False, True])
def test_a_loaded_table_is_made_again_from_its_base(mirror, base, tmp_path, late) -> None:
    write_captures(mirror)
    if late:
        mirror.apply(**ALL)
    load(mirror, base, config=ALL)
    mirror.apply(**ALL)
    mirror.apply(ITEMS, m.Update(9, row(2, "again")), **ALL)
    right = all_rows(mirror)
    shutil.rmtree(mirror.location("items"))
    shutil.rmtree(mirror.location("bag__history"))
    report = walreplay.rebuild(mirror.spark, mirror.captures, mirror.target, r"s\..*", config=ALL)
    assert {table.name for table in report.tables if table.action != "unchanged"} == {"s.items", "s.bag (history)"}
    assert all_rows(mirror) == right

    # The files were moved, and others lie in their place.
    moved = base.rename(tmp_path / "moved")
    with pytest.raises(ConfigError, match="was loaded from are not there"):
        walreplay.rebuild(mirror.spark, mirror.captures, mirror.target, r"s\.items", config=ALL)
    base.mkdir()
    (base / "s.items.copy").write_text("1\tone\n")
    shutil.rmtree(mirror.location("items"))
    with pytest.raises(ConfigError, match="names or lengths differ"):
        walreplay.rebuild(mirror.spark, mirror.captures, mirror.target, r"s\.items", config=ALL)
    walreplay.rebuild(mirror.spark, mirror.captures, mirror.target, r"s\.items", base=moved, config=ALL)
    assert all_rows(mirror) == right
    with pytest.raises(ConfigError, match="none of these tables has a base load"):
        walreplay.rebuild(mirror.spark, mirror.captures, mirror.target, r"s\.others", base=moved, config=ALL)


@pytest.mark.full
def test_a_table_that_was_loaded_twice_is_made_again_from_both(mirror, base, tmp_path) -> None:
    load(mirror, base, config=ALL)
    write_captures(mirror)
    mirror.apply(**ALL)
    again = tmp_path / "again"
    again.mkdir()
    (again / "s.items.copy").write_text("1\tone more\n9\tnine\n")
    load(mirror, again, 350, replace=True, config=ALL)
    mirror.apply(ITEMS, m.Update(9, row(9, "ten")), **ALL)
    right = all_rows(mirror)
    shutil.rmtree(mirror.location("items__history"))
    walreplay.rebuild(mirror.spark, mirror.captures, mirror.target, r"s\.items", config=ALL)
    assert all_rows(mirror) == right


@pytest.mark.full
def test_rows_that_cannot_be_read_again_are_told(mirror) -> None:
    rows = mirror.spark.createDataFrame([(1, "one")], "id int, note string")
    described = Path(mirror.target).parent / "tables.jsonl"
    described.write_text(write_description([ITEMS], NOTHING))
    walreplay.load(
        mirror.spark, rows, mirror.target, LOADED, table="s.items", describe=described, captures=mirror.captures
    )
    write_captures(mirror)
    mirror.apply()
    with pytest.raises(TargetError, match="cannot be read again") as caught:
        walreplay.rebuild(mirror.spark, mirror.captures, mirror.target, r"s\.items")
    assert "load --replace" in caught.value.remedy
    # As the remedy says.
    newer = mirror.spark.createDataFrame([(1, "newer"), (4, "new")], "id int, note string")
    walreplay.load(mirror.spark, newer, mirror.target, 350, table="s.items", describe=described, replace=True)
    assert {one[:2] for one in all_rows(mirror)["items"]} == {(1, "newer"), (4, "new")}


@pytest.mark.full
def test_below_the_lsn_of_a_load_no_cut_has_its_tables(mirror, base) -> None:
    write_captures(mirror)
    load(mirror, base, config=ALL)
    kept = mirror.captures.parent / "kept"
    kept.mkdir()
    for name in ("002.bin", "003.bin"):
        (mirror.captures / name).rename(kept / name)
    report = mirror.apply(**ALL)
    assert any("s.items" in text and "as of up to LSN 0/96" in text for text in report.warnings)
    cut = walreplay.versions_at(mirror.spark, mirror.target, 2)
    assert {one.name for one in cut.tables if one.sql is not None} == {
        "s.bag (changelog)", "s.items (changelog)", "s.others", "s.others (changelog)", "s.others (history)",
    }  # fmt: skip
    assert all("as of LSN 0/96" in one.note for one in cut.tables if one.sql is None)
    with pytest.raises(TargetError, match="loaded with rows as of LSN 0/96"):
        walreplay.backfill(mirror.spark, mirror.captures, mirror.target, until_lsn="0/95")
    for path in kept.iterdir():
        path.rename(mirror.captures / path.name)
    mirror.apply(**ALL)
    below = walreplay.as_of(mirror.spark, mirror.target, "0/64", config=ALL)
    assert {(one.name, one.output) for one in below.tables if one.sql is not None} == {
        ("s.others", "mirror"), ("s.others", "history"), ("s.others", "changelog"),
    }  # fmt: skip
    above = walreplay.as_of(mirror.spark, mirror.target, "0/C8", r"s\.items", config=ALL)
    found = {(one.name, one.output): one for one in above.tables}
    assert found["s.items", "changelog"].sql is None
    items = mirror.spark.sql(found["s.items", "history"].sql).collect()
    assert {(one.id, one.note) for one in items} == {(1, "later"), (2, "two"), (3, None)}
    now = walreplay.as_of(mirror.spark, mirror.target, "0/12C", r"s\.items", config=ALL)
    assert {one.output: one.exact for one in now.tables} == {"mirror": True, "history": True, "changelog": False}


def test_a_column_that_is_newer_than_the_captures_is_refused_and_comes_by_a_description(mirror, tmp_path) -> None:
    mirror.apply(relation(1, "t", {"id": INT4}), m.Insert(1, row(1)), m.Insert(1, row(2)))
    wider = relation(1, "t", {"id": INT4, "v": TEXT})
    mirror.write(wider, m.Update(1, row(1, "one")))
    rows = mirror.spark.createDataFrame([(1, "one"), (2, "two")], "id int, v string")
    given = {"table": "s.t", "replace": True, "captures": mirror.captures}
    with pytest.raises(CaptureError, match="the column v is not among the table's") as caught:
        walreplay.load(mirror.spark, rows, mirror.target, 200, **given)
    assert "give --describe" in caught.value.remedy
    described = tmp_path / "tables.jsonl"
    described.write_text(write_description([wider], Description.of([wider], ())))
    walreplay.load(mirror.spark, rows, mirror.target, 200, describe=described, **given)
    mirror.apply(wider, m.Insert(1, row(3, "three")))
    assert sorted(map(tuple, collect(mirror.location("t"), "id", "v"))) == [(1, "one"), (2, "two"), (3, "three")]
