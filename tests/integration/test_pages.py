"""Commands and snippets of README and the docs do what the pages say; `tests/unit/test_pages.py` has the others.

What a page writes as a path or a name is replaced by a test's own; all else is run as it stands.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import walreplay
from support.captures import Case, case
from support.command import program_environment
from support.framings import frame
from support.pages import ROOT, block, block_behind, with_places, without_comments
from support.small_mirror import INT4, TEXT, SmallMirror, relation, row
from support.truth import assert_mirror_equals, mirror_tables
from walreplay.cli import main
from walreplay.errors import TargetError
from walreplay.protocol import messages as m
from walreplay.protocol.framing import Framing

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.integration

_PATIENCE = 300.0

_DATE = 1082


def shell(text: str, *, folder: Path, extra: Mapping[str, str] | None = None) -> str:
    """Run commands as a shell does, each of which has to succeed, and give what they print."""
    environment = {**program_environment(folder), **(extra or {})}
    environment["PATH"] = os.pathsep.join([str(Path(sys.prefix, "bin")), environment["PATH"]])
    done = subprocess.run(
        ["bash", "-euc", text], env=environment, cwd=folder, capture_output=True, text=True, timeout=_PATIENCE
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return done.stdout


# README.


@dataclass(frozen=True)
class First:
    """README's first command, run on the sample.

    Attributes:
        printed: what it has printed, with the page's paths.
    """

    case: Case
    mirror: Path
    printed: str


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> First:
    folder = tmp_path_factory.mktemp("first")
    sample, mirror = case("o03"), folder / "mirror"
    command = block("README.md", "walreplay apply --captures").text
    printed = shell(with_places(command, {"/data/captures": sample.folder, "/data/mirror": mirror}), folder=folder)
    return First(sample, mirror, printed.replace(str(mirror), "/data/mirror"))


def without_seconds(text: str) -> list[str]:
    """Return the lines with all that hangs on the clock left out."""
    return [re.sub(r" +\d+\.\d( s)?(?=$|, written)", " …", line) for line in text.splitlines()]


def test_the_first_command_prints_what_the_readme_shows(spark: SparkSession, first: First) -> None:
    shown = block_behind(block("README.md", "walreplay apply --captures"))
    assert shown == block("README.md", "run 1: ")
    assert without_seconds(first.printed) == without_seconds(shown.text)
    assert_mirror_equals(spark, first.mirror, first.case)


@pytest.mark.full
def test_the_backfill_page_makes_tables_as_of_a_moment(spark: SparkSession, tmp_path: Path) -> None:
    sample = case("o03")
    moment = block("docs/backfill.md", "walreplay backfill --captures /data/captures --target /data/as_of_december")
    command = with_places(moment.text, {"/data/captures": sample.folder, "/data/as_of_december": tmp_path / "moment"})
    early = command.replace("2026-12-01T00:00:00+00:00", "2026-11-20T09:47:42.640+00:00")
    assert early != command
    shell(early, folder=tmp_path)
    known = walreplay.status(spark, tmp_path / "moment")
    assert 0 < known.runs[0].transactions < sample.info["transactions_committed"]
    shell(command, folder=tmp_path)
    assert_mirror_equals(spark, tmp_path / "moment", sample)
    ahead = block("docs/backfill.md", "walreplay backfill --captures /data/captures --target /data/mirror --until-time")
    places = {"/data/captures": sample.folder, "/data/mirror": tmp_path / "mirror"}
    assert f"{sample.info['transactions_committed']} transactions" in shell(
        with_places(ahead.text, places), folder=tmp_path
    )
    assert not (tmp_path / "mirror").exists()
    part = block("docs/backfill.md", "walreplay backfill --captures /data/captures --target /data/december")
    places = {"/data/captures": sample.folder, "/data/december": tmp_path / "part", "16/B374D848": "0/1"}
    shell(with_places(part.text, places), folder=tmp_path)
    assert list(mirror_tables(tmp_path / "part")) == ["shop.orders__changes"]


@pytest.mark.full
def test_make_run_applies_the_sample_or_what_it_is_given(spark: SparkSession, first: First, tmp_path: Path) -> None:
    for path in ROOT.iterdir():
        if path.name not in (".git", ".venv", "build", "dist"):
            (tmp_path / path.name).symlink_to(path)
    # The environment of the tests in the place of the one that `make setup` would make.
    (tmp_path / ".venv").mkdir()
    for name in ("bin", "lib", "pyvenv.cfg"):
        (tmp_path / ".venv" / name).symlink_to(Path(sys.prefix, name))
    (tmp_path / ".venv" / ".ready").touch()

    commands = block("README.md", "make run").text
    places = {"/data/captures": first.case.folder, "/data/mirror": first.mirror}
    printed = shell(with_places(commands, places), folder=tmp_path)

    assert_mirror_equals(spark, tmp_path / "build" / "mirror", first.case)
    applied = re.findall(r"^(?:run \d+: )?(.*)", printed, re.MULTILINE)[0]
    assert applied.startswith("105 transactions, 616 row changes from 7 files")
    assert all(f"\n{table['table']}\n" in printed for table in first.case.info["tables"])  # "a look at the tables"
    assert "nothing new in" in printed


@pytest.mark.full
def test_spark_submit_takes_the_job(spark: SparkSession, tmp_path: Path) -> None:
    sample = case("o03")
    # The JARs that are locked in the place of those that Spark would fetch: `tests/unit/test_pages.py` compares them.
    jars = ",".join(map(str, sorted(Path(sys.prefix, "jars").glob("*.jar"))))
    settings = (ROOT / "conf" / "spark-defaults.conf").read_text(encoding="utf-8")
    (packages,) = re.findall(r"^spark\.jars\.packages .*\n", settings, re.MULTILINE)
    small = "spark.master local[2]\nspark.driver.memory 1g\nspark.sql.shuffle.partitions 4\n"
    (tmp_path / "spark-defaults.conf").write_text(settings.replace(packages, small), encoding="utf-8")
    command = block("README.md", "spark-submit").text
    (coordinate,) = re.findall(r"--packages \S+", command)
    places = {
        coordinate: f"--jars {jars}",
        "jobs/apply.py": ROOT / "jobs" / "apply.py",
        "s3a://bucket/captures": sample.folder,
        "s3a://bucket/mirror": tmp_path / "mirror",
    }
    printed = shell(
        with_places(command, places),
        folder=tmp_path,
        extra={"PYSPARK_SUBMIT_ARGS": "", "SPARK_CONF_DIR": str(tmp_path)},
    )

    assert "105 transactions, 616 row changes from 7 files" in printed
    assert_mirror_equals(spark, tmp_path / "mirror", sample)


@pytest.fixture
def schema(spark: SparkSession) -> Iterator[str]:
    """Name a schema of the session's catalog that is gone in the end."""
    yield "pages_shop"
    spark.sql("DROP SCHEMA IF EXISTS pages_shop CASCADE")


@pytest.mark.full
def test_the_notebooks_snippet_runs(spark: SparkSession, schema: str) -> None:
    sample = case("o21")
    text = with_places(
        block("README.md", "import walreplay").text,
        {
            "/Volumes/main/cdc/captures": sample.folder,
            "/data/captures": sample.folder,
            "main.shop": f"spark_catalog.{schema}",
        },
    )
    names: dict[str, Any] = {"spark": spark}

    exec(compile(text, "README.md", "exec"), names)

    report, batch = names["report"], names["batch"]
    (table,) = sample.info["tables"]
    assert spark.table(report.tables[0].location).count() == table["rows"]
    assert batch.relation.qualified_name == table["table"]
    assert isinstance(batch.data, pa.RecordBatch)
    assert batch.data.schema.names[:2] == ["__op", "__commit_lsn"]
    assert "pyarrow.RecordBatch: __op, __commit_lsn, …, columns" in text


# Sessions and gaps.


def command_line(text: str) -> int:
    """Run one command of ours in this process, by the arguments that a shell would make of it."""
    program, *arguments = shlex.split(text, comments=True)
    assert program == "walreplay"
    return main(arguments)


_T = relation(1, "orders", {"id": INT4, "v": TEXT}, schema="shop")


@pytest.mark.full
def test_a_run_goes_on_over_a_gap_by_the_command(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    mirror = SmallMirror(spark, tmp_path)
    for number in range(1, 7):
        mirror.write(_T, m.Insert(1, row(number, "v")))
    (mirror.captures / "004.bin").unlink()
    page = block("docs/sessions-and-gaps.md", "walreplay apply").text
    text = with_places(page, {"/data/captures": mirror.captures, "/data/mirror": mirror.target})

    assert command_line(text.replace("--allow-gaps", "", 1)) == 1
    assert "--allow-gaps" in capsys.readouterr().err
    assert command_line(text) == 0
    assert sorted(found[1] for found in mirror.rows()["shop.orders"]) == [1, 2, 3, 5, 6]


@pytest.mark.full
def test_a_table_that_was_changed_is_brought_back_by_the_statement(spark: SparkSession, tmp_path: Path) -> None:
    mirror = SmallMirror(spark, tmp_path)
    mirror.apply(_T, m.Insert(1, row(1, "a")))
    mirror.apply(m.Insert(1, row(2, "a")))
    spark.sql(f"DELETE FROM delta.`{mirror.target}/shop/orders` WHERE id = 1")
    mirror.write(m.Insert(1, row(3, "a")))
    with pytest.raises(TargetError) as caught:
        mirror.apply()
    text = block("docs/sessions-and-gaps.md", "RESTORE TABLE").text
    statement = with_places(text, {"/data/mirror": mirror.target, "41": 1}).strip()
    assert statement in str(caught.value)

    spark.sql(statement)

    assert mirror.apply().warnings == ()
    assert sorted(found[1] for found in mirror.rows()["shop.orders"]) == [1, 2, 3]


@pytest.mark.full
def test_a_table_that_was_changed_is_made_again_by_the_command(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    mirror = SmallMirror(spark, tmp_path)
    mirror.apply(_T, m.Insert(1, row(1, "a")))
    spark.sql(f"DELETE FROM delta.`{mirror.target}/shop/orders`")
    places = {"/data/captures": mirror.captures, "/data/mirror": mirror.target}
    for text in (
        block("docs/backfill.md", "walreplay rebuild --table 'shop\\.orders'").text,
        block("docs/backfill.md", "walreplay rebuild --table 'shop\\..*'").text,
    ):
        assert command_line(with_places(text, places)) == 0
    assert ["1 of 1 table" in line for line in capsys.readouterr().out.splitlines()].count(True) == 1
    assert sorted(found[1] for found in mirror.rows()["shop.orders"]) == [1]


@pytest.mark.full
def test_status_lists_what_waits_for_the_next_run(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    mirror = SmallMirror(spark, tmp_path)
    mirror.write(_T, m.Insert(1, row(1, "a")))
    open_messages = [m.Begin(200, 200, 77), m.Insert(1, row(2, "a"))]
    (mirror.captures / "002.bin").write_bytes(frame(open_messages, Framing.RAW))
    mirror.apply()
    text = block("docs/sessions-and-gaps.md", "walreplay status").text

    assert command_line(with_places(text, {"/data/mirror": mirror.target})) == 0

    lines = capsys.readouterr().out.splitlines()
    (heads,) = (number for number, line in enumerate(lines) if line.startswith("open transaction"))
    assert " 77 " in lines[heads + 1]
    assert "002.bin" in lines[heads + 1]


# Types.


def test_the_query_finds_what_was_rescued(spark: SparkSession, tmp_path: Path) -> None:
    mirror = SmallMirror(spark, tmp_path)
    contracts = relation(1, "contracts", {"id": INT4, "valid_until": _DATE})
    mirror.apply(contracts, m.Insert(1, row(1, "infinity")), m.Insert(1, row(2, "2026-01-31")))
    spark.read.format("delta").load(str(mirror.location("contracts"))).createOrReplaceTempView("contracts")
    text = block("docs/types.md", "SELECT id").text
    (value,) = re.findall(r"-- (\w+)$", text.strip())

    rows = spark.sql(without_comments(text, "--").strip().rstrip(";")).collect()

    spark.catalog.dropTempView("contracts")
    assert [tuple(found) for found in rows] == [(1, value)]
