"""Base loads: a live server's tables are copied while it works, loaded, and brought up to date from its captures."""

from __future__ import annotations

import gzip
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import walreplay
from support.base_copies import snapshot
from support.command import program_environment
from support.extent import further
from support.pages import block, with_places
from support.postgres import LOST_FILE, Server, running_server
from support.readers import collect
from support.small_mirror import INT4, TEXT, SmallMirror, relation, row
from support.stopped_run import StoppedError
from support.truth import Beyond, assert_tables_equal
from support.waiting import wait_until
from support.workload import PUBLICATION, PUBLISH, SCHEMAS, SETUP, at_work, run_workload
from walreplay.cli.program import main
from walreplay.errors import CaptureError, ConfigError, NotSupported, TargetError
from walreplay.loading.description import Description, write_description
from walreplay.lsn import parse_lsn
from walreplay.protocol import messages as m
from walreplay.scripts import copy_scripts

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_PATIENCE = 60.0

DATE, NUMERIC = 1082, 1700

ITEMS = relation(9, "items", {"id": INT4, "note": TEXT})

_FORMATS = {
    "text": ("", "copy", {}),
    "csv": ("(FORMAT csv, HEADER)", "csv", {"copy_options": "format csv, header"}),
    "binary": ("(FORMAT binary)", "bin", {}),
}


@pytest.mark.live
@pytest.mark.parametrize(
    ("applies_first", "form"),
    further(
        [*((False, form) for form in _FORMATS), (True, "text")],
        long=[(True, form) for form in _FORMATS if form != "text"],
    ),
)
def test_a_server_that_is_copied_while_it_works_is_mirrored(
    spark: SparkSession, tmp_path: Path, form: str, applies_first: bool
) -> None:
    captures, target, base = tmp_path / "captures", tmp_path / "mirror", tmp_path / "base"
    captures.mkdir()
    options, ending, said = _FORMATS[form]
    with running_server() as server:
        server.execute(*SETUP, PUBLISH)
        run_workload(server, transactions=400, seed=1, pause=lambda: None)
        # The capture begins before the copy, in the middle of the tables' life.
        with server.recording(tmp_path / "growing", publication=PUBLICATION) as recording:
            run_workload(server, transactions=400, seed=2, pause=lambda: None)
            if applies_first:
                recording.rotate(captures / "0.bin")
            with at_work(server, 3), snapshot(server) as seen:
                described = seen.copy(base, options, ending, schemas=SCHEMAS)
            run_workload(server, transactions=400, seed=4, pause=lambda: None)
        tables = server.source_tables(*SCHEMAS)
    if applies_first:
        walreplay.apply(spark, captures=captures, target=target)
    (tmp_path / "growing").rename(captures / "1.bin")
    report = walreplay.load(
        spark,
        base,
        target,
        consistent_point=seen.lsn,
        describe=described,
        captures=captures,
        replace=applies_first,
        **said,
    )
    assert report.status == "loaded"
    assert len(report.tables) == len(tables)
    report = walreplay.apply(spark, captures=captures, target=target)
    assert [(table.without_base, table.deletes_without_row) for table in report.tables] == [(0, 0)] * len(report.tables)
    assert_tables_equal(spark, target, tables, Beyond(loaded=parse_lsn(seen.lsn) - 1))


@pytest.fixture
def base(tmp_path: Path) -> Path:
    """Copy a table of three rows, as of LSN 0/96 (150): between the first two files of a `SmallMirror`."""
    folder = tmp_path / "base"
    folder.mkdir()
    (folder / "s.items.copy").write_text("1\tone\n2\ttwo\n3\t\\N\n")
    return folder


@pytest.fixture
def described(tmp_path: Path) -> Path:
    """Describe it as ``describe.sql`` does."""
    file = tmp_path / "tables.jsonl"
    file.write_text(lines_of("items"))
    return file


def lines_of(table: str, schema: str = "s", oid: int = 9, **types: int) -> str:
    """Describe a table with a key and one more column, or others; a numeric has one decimal."""
    one = relation(oid, table, {"id": INT4, **(types or {"note": TEXT})}, schema=schema)
    columns = (replace(c, typmod=(9 << 16 | 1) + 4) if c.type_oid == NUMERIC else c for c in one.columns)
    return write_description([replace(one, columns=tuple(columns))], Description.of((), ()))


def test_one_lsn_has_to_be_given(mirror, base, described):
    with pytest.raises(ConfigError, match="it is not said as of which LSN"):
        load(mirror, base, described, None)
    with pytest.raises(ConfigError, match="two LSNs"):
        load(mirror, base, described, 150, consistent_point=151)
    with pytest.raises(ConfigError, match="--consistent-point: not an LSN"):
        load(mirror, base, described, None, consistent_point="12")


def load(mirror: SmallMirror, base: Path, described: Path | None, lsn: int | None = 150, **options: object):
    return walreplay.load(
        mirror.spark, base, mirror.target, lsn, describe=described, captures=mirror.captures, **options
    )


def notes(mirror: SmallMirror) -> dict[int, str | None]:
    return {found.id: found.note for found in collect(mirror.location("items"))}


def changes(number: int) -> list[m.AnyMessage]:
    """Return a file's changes: the first ones are in the base, but a table beside it has them from the captures."""
    other = relation(10, "others", {"id": INT4, "note": TEXT})
    rows = [m.Insert(9, row(2, "two")), m.Insert(9, row(3, None))] if number == 1 else [m.Update(9, row(1, "later"))]
    return [ITEMS, *rows, other, m.Insert(10, row(number, "kept"))]


@pytest.mark.both_ways
def test_tables_of_all_forms_are_loaded_and_changes_below_the_base_are_left_out_of_them_alone(mirror, base, described):
    described.write_text(lines_of("items") + lines_of("days", oid=11, note=DATE) + lines_of("bare", oid=12))
    table = pa.table({"note": pa.array(["2024-02-29", "infinity"], pa.large_string()), "id": pa.array([1, 2])})
    pq.write_table(table, base / "s.days.parquet")
    (base / "s.days.2.copy").write_text("3\t-infinity\n4\t\\N\n")
    (base / "s.bare.copy").write_text("")
    mirror.write(*changes(1))
    report = load(mirror, base, described)
    assert {(table.name, table.action, table.inserted) for table in report.tables} == {
        ("s.bare", "created", 0),
        ("s.days", "created", 4),
        ("s.items", "created", 3),
    }
    assert notes(mirror) == {1: "one", 2: "two", 3: None}
    days = collect(mirror.location("days"))
    assert {(found.id, str(found.note), found["_rescued_data"]) for found in days} == {
        (1, "2024-02-29", None),
        (2, "None", '{"note":"infinity"}'),
        (3, "None", '{"note":"-infinity"}'),
        (4, "None", None),
    }
    report = mirror.apply(*changes(2), relation(12, "bare", {"id": INT4, "note": TEXT}), m.Update(12, row(8, "eight")))
    # Of a table that was loaded without rows none is missing that is changed later.
    assert [table.name for table in report.tables if table.without_base] == ["s.bare"]
    assert sorted(found.id for found in collect(mirror.location("others"))) == [1, 2]
    assert {(found.id, found.note, found["__commit_lsn"]) for found in collect(mirror.location("items"))} == {
        (1, "later", 200),
        (2, "two", 150),
        (3, None, 150),
    }
    # Made again from the files of its base.
    shutil.rmtree(mirror.location("items"))
    report = walreplay.rebuild(mirror.spark, mirror.captures, mirror.target, r"s\.(days|items)")
    assert {table.name: table.action for table in report.tables} == {"s.days": "unchanged", "s.items": "overwritten"}
    assert notes(mirror) == {1: "later", 2: "two", 3: None}


@pytest.mark.parametrize(
    ("lsns", "note"),
    further(
        [
            ({"lsn": 199}, "later"),
            ({"lsn": 200}, "one"),
            ({"lsn": None, "consistent_point": 200}, "later"),
            ({"lsn": None, "consistent_point": "0/C9"}, "one"),
        ],
    ),
)
def test_a_transaction_is_among_the_rows_if_it_commits_at_or_below_the_lsn(mirror, base, described, lsns, note):
    mirror.write(*changes(1))
    mirror.write(*changes(2))
    load(mirror, base, described, **lsns)
    mirror.apply()
    assert notes(mirror)[1] == note


@pytest.mark.full
def test_a_truncate_below_the_base_leaves_it_and_one_behind_it_does_not(mirror, base, described):
    mirror.write(ITEMS, m.Insert(9, row(7, "gone")), m.Truncate((9,), 0), m.Insert(9, row(1, "old")))
    load(mirror, base, described)
    mirror.apply()
    assert notes(mirror) == {1: "one", 2: "two", 3: None}
    mirror.apply(ITEMS, m.Truncate((9,), 0), m.Insert(9, row(5, "new")))
    assert notes(mirror) == {5: "new"}


def test_rows_that_a_load_lacks_are_found(mirror, base, described):
    load(mirror, base, described)
    mirror.write(ITEMS)
    report = mirror.apply(ITEMS, m.Update(9, row(8, "eight")))
    assert report.tables[0].without_base == 1
    (warning,) = mirror.apply(ITEMS, m.Delete(9, key=row(77, None))).warnings
    assert "1 to be deleted" in warning


def test_a_dump_of_which_a_part_is_published_is_refused(mirror, tmp_path, described):
    dump = tmp_path / "dump.sql"
    dump.write_text("COPY s.items (id, note) FROM stdin;\n1\tone\n\\.\n")
    lines = [json.loads(line) for line in described.read_text().splitlines()]
    described.write_text("".join(json.dumps({**line, "row_filter": "(id > 1)"}) + "\n" for line in lines))
    with pytest.raises(ConfigError, match="the publication sends a part of them"):
        walreplay.load(mirror.spark, dump, mirror.target, 150, describe=described, captures=mirror.captures)
    described.write_text("".join(json.dumps({**line, "row_filter": None}) + "\n" for line in lines))
    report = walreplay.load(mirror.spark, dump, mirror.target, 150, describe=described, captures=mirror.captures)
    assert report.changes == 1


@pytest.mark.full
def test_rows_that_are_there_twice_are_refused_and_counted(mirror, base, described):
    shutil.copy(base / "s.items.copy", base / "s.items.2.copy")
    with pytest.raises(CaptureError, match=r"3 of the 6 rows have a key") as caught:
        load(mirror, base, described)
    assert caught.value.table == "s.items"
    (base / "s.items.2.copy").unlink()
    load(mirror, base, described)
    assert len(notes(mirror)) == 3


@pytest.mark.full
def test_a_table_that_is_there_is_loaded_only_if_that_is_said(mirror, base, described):
    mirror.apply(*changes(1))
    with pytest.raises(TargetError, match="the table is there already"):
        load(mirror, base, None)
    report = load(mirror, base, None, replace=True)
    assert [table.action for table in report.tables] == ["overwritten"]
    assert notes(mirror) == {1: "one", 2: "two", 3: None}
    mirror.apply(*changes(2))
    assert notes(mirror)[1] == "later"


@pytest.mark.parametrize(
    "step",
    further(["load written down", "decoded", "plan written", "table applied", "runs written"], but=("decoded",)),
)
def test_a_load_that_was_stopped_is_finished_by_the_next(mirror, base, described, stop, step):
    mirror.write(*changes(1))
    stop(step)
    with pytest.raises(StoppedError):
        load(mirror, base, described)
    with pytest.raises(TargetError, match=r"a base load of s\.items as of LSN 0/96 was interrupted"):
        mirror.apply()
    if step in ("load written down", "decoded"):
        assert not mirror.location("items").exists()
    else:
        with pytest.raises(TargetError, match="was interrupted"):
            load(mirror, base, described, 151)
    report = load(mirror, base, described)
    assert report.run == 1
    mirror.apply(*changes(2))
    assert notes(mirror) == {1: "later", 2: "two", 3: None}
    assert mirror.history("items").count("CREATE TABLE AS SELECT") <= 1


@pytest.mark.full
def test_a_load_that_was_stopped_can_be_given_up_for_another(mirror, base, described, stop):
    stop("table applied")
    with pytest.raises(StoppedError):
        load(mirror, base, described)
    (base / "s.items.copy").write_text("4\tfour\n")
    load(mirror, base, described, 160, replace=True)
    assert notes(mirror) == {4: "four"}
    mirror.write(*changes(1))
    mirror.apply(*changes(2))
    assert notes(mirror) == {1: "later", 4: "four"}


def test_what_is_no_value_stops_the_load_with_its_place(mirror, base, described):
    (base / "s.items.copy").write_text("1\tone\nsecret\ttwo\n")
    with pytest.raises(CaptureError) as caught:
        load(mirror, base, described)
    assert (caught.value.table, caught.value.offset) == ("s.items.id", 6)
    assert "secret" not in str(caught.value)
    assert not mirror.location("items").exists()


@pytest.mark.full
def test_rows_of_another_table_or_of_a_mirror_are_refused(mirror, base, described, tmp_path):
    described.write_text(lines_of("items") + lines_of("others", oid=10))
    folder = tmp_path / "all"
    folder.mkdir()
    (folder / "s.items.copy").write_text("1\ta\n")
    (folder / "s.others.copy").write_text("2\tb\n")
    with pytest.raises(NotSupported, match=r"named like another table, s\.others") as caught:
        load(mirror, folder, described, 150, table="s.items")
    assert caught.value.remedy == "Give --from the file, or a folder of this table's files alone"
    custom = tmp_path / "dumped"
    custom.write_bytes(b"PGDMP\x01\x10\x00" + bytes(50))
    with pytest.raises(NotSupported, match="custom format, which only pg_restore reads"):
        load(mirror, custom, described, 150)
    load(mirror, folder / "s.items.copy", described, 150, table="s.items")
    # Its rescued values are NULL in their columns.
    rows = mirror.spark.read.format("delta").load(f"{mirror.target}/s/items")
    with pytest.raises(CaptureError, match="values that are rescued would be lost") as caught:
        load(mirror, rows, described, 150, table="s.others")
    assert caught.value.table == "s.others"
    load(mirror, rows.drop("_rescued_data"), described, 150, table="s.others")
    assert sorted(collect(mirror.location("others"), "id", "note")) == [(1, "a")]


def test_many_files_and_ranges_of_one_table_are_loaded(mirror, base, described, monkeypatch):
    from walreplay.spark import base_files

    monkeypatch.setattr(base_files, "_RANGE_BYTES", 1000)
    (base / "s.items.copy").write_text("".join(f"{n}\tline {n}\\n\n" for n in range(1000)))
    (base / "s.items.copy.gz").write_bytes(gzip.compress(b"1000\tlast\n"))
    report = load(mirror, base, described)
    assert report.tables[0].inserted == 1001
    found = notes(mirror)
    assert found == {n: f"line {n}\n" for n in range(1000)} | {1000: "last"}


def test_columns_of_rows_that_spark_has_may_have_any_names(mirror, described, tmp_path):
    names = ["a.b", "`", "${spark.app.name}", "a"]
    described.write_text(lines_of("odd", "shop", **dict.fromkeys(names, TEXT)))
    rows = mirror.spark.createDataFrame([(1, "dot", "tick", "brace", "a")], ["id", *names])
    walreplay.load(mirror.spark, rows, mirror.target, 1, table="shop.odd", describe=described, captures=mirror.captures)
    (found,) = collect(Path(mirror.target, "shop", "odd"))
    assert found[:5] == (1, "dot", "tick", "brace", "a")


def test_rows_that_spark_has_are_loaded_as_the_page_says(mirror, described, tmp_path):
    spark = mirror.spark
    described.write_text(lines_of("orders", "shop", total=NUMERIC, placed_at=DATE))
    places = {"/data/base.jsonl": described, "/data/captures": mirror.captures}
    command = block("docs/starting.md", "walreplay load --from-query").text
    rows = spark.createDataFrame(
        [(1, 0.5, "2024-02-29"), (2, None, "infinity"), (3, 1.5, None)], "id long, total double, placed string"
    )
    rows.createOrReplaceTempView("orders_of_old")
    python = with_places(block("docs/starting.md", "rows = spark.sql").text, {**places, "/data/mirror": mirror.target})
    exec(python, {"spark": spark, "walreplay": walreplay})
    found = collect(Path(mirror.target, "shop", "orders"))
    assert {(row.id, str(row.total), str(row.placed_at), row["_rescued_data"]) for row in found} == {
        (1, "0.5", "2024-02-29", None),
        (2, "None", "None", '{"placed_at":"infinity"}'),
        (3, "1.5", "None", None),
    }
    assert {row["__commit_lsn"] for row in found} == {parse_lsn("0/1A2B3C8")}

    # Of columns that are typed all values have to fit.
    typed = spark.sql("SELECT id, total, DATE'2024-02-29' placed_at, 'more' more FROM orders_of_old")
    with pytest.raises(CaptureError, match="the column is double there, which does not become") as caught:
        walreplay.load(spark, typed, tmp_path / "new", 1, table="shop.orders", describe=described, captures="/c")
    assert caught.value.table == "shop.orders.total"
    with pytest.raises(ConfigError, match="which table's rows they are"):
        walreplay.load(spark, typed, tmp_path / "new", 1, describe=described, captures="/c")
    exact = typed.selectExpr("id", "CAST(total AS DECIMAL(9, 1)) total", "placed_at")
    with pytest.raises(CaptureError, match=r"3 of the 6 rows have a key"):
        walreplay.load(
            spark, exact.union(exact), tmp_path / "new", 1, table="shop.orders", describe=described, captures="/c"
        )
    assert not (tmp_path / "new" / "shop").exists()
    # The command takes the session that is active, which need not be the one that views are kept for.
    exact.createOrReplaceGlobalTempView("orders_of_lake")
    places |= {"lake.shop.orders": "global_temp.orders_of_lake", "/data/mirror": tmp_path / "new"}
    program, *arguments = shlex.split(with_places(command, places).replace("\\\n", ""))
    assert program == "walreplay"
    assert main([*arguments, "--quiet"]) == 0
    found = collect(tmp_path / "new" / "shop" / "orders")
    assert {(row.id, str(row.total), str(row.placed_at)) for row in found} == {
        (1, "0.5", "2024-02-29"),
        (2, "None", "2024-02-29"),
        (3, "1.5", "2024-02-29"),
    }


# The page.


@pytest.fixture
def shop() -> Iterator[Server]:
    """Run a server that has been there for a while, in a folder that others may write to."""
    with running_server() as server:
        server.execute("CREATE DATABASE shop")
        server.database = "shop"
        server.execute(*SETUP)
        run_workload(server, transactions=400, seed=5, pause=lambda: None)
        yield server


@dataclass(frozen=True)
class Commands:
    """What a page says to run, and what follows from it.

    Attributes:
        copy: the commands that end with the copies; empty where the recorder makes them.
        record: those that run on.
    """

    copy: str
    record: str
    load: str

    def placed(self, text: str, data: Path) -> str:
        """Put a test's folder into the place of the page's."""
        scripts = "walreplay --scripts /data/scripts\n"  # the test has copied them
        return re.sub(r"/(data/|(?=captures/))", f"{data}/", text.replace(scripts, ""))


_RECORDED = Commands(
    "",
    block("docs/starting.md", "export PGDATABASE=shop").text,
    block("docs/starting.md", "walreplay load --from /data/base").text,
)
_QUICK = Commands(
    "", block("README.md", "export PGHOST").text, block("README.md", "walreplay load --from /data/base").text
)
_RECEIVED = Commands(
    block("docs/starting.md", "walreplay --scripts").text,
    block("docs/capturing.md", "export PGOPTIONS").text,
    _RECORDED.load,
)


def interrupt(process: subprocess.Popen[bytes]) -> None:
    """End a program with its shell as Ctrl-C does."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGINT)
    process.wait(_PATIENCE)


@pytest.mark.live
@pytest.mark.parametrize(
    "commands",
    further([_RECORDED, _QUICK, _RECEIVED], but=[_RECORDED]),
    ids=["record", "the quick start", "pg_recvlogical"],
)
def test_the_commands_of_the_page_mirror_a_server_at_work(
    spark: SparkSession, shop: Server, tmp_path: Path, commands: Commands
) -> None:
    data = tmp_path / "data"
    (data / "captures").mkdir(parents=True)
    copy_scripts(data / "scripts")
    environment = {
        **program_environment(tmp_path),
        "PATH": os.pathsep.join([str(Path(sys.prefix, "bin")), str(shop.programs), os.environ["PATH"]]),
        "PGHOST": str(shop.home),
        "PGUSER": "postgres",
        "PGDATABASE": "shop",
    }
    shop.execute(block("docs/starting.md", "CREATE PUBLICATION").text)
    log = tmp_path / "log"

    def start(text: str) -> subprocess.Popen[bytes]:
        text = commands.placed(text, data).replace("PGHOST=localhost", f"PGHOST={shop.home}")
        with log.open("ab") as output:
            return subprocess.Popen(
                ["bash", "-euc", text], env=environment, stdout=output, stderr=output, start_new_session=True
            )

    def is_received(lsn: str) -> bool:
        if recording.poll() is not None and LOST_FILE in log.read_text():  # no recorder gets beyond it
            pytest.skip("this PostgreSQL cannot decode its own WAL")
        return bool(shop.value("SELECT count(*) FROM pg_stat_replication WHERE write_lsn >= %s::pg_lsn", lsn))

    with ExitStack() as ending:
        with at_work(shop, 6):
            if commands.copy:
                assert start(commands.copy).wait(_PATIENCE) == 0, log.read_text()
            recording = start(commands.record)
            ending.callback(interrupt, recording)
            wait_until((data / "base.lsn").exists, "the copies", log.read_text)
        run_workload(shop, transactions=200, seed=7, pause=lambda: None)
        shop.execute("SELECT pg_logical_emit_message(true, 'flush', '')")
        lsn = shop.value("SELECT pg_current_wal_lsn()::text")
        wait_until(lambda: is_received(lsn), "all to be received", log.read_text)
    tables = shop.source_tables(*SCHEMAS)

    assert commands.load.startswith(
        "walreplay load --from /data/base --target /data/mirror --captures /data/captures\n"
    )
    lsn = (data / "base.lsn").read_text().strip()
    walreplay.load(spark, data / "base", data / "mirror", captures=data / "captures")
    assert "walreplay apply --captures /data/captures" in block("docs/starting.md", "walreplay apply").text
    walreplay.apply(spark, data / "captures", data / "mirror")
    assert_tables_equal(spark, data / "mirror", tables, Beyond(loaded=parse_lsn(lsn) - 1))
