"""A table that is left out for a while: its tables are what they were, nothing calls them the source's, and they do
not go on as if nothing were missing.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

import walreplay
from support.extent import further
from support.readers import collect
from support.small_mirror import INT4, TEXT, SmallMirror, relation, row
from walreplay.errors import ConfigError
from walreplay.lsn import format_lsn
from walreplay.protocol import messages as m

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.integration

_ALL: Final = {"outputs": ["mirror", "history", "changelog"]}
_ONE, _OTHER = relation(1, "one", {"id": INT4, "v": TEXT}), relation(2, "other", {"id": INT4})
_WITHOUT: Final = {"table_exclude_list": [r"s\.one"], "table_include_list": [r"s\.other"]}


def _exact(mirror: SmallMirror, lsn: int) -> dict[str, tuple[bool, str]]:
    tables = walreplay.as_of(mirror.spark, mirror.target, format_lsn(lsn), r"s\.one", config=_ALL).tables
    return {one.output: (one.exact, one.note) for one in tables}


@pytest.mark.parametrize("key", further(["table_exclude_list"], but=_WITHOUT, long=["table_include_list"]))
def test_nothing_is_exact_of_it_and_a_rebuild_brings_it_back(spark: SparkSession, tmp_path: Path, key: str) -> None:
    without: dict[str, Any] = {key: _WITHOUT[key]}
    mirror = SmallMirror(spark, tmp_path)
    mirror.apply(_ONE, m.Insert(1, row(1, "a")), m.Insert(1, row(2, "a")), _OTHER, m.Insert(2, row(1)), **_ALL)
    # It has no changes: nothing is missing.
    assert mirror.apply(m.Insert(2, row(2)), **_ALL, **without).warnings == ()
    mirror.apply(m.Update(1, row(1, "b")), **_ALL)
    (warning,) = mirror.apply(m.Update(1, row(2, "b")), m.Insert(2, row(3)), **_ALL, **without).warnings
    assert warning.startswith("s.one: the configuration leaves it out now")
    assert mirror.apply(m.Update(1, row(2, "c")), **_ALL, **without).warnings == ()
    answers = _exact(mirror, 400).values()
    assert [(exact, "it is left out" in note) for exact, note in answers] == [(False, True)] * 3

    mirror.write(m.Insert(1, row(3, "c")))
    with pytest.raises(ConfigError, match="lacks what has changed while it was switched off") as caught:
        mirror.apply(**_ALL)
    assert "walreplay rebuild" in (caught.value.remedy or "")
    mirror.apply(**_ALL, **without)
    walreplay.rebuild(spark, mirror.captures, mirror.target, r"s\.one", config=_ALL)
    mirror.apply(m.Insert(1, row(4, "d")), **_ALL)
    rows = [(1, "b"), (2, "c"), (3, "c"), (4, "d")]
    assert sorted(map(tuple, collect(mirror.location("one"), "id", "v"))) == rows
    assert _exact(mirror, 700)["mirror"][0]


@pytest.mark.full
def test_a_truncate_alone_is_missing_too(spark: SparkSession, tmp_path: Path) -> None:
    mirror = SmallMirror(spark, tmp_path)
    mirror.apply(_ONE, m.Insert(1, row(1, "a")), **_ALL)
    (warning,) = mirror.apply(m.Truncate((1,), 0), **_ALL, table_exclude_list=[r"s\.one"]).warnings
    assert warning.startswith("s.one: the configuration leaves it out now")
    assert not any(exact for exact, _ in _exact(mirror, 200).values())
    assert all(exact for exact, _ in _exact(mirror, 100).values())


@pytest.mark.parametrize("comes_back", further([False, True]))
def test_a_table_that_gets_a_name_in_a_run_that_is_left_out(
    spark: SparkSession, tmp_path: Path, comes_back: bool
) -> None:
    mirror = SmallMirror(spark, tmp_path)
    without: dict[str, Any] = {**_ALL, "table_exclude_list": [r"s\.old"]}
    old = relation(1, "old", {"id": INT4, "v": TEXT})
    mirror.apply(_ONE, m.Insert(1, row(1, "a")), **without)
    back = (_ONE, m.Insert(1, row(4, "d"))) if comes_back else ()
    (warning,) = mirror.apply(m.Insert(1, row(2, "b")), old, m.Insert(1, row(3, "c")), *back, **without).warnings
    assert warning.startswith("s.one: the configuration leaves it out now")
    assert sorted(collect(mirror.location("one"), "id")) == [(1,), (2,), *([(4,)] if comes_back else [])]
    assert not any(exact for exact, _ in _exact(mirror, 200).values())
    mirror.write(_ONE, m.Insert(1, row(5, "e")))
    with pytest.raises(ConfigError, match="lacks what has changed while it was switched off"):
        mirror.apply(**without)


@pytest.mark.full
def test_a_new_table_that_was_left_out_first_lacks_its_first_rows(spark: SparkSession, tmp_path: Path) -> None:
    mirror = SmallMirror(spark, tmp_path)
    old = relation(1, "old", {"id": INT4, "v": TEXT})
    config: dict[str, Any] = {**_ALL, "table_exclude_list": [r"s\.old"]}
    mirror.apply(old, m.Insert(1, row(1, "a")), _ONE, m.Insert(1, row(2, "b")), **config)
    answers = _exact(mirror, 100)
    assert [exact for exact, _ in answers.values()] == [False] * 3
    assert all("switched on later than its source began" in note for _, note in answers.values())
    mirror.apply(m.Insert(1, row(3, "c")), **config)
    assert sorted(collect(mirror.location("one"), "id")) == [(2,), (3,)]
