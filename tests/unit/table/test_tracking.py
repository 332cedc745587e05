"""Which of a history's columns begin versions follows the configuration's names, and the columns' own past."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from support.planned import Used, run_plan
from support.small_mirror import INT4, TEXT, relation
from walreplay.config import Settings
from walreplay.errors import ConfigError
from walreplay.protocol import messages as m
from walreplay.table.plan import TablePlan
from walreplay.table.registry import MirrorEntry

LIST, EXCEPT = "track_history_column_list", "track_history_except_column_list"


def table(*columns: str, identity: str = "d") -> m.Relation:
    return relation(1, "t", {name: INT4 if name == "id" else TEXT for name in columns}, identity)


def settings(said: Mapping[str, Any] | None = None, **general: Any) -> Settings:
    objects = [] if said is None else [{"table": {"source_schema": "s", "source_table": "t", **said}}]
    return Settings.from_mapping({"outputs": ["history"], "objects": objects, **general})


def plan(of: Settings, *relations: m.Relation, entries: Sequence[MirrorEntry] = ()) -> TablePlan:
    (found,) = run_plan(*(Used(one) for one in relations), settings=of, entries=entries).tables
    return found


def watched(of: TablePlan) -> list[str] | None:
    epoch = of.epochs[-1]
    return None if epoch.watched is None else [epoch.shape.columns[number].name for number in epoch.watched]


@pytest.mark.parametrize(
    ("said", "general", "expected"),
    [
        (None, {}, None),
        ({LIST: ["a"]}, {}, ["a"]),
        ({EXCEPT: ["a", "b"]}, {}, ["id", "c"]),
        ({LIST: []}, {}, []),
        ({EXCEPT: []}, {}, ["id", "a", "b", "c"]),
        ({}, {LIST: ["b", "none"]}, ["b"]),
        ({}, {EXCEPT: ["b", "none"]}, ["id", "a", "c"]),
        ({}, {LIST: ["none"]}, None),
        ({}, {EXCEPT: ["none"]}, None),
        ({}, {EXCEPT: []}, ["id", "a", "b", "c"]),
        ({LIST: ["a"]}, {EXCEPT: ["b"]}, ["a"]),
        ({EXCEPT: ["a"]}, {LIST: ["b"]}, ["id", "b", "c"]),
        ({LIST: ["x"], "rename_columns": {"x": "b"}}, {}, ["b"]),
    ],
)
def test_what_is_listed_for_a_table_goes_before_what_is_for_all(
    said: Any, general: Any, expected: list[str] | None
) -> None:
    found = plan(settings(said, **general), table("id", "a", "b", "c"))
    assert watched(found) == expected
    assert not [note for note in found.notes if "track_history" in note]


@pytest.mark.parametrize("key", [LIST, EXCEPT])
def test_a_column_is_followed_to_its_new_names(key: str) -> None:
    of = settings({key: ["a"]})
    first = plan(of, table("id", "a", "b"))
    second = plan(of, table("id", "n", "b"), entries=[first.after])
    third = plan(of, table("id", "o", "b"), entries=[second.after])
    for found, name in ((first, "a"), (second, "n"), (third, "o")):
        assert watched(found) == ([name] if key == LIST else ["id", "b"])
        assert not [note for note in found.notes if "track_history" in note]
    # All in one run.
    assert watched(plan(of, *(table("id", name, "b") for name in "ano"))) == watched(third)
    # A name is that of the column that has it now.
    again = plan(of, table("id", "o", "b", "a"), entries=[third.after])
    assert watched(again) == (["a"] if key == LIST else ["id", "o", "b"])


def test_a_column_that_is_gone_is_told_of() -> None:
    of = settings({LIST: ["a", "b"]})
    first = plan(of, table("id", "a", "b"))
    second = plan(of, table("id", "b"), entries=[first.after])
    assert "track_history_column_list names 'a', which the table does not have now" in second.notes
    assert watched(second) == ["a", "b"]


@pytest.mark.parametrize("identity", ["f", "n"])
def test_nothing_is_tracked_without_a_key(identity: str) -> None:
    found = plan(settings({LIST: ["a"]}), table("id", "a", identity=identity))
    assert watched(found) is None
    assert any(LIST in note and "no key" in note for note in found.notes)
    quiet = plan(settings({}, **{LIST: ["none"]}), table("id", "a", identity=identity))
    assert not [note for note in quiet.notes if LIST in note]


@pytest.mark.parametrize("key", [LIST, EXCEPT])
def test_a_column_that_never_was_is_an_error_for_a_table_alone(key: str) -> None:
    with pytest.raises(ConfigError, match=f"{key} names 'staet', which is none of the table's columns"):
        plan(settings({key: ["staet"]}), table("id", "state"))
    mirrors = settings({key: ["staet"]}, outputs=["mirror"])
    assert plan(mirrors, table("id", "state")).epochs[-1].watched is None


def test_both_lists_contradict_each_other() -> None:
    for said, general in (({LIST: ["a"], EXCEPT: ["b"]}, {}), ({}, {LIST: [], EXCEPT: []})):
        with pytest.raises(ConfigError, match=f"may have {LIST} or {EXCEPT}, not both"):
            settings(said, **general)
    with pytest.raises(ConfigError, match=f"'a' is in {LIST}, but in exclude_columns as well"):
        settings({LIST: ["a"], "exclude_columns": ["a"]})
