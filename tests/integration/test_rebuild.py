"""Tables are made again from the archive: whatever has become of them, what was left out before, what lacks changes."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

import walreplay
from support.captures import case
from support.extent import further
from support.killed_run import run_until_killed
from support.moments import outputs_at
from support.readers import collect, read
from support.small_mirror import INT4, TEXT, SmallMirror, forget, relation, row, runs_of
from support.stopped_run import StoppedError
from support.truth import assert_mirror_equals, mirror_tables
from walreplay.errors import ConfigError, OrderError, TargetError
from walreplay.names import Output, RowKind
from walreplay.protocol import messages as m
from walreplay.report import RunReport
from walreplay.session import steps

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.integration

ORDERS = relation(9, "orders", {"id": INT4, "note": TEXT})
ITEMS = relation(10, "items", {"id": INT4, "note": TEXT}, "f")
NOTES = relation(11, "no tes", {"id": INT4, "a b": TEXT})
OTHERS = relation(12, "others", {"id": INT4, "note": TEXT})

SAID = {"source": "shop"}
"""Where captures may be copied to another folder."""

ALL = {"outputs": ["mirror", "changelog"]}
BEFORE: dict[str, Any] = {
    "outputs": ["mirror"],
    "table_exclude_list": [r"s\.no tes"],
    "objects": [{"table": {"source_schema": "s", "source_table": "others", "exclude_columns": ["note"]}}],
}


@pytest.fixture
def small(spark: SparkSession, tmp_path: Path) -> SmallMirror:
    return SmallMirror(spark, tmp_path)


def rebuilt(small: SmallMirror, table: str, config: dict[str, Any] | None = None, **options: Any) -> RunReport:
    return walreplay.rebuild(small.spark, small.captures, small.target, table, config=config, **options)


def fill(small: SmallMirror, **config: Any) -> None:
    """Apply two files: rows of a keyed table, of a multiset, and of two further tables."""
    small.write(
        *(ORDERS, *(m.Insert(9, row(number, "a")) for number in range(5))),
        *(ITEMS, *(m.Insert(10, row(1, "same")) for _ in range(3))),
        *(NOTES, m.Insert(11, row(1, "x")), OTHERS, m.Insert(12, row(1, "kept"))),
    )
    small.apply(**config)
    small.apply(
        *(ORDERS, m.Update(9, row(1, "b")), m.Delete(9, None, row(2, None))),
        *(ITEMS, m.Delete(10, row(1, "same"), None)),
        *(NOTES, m.Insert(11, row(2, "y")), OTHERS, m.Insert(12, row(2, "z"))),
        **config,
    )


def held(spark: SparkSession, target: str | Path) -> dict[str, Counter[str]]:
    """Return the rows of a target's tables, those of mirrors without the commits that wrote them last."""
    found = {}
    for output, tables in outputs_at(Path(target)).items():
        own = ("__commit_lsn", "__commit_ts") if Output(output).rows is RowKind.CURRENT else ()
        for name, location in tables.items():
            columns = [column for column in read(location).column_names if column not in own]
            found[f"{name} ({output})"] = Counter(str(one) for one in collect(location, *columns))
    return found


def goes_on(small: SmallMirror, folder: Path, **config: Any) -> None:
    """Bring a further file, and compare all tables with what one run makes of everything."""
    small.apply(
        *(ORDERS, m.Update(9, row(3, "c")), m.Insert(9, row(7, "d")), ITEMS, m.Delete(10, row(1, "same"), None)),
        *(NOTES, m.Update(11, row(1, "w")), OTHERS, m.Update(12, row(1, "v"))),
        **config,
    )
    walreplay.apply(small.spark, small.captures, folder, config)
    assert held(small.spark, small.target) == held(small.spark, folder)


def versions(small: SmallMirror) -> dict[str, int]:
    return {path.name: len(list((path / "_delta_log").glob("*.json"))) for path in Path(small.target, "s").iterdir()}


def test_damaged_tables_are_made_again_and_right_ones_are_not_touched(small: SmallMirror, tmp_path: Path) -> None:
    fill(small)
    spark, right, before = small.spark, small.rows(), versions(small)
    place = {name: f"delta.`{small.location(name)}`" for name in before}
    spark.sql(f"DELETE FROM {place['orders']} WHERE id = 3")
    spark.sql(f"INSERT INTO {place['items']} SELECT * FROM {place['items']}")
    shutil.rmtree(small.location("others"))
    with pytest.raises(TargetError, match=r"walreplay rebuild .*--table 's\\.orders'"):
        small.apply(ORDERS, m.Insert(9, row(6, "f")))
    (small.captures / "003.bin").rename(tmp_path / "later")

    report = rebuilt(small, r"s\..*")

    assert report.status == "rebuilt"
    done = {table.name: (table.action, table.inserted) for table in report.tables}
    assert done == {
        "s.orders": ("overwritten", 4),
        "s.items": ("overwritten", 2),
        "s.others": ("overwritten", 2),
        "s.no tes": ("unchanged", 0),
    }
    assert small.rows() == right
    assert versions(small)["no tes"] == before["no tes"]
    # What was there before is still in the history.
    assert spark.sql(f"SELECT * FROM {place['orders']} VERSION AS OF 0").count() == 5
    assert not (small.ledger / "rebuild").exists() or not list((small.ledger / "rebuild").iterdir())
    assert [run.state for run in walreplay.status(spark, small.target).runs] == ["applied"] * 3
    (tmp_path / "later").rename(small.captures / "003.bin")
    goes_on(small, tmp_path / "whole")


@pytest.mark.full
def test_what_is_wanted_now_comes_as_if_it_had_always_been_there(small: SmallMirror, tmp_path: Path) -> None:
    fill(small, **BEFORE)
    with runs_of(1):
        report = rebuilt(small, "s.(no tes|OTHERS|orders)", ALL)
    done = {table.name: table.action for table in report.tables}
    assert done == {
        "s.no tes": "created",
        "s.no tes (changelog)": "created",
        "s.orders": "unchanged",
        "s.orders (changelog)": "created",
        "s.others": "overwritten",
        "s.others (changelog)": "created",
    }
    rebuilt(small, "s.items", ALL, outputs=["changelog"])
    goes_on(small, tmp_path / "whole", **ALL)


@pytest.mark.full
def test_outputs_that_lack_changes_are_whole_again(small: SmallMirror, tmp_path: Path) -> None:
    small.apply(ORDERS, m.Insert(9, row(1, "a")), **ALL)
    small.apply(ORDERS, m.Insert(9, row(2, "a")), outputs=["changelog"])
    small.apply(ORDERS, m.Insert(9, row(3, "a")), outputs=["changelog"])
    with pytest.raises(ConfigError, match=r"walreplay rebuild"):
        small.apply(ORDERS, m.Insert(9, row(4, "a")), **ALL)
    rebuilt(small, r"s\.orders", ALL)
    walreplay.apply(small.spark, small.captures, small.target, ALL)
    walreplay.apply(small.spark, small.captures, tmp_path / "whole", ALL)
    assert held(small.spark, small.target) == held(small.spark, tmp_path / "whole")


@pytest.fixture(scope="module")
def damaged(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Counter[str]]]:
    """Return captures and a mirror of them, two of whose tables are damaged, and what it has to hold."""
    folder = tmp_path_factory.mktemp("damaged")
    small = SmallMirror(spark, folder / "small")
    small.apply(ORDERS, m.Insert(9, row(1, "a")), ITEMS, m.Insert(10, row(1, "i")), m.Insert(10, row(1, "i")), **SAID)
    small.apply(ORDERS, m.Insert(9, row(2, "b")), m.Update(9, row(1, "c")), ITEMS, m.Insert(10, row(2, "i")), **SAID)
    right = held(spark, small.target)
    spark.sql(f"UPDATE delta.`{small.location('orders')}` SET note = 'wrong'")
    spark.sql(f"DELETE FROM delta.`{small.location('items')}`")
    return folder / "small", right


def copy_of(spark: SparkSession, damaged: Path, folder: Path) -> SmallMirror:
    small = SmallMirror(spark, folder / "copy")
    small.go_back_to(damaged)
    return small


def table_commits(small: SmallMirror) -> dict[str, int]:
    """Return how many commits of tables there are that replace their rows."""
    return {name: small.history(name).count("WRITE") for name in ("orders", "items")}


BESIDE = ("side target made",)
MORE_BESIDE = ("decoded", "plan written")
IN_PLACE = ("rows replaced", "table replaced", "side removed")
MORE_IN_PLACE = ("runs written", "rebuild written", "rows are to be replaced", "tables replaced")


@pytest.mark.parametrize("step", further(BESIDE, long=MORE_BESIDE))
def test_a_rebuild_that_was_stopped_while_it_makes_tables_goes_on(
    spark: SparkSession, tmp_path: Path, stop: Callable[[str], None], damaged: Any, step: str
) -> None:
    small, before = copy_of(spark, damaged[0], tmp_path), held(spark, damaged[0] / "mirror")
    for _ in range(2):
        stop(step)
        with runs_of(1), pytest.raises(StoppedError):
            rebuilt(small, r"s\..*", SAID)
    stop("no such step")
    # Nothing has happened to the tables yet.
    assert held(spark, small.target) == before
    with runs_of(1):
        rebuilt(small, r"s\..*", SAID)
    assert held(spark, small.target) == damaged[1]


@pytest.mark.parametrize(
    ("step", "by"),
    further(
        [*((step, "apply") for step in IN_PLACE), ("table replaced", "rebuild")],
        long=[(step, "apply") for step in MORE_IN_PLACE],
    ),
)
def test_a_rebuild_that_was_stopped_while_it_replaces_tables_is_finished_once(
    spark: SparkSession, tmp_path: Path, stop: Callable[[str], None], damaged: Any, step: str, by: str
) -> None:
    small = copy_of(spark, damaged[0], tmp_path)
    before = table_commits(small)
    if step == "runs written":
        # That of the side target's run comes first.
        stop("compared")
        with pytest.raises(StoppedError):
            rebuilt(small, r"s\..*", SAID)
    stop(step)
    with pytest.raises(StoppedError):
        rebuilt(small, r"s\..*", SAID)
    stop("no such step")
    assert walreplay.status(spark, small.target).runs[-1].state == "rebuilding"
    report = small.apply(**SAID) if by == "apply" else rebuilt(small, r"s\..*", SAID)
    assert "rebuild 3 was interrupted; it was finished" in report.warnings
    assert held(spark, small.target) == damaged[1]
    assert {name: count - before[name] for name, count in table_commits(small).items()} == {"orders": 1, "items": 1}
    assert [run.state for run in walreplay.status(spark, small.target).runs] == ["applied"] * 3
    assert not list((small.ledger / "rebuild").glob("*"))
    # It goes on from there.
    assert small.apply(ORDERS, m.Update(9, row(2, "later")), **SAID).warnings == ()


@pytest.mark.full
def test_a_rebuild_whose_new_rows_are_removed_leaves_the_tables(
    spark: SparkSession, tmp_path: Path, stop: Callable[[str], None], damaged: Any
) -> None:
    small = copy_of(spark, damaged[0], tmp_path)
    before = held(spark, small.target)
    stop("rebuild written")
    with pytest.raises(StoppedError):
        rebuilt(small, r"s\..*", SAID)
    stop("no such step")
    shutil.rmtree(small.ledger / "rebuild")
    forget(spark)
    assert len([text for text in small.apply(**SAID).warnings if "so it is as it was" in text]) == 2
    assert held(spark, small.target) == before
    # What was wrong with them is not forgotten.
    with pytest.raises(TargetError, match="was changed by somebody else"):
        small.apply(ORDERS, m.Insert(9, row(3, "c")), **SAID)
    rebuilt(small, r"s\..*", SAID)
    assert held(spark, small.target) == damaged[1]


@pytest.mark.full
def test_a_rebuild_whose_process_is_killed_is_finished(spark: SparkSession, tmp_path: Path, damaged: Any) -> None:
    small = copy_of(spark, damaged[0], tmp_path)
    command, config = ("rebuild", "--table", r"s\..*"), tmp_path / "config.yaml"
    config.write_text(yaml.safe_dump(SAID))
    for step in ("decoded", "rows replaced"):
        scratch = tmp_path / step.replace(" ", "_")
        scratch.mkdir()
        run_until_killed(small.captures, Path(small.target), step, 1, scratch=scratch, config=config, command=command)
    forget(spark)
    rebuilt(small, r"s\..*", SAID)
    assert held(spark, small.target) == damaged[1]


@pytest.mark.full
def test_what_cannot_be_made_again_is_refused(spark: SparkSession, tmp_path: Path, damaged: Any) -> None:
    small = copy_of(spark, damaged[0], tmp_path)
    before = table_commits(small)
    with pytest.raises(ConfigError, match="regular expression"):
        rebuilt(small, "s.(orders", SAID)
    with pytest.raises(ConfigError, match=r"there are s\.orders"):
        rebuilt(small, r"s\.order", SAID)
    with pytest.raises(ConfigError, match="there is no output log"):
        rebuilt(small, r"s\.orders", SAID, outputs=["log"])
    with pytest.raises(TargetError, match="made from the source 'shop', not 'another'"):
        walreplay.rebuild(spark, small.captures, small.target, ".*", config={"source": "another"})
    with pytest.raises(TargetError, match="nothing of captures was applied"):
        walreplay.rebuild(spark, small.captures, tmp_path / "new", ".*")
    with pytest.raises(ConfigError, match="the configuration leaves them out"):
        rebuilt(small, r"s\.orders", {**SAID, "table_exclude_list": [r"s\.orders"]})
    first = small.captures / "001.bin"
    first.rename(tmp_path / "first")
    with pytest.raises(OrderError, match="hold 1 transactions up to there, and the target was made of 2"):
        rebuilt(small, r"s\.orders", SAID)
    (tmp_path / "first").rename(first)
    (small.captures / "002.bin").rename(tmp_path / "last")
    with pytest.raises(OrderError, match="the captures end at LSN 0/64, but the target holds"):
        rebuilt(small, r"s\.orders", SAID)
    assert table_commits(small) == before
    # With all captures it is made, whatever was made of some of them.
    (tmp_path / "last").rename(small.captures / "002.bin")
    assert [one.action for one in rebuilt(small, r"s\.orders", SAID).tables] == ["overwritten"]


@pytest.mark.full
@pytest.mark.parametrize("unwanted", [{"table_exclude_list": [r"s\.orders"]}, {"outputs": ["mirror"]}])
def test_a_table_created_again_while_it_was_not_wanted_is_made_once_it_has_a_row(
    small: SmallMirror, tmp_path: Path, unwanted: dict[str, Any]
) -> None:
    small.apply(ORDERS, m.Insert(9, row(1, "first")), **ALL)
    again = relation(20, "orders", {"id": INT4, "note": TEXT})
    small.apply(again, m.Insert(20, row(2, "another table")), **unwanted)
    with pytest.raises(TargetError, match=r"the table's place is that of s\.orders") as caught:
        rebuilt(small, r"s\.orders", ALL)
    assert caught.value.remedy == (
        "Write a row of s.orders in the source, and apply it, which sets the table aside that had the name before; "
        "then rebuild"
    )
    small.apply(again, m.Insert(20, row(3, "written")), **ALL)
    rebuilt(small, r"s\.orders", ALL)
    walreplay.apply(small.spark, small.captures, tmp_path / "whole", ALL)
    assert held(small.spark, small.target) == held(small.spark, tmp_path / "whole")


def test_a_table_whose_place_is_another_ones_is_made_at_a_place_of_its_own(small: SmallMirror) -> None:
    only_orders = {"table_include_list": [r"s\.orders"]}
    small.apply(ORDERS, m.Insert(9, row(1, "a")), OTHERS, m.Insert(12, row(1, "b")), **only_orders)

    def others_at(place: str) -> dict[str, Any]:
        table = {"source_schema": "s", "source_table": "others", "destination_table": place}
        return {"objects": [{"table": table}]}

    with pytest.raises(TargetError, match="Give one of them a destination_table of its own"):
        rebuilt(small, r"s\.others", others_at("orders"))
    rebuilt(small, r"s\.others", others_at("apart"))
    assert [one.note for one in collect(small.location("apart"), "note")] == ["b"]


@pytest.mark.full
@pytest.mark.parametrize("policy", ["replace", "keep"])
def test_a_name_that_passed_from_table_to_table_has_the_rows_it_should_have(
    small: SmallMirror, tmp_path: Path, policy: str
) -> None:
    config = {"on_recreate": policy}
    small.apply(ORDERS, m.Insert(9, row(1, "first")), **config)
    renamed = relation(9, "old orders", {"id": INT4, "note": TEXT})
    small.apply(renamed, m.Insert(9, row(2, "as old orders")), **config)
    again = relation(20, "orders", {"id": INT4, "note": TEXT})
    small.apply(again, m.Insert(20, row(3, "another table")), **config)
    anew = relation(21, "orders", {"id": INT4, "note": TEXT})
    small.apply(anew, m.Insert(21, row(4, "made anew")), **config)
    right = held(small.spark, small.target)
    small.spark.sql(f"DELETE FROM delta.`{small.location('orders')}`")
    small.spark.sql(f"DELETE FROM delta.`{small.location('old orders')}`")
    assert [one.name for one in rebuilt(small, r"s\.old orders", config).tables] == ["s.old orders"]
    if policy == "keep":
        # With other runs, other rows would be kept.
        with pytest.raises(TargetError, match="which of the old rows it has kept hangs on where"):
            rebuilt(small, r"s\.orders", config)
        return
    assert [one.name for one in rebuilt(small, r"s\.orders", config).tables] == ["s.orders"]
    assert held(small.spark, small.target) == right
    small.apply(anew, m.Update(21, row(4, "goes on")), renamed, m.Update(9, row(1, "goes on")), **config)


@pytest.mark.full
def test_a_table_of_a_catalog_is_made_again(spark: SparkSession, tmp_path: Path) -> None:
    small = SmallMirror(spark, tmp_path, "spark_catalog")
    try:
        small.apply(NOTES, m.Insert(11, row(1, "x")), ORDERS, m.Insert(9, row(1, "a")))
        spark.sql("DROP TABLE s.orders")
        spark.sql("DELETE FROM s.no__x20__tes")
        actions = {one.name: one.action for one in rebuilt(small, r"s\..*").tables}
        assert actions == {"s.no tes": "overwritten", "s.orders": "overwritten"}
        assert not [
            row.tableName for row in spark.sql("SHOW TABLES IN _walreplay").collect() if "rebuild" in row.tableName
        ]
        report = small.apply(NOTES, m.Update(11, row(1, "y")), ORDERS, m.Insert(9, row(2, "b")))
        assert report.warnings == ()
        assert [one["a b"] for one in spark.table("s.no__x20__tes").collect()] == ["y"]
        assert spark.table("s.orders").count() == 2
    finally:
        for schema in ("s", "_walreplay"):
            spark.sql(f"DROP SCHEMA IF EXISTS {schema} CASCADE")


@pytest.mark.parametrize("name", further([], long=["o14", "o18", "o11"]))
def test_all_tables_of_a_capture_are_made_again(spark: SparkSession, tmp_path: Path, name: str) -> None:
    recorded, target = case(name), tmp_path / "mirror"
    with runs_of(1):
        walreplay.apply(spark, recorded.folder, target)
    for location in mirror_tables(target).values():
        spark.sql(f"DELETE FROM delta.`{location}`")
    report = walreplay.rebuild(spark, recorded.folder, target, ".*")
    # It counts the same transactions, however runs were cut.
    assert not [text for text in report.warnings if "the captures hold" in text]
    assert_mirror_equals(spark, target, recorded)
    with runs_of(1):
        report = walreplay.rebuild(spark, recorded.folder, target, ".*")
    assert {table.action for table in report.tables} == {"unchanged"}


@pytest.mark.full
def test_a_run_may_come_while_tables_are_made(small: SmallMirror, tmp_path: Path) -> None:
    fill(small)
    small.spark.sql(f"DELETE FROM delta.`{small.location('orders')}`")

    def on_step(step: str) -> None:
        if step == "side target made":
            steps.on_step = None
            small.apply(OTHERS, m.Insert(12, row(9, "meanwhile")))

    steps.on_step = on_step
    try:
        report = rebuilt(small, r"s\.(orders|others)")
    finally:
        steps.on_step = None
    assert {table.name: table.action for table in report.tables} == {"s.orders": "overwritten", "s.others": "unchanged"}
    assert report.applied_lsn == 300
    goes_on(small, tmp_path / "whole")
