"""Inputs in ``tests/faults`` that went wrong once, laid out as the captures are, and what is right for them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from support.captures import Case, load
from support.truth import SourceTable, assert_tables_equal, source_tables

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FAULTS = Path(__file__).parents[1] / "faults"


def fault_case(name: str) -> Case:
    """Return a case; its tables are told apart by their primary keys."""
    case = load(FAULTS / name)
    tables = [{"identity_key": table.get("primary_key", []), **table} for table in case.info["tables"]]
    return replace(case, info={**case.info, "tables": tables})


def assert_fault_mended(spark: SparkSession, target: Path, name: str) -> None:
    """Assert that the target holds exactly the tables that a case's truth has."""
    assert_tables_equal(spark, target, sources_of(name))


def sources_of(name: str) -> list[SourceTable]:
    """Return the source's tables of a case, those without a column left out."""
    case = fault_case(name)
    tables = [table for table in case.info["tables"] if table["columns"]]
    return source_tables(replace(case, info={**case.info, "tables": tables}))
