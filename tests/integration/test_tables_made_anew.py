"""All tables dropped and created again between two runs: by their own server, or so it seems, for it is another one."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import walreplay
from support.fault_cases import assert_fault_mended, fault_case
from support.readers import collect, read
from support.truth import LEDGER, mirror_tables, table_versions
from support.wire import encode
from walreplay.errors import OrderError
from walreplay.protocol import messages as m

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.integration

_CASE = "all_tables_recreated"


def _run(spark: SparkSession, captures: Path, target: Path, **config: Any) -> walreplay.RunReport:
    return walreplay.apply(spark, captures=str(captures), target=str(target), config=config)


def _steps(folder: Path) -> tuple[Path, Path]:
    """Return the captures, as they are at the first run, and the file that comes for the second."""
    first, second = fault_case(_CASE).files
    captures = folder / "captures"
    captures.mkdir()
    shutil.copy(first, captures)
    return captures, second


@pytest.mark.parametrize("config", [{}, {"on_recreate": "replace"}], ids=["by default", "as is said"])
def test_they_begin_anew_as_in_one_run_and_the_old_rows_are_set_aside(
    spark: SparkSession, tmp_path: Path, config: dict[str, Any]
) -> None:
    captures, second = _steps(tmp_path)
    _run(spark, captures, tmp_path / "mirror", **config)
    shutil.copy(second, captures)
    report = _run(spark, captures, tmp_path / "mirror", **config)
    assert_fault_mended(spark, tmp_path / "mirror", _CASE)
    assert sum(table.action == "set aside" for table in report.tables) == 4
    assert len(list((tmp_path / "mirror" / LEDGER).glob("set_aside_*"))) == 4
    (warning,) = report.warnings
    assert warning.startswith("4 of 4 tables (public.pgbench_accounts, ")


def test_the_configuration_has_them_keep_their_rows_or_stop(spark: SparkSession, tmp_path: Path) -> None:
    captures, second = _steps(tmp_path)
    target = tmp_path / "mirror"
    _run(spark, captures, target)
    history = read(target / "public" / "pgbench_history").num_rows
    shutil.copy(second, captures)
    before = table_versions(target)
    with pytest.raises(OrderError, match="dropped and created again") as caught:
        _run(spark, captures, target, on_recreate="stop")
    assert "on_recreate" in (caught.value.remedy or "")
    assert table_versions(target) == before
    report = _run(spark, captures, target, on_recreate="keep")
    assert sorted(mirror_tables(target)) == sorted(before)
    assert not list((target / LEDGER).glob("set_aside_*"))
    assert read(target / "public" / "pgbench_history").num_rows > history
    assert "the old rows are kept" in report.warnings[0]


def _captured(lsn: int, xid: int, oid: int) -> bytes:
    """Make a capture of three tables, a transaction and a row each."""
    messages: list[m.AnyMessage] = []
    for number in range(3):
        at = lsn + 100 * number
        columns = (m.Column("id", 23, -1, key=True),)
        row = m.TupleData((m.Cell("t", str(xid).encode()),))
        messages += [
            m.Begin(at, at, xid + number),
            m.Relation(oid + number, "s", f"t{number}", "d", columns),
            m.Insert(oid + number, row),
            m.Commit(0, at, at + 8, at),
        ]
    return b"".join(map(encode, messages))


def test_another_server_is_told_by_what_one_cannot_have_done_and_the_remedy_works(
    spark: SparkSession, tmp_path: Path
) -> None:
    captures, target = tmp_path / "captures", tmp_path / "mirror"
    captures.mkdir()
    (captures / "1").write_bytes(_captured(1000, 5000, 20_000))
    _run(spark, captures, target)
    before = table_versions(target)
    # Its LSNs happen to be higher, but its transactions are younger.
    (captures / "2").write_bytes(_captured(5000, 700, 16_390))
    with pytest.raises(OrderError, match=r"3 of 3 tables \(s\.t0, s\.t1, s\.t2\) have new oids") as caught:
        _run(spark, captures, target)
    assert "on_recreate: replace" in (caught.value.remedy or "")
    assert table_versions(target) == before
    _run(spark, captures, target, on_recreate="replace")
    for number in range(3):
        assert [row.id for row in collect(target / "s" / f"t{number}")] == [700]
