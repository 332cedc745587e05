"""An oid that was used again: whose rows a relation version has, by what was announced, its name, columns and key."""

from dataclasses import replace

import pytest

from support.planned import TEXT, catalogue_of, configured, mirrors, relation, run_plan
from walreplay.errors import OrderError
from walreplay.names import Output, former_tables, output_of, relation_of, source_oid, successor_of

OLD = relation(f"id* amount note:{TEXT}", name="old")
SAME = replace(OLD, name="t")


def test_what_stands_for_a_table_has_its_oid_and_its_output():
    oid = successor_of(successor_of(16392, 3))
    for output in Output:
        found = output.oid_of(oid)
        assert (source_oid(found), former_tables(found), relation_of(found)) == (16392, 3, oid)
        assert output_of(found) is output
    assert successor_of(16392, 0) == 16392
    assert 0 < Output.CHANGELOG.oid_of(successor_of(successor_of(2**32 - 1, 255))) < 2**63


def places(run):
    return {entry.oid: (entry.name, entry.table.text, entry.set_aside) for entry in run.entries}


STAYS = {9: ("s.old", "/mirror/s/old", False)}
MOVED = {9: ("s.t", "/mirror/s/t", False)}
ANOTHER = STAYS | {successor_of(9): ("s.t", "/mirror/s/t", False)}


@pytest.mark.parametrize(
    ("after", "expected", "doubt"),
    [
        # A rename, alone or with columns that come, go or change their type.
        (SAME, MOVED, ""),
        (relation("id* amount note", name="t"), MOVED, ""),
        (relation("id* amount note more", name="t"), MOVED, "taken to be renamed"),
        (relation(f"id* x y:{TEXT}", name="t"), MOVED, "taken to be renamed"),
        (relation("id* amount a b c d e f g", name="t"), MOVED, "taken to be renamed"),
        (relation("id amount note", "f", name="t"), MOVED, ""),
        # Another table.
        (relation("nr* at", name="t"), ANOTHER, "taken for another table"),
        (relation(f"id* at:{TEXT} who", name="t"), ANOTHER, "taken for another table"),
        (relation("id amount* note", "i", name="t"), ANOTHER, "taken for another table"),
    ],
)
def test_another_name_is_a_rename_or_another_table(after, expected, doubt):
    at_once = run_plan(OLD, after)
    first = run_plan(OLD)
    apart = run_plan(after, entries=first.entries, before=[OLD])
    third = run_plan(after, entries=apart.entries, before=[after])
    assert places(at_once) == places(apart) == places(third) == expected
    for run in (at_once, apart):
        (*told,) = run.warnings
        assert [doubt in text for text in told] == [True] * bool(doubt)
        assert all(text.startswith("s.t: it has the oid of s.old, ") and "on_recreate" in text for text in told)
    assert not third.warnings


def test_the_configuration_says_what_is_not_clear():
    first = run_plan(OLD)
    other = configured(table={"on_recreate": "replace"})
    for after in (SAME, relation("id* amount note more", name="t"), relation("nr* at", name="t")):
        for settings, expected in ((other, ANOTHER), (configured(on_recreate="keep"), MOVED)):
            apart = run_plan(after, settings=settings, entries=first.entries, before=[OLD])
            assert places(apart) == places(run_plan(OLD, after, settings=settings)) == expected
            assert not apart.warnings
    # Said of all tables, it says nothing of one.
    assert places(run_plan(OLD, SAME, settings=configured(on_recreate="replace"))) == MOVED


def test_a_table_whose_end_was_announced_stays_whatever_has_its_oid_then():
    again = replace(OLD, formers=1)
    for after, expected in (
        (replace(SAME, formers=1), STAYS | {successor_of(9, 1): ("s.t", "/mirror/s/t", False)}),
        (again, {9: ("s.old", "/mirror/_walreplay/set_aside_9", True), successor_of(9, 1): STAYS[9]}),
    ):
        first = run_plan(OLD)
        apart = run_plan(after, entries=first.entries, before=[OLD])
        assert places(apart) == places(run_plan(OLD, after)) == expected
        assert not apart.warnings
    # It need not have been used itself.
    later = run_plan(replace(SAME, formers=2), entries=first.entries, before=[again])
    assert successor_of(9, 2) in places(later)


def test_versions_that_are_sent_again_are_of_the_table_that_had_their_name():
    other = relation("nr* at", name="t")
    apart = run_plan(other, entries=run_plan(OLD).entries, before=[OLD])
    for before in ([other], [OLD]):
        found = mirrors(catalogue_of([OLD, other], entries=apart.entries, before=before))
        assert {version.name: version.oid for version in found.values()} == {"s.old": 9, "s.t": successor_of(9)}


def test_outputs_follow_their_tables():
    settings = configured(outputs=["mirror", "history", "changelog"])
    first = run_plan(OLD, settings=settings)
    found = run_plan(relation("nr* at", name="t"), settings=settings, entries=first.entries, before=[OLD])
    assert len(found.entries) == 6
    assert {entry.source_name for entry in found.entries if relation_of(entry.oid) == 9} == {"s.old"}
    assert not any("switched" in note for plan in found.tables for note in plan.notes)


def test_a_truncate_is_for_the_table_that_has_the_oid_then():
    other = relation("nr* at", name="t")
    known = run_plan(OLD, other)
    (plan,) = run_plan(other, entries=known.entries, before=[other], truncated=[9]).tables
    assert (plan.oid, plan.truncated) == (successor_of(9), True)
    with pytest.raises(OrderError, match=r"s\.t has the oid that s\.old had"):
        run_plan(OLD, other, truncated=[9])
