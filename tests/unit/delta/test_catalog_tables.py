"""Tables that are made in a catalog: which statements that takes."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from walreplay.delta import statements as creation
from walreplay.delta.target import Target


@pytest.mark.parametrize("schemas", [[], ["`main`.`shop`"]], ids=["none", "its own"])
def test_a_schema_is_created_only_if_it_is_not_there(schemas: list[str]) -> None:
    said: list[str] = []
    spark: Any = SimpleNamespace(sql=said.append, catalog=SimpleNamespace(databaseExists=schemas.__contains__))
    table = Target.parse("main").table("shop", "orders")

    creation.create_table(spark, creation.TableDefinition(table, pa.schema([("id", pa.int64())])))

    expected = ["CREATE TABLE IF NOT EXISTS `main`.`shop`.`orders` (`id` BIGINT) USING delta"]
    assert said == ([] if schemas else ["CREATE SCHEMA IF NOT EXISTS `main`.`shop`"]) + expected
