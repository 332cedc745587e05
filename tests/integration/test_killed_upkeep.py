"""A process that is killed while it keeps ledger and tables small loses nothing: the next one goes on."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

import walreplay
from support.killed_run import run_until_killed
from support.readers import collect
from support.small_mirror import INT4, TEXT, SmallMirror, forget, relation, row
from walreplay.delta.local import LocalTable
from walreplay.protocol import messages as m
from walreplay.session.folders import MountedFolder

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.integration, pytest.mark.full]

_FEW, _MANY = 2, 10
"""So many runs leave as many small files in a table to which they append; with the latter it needs OPTIMIZE."""

_CONFIG: Final = "table_properties: {delta.deletedFileRetentionDuration: interval 0 seconds}\n"


class _Killed:
    """A mirror of which runs are killed, and what there has to be in the end."""

    def __init__(self, spark: SparkSession, folder: Path, runs: int) -> None:
        self.mirror = SmallMirror(spark, folder)
        self.folder = folder
        self.config = folder / "config.yaml"
        self.config.write_text(_CONFIG)
        keyed = relation(1, "keyed", {"id": INT4, "v": TEXT})
        loose = relation(2, "loose", {"id": INT4, "v": TEXT}, "n")
        self.apply(keyed, loose, m.Insert(1, row(0, "x")), m.Insert(2, row(0, "x")))
        for _ in range(1, runs):
            self.apply(*self.changes())

    def changes(self) -> tuple[m.AnyMessage, ...]:
        number = self.mirror.files
        return m.Update(1, row(0, f"{number}")), m.Insert(1, row(number, "x")), m.Insert(2, row(number, "x"))

    def apply(self, *changes: m.AnyMessage, often: bool = False) -> walreplay.RunReport:
        if changes:
            self.mirror.write(*changes)
        forget(self.mirror.spark)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("walreplay.job.context.COMPACT_EVERY_RUNS", 1 if often else 1 << 30)
            return walreplay.apply(
                self.mirror.spark, captures=self.mirror.captures, target=self.mirror.target, config=self.config
            )

    def kill(self, command: str, step: str, later: float, *more: str) -> None:
        captures = self.mirror.captures if command == "apply" else None
        run_until_killed(
            captures,
            Path(self.mirror.target),
            step,
            1,
            scratch=self.folder,
            later=later,
            config=self.config,
            compact_every=1,
            command=(command, *more),
        )
        forget(self.mirror.spark)

    def assert_each_record_is_there_once(self) -> None:
        for table in ("runs", "files", "transactions"):
            name = {"runs": "run", "files": "path", "transactions": "commit_lsn"}[table]
            found = Counter(record[0] for record in collect(self.mirror.ledger / table, name))
            assert len(found) == self.mirror.files, table
            assert set(found.values()) == {1}, table

    def files(self, name: str) -> int:
        folder = MountedFolder(str(self.mirror.ledger / name))
        return len(LocalTable.open(folder).files)


@pytest.mark.parametrize(
    ("runs", "in_ledger", "in_tables"),
    [
        (_FEW, ("ledger's table kept small: runs", 0.0), ("maintained by vacuum: s.keyed", 0.0)),
        *(
            # Somewhere in the middle of OPTIMIZE, of VACUUM, of a commit.
            pytest.param(
                _MANY, ("ledger is to be kept small", later), ("tables looked at", later), marks=pytest.mark.long
            )
            for later in (0.3, 0.8, 1.5, 2.5, 4.0)
        ),
    ],
)
def test_what_is_killed_while_it_keeps_things_small_loses_nothing(
    spark: SparkSession, tmp_path: Path, runs: int, in_ledger: tuple[str, float], in_tables: tuple[str, float]
) -> None:
    killed = _Killed(spark, tmp_path, runs)
    mirror = killed.mirror

    mirror.write(*killed.changes())
    killed.kill("apply", *in_ledger)
    # It was behind the run's end.
    killed.assert_each_record_is_there_once()
    assert killed.apply().status == "nothing new"

    if runs == _MANY:
        # What the next one does is tried in one process by `test_small_ledger`, too.
        report = killed.apply(*killed.changes(), often=True)
        assert "compact ledger" in report.stages
        assert [warning for warning in report.warnings if "took over" not in warning] == []
        assert {killed.files(name) for name in ("runs", "files", "transactions")} == {1}
        killed.assert_each_record_is_there_once()

    table = () if runs == _MANY else ("--table", "s.keyed")
    killed.kill("maintain", *in_tables, *table)
    maintained = walreplay.maintain(spark, mirror.target, *table[1:], config=killed.config)
    assert not maintained.has_failed
    assert killed.files("../s/keyed") == 1
    assert killed.files("../s/loose") < _MANY

    killed.apply(*killed.changes())
    killed.assert_each_record_is_there_once()
    assert mirror.rows() == mirror.expected(tmp_path / "at once")
