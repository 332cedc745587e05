"""Files of ``walreplay record``: what their names say is missing stops a run before anything is applied."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest
import zstandard

import walreplay
from support.framings import frame, transaction
from support.readers import read
from support.small_mirror import INT4, TEXT, relation, row
from walreplay.errors import CaptureError, NotACapture, OrderError
from walreplay.loading.description import Description, write_description
from walreplay.protocol import messages as m
from walreplay.protocol.framing import Framing
from walreplay.recorded_names import RecordedName

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

T: Final = relation(1, "t", {"id": INT4, "name": TEXT})
U: Final = relation(2, "u", {"id": INT4})


def inserted(number: int) -> m.Insert:
    return m.Insert(1, row(number, "v"))


@dataclass
class Recorded:
    """An archive, and a target beside it.

    Attributes:
        end: what the archive goes up to.
        files: how many it has, those that were taken away included.
    """

    spark: SparkSession
    folder: Path
    end: int = 50
    files: int = 0
    loads: int = 0
    settings: dict[str, Any] = field(default_factory=dict)

    @property
    def captures(self) -> Path:
        return self.folder / "captures"

    @property
    def target(self) -> Path:
        return self.folder / "mirror"

    def write(self, messages: Sequence[m.AnyMessage], end: int, *, gap: int = 0) -> Path:
        """Record the next file, which goes up to an LSN; a gap in front of it ends at another one."""
        self.captures.mkdir(exist_ok=True)
        self.files += 1
        path = self.captures / str(RecordedName(self.files, gap or self.end, end, gap > 0))
        path.write_bytes(zstandard.compress(frame(messages, Framing.COPYDATA)))
        self.end = end
        return path

    def whole(self, count: int = 1) -> list[Path]:
        """Record files with a transaction each, which inserts the row of the file's number."""
        paths = []
        for _ in range(count):
            number = self.files + 1
            announced = [T] if number == 1 else []
            paths.append(self.write(transaction(100 * number, *announced, inserted(number)), 100 * number + 8))
        return paths

    def apply(self, *, allow_gaps: bool = False) -> walreplay.RunReport:
        settings = walreplay.Settings.from_mapping(self.settings)
        return walreplay.apply(
            self.spark, self.captures, self.target, settings.allowing_gaps() if allow_gaps else settings
        )

    def refused(self, match: str, path: Path) -> None:
        """See that nothing is applied."""
        before = sorted(Path(self.target, "s").rglob("*.parquet"))
        with pytest.raises(CaptureError, match=match) as caught:
            self.apply()
        assert str(caught.value.path).endswith(path.name)
        assert caught.value.remedy
        assert sorted(Path(self.target, "s").rglob("*.parquet")) == before

    def audited(self) -> list[tuple[str, str | None]]:
        report = walreplay.audit(self.spark, self.captures)
        assert report.holes == ()
        return [(problem.kind, problem.file) for problem in report.problems]

    def load(self, at_lsn: int, **tables: str) -> None:
        """Load tables anew."""
        self.loads += 1
        base = self.folder / f"base{self.loads}"
        base.mkdir()
        relations = [one for one in (T, U) if one.name in tables]
        for name, rows in tables.items():
            (base / f"s.{name}.copy").write_text(rows)
        described = self.folder / "base.jsonl"
        described.write_text(write_description(relations, Description.of((), ())))
        walreplay.load(
            self.spark,
            base,
            self.target,
            at_lsn,
            describe=described,
            captures=self.captures,
            replace=True,
            config=self.settings,
        )

    def rows(self, table: str = "t") -> list[int]:
        return sorted(read(self.target / "s" / table)["id"].to_pylist())


@pytest.fixture
def recorded(spark: SparkSession, tmp_path: Path) -> Recorded:
    return Recorded(spark, tmp_path)


@pytest.mark.full
def test_a_whole_archive_is_applied_run_by_run_and_may_be_cleared(recorded: Recorded) -> None:
    first = recorded.whole(2)
    recorded.apply()
    for path in first:
        path.unlink()
    recorded.whole(2)
    assert recorded.audited() == [("gap", "00000003_0-D0_0-134.pgo.zst")]  # its relation was announced before
    assert recorded.apply().warnings == ()
    assert recorded.rows() == [1, 2, 3, 4]


def test_a_missing_file_is_refused_until_gaps_are_allowed(recorded: Recorded) -> None:
    _, lost, after, last = recorded.whole(4)
    content = lost.read_bytes()
    lost.unlink()
    recorded.refused("in front of it 1 file is missing, behind 00000001_0-32_0-6C", after)
    assert recorded.audited() == [("gap", after.name)]
    with pytest.raises(OrderError, match="1 file is missing"):
        walreplay.index(recorded.spark, recorded.captures)
    lenient = walreplay.Settings().allowing_gaps()
    report = walreplay.index(recorded.spark, recorded.captures, index=recorded.folder / "index", config=lenient)
    assert [after.name in warning for warning in report.warnings] == [True]
    # Indexed again, it is still missing.
    with pytest.raises(OrderError, match="1 file is missing"):
        walreplay.index(recorded.spark, recorded.captures, index=recorded.folder / "index")
    (warning,) = recorded.apply(allow_gaps=True).warnings
    assert after.name in warning
    assert recorded.rows() == [1, 3, 4]
    assert last.exists()
    # What came late is no part of the target.
    lost.write_bytes(content)
    recorded.refused("sorts before", lost)


def test_the_chain_goes_over_runs_and_over_what_was_cleared(recorded: Recorded) -> None:
    first = recorded.whole(2)
    recorded.apply()
    (third,) = recorded.whole()
    kept = third.read_bytes()
    third.unlink()
    (fourth,) = recorded.whole()
    recorded.refused("1 file is missing, behind 00000002", fourth)
    for path in first:
        path.unlink()
    recorded.refused("1 file is missing, behind 00000002", fourth)
    third.write_bytes(kept)
    recorded.apply()
    assert recorded.rows() == [1, 2, 3, 4]


def test_the_middle_of_a_transaction_is_missed(recorded: Recorded) -> None:
    """What is open seems to go on, and only the names show that it does not."""
    recorded.whole()
    begin, *rest = transaction(900, *(inserted(number) for number in (10, 11, 12)))
    recorded.write([begin, rest[0]], recorded.end)
    middle = recorded.write([rest[1]], recorded.end)
    tail = recorded.write(rest[2:], 908)
    recorded.write(transaction(1000, T, inserted(13)), 1008)
    content = middle.read_bytes()
    middle.unlink()
    recorded.refused("1 file is missing", tail)
    assert recorded.audited()[0] == ("gap", tail.name)
    middle.write_bytes(content)
    assert recorded.audited() == []
    recorded.apply()
    assert recorded.rows() == [1, 10, 11, 12, 13]


def test_a_transaction_without_its_middle_is_left_out_where_gaps_are_allowed(recorded: Recorded) -> None:
    recorded.whole()
    begin, *rest = transaction(900, *(inserted(number) for number in (10, 11, 12)))
    recorded.write([begin, rest[0]], recorded.end)
    recorded.write([rest[1]], recorded.end).unlink()
    tail = recorded.write(rest[2:], 908)
    recorded.write(transaction(1000, T, inserted(13)), 1008)
    warnings = recorded.apply(allow_gaps=True).warnings
    assert any(tail.name in warning and "what was open before is left out" in warning for warning in warnings)
    assert recorded.rows() == [1, 13]


def test_a_transaction_that_a_reconnect_sends_again_is_applied_once(recorded: Recorded) -> None:
    recorded.whole()
    begin, *rest = transaction(900, *(inserted(number) for number in (10, 11, 12)))
    recorded.write([begin, *rest[:2]], recorded.end)
    recorded.write([begin, T, *rest], 908)
    assert recorded.audited() == []
    recorded.apply()
    assert recorded.rows() == [1, 10, 11, 12]


def _exchange(recorded: Recorded) -> Path:
    _, second, third, _ = recorded.whole(4)
    contents = second.read_bytes(), third.read_bytes()
    for path, content in zip((third, second), contents, strict=True):
        path.write_bytes(content)
    return second


def _rename(recorded: Recorded) -> Path:
    _, second, third = recorded.whole(3)
    second.unlink()
    return third.rename(second)


def _write_twice(recorded: Recorded) -> Path:
    _, second, _ = recorded.whole(3)
    double = second.with_name(str(RecordedName(2, 108, 250)))
    double.write_bytes(zstandard.compress(frame(transaction(240, T, inserted(9)), Framing.COPYDATA)))
    return double


def _mix_recorders(recorded: Recorded) -> Path:
    recorded.whole(2)
    recorded.end = 150
    return recorded.write(transaction(300, inserted(3)), 308)


@pytest.mark.parametrize(
    ("harm", "match"),
    [
        (_exchange, "transactions from LSN 0/12C to 0/12C, and its name says 0/6C to 0/D0"),
        pytest.param(_rename, "it was renamed, or it is another file", marks=pytest.mark.full),
        (_write_twice, "has the same number: two recorders"),
        pytest.param(
            _mix_recorders,
            "it begins at LSN 0/96, and 00000002_0-6C_0-D0.pgo.zst, in front of it, goes to 0/D0",
            marks=pytest.mark.full,
        ),
    ],
)
def test_files_that_are_not_what_their_names_say_are_refused(
    recorded: Recorded, harm: Callable[[Recorded], Path], match: str
) -> None:
    path = harm(recorded)
    recorded.refused(match, path)
    assert path.name in [name for _, name in recorded.audited()]


@pytest.mark.full
def test_no_gap_that_is_allowed_makes_another_file_right(recorded: Recorded) -> None:
    _exchange(recorded)
    with pytest.raises(NotACapture, match="it was renamed"):
        recorded.apply(allow_gaps=True)


def _gap(recorded: Recorded) -> Path:
    """Record files on both sides of a gap; what is open in front of it never goes on."""
    recorded.whole(2)
    recorded.write(transaction(300, inserted(3))[:2], recorded.end)
    path = recorded.write(transaction(1100, T, m.Delete(1, key=row(1, None))), 1108, gap=1000)
    recorded.write(transaction(1200, inserted(7)), 1208)
    return path


GAP: Final = "what committed from LSN 0/D0 to 0/3E8 was never recorded"


@pytest.mark.full
def test_behind_a_gap_tables_that_were_loaded_anew_go_on(recorded: Recorded) -> None:
    path = _gap(recorded)
    recorded.refused(GAP, path)
    assert recorded.audited() == [("gap", path.name)]
    recorded.load(998, t="1\ta\n5\tb\n")
    recorded.refused(f"{GAP}.*as of LSN 0/3E8 or later", path)
    recorded.load(999, t="1\ta\n5\tb\n6\tc\n")  # what committed below LSN 1000 is in it
    report = recorded.apply()
    assert recorded.rows() == [5, 6, 7]
    assert any(path.name in warning for warning in report.warnings)
    (update,) = transaction(1300, m.Update(1, row(6, "d")))[1:2]
    recorded.write(transaction(1300, update), 1308)
    assert recorded.apply().warnings == ()
    # Who makes the table again goes on there, too.
    report = walreplay.rebuild(recorded.spark, recorded.captures, recorded.target, r"s\.t")
    assert [table.action for table in report.tables] == ["unchanged"]


def test_a_gap_stops_where_a_table_was_not_loaded(recorded: Recorded) -> None:
    recorded.write(transaction(100, T, inserted(1), U, m.Insert(2, row(1))), 108)
    recorded.apply()
    path = recorded.write(transaction(1100, T, inserted(7)), 1108, gap=1000)
    recorded.load(999, t="1\ta\n5\tb\n")
    recorded.refused("was never recorded", path)
    recorded.load(999, u="1\n2\n")
    recorded.apply()
    assert (recorded.rows(), recorded.rows("u")) == ([1, 5, 7], [1, 2])


def test_an_archive_that_begins_behind_a_load_is_refused(recorded: Recorded) -> None:
    """Who copies first and makes the slot then has lost what committed between; LSNs in names show it."""
    recorded.end = 60  # where the slot begins
    path = recorded.write(transaction(100, T, inserted(1)), 108)
    recorded.load(58, t="8\ta\n", u="1\n")  # what committed below LSN 59 is in it
    recorded.refused("at LSN 0/3C, and s.t was loaded .* below LSN 0/3B .*1 more.*--consistent-point 0/3C", path)
    recorded.load(59, u="1\n")
    recorded.refused("s.t was loaded with what committed below LSN 0/3B:", path)
    recorded.load(59, t="8\ta\n")
    assert recorded.apply().warnings == ()
    assert (recorded.rows(), recorded.rows("u")) == ([1, 8], [1])


@pytest.mark.full
def test_an_archive_that_begins_behind_a_load_is_applied_by_the_flag(recorded: Recorded) -> None:
    recorded.end = 60
    path = recorded.write(transaction(100, T, inserted(1)), 108)
    recorded.load(58, t="8\ta\n")
    report = recorded.apply(allow_gaps=True)
    assert any(path.name in warning and "is in neither" in warning for warning in report.warnings)
    assert recorded.rows() == [1, 8]
    recorded.write(transaction(200, inserted(2)), 208)
    recorded.apply()
    assert recorded.rows() == [1, 2, 8]


@pytest.mark.full
def test_a_change_log_goes_on_over_a_gap_by_the_flag_alone(recorded: Recorded) -> None:
    recorded.settings = {"outputs": ["mirror", "changelog"]}
    path = _gap(recorded)
    recorded.load(999, t="1\ta\n5\tb\n")
    recorded.refused("was never recorded", path)
    recorded.apply(allow_gaps=True)
    assert recorded.rows() == [5, 7]
    assert recorded.rows("t__changes") == [1, 1, 2, 7]


@pytest.mark.full
def test_a_rebuild_holds_the_chain_too(recorded: Recorded) -> None:
    _, lost, after = recorded.whole(3)
    recorded.apply()
    lost.unlink()
    with pytest.raises(OrderError, match="1 file is missing") as caught:
        walreplay.rebuild(recorded.spark, recorded.captures, recorded.target, r"s\.t")
    assert str(caught.value.path).endswith(after.name)
