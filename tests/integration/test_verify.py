"""A target is compared with what the archive makes: what is right is said to be, and each fault is shown."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

import walreplay
from support.framings import frame
from support.small_mirror import INT4, TEXT, SmallMirror, forget, relation, row
from support.stopped_run import StoppedError
from walreplay.errors import ConfigError, TargetError
from walreplay.job import compare, source_rows
from walreplay.loading.description import Description, write_description
from walreplay.protocol import messages as m
from walreplay.protocol.framing import Framing
from walreplay.report import TableVerification

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.integration


@dataclass(frozen=True)
class Fault:
    """What somebody has done to a table (``{}``), and what of it is to be shown.

    Attributes:
        output: the only one of the table.
        identity: the replica identity.
    """

    statements: tuple[str, ...]
    missing: int = 0
    extra: int = 0
    changed: int = 0
    columns: tuple[str, ...] = ()
    output: str = "mirror"
    identity: str = "d"


FAULTS: Final = {
    "nothing": Fault(()),
    "no change of rows": Fault(("OPTIMIZE {}",)),
    "a cell": Fault(("UPDATE {} SET note = 'x' WHERE id = 1",), changed=1, columns=("note",)),
    "NULL for a value": Fault(("UPDATE {} SET note = NULL WHERE id = 1",), changed=1, columns=("note",)),
    "a row gone": Fault(("DELETE FROM {} WHERE id = 3",), missing=1),
    "all rows gone": Fault(("DELETE FROM {}",), missing=3),
    "a row doubled": Fault(("INSERT INTO {} SELECT * FROM {} WHERE id = 3",), extra=1),
    "keys swapped": Fault(("UPDATE {} SET id = 1 - id WHERE id < 2",), changed=2, columns=("note",)),
    "a row of nobody": Fault(("UPDATE {} SET id = 99 WHERE id = 3",), missing=1, extra=1),
    "a rescued text": Fault(("UPDATE {} SET _rescued_data = 'x' WHERE id = 1",), changed=1, columns=("_rescued_data",)),
    "one of equal rows gone": Fault(
        ("DELETE FROM {} WHERE id = 8", "INSERT INTO {} (id, note) VALUES (8, 'same')"), missing=1, identity="f"
    ),
    "a value for NULL": Fault(("UPDATE {} SET note = '' WHERE id = 9",), missing=1, extra=1, identity="f"),
    "a closed version": Fault(
        ("UPDATE {} SET note = 'x' WHERE id = 2",), changed=1, columns=("note",), output="history"
    ),
    "the end of a version": Fault(
        ("UPDATE {} SET __end_lsn = __end_lsn + 1 WHERE id = 2",), changed=1, columns=("__end_lsn",), output="history"
    ),
    "a change gone": Fault(("DELETE FROM {} WHERE id = 2 AND __op = 'd'",), missing=1, output="changelog"),
    "a column gone": Fault(
        (
            "ALTER TABLE {} SET TBLPROPERTIES ('delta.columnMapping.mode' = 'name')",
            "ALTER TABLE {} DROP COLUMN note",
        )
    ),
    "a column of a type that none of ours has": Fault(("ALTER TABLE {} ADD COLUMN more MAP<STRING, INT>",)),
}
UNSHOWN: Final = {
    "nothing": "equal",
    "no change of rows": "equal",
    "a column gone": "different",
    "a column of a type that none of ours has": "different",
}


def name_of(number: int) -> str:
    return f"t {number}"


def tables_of(small: SmallMirror, config: Mapping[str, Any], **options: Any) -> dict[str, TableVerification]:
    report = walreplay.verify(small.spark, small.target, small.captures, config=config, **options)
    return {table.name: table for table in report.tables}


@pytest.fixture(scope="module")
def config() -> dict[str, Any]:
    named = [(name_of(number), fault.output) for number, fault in enumerate(FAULTS.values())]
    return {"objects": [{"table": {"source_schema": "s", "source_table": n, "outputs": [o]}} for n, o in named]}


@pytest.fixture(scope="module")
def small(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory, config: dict[str, Any]) -> SmallMirror:
    """Return captures and their tables: a table for each fault, in two runs."""
    small = SmallMirror(spark, tmp_path_factory.mktemp("verify") / "small")
    relations = [
        relation(10 + number, name_of(number), {"id": INT4, "note": TEXT}, fault.identity)
        for number, fault in enumerate(FAULTS.values())
    ]
    ids = [(number, "a") for number in range(4)]
    equal = [(8, "same"), (8, "same"), (9, None)]  # of tables without a key alone
    for identity, rows in (("d", ids), ("f", [*ids, *equal])):
        chosen = [one for one in relations if one.replica_identity == identity]
        small.write(*(item for one in chosen for item in (one, *(m.Insert(one.oid, row(*values)) for values in rows))))
    small.apply(**config)
    keyed = [one for one in relations if one.replica_identity == "d"]
    changes = ((one, m.Update(one.oid, row(1, "b")), m.Delete(one.oid, None, row(2, None))) for one in keyed)
    small.apply(*(item for several in changes for item in several), **config)
    return small


@pytest.fixture(scope="module")
def right(small: SmallMirror, config: dict[str, Any]) -> dict[str, TableVerification]:
    """Return how the tables have compared before anything happened to them: Spark has opened none of them."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(compare, "RowComparison", None)
        return tables_of(small, config)


def test_what_is_right_is_said_to_be_and_nothing_is_left_behind(
    small: SmallMirror, right: dict[str, TableVerification]
) -> None:
    assert {table.result for table in right.values()} == {"equal"}
    assert not any(table.reason for table in right.values())
    assert {table.name.partition(" (")[0].removeprefix("s.") for table in right.values()} == {
        name_of(number) for number in range(len(FAULTS))
    }
    assert {table.rows for table in right.values()} == {3, 5, 6, 7}
    assert not list((small.ledger / "rebuild").iterdir())


def test_each_fault_is_shown(
    small: SmallMirror, right: dict[str, TableVerification], config: dict[str, Any], tmp_path: Path
) -> None:
    by_number = {table.name.partition(" (")[0]: table for table in right.values()}
    names = {fault: by_number[f"s.{name_of(number)}"] for number, fault in enumerate(FAULTS)}
    for fault, table in names.items():
        for statement in FAULTS[fault].statements:
            small.spark.sql(statement.replace("{}", f"delta.`{table.location}`"))

    found = tables_of(small, config, differences=tmp_path / "differences")

    for name, fault in FAULTS.items():
        table = found[names[name].name]
        assert table.result == UNSHOWN.get(name, "different"), name
        assert (table.missing, table.extra, table.changed) == (fault.missing, fault.extra, fault.changed), name
        assert tuple(table.columns) == fault.columns, name
        if name not in UNSHOWN:
            assert "somebody else has changed it" in table.reason
    rows = small.spark.read.format("delta").load(str(tmp_path / "differences")).collect()
    shown = {(one.table, one.kind) for one in rows}
    counted = {(t.name, kind) for t in found.values() for kind in ("missing", "extra", "changed") if getattr(t, kind)}
    assert shown == counted
    assert len(rows) == sum(fault.missing + fault.extra + fault.changed for fault in FAULTS.values())
    assert len({(one.verified_at, one.applied_lsn) for one in rows}) == 1
    for shown_row in rows:
        is_missing, is_extra = shown_row.found is None, shown_row.expected is None
        assert shown_row.kind == ("missing" if is_missing else "extra" if is_extra else "changed")
        assert json.loads(shown_row.key).items() <= json.loads(shown_row.expected or shown_row.found).items()

    status = {table.name: table for table in walreplay.status(small.spark, small.target).tables}
    assert {name: table.is_equal for name, table in status.items()} == {
        name: table.result == "equal" for name, table in found.items()
    }
    assert {table.verified_lsn for table in status.values()} == {rows[0].applied_lsn}


@pytest.mark.full
@pytest.mark.parametrize("step", ["decoded", "side target made", "compared"])
def test_a_verify_that_was_stopped_goes_on_and_tables_are_as_they_were(
    spark: SparkSession, tmp_path: Path, stop: Callable[[str], None], step: str
) -> None:
    small = SmallMirror(spark, tmp_path / "small")
    orders = relation(9, "orders", {"id": INT4, "note": TEXT})
    small.apply(orders, m.Insert(9, row(1, "a")))
    small.apply(orders, m.Insert(9, row(2, "b")), m.Update(9, row(1, "c")))
    before, versions = small.rows(), small.history("orders")
    stop(step)
    with pytest.raises(StoppedError):
        tables_of(small, {})
    stop("no such step")
    assert (small.rows(), small.history("orders")) == (before, versions)
    small.apply(orders, m.Insert(9, row(3, "d")))  # a run may come in between
    assert [table.result for table in tables_of(small, {}).values()] == ["equal"]


@pytest.mark.full
def test_a_table_whose_first_rows_cannot_be_read_again_is_not_compared(spark: SparkSession, tmp_path: Path) -> None:
    small = SmallMirror(spark, tmp_path / "small")
    loaded, others = (relation(oid, name, {"id": INT4, "note": TEXT}) for oid, name in ((9, "loaded"), (10, "others")))
    small.apply(loaded, m.Insert(9, row(2, "b")), others, m.Insert(10, row(1, "a")))
    rows = spark.createDataFrame([("1", "a"), ("2", "b")], "id string, note string")
    walreplay.load(spark, rows, small.target, 107, table="s.loaded", captures=small.captures, replace=True)
    for name in ("loaded", "renamed"):
        small.apply(relation(9, name, {"id": INT4, "note": TEXT}), m.Update(9, row(2, name)))

        tables = tables_of(small, {})

        results = {name: table.result for name, table in tables.items()}
        assert results == {f"s.{name}": "not compared", "s.others": "equal"}
        assert "cannot be read again; compare it with its source, by --from" in tables[f"s.{name}"].reason
        with pytest.raises(TargetError, match="cannot be read again"):
            tables_of(small, {}, table=rf"s\.{name}")


@pytest.mark.full
def test_a_held_table_is_not_compared_whatever_it_is_called_and_holds_up_no_other(
    spark: SparkSession, tmp_path: Path
) -> None:
    small, config = SmallMirror(spark, tmp_path), {"on_table_error": "hold", "rescued_data_column": None}
    base = copies(tmp_path, "0/1", items="1\ta\n")
    walreplay.load(spark, base, small.target, "0/1", describe=f"{base}.jsonl", captures=small.captures, config=config)
    held = {"id": INT4, "d": 1082}
    former, items = relation(9, "former", {"id": INT4, "note": TEXT}), relation(3, "items", held)
    small.apply(former, m.Insert(9, row(2, "b")), items, m.Insert(3, row(1, "infinity")), **config)
    for name in ("items", "renamed"):
        small.apply(relation(3, name, held), m.Insert(3, row(2, "2020-01-01")), **config)
        results = {name: table.result for name, table in tables_of(small, config).items()}
        assert results == {"s.former": "equal", "s.items": "not compared"}
    assert [one.result for one in tables_of(small, config, table=r"s\.former").values()] == ["equal"]
    with pytest.raises(ConfigError, match=r"no table of the source was ever called typo"):
        tables_of(small, config, table="typo")


def test_tables_that_the_configuration_leaves_out_are_named_and_no_failure(spark: SparkSession, tmp_path: Path) -> None:
    small = SmallMirror(spark, tmp_path / "small")
    items, pairs = (relation(oid, name, {"id": INT4, "note": TEXT}) for oid, name in ((9, "items"), (10, "pairs")))
    small.apply(items, m.Insert(9, row(1, "a")), pairs, m.Insert(10, row(1, "a")), outputs=["mirror", "changelog"])

    report = walreplay.verify(spark, small.target, small.captures, config={"table_exclude_list": ["s.pairs"]})

    assert report.result == "equal"
    results = {table.name: table.result for table in report.tables}
    out = ("s.items (changelog)", "s.pairs", "s.pairs (changelog)")
    assert results == {"s.items": "equal", **dict.fromkeys(out, "left out")}
    by_name = walreplay.verify(
        spark, small.target, small.captures, outputs=["changelog"], config={"outputs": ["mirror"]}
    )
    assert by_name.result == "not compared"  # nothing of what is asked for was compared


def test_rows_are_matched_by_the_key_of_a_relation_that_only_a_prepared_transaction_has_announced(
    spark: SparkSession, tmp_path: Path
) -> None:
    small = SmallMirror(spark, tmp_path)
    items = relation(9, "items", {"id": INT4, "note": TEXT})
    inner = (replace(message, xid=7) for message in (items, m.Insert(9, row(1, "a")), m.Insert(9, row(2, "a"))))
    prepared = [m.StreamPrepare(0, 100, 108, 100, 7, "g"), m.CommitPrepared(0, 200, 208, 200, 7, "g")]
    streamed = frame([m.StreamStart(7, True), *inner, m.StreamStop(), *prepared], Framing.RAW)
    (small.captures / "1.bin").write_bytes(streamed)
    small.apply()
    spark.sql(f"UPDATE delta.`{small.location('items')}` SET note = 'b' WHERE id = 1")
    (table,) = walreplay.verify(spark, small.target, small.captures).tables
    assert (table.missing, table.extra, table.changed, table.columns) == (0, 0, 1, {"note": 1})


@pytest.mark.full
def test_copies_that_a_truncate_has_emptied_are_compared_once_it_is_applied(
    spark: SparkSession, tmp_path: Path
) -> None:
    small = SmallMirror(spark, tmp_path / "small")
    items = relation(9, "items", {"id": INT4, "note": TEXT})
    small.apply(items, m.Insert(9, row(1, "a")), m.Insert(9, row(3, "a")))
    base = copies(tmp_path, "0/65", items="")
    with (tmp_path / "base.jsonl").open("a") as lines:
        lines.write('{"oid": 9, "rows": 0, "emptied": "0/C9"}\n')
    small.apply(items, m.Update(9, row(1, "b")))

    def verified() -> TableVerification:
        return walreplay.verify(spark, small.target, small.captures, source=base).tables[0]

    (gone := tmp_path / "gone").mkdir()
    small.location("items").rename(gone / "items")
    forget(spark)
    assert (verified().result, verified().reason) == ("different", "it is gone")
    (gone / "items").rename(small.location("items"))
    forget(spark)
    early = verified()
    assert (early.result, "run it again once they reach it" in early.reason) == ("not compared", True)
    small.write(items, m.Truncate((9,), 0), m.Insert(9, row(2, "c")))
    assert (verified().result, verified().rows) == ("equal", 1)
    spark.sql(f"DELETE FROM delta.`{small.location('items')}`")
    assert verified().result == "different"


def copies(folder: Path, lsn: str, **tables: str) -> Path:
    """Write copies of tables as base.sh does; each is the text of COPY, by its name."""
    (folder / "base").mkdir(parents=True)
    relations = [relation(9 + number, name, {"id": INT4, "note": TEXT}) for number, name in enumerate(tables)]
    for name, text in tables.items():
        (folder / "base" / f"s.{name}.copy").write_text(text)
    (folder / "base.lsn").write_text(f"{lsn}\n")
    (folder / "base.jsonl").write_text(write_description(relations, Description.of(relations, ())))
    return folder / "base"


@pytest.mark.full
def test_copies_are_compared_as_of_their_lsn_and_not_with_rows_that_somebody_else_has_staged(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stop: Callable[[str], None]
) -> None:
    small = SmallMirror(spark, tmp_path / "small")
    items = relation(9, "items", {"id": INT4, "note": TEXT})
    small.apply(items, m.Insert(9, row(1, "a")))
    base = copies(tmp_path, "0/96", items="1\ta\n", empty="")
    with monkeypatch.context() as patched:
        patched.setattr(compare, "RowComparison", None)  # Spark opens no small table that is equal
        report = walreplay.verify(spark, small.target, small.captures, source=base, wait=1)
    assert (report.result, "wait for captures" in report.stages) == ("equal", False)
    small.write(items, m.Insert(9, row(2, "b")))

    def interrupted(*arguments: Any) -> None:
        """Have another call stage its rows in between; then apply."""
        monkeypatch.setattr(source_rows, "apply", walreplay.apply)
        stop("side base loaded")
        with pytest.raises(StoppedError):
            walreplay.verify(spark, small.target, small.captures, source=base)
        stop("no such step")
        walreplay.apply(*arguments)

    monkeypatch.setattr(source_rows, "apply", interrupted)
    with pytest.raises(TargetError, match=r"somebody else verifies the same tables.*run it again"):
        walreplay.verify(spark, small.target, small.captures, source=base)

    report = walreplay.verify(spark, small.target, small.captures, source=base)
    assert (report.result, report.applied_lsn, report.source_lsn) == ("equal", 200, 149)
    rows = {table.name: (table.rows, table.reason) for table in report.tables}
    # Nobody has ever written to the other one, so the captures cannot know it.
    assert rows == {
        "s.items": (2, ""),
        "s.empty": (0, "the source has no rows of it, and the target no such table yet"),
    }
