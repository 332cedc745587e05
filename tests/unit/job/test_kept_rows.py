"""Which tables a verification leaves out, as what rows they have kept depends on where runs have ended."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from walreplay.config import Settings
from walreplay.config.model import Narrowed
from walreplay.job.side_tables import SideTables

TABLE = {"source_schema": "s", "source_table": "t"}


@pytest.mark.parametrize(
    ("common", "own", "skipped"),
    [
        ({}, {}, set()),
        ({"on_recreate": "keep"}, None, {7, 9}),
        ({"on_recreate": "keep"}, {"soft_deletes": True}, {7, 9}),  # the table's own options say nothing of it
        ({"on_recreate": "keep"}, {"on_recreate": "replace"}, set()),
        ({}, {"on_recreate": "keep"}, {7, 9}),
    ],
)
def test_a_name_that_passed_on_may_have_kept_rows(
    common: dict[str, Any], own: dict[str, Any] | None, skipped: set[int]
) -> None:
    objects = [] if own is None else [{"table": {**TABLE, **own}}]
    settings = Settings.from_mapping({**common, "objects": objects})
    context: Any = SimpleNamespace(settings=settings, target=SimpleNamespace(text="/data/mirror"))
    tables = SideTables(context, "/captures", Narrowed(), skips=True)
    tables._skip_kept({5: {"s.u"}, 7: {"s.t"}, 9: {"s.t"}}, {"s.t": ("s", "t"), "s.u": ("s", "u")})
    assert tables.skipped.keys() == skipped
