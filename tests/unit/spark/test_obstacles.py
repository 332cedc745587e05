"""What a table has that files must heed: then statements write to it."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from walreplay.sink.folders import MountedFolder
from walreplay.spark.delta.transaction import Transaction

_COLUMN = {"name": "id", "type": "long", "nullable": True, "metadata": {}}


def _obstacle(folder: Path, features: list[str], configuration: dict[str, str]) -> str | None:
    metadata = {
        "partitionColumns": [],
        "configuration": configuration,
        "schemaString": json.dumps({"type": "struct", "fields": [_COLUMN]}),
    }
    protocol = {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": features, "writerFeatures": features}
    begun: Any = SimpleNamespace(
        version=3,
        metadata=lambda: metadata,
        protocol=lambda: protocol,
        checksum=lambda _: None,
        internals=SimpleNamespace(can=lambda _: True),
    )
    spark: Any = None
    return Transaction(spark, begun, MountedFolder(str(folder))).obstacle


@pytest.mark.parametrize("feature", ["catalogManaged", "catalogOwned-preview", "coordinatedCommits-preview"])
def test_a_table_whose_catalog_makes_its_commits_is_left_to_statements(tmp_path: Path, feature: str) -> None:
    assert _obstacle(tmp_path, ["deletionVectors", feature], {}) == "its catalog makes its commits"


def test_so_is_one_whose_properties_name_a_coordinator(tmp_path: Path) -> None:
    told = {"delta.coordinatedCommits.commitCoordinator-preview": "dynamodb"}
    assert _obstacle(tmp_path, [], told) == f"it has the property {next(iter(told))}"


def test_a_plain_table_has_no_obstacle(tmp_path: Path) -> None:
    assert _obstacle(tmp_path, ["deletionVectors", "timestampNtz"], {"delta.enableDeletionVectors": "true"}) is None
