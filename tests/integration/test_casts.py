"""Old values where a column's type changes without USING: they are what PostgreSQL's own cast has made of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from support.binary_cells import convert as built
from support.casts import MODIFIED, VALUES, Caster
from support.extent import further
from support.fault_cases import fault_case, sources_of
from support.postgres import running_server, server_versions
from support.scenarios import apply_file_by_file, apply_in_one_run
from support.truth import assert_equal, mirror_tables, read_tables
from walreplay.evolution.casts import is_uncertain
from walreplay.evolution.convert import convert

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from walreplay.report import RunReport
    from walreplay.types import ColumnType

_CASES = ("casts_without_using", "precision_of_times_lowered")
_BY_SESSION = "public.c67"


_WAYS = {"one run": apply_in_one_run, "a run per file": apply_file_by_file}


@pytest.fixture(scope="module", params=further(_WAYS, but=("one run",)))
def applied(
    request: pytest.FixtureRequest, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, tuple[RunReport, ...]]:
    """Apply the capture, which both cases have."""
    return _WAYS[request.param](spark, fault_case(_CASES[0]).files, tmp_path_factory.mktemp("casts"))


@pytest.mark.integration
def test_rows_that_a_cast_has_changed_are_the_sources_in_keys_too(
    spark: SparkSession, applied: tuple[Path, tuple[RunReport, ...]]
) -> None:
    sources = {source.qualified_name: source for name in _CASES for source in sources_of(name)}
    del sources[_BY_SESSION]
    assert len(sources) == 9
    locations = mirror_tables(applied[0])
    assert_equal(read_tables(spark, {name: locations[name] for name in sources}), sources.values())


@pytest.mark.integration
def test_a_cast_that_depends_on_the_session_is_warned_of_with_table_column_and_remedy(
    applied: tuple[Path, tuple[RunReport, ...]],
) -> None:
    (warning,) = [text for report in applied[1] for text in report.warnings if text.startswith(_BY_SESSION)]
    assert "column v" in warning
    assert "load --replace" in warning


_QUICK = ("timestamp", "time", "interval", "double precision", "numeric(10,4)", "text", "json", "inet", "timestamp[]")


def _cell(column_type: ColumnType, text: str | None) -> tuple[str, str | None]:
    values, rescued = built(column_type, [text])
    return repr(values.to_pylist()), rescued[0].text if rescued else None


def _outcomes(caster: Caster, old: str) -> Iterator[str]:
    """Yield what became of each value: as in the source, warned of, or rescued; otherwise the test fails."""
    for cast in caster.casts(old, [name for name in (*VALUES, *MODIFIED) if name != old], VALUES[old]):
        before, after = caster.column_type(cast.old), caster.column_type(cast.new)
        values, rescued = built(before, [cast.before])
        texts = pa.array([rescued[0].text if rescued else None], pa.string())
        column, left = convert(values, texts, [before, after])
        converted = repr(column.to_pylist()), None if left is None else left.to_pylist()[0]
        if converted == _cell(after, cast.after):
            yield "equal"
        elif is_uncertain(before, after):
            yield "warned"
        else:
            assert converted[1] is not None, (cast, converted)
            yield "rescued"


@pytest.mark.live
@pytest.mark.parametrize(
    ("version", "types"),
    [
        (server_versions()[-1], _QUICK),
        *further([(version, tuple(VALUES)) for version in server_versions()]),
    ],
)
def test_no_pair_of_types_with_a_cast_of_its_own_gives_another_value_without_a_word(
    version: int, types: tuple[str, ...]
) -> None:
    with running_server(version) as server, server.connect() as connection:
        caster = Caster(connection)
        outcomes = Counter(outcome for old in types for outcome in _outcomes(caster, old))
    assert outcomes["equal"] > 0.8 * outcomes.total()
    assert outcomes["rescued"] < 0.02 * outcomes.total()
