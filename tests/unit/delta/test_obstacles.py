"""What a table has that only Spark can write."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from walreplay.delta.local import LOG, LocalTable, NotReadError
from walreplay.session.folders import MountedFolder

_COLUMN = {"name": "id", "type": "long", "nullable": True, "metadata": {}}


def _obstacle(folder: Path, features: list[str], configuration: dict[str, str]) -> str | None:
    metadata = {
        "id": "0",
        "format": {"provider": "parquet", "options": {}},
        "partitionColumns": [],
        "configuration": configuration,
        "schemaString": json.dumps({"type": "struct", "fields": [_COLUMN]}),
    }
    readers = [feature for feature in features if feature not in ("appendOnly", "domainMetadata", "clustering")]
    protocol = {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": readers, "writerFeatures": features}
    (folder / LOG).mkdir()
    lines = (json.dumps(one) for one in ({"protocol": protocol}, {"metaData": metadata}))
    (folder / LOG / f"{0:020}.json").write_text("\n".join(lines))
    return LocalTable.open(MountedFolder(str(folder))).obstacle


@pytest.mark.parametrize("feature", ["catalogManaged", "coordinatedCommits-preview"])
def test_a_table_that_delta_rs_does_not_read_is_no_damaged_one(tmp_path: Path, feature: str) -> None:
    with pytest.raises(NotReadError):
        _obstacle(tmp_path, [feature], {})


@pytest.mark.parametrize("feature", ["typeWidening", "clustering"])
def test_a_feature_that_delta_rs_does_not_write_is_left_to_statements(tmp_path: Path, feature: str) -> None:
    assert _obstacle(tmp_path, ["deletionVectors", feature], {}) == f"it has the feature {feature}"


def test_so_is_a_property_that_may_ask_for_more(tmp_path: Path) -> None:
    told = {"delta.coordinatedCommits.commitCoordinator-preview": "dynamodb"}
    assert _obstacle(tmp_path, [], told) == f"it has the property {next(iter(told))}"


def test_a_plain_table_has_no_obstacle(tmp_path: Path) -> None:
    assert _obstacle(tmp_path, ["deletionVectors", "timestampNtz"], {"delta.enableDeletionVectors": "true"}) is None
