from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from walreplay.delta.target import Target
from walreplay.errors import OrderError
from walreplay.evolution.shapes import TableShape
from walreplay.table import placement
from walreplay.table.placement import Move, Use, UsedRelation
from walreplay.table.registry import MirrorEntry

TARGET = Target.parse("/m")


def entry(oid, name, *, aside=False, at=None):
    table = TARGET.set_aside(oid) if aside else at or TARGET.table("s", name)
    return MirrorEntry(oid, f"s.{name}", table, TableShape(), aside)


def wanted(oid, name, on_recreate="replace", target=TARGET):
    return UsedRelation(oid, f"s.{name}", target.table("s", name), on_recreate)


def place(entries, wanted, target, uses=None):
    """Place relations that have only the names given, in this order, or those of ``uses``."""
    if uses is None:
        uses = [Use(one.oid, one.table.place) for one in wanted]
    return placement.plan_moves(entries, wanted, uses, target)


def use(oid, name):
    return Use(oid, TARGET.table("s", name).place)


def moves(found):
    """Return (oid, from, to) of each move, an asterisk between those that leave and those that arrive."""

    def short(step: Move):
        return step.oid, *(table.path.removeprefix("/m/") for table in (step.source, step.destination))

    return [*map(short, found.leaving), "*", *map(short, found.arriving)]


def refuge(oid):
    return f"_walreplay/set_aside_{oid}"


def test_tables_that_keep_their_names_stay():
    found = place([entry(1, "a"), entry(2, "b")], [wanted(1, "a"), wanted(3, "c")], TARGET)
    assert moves(found) == ["*"]
    assert dict(found.before) == {1: entry(1, "a")}
    assert not found.notes


def test_a_renamed_table_goes_along():
    found = place([entry(1, "a")], [wanted(1, "b")], TARGET)
    assert moves(found) == [(1, "s/a", "s/b"), "*"]
    assert found.notes == {1: ("renamed from s.a",)}


def test_rows_of_a_table_that_was_made_anew_are_set_aside():
    found = place([entry(1, "t")], [wanted(2, "t")], TARGET)
    assert moves(found) == [(1, "s/t", refuge(1)), "*"]
    assert found.aside == (entry(1, "t", aside=True),)
    assert not found.before
    assert "old rows are set aside" in found.notes[2][0]


def loaded(oid, name, at=150):
    return replace(entry(oid, name), base_lsn=at + 1)


def uses_at(*given):
    return [use(oid, name)._replace(lsn=lsn) for lsn, oid, name in given]


@pytest.mark.parametrize(
    ("used", "holders", "noted"),
    [
        ([(150, 2, "t")], set(), {2}),
        ([(151, 2, "t")], {2}, {2}),
        ([(None, 2, "t")], {2}, {2}),
        ([(149, 2, "t"), (151, 2, "t")], {2}, {2}),
        # The loaded one had another name before, which is free behind the load.
        ([(100, 1, "old"), (110, 2, "t"), (160, 2, "old")], {1, 2}, set()),
    ],
)
def test_a_use_from_before_a_load_does_not_take_the_name_of_the_loaded_table(used, holders, noted):
    last = {oid: name for lsn, oid, name in used}
    relations = [wanted(oid, "t" if oid == 1 else name) for oid, name in last.items()]
    found = place([loaded(1, "t")], relations, TARGET, uses_at(*used))
    assert found.holders == holders
    assert bool(found.aside) == (holders == {2})
    assert found.notes.keys() == noted
    # Captures of another server would look so.
    assert [one.oid for one in found.remade] == ([2] if noted else [])


@given(st.data())
def test_a_load_gives_its_tables_the_names_of_its_time(data):
    """Placed with a load as with the same load's names as uses, at their place between the others."""
    used = data.draw(st.lists(st.tuples(st.integers(1, 4), st.sampled_from("abc")), min_size=1, max_size=7))
    names = data.draw(st.permutations("abc"))
    of_load = {oid: names[oid - 1] for oid in data.draw(st.sets(st.integers(1, 3), min_size=1))}
    behind = data.draw(st.integers(0, len(used)))
    policy = data.draw(st.sampled_from(["replace", "keep"]))
    uses = uses_at(*((number, oid, name) for number, (oid, name) in enumerate(used)))
    last = dict(used) | {oid: name for oid, name in of_load.items() if oid not in dict(used[behind:])}
    relations = [wanted(oid, last[oid], policy) for oid, _ in used]
    found = place([loaded(oid, name, behind - 1) for oid, name in of_load.items()], relations, TARGET, uses)
    # Tables of no name take no part until then.
    there = [entry(oid, name, aside=True) for oid, name in of_load.items()]
    also = [wanted(oid, name, policy) for oid, name in of_load.items() if oid not in dict(used)]
    at_load = [use(oid, name) for oid, name in of_load.items()]
    expected = place(there, [*relations, *also], TARGET, [*uses[:behind], *at_load, *uses[behind:]])
    oids = {oid for oid, _ in used}
    assert found.holders == expected.holders & oids
    gone = {one.oid for one in found.aside} | found.replaced
    assert gone == of_load.keys() - oids - expected.holders


def test_they_come_back_under_another_name():
    found = place([entry(1, "t", aside=True), entry(2, "t")], [wanted(1, "t_old")], TARGET)
    assert moves(found) == ["*", (1, refuge(1), "s/t_old")]
    assert found.before[1].set_aside


def test_a_table_that_is_renamed_to_anothers_name_pushes_it_aside():
    found = place([entry(1, "t"), entry(2, "t_new")], [wanted(2, "t")], TARGET)
    assert moves(found) == [(1, "s/t", refuge(1)), (2, "s/t_new", refuge(2)), "*", (2, refuge(2), "s/t")]
    assert found.notes[2] == ("renamed from s.t_new", "another table had its name; that one's rows are set aside")


def test_of_two_relations_that_had_a_name_in_the_run_the_later_has_it():
    found = place([entry(1, "t")], [wanted(1, "t"), wanted(2, "t"), wanted(3, "t")], TARGET)
    assert moves(found) == [(1, "s/t", refuge(1)), "*"]
    assert set(found.before) == {1}
    assert all("another table has its name now" in found.notes[oid][0] for oid in (1, 2))
    assert "created again" in found.notes[3][0]


def test_a_name_that_is_passed_on_within_the_run_has_still_displaced_a_table():
    # As where a run ends in between.
    uses = [use(2, "u"), use(2, "t"), use(2, "u")]
    found = place([entry(1, "t"), entry(2, "u")], [wanted(2, "u")], TARGET, uses)
    assert moves(found) == [(1, "s/t", refuge(1)), "*"]
    assert found.aside == (entry(1, "t", aside=True),)
    assert found.notes == {2: ("another table had its name; that one's rows are set aside",)}


def test_a_table_that_comes_back_from_another_name_takes_its_place_again():
    uses = [use(1, "t"), use(2, "t"), use(2, "u"), use(1, "t")]
    found = place([entry(1, "t")], [wanted(1, "t"), wanted(2, "u")], TARGET, uses)
    assert moves(found) == ["*"]
    assert found.holders == {1, 2}
    assert not found.notes


def test_of_tables_new_in_the_run_one_may_displace_another_and_leave():
    uses = [use(1, "t"), use(2, "t"), use(2, "u")]
    found = place([], [wanted(1, "t"), wanted(2, "u")], TARGET, uses)
    assert found.holders == {2}
    assert found.notes[1] == ("another table has its name now; its rows are set aside",)


def test_rows_that_are_kept_go_along_with_the_table_that_keeps_them():
    uses = [use(2, "t"), use(2, "u")]
    found = place([entry(1, "t")], [wanted(2, "u", "keep")], TARGET, uses)
    assert moves(found) == [(2, "s/t", "s/u"), "*"]
    assert dict(found.before) == {2: entry(1, "t")}
    assert found.replaced == {1}


def test_rows_are_kept_where_that_is_wanted():
    found = place([entry(1, "t")], [wanted(2, "t", "keep")], TARGET)
    assert moves(found) == ["*"]
    assert dict(found.before) == {2: entry(1, "t")}
    assert found.replaced == {1}


def test_rows_of_a_table_that_has_changes_of_its_own_are_no_one_elses():
    found = place([entry(1, "t")], [wanted(1, "t", "keep"), wanted(2, "t", "keep")], TARGET)
    assert dict(found.before) == {1: entry(1, "t")}
    assert not found.replaced
    assert moves(found) == [(1, "s/t", refuge(1)), "*"]
    assert "not kept" in found.notes[2][0]


@pytest.mark.parametrize("before", [[entry(1, "t")], []])
def test_a_table_that_was_made_anew_stops_the_run_where_that_is_wanted(before):
    found = [wanted(1, "t", "stop"), wanted(2, "t", "stop")]
    with pytest.raises(OrderError, match="dropped and created again") as caught:
        place(before, found[1:] if before else found, TARGET)
    assert caught.value.table == "s.t"
    place([entry(1, "t")], [wanted(1, "t_old", "stop"), wanted(2, "t", "stop")], TARGET)


def test_tables_that_were_all_made_anew_begin_anew_and_nothing_stops_that():
    before = [entry(number, f"t{number}") for number in range(5)]
    remade = [wanted(10 + number, f"t{number}") for number in range(5)]
    found = place(before, remade, TARGET)
    assert found.remade == tuple(remade)
    assert not found.recognised
    assert {one.oid for one in found.aside} == set(range(5))
    assert place(before, [*remade[1:], wanted(0, "t0")], TARGET).recognised
    assert not place(before, [*remade[1:], wanted(0, "t9")], TARGET).recognised


def test_a_table_that_others_have_made_way_for_in_the_same_run_was_not_made_anew():
    uses = [use(2, "t"), use(1, "t")]
    assert not place([entry(1, "t")], [wanted(1, "t"), wanted(2, "t")], TARGET, uses).remade


def unwritten(oid, name, on_recreate="replace"):
    return UsedRelation(oid, f"s.{name}", TARGET.table("s", name), on_recreate, written=False)


def test_a_table_whose_rows_are_all_left_out_goes_along_with_its_name():
    found = place([entry(1, "a"), entry(2, "b")], [wanted(1, "b"), unwritten(2, "a")], TARGET)
    assert moves(found) == [
        (1, "s/a", refuge(1)),
        (2, "s/b", refuge(2)),
        "*",
        (1, refuge(1), "s/b"),
        (2, refuge(2), "s/a"),
    ]
    assert found.renamed == (entry(2, "a"),)
    assert not found.aside


def test_one_whose_rows_are_all_left_out_is_set_aside_under_the_name_that_it_had_last():
    uses = [use(2, "a"), use(1, "a")]
    found = place([entry(1, "t"), entry(2, "b")], [unwritten(2, "a"), wanted(1, "a")], TARGET, uses)
    assert found.aside == (entry(2, "a", aside=True),)
    assert not found.renamed


def test_a_table_gives_way_to_one_of_which_nothing_is_written_and_nothing_is_made_for_that_one():
    found = place([entry(1, "t")], [unwritten(2, "t")], TARGET)
    assert moves(found) == [(1, "s/t", refuge(1)), "*"]
    assert found.aside == (entry(1, "t", aside=True),)
    assert not found.holders
    # It is as if the run had ended in between.
    uses = [use(2, "t"), use(3, "t")]
    found = place([entry(1, "t")], [unwritten(2, "t"), wanted(3, "t", "stop")], TARGET, uses)
    assert found.holders == {3}
    assert [one.oid for one in found.remade] == [2]


def test_rows_that_are_kept_wait_for_those_that_go_on_with_them():
    uses = [use(2, "t"), use(3, "t")]
    found = place([entry(1, "t")], [unwritten(2, "t", "keep")], TARGET, uses[:1])
    assert moves(found) == ["*"]
    found = place([entry(1, "t")], [unwritten(2, "t", "keep"), wanted(3, "t", "keep")], TARGET, uses)
    assert dict(found.before) == {3: entry(1, "t")}


def test_a_table_moves_to_the_destination_that_is_configured_now():
    found = place([entry(1, "t", at=TARGET.table("x", "y"))], [wanted(1, "t")], TARGET)
    assert moves(found) == [(1, "x/y", "s/t"), "*"]
    assert found.notes == {1: ("moved from /m/x/y",)}


def test_a_catalog_takes_upper_for_lower_case():
    target = Target.parse("main")
    before = MirrorEntry(1, "s.T", target.table("s", "T"), TableShape())
    # It would be moved onto itself.
    found = place([before], [wanted(1, "t", target=target)], target)
    assert not found.moves
    found = place([before], [wanted(2, "t", target=target)], target)
    assert [step.destination for step in found.moves] == [target.set_aside(1)]
