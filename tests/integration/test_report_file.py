"""A report goes to any file system that Spark has."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from walreplay.session import text_files

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.integration


def test_the_sessions_hadoop_writes_where_python_cannot(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Of Hadoop's file systems this one alone needs no server; Python would write there by itself.
    monkeypatch.setattr(text_files, "mounted_path", lambda _: None)
    place = tmp_path / "made for it" / "report.json"
    for text in ("{" + "x" * 1000 + "}", '{"ä": "\U0001f418"}'):
        text_files.write_text(f"file:{place}", text)
        assert place.read_text(encoding="utf-8") == text
