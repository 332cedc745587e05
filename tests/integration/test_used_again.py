"""What is sent under a number that was used before: an oid of a dropped table, and a column that was left out."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import walreplay
from support.extent import further
from support.fault_cases import fault_case, sources_of
from support.readers import collect
from support.scenarios import apply_file_by_file, apply_in_one_run, table_difference
from support.small_mirror import INT4, TEXT, SmallMirror, relation, row
from support.truth import Beyond, mirror_difference, mirror_tables, read_table
from walreplay.errors import CaptureError, OrderError
from walreplay.loading.description import Description, write_description
from walreplay.protocol import messages as m

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.integration

_ALL = ["mirror", "history", "changelog"]
_WAYS = {"one run": apply_in_one_run, "a run per file": apply_file_by_file}


def _announced(oid: int, lsn: int, columns: dict[int, tuple[str, int]], name: str = "t") -> m.Message:
    """Announce a table, its columns by their numbers; one without columns is dropped."""
    listed = [{"n": n, "name": column, "type": kind} for n, (column, kind) in columns.items()]
    said: dict[str, Any] = {"walreplay": 1, "oid": oid, "schema": "s", "table": name}
    said |= {"natts": max(columns), "columns": listed} if columns else {"dropped": True}
    return m.Message(True, lsn, "walreplay", json.dumps(said).encode())


def _current(mirror: SmallMirror, name: str, *columns: str) -> list[tuple[Any, ...]]:
    return sorted(map(tuple, collect(mirror.location(name), *columns)))


def _applied(mirror: SmallMirror, *files: Sequence[m.AnyMessage], each: bool, **config: Any) -> list[str]:
    """Apply files, in one run or in as many; return all warnings."""
    warnings = []
    for changes in files:
        if each:
            warnings += mirror.apply(*changes, **config).warnings
        else:
            mirror.write(*changes)
    return warnings if each else [*mirror.apply(**config).warnings]


COLUMNS = {"id": INT4, "a": TEXT, "b": TEXT, "c": INT4}
WIDE = relation(9, "t", COLUMNS)
NARROW = relation(9, "t", {"id": INT4, "c": INT4})
MIDDLE = relation(9, "t", {"id": INT4, "a": TEXT, "c": INT4})


@pytest.mark.parametrize("each", further([True, False], but=(True,)))
@pytest.mark.parametrize("policy", further(["keep", "drop"], but=("drop",)))
def test_an_announced_column_that_is_left_out_for_a_while_keeps_its_values(
    mirror: SmallMirror, each: bool, policy: str
) -> None:
    numbers = dict(enumerate(COLUMNS.items(), 1))
    told = _applied(
        mirror,
        [_announced(9, 50, numbers), WIDE, *(m.Insert(9, row(n, f"a{n}", f"b{n}", n)) for n in range(1, 6))],
        [NARROW, m.Update(9, row(1, 11)), m.Insert(9, row(6, 6))],
        [MIDDLE, m.Update(9, row(2, "a22", 22))],
        [WIDE, m.Update(9, row(3, "a33", "b33", 33))],
        each=each,
        announcements="walreplay",
        outputs=_ALL,
        on_drop_column=policy,
    )
    expected = [
        (1, "a1", "b1", 11),
        (2, "a22", "b2", 22),
        (3, "a33", "b33", 33),
        *((n, f"a{n}", f"b{n}", n) for n in (4, 5)),
    ]
    assert sorted(map(tuple, collect(mirror.location("t"), *COLUMNS)), key=str) == [*expected, (6, None, None, 6)]
    versions = [tuple(one) for one in collect(mirror.location("t__history"), *COLUMNS, "__END_AT") if one[0] < 6]
    assert sorted(one[:4] for one in versions if one[4] is None) == expected
    assert sorted(one[:4] for one in versions if one[4] is not None) == [(n, f"a{n}", f"b{n}", n) for n in (1, 2, 3)]
    changes = collect(mirror.location("t__changes"), *COLUMNS, "__op")
    assert sorted(tuple(one)[:4] for one in changes if one[4] == "c" and one[0] < 6) == [
        (n, f"a{n}", f"b{n}", n) for n in range(1, 6)
    ]
    # Of rows that were written meanwhile, nobody has sent what they have in them.
    names = [text.partition(":")[0] for text in told if "not published for a while" in text]
    assert names.count("s.t") == 2


@pytest.mark.parametrize("way", further(list(_WAYS)))
def test_a_column_list_that_is_narrowed_for_a_while_is_warned_of_and_a_load_mends_it(
    spark: SparkSession, tmp_path: Path, way: str
) -> None:
    case = fault_case("column_list_narrowed")
    target, reports = _WAYS[way](spark, case.files, tmp_path)
    told = [text for report in reports for text in report.warnings]
    names = sorted(text.partition(": gone for a while")[0] for text in told)
    assert names == ["public.last: column b", "public.t: column b"]
    assert all(
        "load the table's rows anew (docs/starting.md: walreplay load --replace --from COPY)" in text for text in told
    )
    # The remedy: the source's rows, as of the end.
    base = tmp_path / "base"
    base.mkdir()
    relations = []
    for name, columns in (("t", COLUMNS), ("last", {"id": INT4, "a": TEXT, "b": TEXT})):
        rows = [f"{n}\t{ {1: 'narrow', 2: 'wide'}.get(n, f'a{n}') }\tb{n}" for n in range(1, 7)]
        lines = [f"{text}\t{n}" if "c" in columns else text for n, text in enumerate(rows, 1)]
        (base / f"public.{name}.copy").write_text("\n".join(lines) + "\n")
        relations.append(relation({"t": 18837, "last": 18845}[name], name, columns, schema="public"))
    described = tmp_path / "described.jsonl"
    described.write_text(write_description(relations, Description.of((), ())))
    walreplay.load(spark, base, target, "0/48BB600", describe=described, captures=tmp_path / "captures", replace=True)
    for source in sources_of(case.name):
        found = read_table(spark, mirror_tables(target)[source.qualified_name])
        assert mirror_difference(found, source, Beyond(loaded=0x48BB600)) is None


@pytest.mark.full
@pytest.mark.parametrize("way", _WAYS)
def test_another_table_of_the_same_oid_is_its_own_where_that_is_said(
    spark: SparkSession, tmp_path: Path, way: str
) -> None:
    case = fault_case("oid_used_again")
    table = {"source_schema": "public", "source_table": "visits", "on_recreate": "replace"}
    config = {"objects": [{"table": table}], "outputs": _ALL}
    target, _ = _WAYS[way](spark, case.files, tmp_path, config)
    tables = mirror_tables(target)
    found = {
        name.removeprefix("public."): sorted(map(tuple, collect(tables[name], "id")))
        for name in tables
        if name != "public.keep" and not name.startswith("public.keep__")
    }
    assert found == {
        "visits": [(1,), (7,)],
        "visits__history": [(1,), (7,)],
        "visits__changes": [(1,), (7,)],
        "invoices_2025": [(1,), (2,), (3,)],
        "invoices_2025__history": [(1,), (1,), (2,), (3,)],
        "invoices_2025__changes": [(1,), (1,), (2,), (3,)],
    }
    for source in sources_of(case.name):
        assert table_difference(spark, tables[source.qualified_name], source) is None


@pytest.mark.parametrize("way", further(list(_WAYS)))
@pytest.mark.parametrize("outputs", further([_ALL, ["mirror"], ["history"]], but=(_ALL,)), ids="-".join)
def test_another_table_of_the_same_oid_is_noticed_by_a_key_that_is_taken(
    spark: SparkSession, tmp_path: Path, way: str, outputs: list[str]
) -> None:
    case = fault_case("oid_used_again")
    config: dict[str, Any] = {"outputs": outputs}
    renamed = r"has the oid of public\.invoices.*, and is not this table renamed"
    with pytest.raises(CaptureError, match=renamed) as caught:
        _WAYS[way](spark, case.files, tmp_path, config)
    assert "set on_recreate: replace for public.visits under objects" in (caught.value.remedy or "")
    table = {"source_schema": "public", "source_table": "visits", "on_recreate": "replace"}
    target = tmp_path / "mirror"
    walreplay.apply(spark, tmp_path / "captures", target, config=config | {"objects": [{"table": table}]})
    tables = mirror_tables(target)
    for suffix in outputs:
        ending = {"mirror": "", "history": "__history", "changelog": "__changes"}[suffix]
        assert {one.id for one in collect(tables[f"public.visits{ending}"], "id")} == {1, 7}
        assert {one.id for one in collect(tables[f"public.invoices_2025{ending}"], "id")} == {1, 2, 3}
    if "mirror" in outputs:
        for source in sources_of(case.name):
            assert table_difference(spark, tables[source.qualified_name], source) is None


OLD = relation(9, "old", {"id": INT4, "note": TEXT})
OTHER = relation(9, "t", {"id": INT4, "note": TEXT})
STRANGE = relation(9, "t", {"nr": INT4, "at": TEXT}, key="nr")

_BY_NUMBER = {1: ("id", INT4), 2: ("note", TEXT)}
_DROPPED = (
    [_announced(9, 50, _BY_NUMBER, "old"), OLD, m.Insert(9, row(1, "one")), m.Insert(9, row(2, "two"))],
    [_announced(9, 150, {})],
    [_announced(9, 250, _BY_NUMBER), OTHER, m.Insert(9, row(1, "other")), m.Insert(9, row(7, "seven"))],
)
_TRUNCATED = [OTHER, m.Update(9, row(7, "later")), m.Truncate((9,), 0), m.Insert(9, row(3, "last"))]
_CONFIG: dict[str, Any] = {"announcements": "walreplay", "outputs": _ALL}


@pytest.mark.parametrize("each", further([True, False], but=(True,)))
def test_a_table_that_is_announced_to_be_dropped_stays_as_it_was(mirror: SmallMirror, each: bool) -> None:
    assert _applied(mirror, *_DROPPED, each=each, **_CONFIG) == []
    assert _current(mirror, "t", "id", "note") == [(1, "other"), (7, "seven")]
    assert mirror.apply(*_TRUNCATED, **_CONFIG).warnings == ()
    assert _current(mirror, "t", "id", "note") == [(3, "last")]
    assert _current(mirror, "old", "id", "note") == [(1, "one"), (2, "two")]
    assert {one.note for one in collect(mirror.location("old__history"), "note")} == {"one", "two"}
    assert {one.note for one in collect(mirror.location("t__history"), "note")} == {"other", "seven", "last"}
    assert len(collect(mirror.location("old__changes"), "id")) == 2


@pytest.mark.full
def test_a_truncate_of_one_of_two_tables_of_an_oid_says_how_it_is_applied(mirror: SmallMirror) -> None:
    for changes in (*_DROPPED, _TRUNCATED):
        mirror.write(*changes)
    with pytest.raises(OrderError, match=r"has the oid that s\.old had") as caught:
        mirror.apply(**_CONFIG)
    (lsn,) = re.findall(r"--until-lsn (\S+),", caught.value.remedy or "")
    walreplay.backfill(mirror.spark, mirror.captures, mirror.target, config=_CONFIG, until_lsn=lsn)
    walreplay.backfill(mirror.spark, mirror.captures, mirror.target, config=_CONFIG)
    assert _current(mirror, "old", "id", "note") == [(1, "one"), (2, "two")]
    assert _current(mirror, "t", "id", "note") == [(3, "last")]


@pytest.mark.parametrize("each", further([True, False], but=(True,)))
def test_a_table_of_other_columns_is_another_one_whatever_oid_it_has(mirror: SmallMirror, each: bool) -> None:
    first, second, third = row(1, "one"), row(1, "now"), row(2, "then")
    files = [OLD, m.Insert(9, first)], [STRANGE, m.Insert(9, second)], [STRANGE, m.Insert(9, third)]
    (warning,) = _applied(mirror, *files, each=each)
    assert warning.startswith("s.t: it has the oid of s.old, but other columns, or another key")
    assert (_current(mirror, "old", "id", "note"), len(mirror.rows()["s.t"])) == ([(1, "one")], 2)
