"""A ledger that is older than its tables, and tables that are not as the ledger has left them."""

from __future__ import annotations

import json
import re
import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import walreplay
from support.extent import further
from support.readers import collect
from support.small_mirror import INT4, TEXT, SmallMirror, forget, relation, row
from support.truth import mirror_tables
from walreplay.errors import TargetError
from walreplay.ledger import state as lock
from walreplay.protocol import messages as m
from walreplay.session import steps
from walreplay.writing.by_files import FileAppend

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.integration


@pytest.fixture(autouse=True)
def _no_beats(monkeypatch: pytest.MonkeyPatch) -> None:
    _silence(monkeypatch)


def _silence(patch: pytest.MonkeyPatch) -> None:
    """Have runs give no signs of life: on a slow machine each is one commit more of the ledger's."""
    patch.setattr(lock, "BEAT_SECONDS", 3600.0)


_KEYED = relation(1, "keyed", {"id": INT4, "v": TEXT})
_FULL = relation(2, "full", {"id": INT4, "v": TEXT}, "f")
_ADDED = relation(3, "added", {"id": INT4, "v": TEXT}, "n")
_WIDER = relation(1, "keyed", {"id": INT4, "v": TEXT, "w": INT4})
_LATE = relation(4, "late", {"id": INT4, "v": TEXT}, "f")

_RUNS: Sequence[Sequence[m.AnyMessage]] = (
    (_KEYED, m.Insert(1, row(1, "a")), _FULL, m.Insert(2, row(1, "x")), _ADDED, m.Insert(3, row(1, "n"))),
    (
        _KEYED,
        m.Insert(1, row(2, "b")),
        m.Insert(2, row(1, "x")),
        m.Insert(3, row(1, "n")),
        _LATE,
        m.Insert(4, row(9, "l")),
    ),
    (
        _WIDER,
        m.Insert(1, row(3, "c", 30)),
        m.Update(1, row(1, "CHANGED", 10)),
        m.Delete(2, old=row(1, "x")),
        m.Insert(4, row(9, "l")),
        m.Insert(3, row(2, "n")),
    ),
    (
        m.Delete(1, key=row(2, None, None)),
        m.Truncate((2,), 0),
        m.Insert(2, row(5, "y")),
        m.Update(4, row(9, "m"), old=row(9, "l")),
        m.Insert(3, row(3, "n")),
    ),
)
"""Tables of every kind: keyed, without a key, with inserts alone; one that is new, columns that come, a truncate."""


def _whole(mirror: SmallMirror, kept: Path) -> None:
    mirror.put_back(kept)


def _state(mirror: SmallMirror, kept: Path) -> None:
    mirror.put_back(kept / "state", "state")


def _restored(mirror: SmallMirror, kept: Path) -> None:
    version = max(int(path.stem) for path in (kept / "state" / "_delta_log").glob("*.json"))
    mirror.spark.sql(f"RESTORE TABLE delta.`{mirror.ledger / 'state'}` TO VERSION AS OF {version}")


@dataclass(frozen=True)
class Course:
    """The first three runs, and what the disk has held behind each.

    Args:
        kept: copies of all, in a folder for each run.
    """

    mirror: SmallMirror
    kept: Path

    def behind(self, run: int) -> SmallMirror:
        """Return the mirror as it was behind a run."""
        self.mirror.go_back_to(self.kept / str(run))
        return self.mirror

    def ledger(self, run: int) -> Path:
        """Return the copy of its ledger."""
        return self.kept / str(run) / self.mirror.ledger.relative_to(self.mirror.captures.parent)


@pytest.fixture(scope="module")
def course(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Course:
    folder = tmp_path_factory.mktemp("course")
    made = Course(SmallMirror(spark, folder / "now"), folder / "kept")
    with pytest.MonkeyPatch.context() as patch:
        _silence(patch)
        for number, changes in enumerate(_RUNS[:3], 1):
            made.mirror.apply(*changes)
            made.mirror.keep(made.kept / str(number))
    return made


_WAYS: Sequence[tuple[Callable[[SmallMirror, Path], None], int]] = ((_state, 1), (_whole, 2))
_MORE_WAYS: Sequence[tuple[Callable[[SmallMirror, Path], None], int]] = ((_restored, 2), (_whole, 1), (_state, 2))


def _assert_whole(mirror: SmallMirror, tmp_path: Path, rows: Callable[[SmallMirror], Any] = SmallMirror.rows) -> None:
    """See that the rows are right, that the ledger has each transaction once, and that nothing is left to be done."""
    assert rows(mirror) == mirror.expected(tmp_path / "expected")
    ledger = {name: collect(mirror.ledger / name) for name in ("runs", "transactions", "files")}
    assert sorted(row.commit_lsn for row in ledger["transactions"]) == [100 * n for n in range(1, mirror.files + 1)]
    assert sum(row.transactions for row in ledger["runs"]) == mirror.files
    assert len({row.run for row in ledger["runs"]}) == len(ledger["runs"])
    assert mirror.apply().status == "nothing new"


def _follow(mirror: SmallMirror, error: TargetError) -> Sequence[str]:
    """Do what an error says, to the letter; give the statements."""
    statements = re.findall(r"RESTORE TABLE \S+ TO VERSION AS OF \d+", str(error))
    assert statements, error
    for statement in statements:
        mirror.spark.sql(statement)
    return statements


def _rows_by_spark(mirror: SmallMirror) -> dict[str, Counter[tuple[Any, ...]]]:
    """Return what `SmallMirror.rows` does, where others have changed tables so that Spark alone reads them."""
    found = {}
    for name, location in mirror_tables(mirror.target).items():
        frame = mirror.spark.read.format("delta").load(str(location)).drop("__commit_lsn", "__commit_ts")
        found[name] = Counter((tuple(frame.columns), *row) for row in frame.collect())
    return found


def _refused(
    mirror: SmallMirror, *said: str, rows: Callable[[SmallMirror], Any] | None = SmallMirror.rows, **config: Any
) -> TargetError:
    """See that a run is refused without a trace in the tables, and that it says why.

    Args:
        rows: reads the tables; None if nobody can.
    """
    before = rows and rows(mirror)
    with pytest.raises(TargetError) as caught:
        mirror.apply(**config)
    assert rows is None or rows(mirror) == before
    for text in said:
        assert text in str(caught.value)
    return caught.value


def _put_right(mirror: SmallMirror) -> None:
    """See that the run is refused, that one error has all statements, and that the next run goes on behind them."""
    _follow(mirror, _refused(mirror, "the ledger was set back"))
    assert any("was set back" in warning for warning in mirror.apply().warnings)


@pytest.mark.parametrize("commits", ["", pytest.param("spark", marks=pytest.mark.full)])
@pytest.mark.parametrize(
    ("way", "back"),
    further(_WAYS, long=_MORE_WAYS),
    ids=lambda given: getattr(given, "__name__", str(given)).strip("_"),
)
def test_a_ledger_that_was_set_back_is_refused_and_put_right_as_the_error_says(
    course: Course,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    way: Callable[[SmallMirror, Path], None],
    back: int,
    commits: str,
) -> None:
    monkeypatch.setenv("WALREPLAY_COMMITS", commits)
    mirror = course.behind(3)
    way(mirror, course.ledger(3 - back))
    mirror.write(*_RUNS[3])

    _put_right(mirror)

    _assert_whole(mirror, tmp_path)


@pytest.mark.parametrize("commits", further([], long=[1, 2, 3, 4, 5]))
def test_a_ledger_whose_newest_commits_are_lost_is_put_right_as_the_error_says(
    course: Course, tmp_path: Path, commits: int
) -> None:
    mirror = course.behind(2)
    mirror.lose("state", commits)

    for changes in _RUNS[2:]:
        mirror.write(*changes)
    try:
        mirror.apply()
    except TargetError as error:
        _follow(mirror, error)
        mirror.apply()

    _assert_whole(mirror, tmp_path)


_ONE = relation(1, "t", {"id": INT4, "v": TEXT})
_MAPPED = "ALTER TABLE {t} SET TBLPROPERTIES ('delta.columnMapping.mode' = 'name')"
_CHANGES = (
    "RESTORE TABLE {t} TO VERSION AS OF 0",
    "UPDATE {t} SET v = 'mine' WHERE id = 1",
    "DELETE FROM {t} WHERE id = 1",
    "INSERT INTO {t} SELECT 9 AS id, 'mine' AS v, 1L AS __commit_lsn, __commit_ts, _rescued_data FROM {t} WHERE id = 1",
    f"{_MAPPED}; ALTER TABLE {{t}} RENAME COLUMN v TO mine",
    f"{_MAPPED}; ALTER TABLE {{t}} DROP COLUMN v; ALTER TABLE {{t}} ADD COLUMNS (v STRING AFTER id)",
)
_MAINTENANCE = (
    "OPTIMIZE {t}",
    "ALTER TABLE {t} SET TBLPROPERTIES ('delta.logRetentionDuration' = 'interval 60 days')",
    "ALTER TABLE {t} CLUSTER BY (id)",
    "OPTIMIZE {t} FULL",
    "VACUUM {t}",
    "COMMENT ON TABLE {t} IS 'a mirror'",
)


def _said(mirror: SmallMirror, statements: str) -> None:
    for statement in statements.split("; "):
        mirror.spark.sql(statement.format(t=f"delta.`{mirror.location('t')}`"))


@pytest.mark.full
def test_what_others_have_done_to_a_table_is_refused_and_undone_as_the_error_says(
    spark: SparkSession, tmp_path: Path
) -> None:
    mirror = SmallMirror(spark, tmp_path)
    mirror.apply(_ONE, m.Insert(1, row(1, "a")))
    mirror.apply(m.Update(1, row(1, "b")), m.Insert(1, row(2, "b")))
    mirror.write(m.Insert(1, row(3, "c")), m.Update(1, row(2, "d")))
    for change in _CHANGES:
        _said(mirror, change)
        _follow(mirror, _refused(mirror, "RESTORE TABLE", "TO VERSION AS OF 1", rows=_rows_by_spark))
    for change in _MAINTENANCE:
        _said(mirror, change)

    report = mirror.apply()

    assert (report.status, report.warnings) == ("applied", ())
    _assert_whole(mirror, tmp_path, rows=_rows_by_spark)


def test_a_change_that_was_meant_is_gone_on_from_when_that_is_said(spark: SparkSession, tmp_path: Path) -> None:
    mirror = SmallMirror(spark, tmp_path)
    mirror.apply(_ONE, m.Insert(1, row(1, "a")), m.Insert(1, row(2, "a")))
    _said(mirror, "DELETE FROM {t} WHERE id = 1")
    mirror.write(m.Insert(1, row(3, "c")))
    _refused(mirror, "is made by DELETE", "--accept-changed-tables")

    report = mirror.apply(accept_changed_tables=True)

    assert ["somebody else has changed it (version 1, DELETE)" in warning for warning in report.warnings] == [True]
    assert sorted(row[1] for row in mirror.rows()["s.t"]) == [2, 3]
    mirror.apply(m.Insert(1, row(4, "d")))
    assert sorted(row[1] for row in mirror.rows()["s.t"]) == [2, 3, 4]


def test_a_change_while_a_run_is_at_work_is_told(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mirror = SmallMirror(spark, tmp_path)
    mirror.apply(_ONE, m.Insert(1, row(1, "a")), m.Insert(1, row(2, "a")))

    def on_step(step: str) -> None:
        if step == "plan written":
            _said(mirror, "DELETE FROM {t} WHERE id = 1")

    with monkeypatch.context() as patched:
        patched.setattr(steps, "on_step", on_step)
        report = mirror.apply(m.Insert(1, row(3, "c")))
    (warning,) = report.warnings
    assert "s.t: somebody else has changed it while the run was at work (version 1, DELETE)" in warning
    assert mirror.apply(m.Insert(1, row(4, "d"))).warnings == ()


@pytest.mark.parametrize(
    "said", ["ALTER TABLE {t} ADD COLUMN w INT", "ALTER TABLE {t} ADD CONSTRAINT few CHECK (id < 9)"]
)
def test_a_commit_of_somebody_else_in_between_names_the_table_and_the_next_run_finishes(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: str
) -> None:
    mirror = SmallMirror(spark, tmp_path)
    mirror.apply(relation(1, "t", {"id": INT4, "v": TEXT}, "n"), m.Insert(1, row(1, "a")))

    with monkeypatch.context() as patched:
        _before_commit(patched, lambda: _said(mirror, said))
        with pytest.raises(TargetError, match="somebody else has committed version 1") as caught:
            mirror.apply(m.Insert(1, row(2, "b")))

    assert caught.value.table == "s.t"
    assert "Run again" in str(caught.value)
    assert mirror.apply().status == "applied"
    assert sorted(row[0] for row in collect(mirror.location("t"), "id")) == [1, 2]


def _before_commit(patch: pytest.MonkeyPatch, act: Callable[[], None]) -> None:
    """Have something happen once, between the fold of the table ``t`` and its commit by files."""
    commit, waiting = FileAppend.commit, [act]

    def late(self: FileAppend, *arguments: Any, **named: Any) -> int | None:
        if self._table.folder.uri.endswith("/s/t") and waiting:
            waiting.pop()()
        return commit(self, *arguments, **named)

    patch.setattr(FileAppend, "commit", late)


@pytest.mark.both_ways
@pytest.mark.parametrize("identity", further(["n", "d"], but=("n",)))
def test_a_table_that_is_dropped_behind_its_check_is_not_made_anew(
    mirror: SmallMirror, monkeypatch: pytest.MonkeyPatch, identity: str
) -> None:
    mirror.apply(relation(1, "t", {"id": INT4, "v": TEXT}, identity), m.Insert(1, row(1, "a")))
    with monkeypatch.context() as patched:
        patched.setattr(steps, "on_step", lambda step: _drop(mirror) if step == "plan written" else None)
        _assert_refused(mirror)
    _assert_made_again(mirror)


@pytest.mark.full
def test_a_table_that_is_dropped_behind_its_fold_is_not_made_anew(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mirror = SmallMirror(spark, tmp_path)
    mirror.apply(relation(1, "t", {"id": INT4, "v": TEXT}, "n"), m.Insert(1, row(1, "a")))
    with monkeypatch.context() as patched:
        _before_commit(patched, lambda: _drop(mirror))
        _assert_refused(mirror)
    _assert_made_again(mirror)


def _drop(mirror: SmallMirror) -> None:
    shutil.rmtree(mirror.location("t"))
    forget(mirror.spark)


def _assert_refused(mirror: SmallMirror) -> None:
    with pytest.raises(TargetError, match="the table was dropped") as caught:
        mirror.apply(m.Insert(1, row(2, "b")))
    assert caught.value.table == "s.t"
    assert not (mirror.location("t") / "_delta_log").exists()


def _assert_made_again(mirror: SmallMirror) -> None:
    # The remedy: the next run leaves it out, and says how to make it again.
    assert [text for text in mirror.apply().warnings if r"walreplay rebuild --table 's\.t'" in text]
    walreplay.rebuild(mirror.spark, mirror.captures, mirror.target, r"s\.t")
    assert sorted(row[0] for row in collect(mirror.location("t"), "id")) == [1, 2]


@pytest.mark.full
def test_a_change_is_told_by_runs_that_have_nothing_for_the_table(spark: SparkSession, tmp_path: Path) -> None:
    mirror, kept = SmallMirror(spark, tmp_path), tmp_path / "kept"
    other = relation(2, "other", {"id": INT4, "v": TEXT})
    mirror.apply(_ONE, m.Insert(1, row(1, "a")), other, m.Insert(2, row(1, "a")))
    mirror.save(kept)
    later = mirror.write(m.Insert(1, row(2, "b")))
    mirror.apply()
    _said(mirror, "RESTORE TABLE {t} TO VERSION AS OF 0")

    for report in (mirror.apply(), mirror.apply(m.Insert(2, row(2, "b")))):
        (warning,) = report.warnings
        assert "s.t: the table was changed by somebody else" in warning
    mirror.spark.sql(re.findall(r"RESTORE TABLE .* TO VERSION AS OF 1", warning)[0])
    assert mirror.apply().warnings == ()
    # A ledger that is older than the table, without the bytes that the table has.
    mirror.put_back(kept)
    later.rename(tmp_path / later.name)
    _refused(mirror, "s.t", "the table is newer than the ledger", allow_gaps=True, file_pattern="001.bin")


@pytest.mark.full
def test_a_table_that_is_gone_is_told_by_runs_that_have_nothing_for_it(spark: SparkSession, tmp_path: Path) -> None:
    mirror = SmallMirror(spark, tmp_path)
    other = relation(2, "other", {"id": INT4, "v": TEXT})
    mirror.apply(_ONE, m.Insert(1, row(1, "a")), other, m.Insert(2, row(1, "a")))
    shutil.rmtree(mirror.location("t"))
    forget(spark)
    for report in (mirror.apply(), mirror.apply(m.Insert(2, row(2, "b")))):
        (warning,) = report.warnings
        assert warning.startswith("s.t: the table is gone, and nothing was written to it")
    walreplay.rebuild(spark, mirror.captures, mirror.target, r"s\.t")
    assert mirror.apply(m.Insert(1, row(2, "b"))).warnings == ()
    assert sorted(map(tuple, collect(mirror.location("t"), "id", "v"))) == [(1, "a"), (2, "b")]


@pytest.mark.full
def test_a_table_whose_folder_is_another_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    mirror, kept = SmallMirror(spark, tmp_path), tmp_path / "kept"
    other = relation(2, "other", {"id": INT4, "v": TEXT})
    mirror.apply(_ONE, m.Insert(1, row(1, "a")), other, m.Insert(2, row(1, "a")))
    shutil.copytree(mirror.location("t"), kept / "early")
    mirror.apply(m.Insert(1, row(2, "b")), m.Insert(2, row(2, "b")))
    shutil.copytree(mirror.location("t"), kept / "t")
    mirror.write(m.Insert(1, row(3, "c")))

    for source, said in ((kept / "early", "it was set back as a whole"), (mirror.location("other"), "is not the one")):
        shutil.rmtree(mirror.location("t"))
        shutil.copytree(source, mirror.location("t"))
        forget(spark)
        _refused(mirror, said)
    shutil.rmtree(mirror.location("t"))
    # What the error says, again.
    shutil.copytree(kept / "t", mirror.location("t"))
    forget(spark)
    mirror.apply()
    _assert_whole(mirror, tmp_path)


@pytest.mark.full
def test_no_statement_is_named_when_the_bytes_are_gone(spark: SparkSession, tmp_path: Path) -> None:
    mirror, kept = SmallMirror(spark, tmp_path), tmp_path / "kept"
    mirror.apply(_ONE, m.Insert(1, row(1, "a")))
    mirror.save(kept)
    second = mirror.write(m.Insert(1, row(2, "b")))
    mirror.apply(m.Insert(1, row(3, "c")))
    mirror.put_back(kept)
    mirror.write(m.Update(1, row(1, "CHANGED")))
    away = second.rename(tmp_path / second.name)

    # The files' own numbering shows the gap first; who goes on over it is still refused.
    said = "the table is newer than the ledger: it has what run 2 has applied up to LSN 0/12C"
    error = _refused(mirror, said, allow_gaps=True)
    assert "Bring back the captures that are missing" in str(error)
    assert "RESTORE" not in str(error)
    away.rename(second)
    _put_right(mirror)
    _assert_whole(mirror, tmp_path)


@pytest.mark.parametrize("after", further(["forget_unknown"], long=["begin"]))
def test_a_run_that_ends_while_the_ledger_is_put_right_is_begun_again(
    course: Course, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, after: str
) -> None:
    mirror = course.behind(1)
    for changes in _RUNS[1:]:
        mirror.write(*changes)
    mirror.apply()
    mirror.put_back(course.ledger(1))
    statements = _follow(mirror, _refused(mirror, "3 tables are newer"))
    # Whatever is left undone is named again.
    mirror.spark.sql(re.sub(r"\d+$", lambda found: str(int(found[0]) + 1), statements[0]))
    _follow(mirror, _refused(mirror, "the table is newer", statements[0]))

    from walreplay.job import table_check as checks
    from walreplay.ledger.ledger import Ledger

    place = Ledger if after == "begin" else checks
    done = getattr(place, after)

    def and_then(*given: Any, **named: Any) -> None:
        done(*given, **named)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(place, after, and_then)
        with pytest.raises(KeyboardInterrupt):
            mirror.apply()
    mirror.apply()
    _assert_whole(mirror, tmp_path)


@pytest.fixture
def catalog(spark: SparkSession) -> Iterator[str]:
    yield "spark_catalog.back_test"
    spark.sql("DROP SCHEMA IF EXISTS back_test CASCADE")


@pytest.mark.long
def test_a_catalogs_tables_are_looked_at_by_their_histories(spark: SparkSession, tmp_path: Path, catalog: str) -> None:
    mirror = SmallMirror(spark, tmp_path, catalog)
    ledger = f"{catalog}._walreplay_state"
    mirror.apply(_ONE, m.Insert(1, row(1, "a")))
    (newest,) = spark.sql(f"DESCRIBE HISTORY {ledger} LIMIT 1").collect()
    mirror.apply(m.Insert(1, row(2, "b")), relation(2, "late", {"id": INT4}, "f"), m.Insert(2, row(1)))
    spark.sql(f"RESTORE TABLE {ledger} TO VERSION AS OF {newest.version}")
    mirror.write(m.Insert(1, row(3, "c")), m.Update(1, row(1, "CHANGED")), m.Insert(2, row(1)))

    with pytest.raises(TargetError, match="the ledger was set back") as refused:
        mirror.apply()
    assert _follow(mirror, refused.value) == [f"RESTORE TABLE `{catalog.replace('.', '`.`')}`.`t` TO VERSION AS OF 1"]
    report = mirror.apply()

    assert any("was set back" in warning for warning in report.warnings)
    rows = {tuple(row) for row in spark.table(f"{catalog}.t").select("id", "v").collect()}
    assert rows == {(1, "CHANGED"), (2, "b"), (3, "c")}
    assert Counter(row.id for row in spark.table(f"{catalog}.late").collect()) == Counter({1: 2})
    runs = [row.run for row in spark.table(f"{catalog}._walreplay_runs").collect()]
    assert sorted(runs) == [1, 3]
    spark.sql(f"DELETE FROM {catalog}.t WHERE id = 1")
    mirror.write(m.Insert(1, row(4, "d")))
    with pytest.raises(TargetError, match="is made by DELETE") as caught:
        mirror.apply()
    _follow(mirror, caught.value)
    mirror.apply()
    assert spark.table(f"{catalog}.t").count() == 4
    assert mirror.apply().status == "nothing new"


@pytest.mark.full
def test_a_ledger_that_is_damaged_is_named_and_an_old_copy_is_as_good(spark: SparkSession, tmp_path: Path) -> None:
    mirror, kept = SmallMirror(spark, tmp_path), tmp_path / "kept"
    mirror.apply(_ONE, m.Insert(1, row(1, "a")))
    mirror.save(kept)
    mirror.apply(m.Insert(1, row(2, "b")))
    mirror.write(m.Insert(1, row(3, "c")))
    log = mirror.ledger / "state" / "_delta_log"
    newest = max(log.glob("*.json"))
    (added,) = (action["add"] for line in newest.read_text().splitlines() if "add" in (action := json.loads(line)))
    rows = mirror.ledger / "state" / added["path"]
    for damaged in (newest, rows):
        whole = damaged.read_bytes()
        damaged.write_bytes(whole[: len(whole) // 2])
        forget(spark)
        _refused(mirror, "its table is damaged", str(mirror.ledger / "state"))
        damaged.write_bytes(whole)
    newest = max((mirror.location("t") / "_delta_log").glob("*.json"))
    whole = newest.read_bytes()
    newest.write_bytes(bytes(len(whole)))
    forget(spark)
    _refused(mirror, "s.t", "damaged", rows=None)
    newest.write_bytes(whole)
    forget(spark)
    mirror.put_back(kept)
    _put_right(mirror)
    _assert_whole(mirror, tmp_path)
