"""A table that an error of its own holds: the others go on, each run says so, and a rebuild brings it up to date."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

import walreplay
from support.extent import further
from support.readers import collect, read
from support.shards import Shards
from support.small_mirror import INT4, TEXT, SmallMirror, forget, relation, row, rows_of
from support.stopped_run import StoppedError, stopping
from support.truth import mirror_tables
from walreplay import cli
from walreplay.errors import TargetError, WalReplayError
from walreplay.loading.description import Description, write_description
from walreplay.lsn import format_lsn
from walreplay.protocol import messages as m

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.integration

_HOLD: Final[dict[str, Any]] = {"on_table_error": "hold"}
_DATE: Final = 1082
_ONE, _OTHER = relation(1, "one", {"id": INT4, "v": TEXT}), relation(2, "other", {"id": INT4})
_FULL: Final = relation(1, "one", {"id": INT4, "v": TEXT}, "f")


def _table(**options: Any) -> dict[str, Any]:
    return {"objects": [{"table": {"source_schema": "s", "source_table": "one", **options}}]}


def _in_the_way(mirror: SmallMirror) -> None:
    shutil.rmtree(mirror.location("one"), ignore_errors=True)
    mirror.location("one").parent.mkdir(parents=True, exist_ok=True)
    mirror.location("one").write_text("")
    forget(mirror.spark)


def _out_of_the_way(mirror: SmallMirror) -> None:
    mirror.location("one").unlink()


def _locked(mirror: SmallMirror, flag: str = "+i") -> None:
    """Let nobody write to the table's folder, whoever it is."""
    if subprocess.run(["chattr", "-R", flag, str(mirror.location("one"))], capture_output=True, check=False).returncode:
        pytest.skip("no folder can be locked here")


def _unlocked(mirror: SmallMirror) -> None:
    _locked(mirror, "-i")


def _changed(mirror: SmallMirror) -> None:
    table = "s.one" if mirror.target == _CATALOG else f"delta.`{mirror.location('one')}`"
    mirror.spark.sql(f"DELETE FROM {table}")


def _gone(mirror: SmallMirror) -> None:
    shutil.rmtree(mirror.location("one"))
    forget(mirror.spark)


def _somebodys(mirror: SmallMirror) -> None:
    mirror.spark.range(3).write.format("delta").save(str(mirror.location("one")))


@pytest.fixture
def catalog(spark: SparkSession) -> Iterator[None]:
    """Leave nothing in the session's catalog."""
    yield
    for schema in ("s", "_walreplay"):
        spark.sql(f"DROP SCHEMA IF EXISTS {schema} CASCADE")


@dataclass(frozen=True)
class _Cause:
    """Why a table is held.

    Attributes:
        changes: of the first run, and of the one that holds it; ``config`` is theirs, ``mended`` the rebuild's.
        causes: is done before the run that holds it; ``removes`` before the rebuild.
    """

    reason: str
    changes: Sequence[Sequence[m.AnyMessage]] = ((_ONE, m.Insert(1, row(1, "1"))), (m.Insert(1, row(2, "2")),))
    config: dict[str, Any] = field(default_factory=dict)
    mended: dict[str, Any] = field(default_factory=dict)
    causes: Callable[[SmallMirror], None] = lambda _: None
    removes: Callable[[SmallMirror], None] = lambda _: None
    oid: int = 1


_RETYPED: Final = relation(1, "one", {"id": INT4, "v": INT4})
_AGAIN: Final = relation(3, "one", {"id": INT4, "w": TEXT})
_DATED: Final = relation(1, "one", {"id": INT4, "v": _DATE})
_TWICE: Final = (_FULL, m.Insert(1, row(7, "1")), m.Insert(1, row(7, "2")))
_NO_RESCUE: Final[dict[str, Any]] = {"rescued_data_column": None}
_CAUSES: Final = {
    "a type that cannot change": _Cause(
        "retyped from text to integer",
        ((_ONE, m.Insert(1, row(1, "1"))), (_RETYPED, m.Insert(1, row(2, "2")))),
        {"on_type_change": "stop"},
    ),
    "a value that its type refuses": _Cause(
        "a value does not fit its column",
        ((), (_DATED, m.Insert(1, row(2, "infinity")))),
        _NO_RESCUE,
        {**_table(type_overrides={"v": "text"}), **_NO_RESCUE},
    ),
    "a value that the type of a history refuses": _Cause(
        "a value does not fit its column",
        ((), (_DATED, m.Insert(1, row(2, "infinity")))),
        {**_table(scd_type=2), **_NO_RESCUE},
        {**_table(scd_type=2, type_overrides={"v": "text"}), **_NO_RESCUE},
    ),
    "a key that is not unique": _Cause("the configured key is not unique", ((), _TWICE), _table(keys=["id"])),
    "rows under a key that is there": _Cause(
        "the configured key is not unique",
        ((_FULL, m.Insert(1, row(7, "1"))), (m.Insert(1, row(7, "2")),)),
        _table(keys=["id"]),
    ),
    "a file in the way of a new table": _Cause(
        "File exists",
        ((), (_ONE, m.Insert(1, row(2, "2")))),
        causes=_in_the_way,
        removes=_out_of_the_way,
    ),
    "a folder that cannot be written": _Cause("not permitted", causes=_locked, removes=_unlocked),
    "a log that cannot be written": _Cause(
        "not permitted",
        ((_ONE, m.Insert(1, row(1, "1"))), (m.Delete(1, key=row(1, None)),)),
        causes=_locked,
        removes=_unlocked,
    ),
    "somebody's table in the place": _Cause(
        "was not made by this target's ledger",
        ((), (_ONE, m.Insert(1, row(2, "2")))),
        causes=_somebodys,
        removes=_gone,
    ),
    "a changed table": _Cause("the table was changed by somebody else", causes=_changed),
    "a table that is gone": _Cause("the table is gone", causes=_gone),
    "names that collide": _Cause(
        "have the same destination", ((), (_ONE, m.Insert(1, row(2, "2")))), _table(destination_table="other")
    ),
    "a table that is created again": _Cause(
        "the table was dropped and created again",
        ((_ONE, m.Insert(1, row(1, "1"))), (_AGAIN, m.Insert(3, row(2, "2")))),
        {"on_recreate": "stop"},
        oid=3,
    ),
}


_CATALOG: Final = "spark_catalog"
_MANY: Final = tuple(relation(oid, f"t{oid}", {"id": INT4}) for oid in range(11, 59))  # with both, there are fifty


def _others(number: int, many: Sequence[m.Relation] = ()) -> Sequence[m.AnyMessage]:
    """Return what a run has for the tables that are not held."""
    announced = (_OTHER, *many) if number == 1 else ()
    return (*announced, *(m.Insert(each.oid, row(number)) for each in (_OTHER, *many)))


def _hold(mirror: SmallMirror, cause: _Cause, many: Sequence[m.Relation] = (), **config: Any) -> walreplay.RunReport:
    """Apply the run that holds the table; another one has been before."""
    cause.causes(mirror)
    mirror.write(*cause.changes[1], *_others(2, many))
    return mirror.apply(**{**_HOLD, **config, **cause.config})


def _read(mirror: SmallMirror, name: str, *columns: str) -> list[tuple[Any, ...]]:
    if mirror.target == _CATALOG:
        return sorted(map(tuple, mirror.spark.table(f"s.{name}").select(*columns).collect()), key=str)
    return sorted(map(tuple, collect(mirror.location(name), *columns)), key=str)


def _check_other(mirror: SmallMirror, rows: int, *names: str) -> None:
    for name in ("other", *names):
        assert _read(mirror, name, "id") == [(number,) for number in range(1, rows + 1)]


def _check_held(report: walreplay.RunReport, reason: str) -> None:
    held = [table for table in report.tables if table.action == "held"]
    assert held
    assert all(table.name.startswith("s.one") and reason in table.notes[0] and table.version is None for table in held)
    (warning,) = [text for text in report.warnings if text.startswith("s.one: it is held, and lacks ")]
    assert r"walreplay rebuild --table 's\.one'" in warning


def _check_mended(
    mirror: SmallMirror, cause: _Cause, folder: Path, many: Sequence[m.Relation] = (), **config: Any
) -> None:
    """Rebuild the table without its cause, and apply what comes then."""
    cause.removes(mirror)
    mended = {**_HOLD, **config, **cause.mended}
    _check_held(mirror.apply(**mended), cause.reason)  # that the cause is gone does not let it go on
    walreplay.rebuild(mirror.spark, mirror.captures, mirror.target, r"s\.one", config=mended)
    report = mirror.apply(m.Insert(cause.oid, row(9, "9")), *_others(4, many), **mended)
    assert {table.action for table in report.tables} <= {"merged", "appended"}
    assert not report.warnings
    walreplay.apply(mirror.spark, captures=mirror.captures, target=folder, config={**config, **cause.mended})
    for place in mirror_tables(folder).values():
        columns = [name for name in read(place).column_names if name not in ("__commit_lsn", "__commit_ts")]
        rows = map(tuple, collect(place, *columns))
        assert _read(mirror, place.name, *columns) == sorted(rows, key=str)
    assert all(table.held is None for table in walreplay.status(mirror.spark, mirror.target).tables)
    verified = walreplay.verify(mirror.spark, mirror.target, mirror.captures, config=mended)
    assert {table.result for table in verified.tables} == {"equal"}


_WAYS: Final = {
    "": tuple(_CAUSES),
    "of fifty": ("a value that its type refuses",),  # in the job that folds all of them
    "by statements": ("a value that its type refuses", "a changed table", "a folder that cannot be written"),
    "in a catalog": ("a key that is not unique", "a changed table"),
    "in a catalog by statements": ("a type that cannot change", "a value that its type refuses"),
    "with all outputs": ("a type that cannot change", "a changed table", "a value that its type refuses"),
}
_OF_FIFTY: Final = (
    *("a type that cannot change", "a key that is not unique", "a changed table"),
    *("a file in the way of a new table", "names that collide"),
)


@pytest.mark.parametrize(
    ("name", "way"),
    further(
        [(name, way) for way, names in _WAYS.items() for name in names],
        but=[("a type that cannot change", "")],
        long=[(name, "of fifty") for name in _OF_FIFTY],
    ),
)
def test_one_table_waits_and_the_others_go_on(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, catalog: None, name: str, way: str
) -> None:
    monkeypatch.setenv("WALREPLAY_COMMITS", "spark" if "statements" in way else "")
    mirror, cause = SmallMirror(spark, tmp_path, _CATALOG if "catalog" in way else None), _CAUSES[name]
    many = _MANY if way == "of fifty" else ()
    outputs = {"outputs": ["mirror", "history", "changelog"]} if way == "with all outputs" else {}
    config = {**_HOLD, **outputs, **cause.config}
    mirror.apply(*cause.changes[0], *_others(1, many), **config)
    _check_held(_hold(mirror, cause, many, **outputs), cause.reason)
    _check_other(mirror, 2, *(each.name for each in many))
    _check_held(mirror.apply(m.Insert(cause.oid, row(3, "3")), *_others(3, many), **config), cause.reason)
    _check_other(mirror, 3, *(each.name for each in many))
    held = {table.name: table.held for table in walreplay.status(spark, mirror.target).tables}
    assert cause.reason in (held["s.one"] or "")
    assert held["s.other"] is None
    answers = {
        table.name: table for table in walreplay.as_of(spark, mirror.target, format_lsn(300), config=config).tables
    }
    assert answers["s.other"].exact
    assert answers["s.one"].note
    assert not answers["s.one"].exact
    _check_mended(mirror, cause, tmp_path / "right", many, **outputs)


_STEPS: Final = (
    *("decoded", "plan written", "table applied: s.other"),
    *("transactions written", "runs written", "run recorded"),
)


@pytest.mark.parametrize(
    ("name", "step"),
    further(
        [(name, step) for name in ("a type that cannot change", "a key that is not unique") for step in _STEPS],
        but=[("a type that cannot change", "plan written")],
        long=[(name, step) for name in list(_WAYS[""])[3:] for step in _STEPS],
    ),
)
def test_a_run_that_is_stopped_while_it_holds_a_table_is_finished_as_if_it_had_not_been(
    spark: SparkSession, tmp_path: Path, name: str, step: str
) -> None:
    mirror, cause = SmallMirror(spark, tmp_path), _CAUSES[name]
    config = {**_HOLD, **cause.config}
    mirror.apply(*cause.changes[0], _OTHER, m.Insert(2, row(1)), **config)
    with stopping() as stop:
        stop(step)
        with pytest.raises(StoppedError):
            _hold(mirror, cause)
    _check_held(mirror.apply(**config), cause.reason)
    _check_other(mirror, 2)
    mirror.apply(m.Insert(2, row(3)), **config)
    _check_mended(mirror, cause, tmp_path / "right")


@pytest.mark.full
def test_a_run_that_was_stopped_behind_its_plan_holds_a_table_that_has_changed_since(
    spark: SparkSession, tmp_path: Path
) -> None:
    mirror, cause = SmallMirror(spark, tmp_path), _CAUSES["a changed table"]
    mirror.apply(_ONE, m.Insert(1, row(1, "1")), _OTHER, m.Insert(2, row(1)), **_HOLD)
    with stopping() as stop:
        stop("plan written")
        with pytest.raises(StoppedError):
            mirror.apply(m.Insert(1, row(2, "2")), m.Insert(2, row(2)), **_HOLD)
    _changed(mirror)
    _check_held(mirror.apply(**_HOLD), cause.reason)
    _check_other(mirror, 2)
    mirror.apply(m.Insert(2, row(3)), **_HOLD)
    _check_mended(mirror, cause, tmp_path / "right")


@pytest.mark.full
def test_a_held_table_keeps_its_error_under_another_name_and_when_its_name_is_given_away(
    spark: SparkSession, tmp_path: Path
) -> None:
    mirror = SmallMirror(spark, tmp_path)
    mirror.apply(_ONE, m.Insert(1, row(1, "1")), _OTHER, m.Insert(2, row(1)), **_HOLD)
    _changed(mirror)
    mirror.apply(m.Insert(1, row(2, "2")), **_HOLD)
    mirror.apply(relation(1, "former", {"id": INT4, "v": TEXT}), m.Insert(1, row(3, "3")), m.Insert(2, row(2)), **_HOLD)
    report = mirror.apply(_AGAIN, m.Insert(3, row(1, "1")), m.Insert(1, row(4, "4")), **_HOLD)
    assert {table.action for table in report.tables} == {"created", "set aside"}
    assert any("it is held" in warning for warning in report.warnings)
    walreplay.rebuild(spark, mirror.captures, mirror.target, r"s\.one", config=_HOLD)
    assert not mirror.apply(m.Insert(3, row(2, "2")), m.Insert(1, row(5, "5")), **_HOLD).warnings
    assert mirror.rows() == mirror.expected(tmp_path / "expected")


@pytest.mark.full
def test_all_outputs_of_a_table_are_held_together_also_by_a_load(spark: SparkSession, tmp_path: Path) -> None:
    mirror, config = SmallMirror(spark, tmp_path), {**_HOLD, "outputs": ["mirror", "history", "changelog"]}
    mirror.apply(_FULL, m.Insert(1, row(7, "1")), _OTHER, m.Insert(2, row(1)), **config)
    report = mirror.apply(m.Insert(1, row(7, "2")), m.Insert(2, row(2)), **config, **_table(keys=["id"]))
    assert [table.action for table in report.tables if table.name.startswith("s.one")] == ["held", "appended", "held"]
    assert sum("it is held" in warning for warning in report.warnings) == 1
    report = mirror.apply(m.Insert(1, row(8, "2")), **config)
    assert [(table.name, table.action) for table in report.tables] == [
        (f"s.one{output}", "held") for output in ("", " (changelog)", " (history)")
    ]
    rows = spark.createDataFrame([(7, "1"), (7, "2"), (8, "2")], "id INT, v STRING")
    walreplay.load(spark, rows, mirror.target, at_lsn=format_lsn(301), table="s.one", replace=True, config=config)
    report = mirror.apply(m.Insert(1, row(9, "3")), **config)
    assert {table.action for table in report.tables} == {"merged", "appended"}
    assert mirror.rows()["s.one"] == mirror.expected(tmp_path / "expected")["s.one"]


def test_the_exit_code_is_0_and_1_where_it_is_asked_for(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    mirror, cause = SmallMirror(spark, tmp_path), _CAUSES["a type that cannot change"]
    mirror.apply(*cause.changes[0])
    config = tmp_path / "walreplay.yaml"
    config.write_text("on_table_error: hold\non_type_change: stop\n", encoding="utf-8")
    mirror.write(*cause.changes[1])
    command = ["apply", "--captures", str(mirror.captures), "--target", mirror.target, "--config", str(config)]
    assert [cli.main([*command, *strict]) for strict in ([], ["--strict"])] == [0, 1]
    assert "held" in capsys.readouterr().out
    assert cli.main(["status", "--target", mirror.target]) == 0
    assert "s.one is held, and left out" in capsys.readouterr().out


@pytest.mark.parametrize("config", [{}, _table(on_table_error="stop") | _HOLD], ids=["by default", "of one table"])
def test_otherwise_an_error_of_one_table_stops_the_run(
    spark: SparkSession, tmp_path: Path, config: dict[str, Any]
) -> None:
    mirror, cause = SmallMirror(spark, tmp_path), _CAUSES["a type that cannot change"]
    mirror.apply(*cause.changes[0], _OTHER, m.Insert(2, row(1)), **config)
    with pytest.raises(WalReplayError, match=cause.reason):
        mirror.apply(*cause.changes[1], m.Insert(2, row(2)), **cause.config, **config)
    _check_other(mirror, 1)


@pytest.mark.full
def test_tables_that_fail_in_different_phases_are_held_by_one_run(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    decoded: list[str] = []
    monkeypatch.setattr("walreplay.session.steps.on_step", decoded.append)
    mirror = SmallMirror(spark, tmp_path)
    named = {name: relation(oid, name, {"id": INT4, "v": _DATE}) for oid, name in enumerate("abcde", 11)}
    named["c"] = relation(13, "c", {"id": INT4, "v": TEXT})
    values = dict.fromkeys("abde", "2020-01-01") | {"c": "1"}
    config: dict[str, Any] = {**_HOLD, **_NO_RESCUE, "on_type_change": "stop"}
    mirror.apply(
        *named.values(), *(m.Insert(named[name].oid, row(1, value)) for name, value in values.items()), **config
    )
    for name in "ab":  # by somebody else
        spark.sql(f"DELETE FROM delta.`{mirror.location(name)}`")
    named["c"] = relation(13, "c", {"id": INT4, "v": INT4})
    values = {"a": "2020-01-02", "b": "2020-01-02", "c": "2", "d": "infinity", "e": "2020-01-02"}
    decoded.clear()
    report = mirror.apply(
        named["c"], *(m.Insert(named[name].oid, row(2, value)) for name, value in values.items()), **config
    )
    assert [table.name for table in report.tables if table.action == "held"] == ["s.a", "s.b", "s.c", "s.d"]
    assert decoded.count("decoded") == 1
    assert sorted(collect(mirror.location("e"), "id")) == [(1,), (2,)]
    mirror.apply(m.Insert(15, row(3, "2020-01-03")), **config)
    walreplay.rebuild(spark, mirror.captures, mirror.target, r"s\.[abc]", config={**_HOLD, **_NO_RESCUE})
    (held,) = (table for table in mirror.apply(**config).tables if table.action == "held")
    assert held.name == "s.d"
    walreplay.apply(spark, mirror.captures, tmp_path / "right", {**_NO_RESCUE, "table_exclude_list": [r"s\.d"]})
    right = rows_of(tmp_path / "right")
    assert {name: rows for name, rows in mirror.rows().items() if name != "s.d"} == right


def test_a_ledger_that_is_gone_is_no_tables_error(spark: SparkSession, tmp_path: Path) -> None:
    mirror = SmallMirror(spark, tmp_path)
    mirror.apply(_ONE, m.Insert(1, row(1, "1")), **_HOLD)
    shutil.rmtree(mirror.ledger)
    forget(spark)
    with pytest.raises(WalReplayError, match="made by a ledger which is gone"):
        mirror.apply(m.Insert(1, row(2, "2")), **_HOLD)


@pytest.mark.full
def test_a_table_whose_name_goes_to_one_that_is_held_goes_on_under_its_own(spark: SparkSession, tmp_path: Path) -> None:
    mirror, config = SmallMirror(spark, tmp_path), {**_HOLD, **_NO_RESCUE}
    mirror.apply(_ONE, m.Insert(1, row(1, "1")), **config)
    new = relation(3, "one", {"id": INT4, "d": _DATE})
    former = relation(1, "former", {"id": INT4, "v": TEXT})
    report = mirror.apply(former, m.Insert(1, row(2, "2")), new, m.Insert(3, row(1, "infinity")), **config)
    _check_held(report, "a value does not fit its column")
    assert sorted(collect(mirror.location("former"), "id")) == [(1,), (2,)]
    # Dropped and created again with what holds it, it is held again.
    again = relation(4, "one", {"id": INT4, "d": _DATE})
    report = mirror.apply(new, m.Insert(3, row(2, "2020-01-01")), again, m.Insert(4, row(1, "infinity")), **config)
    assert {table.oid for table in report.tables if table.action == "held"} >= {4}
    mended = {**config, **_table(type_overrides={"d": "text"})}
    with pytest.raises(WalReplayError, match="made again together"):
        walreplay.rebuild(spark, mirror.captures, mirror.target, r"s\.one", outputs=["mirror"], config=mended)
    walreplay.rebuild(spark, mirror.captures, mirror.target, r"s\.one", config=mended)
    mirror.apply(m.Insert(4, row(2, "2020-01-02")), m.Insert(1, row(3, "3")), **mended)
    walreplay.apply(spark, mirror.captures, tmp_path / "right", mended)
    assert mirror.rows() == rows_of(tmp_path / "right")
    report = walreplay.verify(spark, mirror.target, mirror.captures, config=mended)
    assert {table.name: table.result for table in report.tables if table.rows} == {
        "s.one": "equal",
        "s.former": "equal",
    }


def _load(mirror: SmallMirror, base: str, of: m.Relation, rows: list[tuple[int, str]], **config: Any) -> None:
    """Load what a table has as of the last file; a rebuild can read it again from files alone."""
    source: Any = mirror.spark.createDataFrame(rows, f"id INT, {of.columns[1].name} STRING")
    if base == "files":
        source = mirror.captures.parent / f"{of.qualified_name}.copy"
        source.write_text("".join(f"{number}\t{text}\n" for number, text in rows))
    at_lsn = format_lsn(100 * mirror.files + 1)
    described = mirror.captures.parent / "tables.jsonl"
    described.write_text(write_description([of], Description.of((), ())))
    walreplay.load(
        mirror.spark,
        source,
        mirror.target,
        at_lsn,
        table=of.qualified_name,
        describe=described,
        replace=True,
        config=config,
    )


_NEW: Final = relation(3, "one", {"id": INT4, "d": _DATE})
_FORMER: Final = relation(1, "former", {"id": INT4, "v": TEXT})


def _followed(mirror: SmallMirror, base: str, holds: str = "new") -> dict[str, Any]:
    """Load a table, and hold it or the next one that has its name; return the configuration without the cause."""
    config = {**_HOLD, **_NO_RESCUE}
    mirror.apply(_ONE, m.Insert(1, row(1, "1")), _OTHER, m.Insert(2, row(1)), **config)
    if base:
        _load(mirror, base, _ONE, [(1, "1"), (50, "loaded")], **config)
    if holds == "old":
        _changed(mirror)
        _check_held(mirror.apply(m.Insert(1, row(60, "6")), **config), "changed by somebody else")
        config = {**config, **_table(type_overrides={"d": "text"})}
    report = mirror.apply(_NEW, m.Insert(3, row(1, "infinity")), m.Insert(2, row(2)), **config)
    if holds == "new":
        _check_held(report, "a value does not fit its column")
    return {**config, **_table(type_overrides={"d": "text"})}


def _ended(mirror: SmallMirror, table: str, config: dict[str, Any]) -> walreplay.RunReport:
    return walreplay.rebuild(mirror.spark, mirror.captures, mirror.target, table.replace(".", r"\."), config=config)


@pytest.mark.parametrize(
    ("base", "ends"),
    further([(base, ends) for base in ("", "files", "database") for ends in ("rebuild", "load", "rebuild held")]),
)
def test_a_new_table_is_made_again_though_the_one_before_it_cannot_be(
    spark: SparkSession, tmp_path: Path, base: str, ends: str
) -> None:
    mirror, is_old = SmallMirror(spark, tmp_path), ends.endswith("held")
    config = _followed(mirror, base, "old" if is_old else "new")
    if ends == "load":
        _load(mirror, ends, _NEW, [(1, "infinity")], **config)
    else:
        _ended(mirror, "s.one", config)
    report = mirror.apply(m.Insert(3, row(2, "2020-01-01")), m.Insert(2, row(3)), **config)
    assert not report.warnings
    assert {table.action for table in report.tables} == {"merged"}
    walreplay.apply(spark, mirror.captures, tmp_path / "right", config)
    assert mirror.rows() == rows_of(tmp_path / "right")
    cut = walreplay.versions_at(spark, mirror.target, report.run or 0)
    assert [(table.name, table.exact) for table in cut.tables] == [("s.one", True), ("s.other", True)]
    read_tables = walreplay.as_of(spark, mirror.target, format_lsn(100 * mirror.files), config=config).tables
    assert [(table.name, table.exact) for table in read_tables] == [("s.one", True), ("s.other", True)]
    spark.sql(f"DELETE FROM delta.`{mirror.location('other')}`")
    (again,) = _ended(mirror, "s.other", config).tables  # what has given way is reported once
    assert again.action == "overwritten"
    # The one before is back, under another name: it is written to only where all of its rows are there.
    mirror.write(_FORMER, m.Insert(1, row(2, "2")))
    is_refused = ends == "load" or (base == "database" and not is_old)
    if is_refused:
        stops = {**config, "on_table_error": "stop"}
        with pytest.raises(WalReplayError, match=r"table_exclude_list, .*rebuild --table 's\\\.former'"):
            mirror.apply(**stops)
        mirror.apply(**stops, table_exclude_list=[r"s\.former"])
        if base != "database":
            _ended(mirror, "s.former", stops)
    report = mirror.apply(**config)
    if ends == "load" or base == "database":
        assert is_refused or any("s.former: it is held" in warning for warning in report.warnings)
        if base == "database":
            with pytest.raises(TargetError, match="cannot be read again"):
                _ended(mirror, "s.former", config)
            older = [(60, "6")] * is_old
            _load(mirror, base, _FORMER, [(1, "1"), (2, "2"), (50, "loaded"), *older], **config)
        elif ends != "load":
            _ended(mirror, "s.former", config)
    assert not mirror.apply(m.Insert(1, row(3, "3")), **config).warnings
    further_rows = [(50, "loaded")] * bool(base) + [(60, "6")] * is_old
    assert sorted(collect(mirror.location("former"), "id", "v")) == [(1, "1"), (2, "2"), (3, "3"), *further_rows]


@pytest.mark.parametrize(
    ("base", "first"),
    further(
        [(base, first) for base in ("", "files", "database") for first in ("s.one", "s.former")],
        but=[("files", "s.former")],
    ),
)
def test_a_table_whose_name_a_held_one_has_is_made_again_under_its_own(
    spark: SparkSession, tmp_path: Path, base: str, first: str
) -> None:
    mirror = SmallMirror(spark, tmp_path)
    config = _followed(mirror, base)
    mirror.apply(_FORMER, m.Insert(1, row(2, "2")), m.Insert(2, row(3)), **config)
    if base == "database":
        for table in ("s.one", "s.former"):
            with pytest.raises(TargetError, match="cannot be read again"):
                _ended(mirror, table, config)
        _load(mirror, base, _FORMER, [(1, "1"), (2, "2"), (50, "loaded")], **config)
    for table in (
        ["s.one"] if base == "database" else ["s.one", "s.former"] if first == "s.one" else ["s.former", "s.one"]
    ):
        _ended(mirror, table, config)
    report = mirror.apply(m.Insert(1, row(3, "3")), m.Insert(3, row(2, "2")), m.Insert(2, row(4)), **config)
    assert not report.warnings
    assert {table.action for table in report.tables} == {"merged"}
    loaded = [(50, "loaded")] if base else []
    assert sorted(collect(mirror.location("former"), "id", "v")) == [(1, "1"), (2, "2"), (3, "3"), *loaded]
    assert sorted(collect(mirror.location("one"), "id", "d")) == [(1, "infinity"), (2, "2")]
    _check_other(mirror, 4)


@pytest.mark.full
def test_a_held_table_under_another_name_leaves_its_place_and_takes_nobodys(
    spark: SparkSession, tmp_path: Path
) -> None:
    mirror = SmallMirror(spark, tmp_path)
    config = _followed(mirror, "")
    mirror.apply(_FORMER, m.Insert(1, row(2, "2")), m.Insert(2, row(3)), **config)
    mirror.spark.range(3).write.format("delta").save(str(mirror.location("former")))
    with pytest.raises(TargetError, match="was not made by this target's ledger"):
        _ended(mirror, "s.former", config)
    assert len(collect(mirror.location("former"), "id")) == 3
    shutil.rmtree(mirror.location("former"))
    forget(spark)
    with stopping() as stop:
        stop("side removed")
        with pytest.raises(StoppedError):
            _ended(mirror, "s.former", config)
    _ended(mirror, "s.former", config)
    assert not mirror.location("one").exists()
    _load(mirror, "", _NEW, [(1, "infinity")], **config)
    assert not mirror.apply(m.Insert(1, row(3, "3")), m.Insert(3, row(2, "2")), **config).warnings
    assert sorted(collect(mirror.location("former"), "id")) == [(1,), (2,), (3,)]
    assert sorted(collect(mirror.location("one"), "id")) == [(1,), (2,)]


@pytest.mark.full
def test_a_table_set_aside_that_cannot_be_made_again_keeps_no_other_from_it(
    spark: SparkSession, tmp_path: Path
) -> None:
    mirror = SmallMirror(spark, tmp_path)
    mirror.apply(_ONE, m.Insert(1, row(1, "1")), **_HOLD)
    _load(mirror, "database", _ONE, [(1, "1"), (50, "loaded")], **_HOLD)
    _changed(mirror)
    _check_held(mirror.apply(m.Insert(1, row(2, "2")), **_HOLD), "changed by somebody else")
    mirror.apply(_FORMER, m.Insert(1, row(3, "3")), _AGAIN, m.Insert(3, row(1, "1")), **_HOLD)
    mirror.spark.sql(f"DELETE FROM delta.`{mirror.location('one')}`")
    assert [table.action for table in _ended(mirror, "s.one", _HOLD).tables] == ["overwritten"]
    (warning,) = mirror.apply(m.Insert(3, row(2, "2")), **_HOLD).warnings
    assert "s.former: it is held" in warning
    _load(mirror, "database", _FORMER, [(1, "1"), (2, "2"), (3, "3"), (50, "loaded")], **_HOLD)
    assert not mirror.apply(m.Insert(1, row(4, "4")), **_HOLD).warnings
    assert sorted(collect(mirror.location("former"), "id")) == [(1,), (2,), (3,), (4,), (50,)]
    assert sorted(collect(mirror.location("one"), "id")) == [(1,), (2,)]


@pytest.mark.parametrize("ends", further(["rebuild", "late load"], but=["rebuild"]))
def test_an_output_that_is_switched_off_holds_its_table_no_more(spark: SparkSession, tmp_path: Path, ends: str) -> None:
    mirror, both = SmallMirror(spark, tmp_path), {**_HOLD, "outputs": ["mirror", "changelog"]}
    config = {**_HOLD, "outputs": ["mirror"]}
    mirror.apply(_ONE, m.Insert(1, row(1, "1")), **both)
    _changed(mirror)
    _check_held(mirror.apply(m.Insert(1, row(2, "2")), **both), "changed by somebody else")
    if ends == "rebuild":
        _ended(mirror, "s.one", config)
    else:
        mirror.apply(m.Insert(1, row(2, "2")), **both)
        described = tmp_path / "tables.jsonl"
        described.write_text(write_description([_ONE], Description.of((), ())))
        rows = spark.createDataFrame([(1, "1")], "id INT, v STRING")
        walreplay.load(spark, rows, mirror.target, "0/65", table="s.one", describe=described, config=config)
    report = mirror.apply(m.Insert(1, row(3, "3")), **config)
    assert not report.warnings
    assert [table.action for table in report.tables] == ["merged"]
    assert {table.action for table in mirror.apply(m.Insert(1, row(4, "4")), **both).tables} == {"merged", "appended"}


@pytest.mark.full
def test_a_source_holds_a_table_of_its_own_and_stops_at_one_that_it_shares(spark: SparkSession, tmp_path: Path) -> None:
    keys = [_table(keys=["id"])["objects"][0], _table(source_table="both", keys=["id"])["objects"][0]]
    both, two = relation(9, "both", {"id": INT4, "v": TEXT}, "f"), relation(4, "two", {"id": INT4, "v": TEXT})
    shards = Shards(spark, tmp_path, **_HOLD, objects=keys)
    shards.config["shared_tables"] = [r"s\.both"]
    eu, us = shards.of.values()
    eu.write(_FULL, m.Insert(1, row(7, "1")), both, m.Insert(9, row(1, "eu")), _OTHER, m.Insert(2, row(1)))
    us.write(two, m.Insert(4, row(1, "1")), both, m.Insert(9, row(1, "us")))
    shards.apply()
    for number in (2, 3):
        eu.write(m.Insert(1, row(7, "2")), m.Insert(9, row(number, "eu")), m.Insert(2, row(number)))
        us.write(m.Insert(4, row(number, "2")), m.Insert(9, row(number, "us")))
        reports = shards.apply(at_once=2)
        _check_held(reports["eu"], "the configured key is not unique")
        assert not any(table.action == "held" for table in reports["us"].tables)
        assert {name: len(rows) for name, rows in shards.rows("both").items()} == {"eu": number, "us": number}
    shards.config["objects"] = keys[1:]
    config = walreplay.source_settings(shards.config, "eu")
    walreplay.rebuild(spark, eu.captures, shards.lake, r"s\.one", config=config)
    assert sorted(collect(shards.lake / "s" / "one", "id", "v")) == [(7, "1"), (7, "2"), (7, "2")]
    eu.write(m.Insert(9, row(5, "x")), m.Insert(9, row(5, "y")), m.Insert(2, row(4)))
    us.write(m.Insert(9, row(4, "us")))
    report = walreplay.apply_sources(spark, shards.lake, shards.config)
    (failed,) = report.failed
    assert "table s.both: the configured key is not unique" in str(failed.error)
    assert report.results["us"].status == "applied"
