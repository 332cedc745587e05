"""The notebook for Databricks applies captures, and reads tables that belong together."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from support.small_mirror import INT4, TEXT, SmallMirror, relation, row
from walreplay.protocol import messages as m

pytestmark = pytest.mark.integration

_NOTEBOOK = Path(__file__).parents[2] / "conf" / "databricks" / "notebooks" / "look.py"


def test_the_notebook_shows_a_consistent_cut(mirror: SmallMirror, capsys: pytest.CaptureFixture[str]) -> None:
    mirror.write(relation(1, "t", {"id": INT4, "v": TEXT}), m.Insert(1, row(1, "a")))
    code = _NOTEBOOK.read_text(encoding="utf-8")
    for name, place in (("captures", str(mirror.captures)), ("target", mirror.target)):
        code, count = re.subn(rf'^{name} = ".*"$', f"{name} = {place!r}", code, flags=re.MULTILINE)
        assert count == 1
    exec(compile(code, _NOTEBOOK.name, "exec"), {"spark": mirror.spark})

    told, table, query = capsys.readouterr().out.splitlines()
    assert told == "applied 1 transactions, 1 row changes"
    assert table.startswith("s.t created 1 0 0 version 0")
    assert [tuple(one[:2]) for one in mirror.spark.sql(query).collect()] == [(1, "a")]
