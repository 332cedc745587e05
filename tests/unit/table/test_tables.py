from dataclasses import replace

import pytest

from support.planned import BIGINT, TEXT, Used, configured, relation, run_plan
from walreplay.decode.announcements import Layout
from walreplay.delta.target import Target
from walreplay.errors import ConfigError, OrderError
from walreplay.evolution.shapes import OWN
from walreplay.fold.events import Mode


def one(*used, **options):
    """Plan a run that writes to one table."""
    (plan,) = run_plan(*used, **options).tables
    return plan


def names(plan):
    return [column.name for column in plan.epochs[-1].shape.columns]


def spans(plan):
    return [(epoch.start, epoch.stop, epoch.identity.mode, epoch.identity.key) for epoch in plan.epochs]


def test_a_table_without_changes_of_its_columns_has_one_commit():
    plan = one(Used(relation("id* note"), rows=3, tracked=(1,), deletes=True))
    assert spans(plan) == [(0, None, Mode.KEYED, (0,))]
    (epoch,) = plan.epochs
    assert (epoch.tracked, epoch.deletes, epoch.moves, epoch.rows, plan.rows) == ((1,), True, False, 3, 3)
    assert epoch.projections[0][1].is_identity
    assert plan.table.text == "/mirror/s/t"
    assert plan.before is None
    assert not plan.notes


def test_versions_whose_rows_are_told_apart_alike_are_folded_together():
    plan = one(relation("id* note"), Used(relation("id* note more"), moves=True), relation("id* more"))
    assert spans(plan) == [(0, None, Mode.KEYED, (0,))]
    (epoch,) = plan.epochs
    assert epoch.moves
    assert [(start, projection.numbers, key) for start, projection, key in epoch.projections] == [
        (0, (0, 1, None), (0,)),
        (1, (0, 1, 2), (0,)),
        (2, (0, None, 1), (0,)),
    ]
    # What a version does not have its changes leave alone.
    assert epoch.tracked == (1, 2)
    assert plan.notes == ("column more added (integer)", "column note dropped; its values are kept")


@pytest.mark.parametrize(
    ("versions", "keys"),
    [
        # Another key column, one that was replaced, and one at another place.
        (["id* b", "id b*"], [(0,), (1,)]),
        (["id* b", "b id*"], [(0,), (1,)]),
        (["id b*", "b*"], [(1,)]),
        (["id* b*", "id* b"], [(0, 1), (0,)]),
        # A rename between others, or one at the end, which nobody can know for one.
        (["id* b", "nr* b"], [(0,)]),
        (["id*", "nr*"], [(0,), (1,)]),
    ],
)
def test_another_key_is_another_commit(versions, keys):
    plan = one(*map(relation, versions))
    assert [epoch.identity.key for epoch in plan.epochs] == keys
    for epoch in plan.epochs:
        for _, projection, key in epoch.projections:
            assert [projection.numbers[k] for k in epoch.identity.key] == list(key)


def test_a_column_that_is_replaced_within_a_commit_is_there_from_its_new_version_on():
    plan = one(relation("id* a b"), relation("id* b a"), before=[])
    (epoch,) = plan.epochs
    assert names(plan) == ["id", "b", "a"]
    assert [projection.numbers for _, projection, _ in epoch.projections] == [(0, 2, None), (0, 1, 2)]


def test_a_replica_identity_that_comes_back_is_a_commit_of_its_own():
    keyed, whole = relation("id* note"), relation("id note", "f")
    plan = one(keyed, Used(whole, deletes=True), Used(keyed, rows=0))
    assert spans(plan) == [
        (0, 1, Mode.KEYED, (0,)),
        (1, 2, Mode.MULTISET, ()),
        (2, None, Mode.KEYED, (0,)),
    ]
    # Rows of a version are counted once for the table, and cannot be told apart by commit.
    assert [epoch.rows for epoch in plan.epochs] == [1, 1, 1]
    assert plan.rows == 2
    assert plan.notes == ("what tells its rows apart changed 2 times",)


def test_a_configured_key_holds_whatever_the_replica_identity():
    keyed, whole = relation("id* note"), relation("id note", "f")
    plan = one(keyed, whole, keyed, settings=configured(table={"keys": ["id"]}))
    assert spans(plan) == [(0, None, Mode.KEYED, (0,))]
    assert plan.epochs[0].configured


@pytest.mark.parametrize("other", ["id note more", "id", f"id note:{BIGINT}", "id x", "note id"])
def test_whole_rows_of_different_columns_are_not_told_apart_together(other):
    plan = one(relation("id note", "f"), relation(other, "f"))
    assert [epoch.identity.mode for epoch in plan.epochs] == [Mode.MULTISET] * 2
    plan = one(relation("id note", "n"), relation(other, "n"))
    assert [epoch.identity.mode for epoch in plan.epochs] == [Mode.APPEND]


@pytest.mark.parametrize(
    ("versions", "together"),
    [
        (["id* note", "id* more"], False),
        (["id* note", f"id*:{BIGINT} note"], False),
        ([f"id*:{BIGINT} note", "id* note"], True),
        (["id* note", f"id*:{TEXT} note"], True),
        (["id* note", "nr* note"], False),
        # Texts that are rescued from a day are hashed with the column's name.
        (["id*:1082 note", "nr*:1082 note"], True),
    ],
)
def test_keys_that_are_staged_differently_are_brought_together(versions, together):
    (epoch,) = one(*map(relation, versions)).epochs
    assert epoch.converts_key is together


def without_doubts(entries):
    """Leave out what is known run by run alone."""
    return tuple(replace(one, doubts=()) for one in entries)


@pytest.mark.parametrize("drop", ["keep", "drop"])
@pytest.mark.parametrize("cut", range(1, 6))
def test_runs_may_end_anywhere(cut, drop):
    settings = configured(on_drop_column=drop, table={"rename_columns": {"d": "D"}})
    versions = [
        relation(text)
        for text in ("Id* id b c d", "id* b c d", f"id* B c:{TEXT} d", "id* x c", "id* x c ID D", "id* c x ID D")
    ]
    first = run_plan(*versions[:cut], settings=settings)
    second = run_plan(*versions[cut:], settings=settings, entries=first.entries, before=versions[cut - 1 : cut])
    at_once = run_plan(*versions, settings=settings)
    assert without_doubts(second.entries) == without_doubts(at_once.entries)


def test_a_table_that_was_only_truncated_is_made():
    plan = one(Used(relation("id*"), rows=0), truncated=[9])
    assert plan.truncated
    assert plan.epochs[0].rows == 0
    assert one(Used(relation("id*"), rows=0), truncated=[8]).truncated is False


@pytest.mark.parametrize("renamed_first", [True, False])
def test_a_name_that_is_taken_over_within_a_run(renamed_first):
    first = run_plan(relation("id*", oid=1))
    old, new = relation("id*", oid=1, name="t_old"), relation("id* note", oid=2)
    found = run_plan(*([old, new] if renamed_first else [new, old]), entries=first.entries)
    places = {plan.oid: (plan.table.text, plan.before is None) for plan in found.tables}
    assert places == {1: ("/mirror/s/t_old", False), 2: ("/mirror/s/t", True)}
    assert {entry.oid: entry.name for entry in found.entries} == {1: "s.t_old", 2: "s.t"}


def test_the_later_of_two_tables_of_one_name_has_the_place():
    found = run_plan(relation("id*", oid=1), relation("id*", oid=2))
    assert [(plan.oid, plan.set_aside) for plan in found.tables] == [(1, True), (2, False)]
    assert found.tables[0].table.text == "/mirror/_walreplay/set_aside_1"
    assert [entry.set_aside for entry in found.entries] == [True, False]


def test_a_table_that_was_made_anew_may_go_on_with_the_old_rows_whatever_its_columns_order():
    settings = configured(on_recreate="keep")
    first = run_plan(relation("id* a b", oid=1), settings=settings)
    found = run_plan(relation("b a id*", oid=2), settings=settings, entries=first.entries)
    (plan,) = found.tables
    assert names(plan) == ["b", "a", "id"]
    assert [column.id for column in plan.epochs[0].shape.columns] == [2, 1, 0]
    assert [entry.oid for entry in found.entries] == [2]
    third = run_plan(relation("b a id* c", oid=2), settings=settings, entries=found.entries)
    assert [column.id for column in third.tables[0].epochs[0].shape.columns] == [2, 1, 0, 3]


@pytest.mark.parametrize("policy", ["replace", "keep", "stop"])
def test_a_table_that_is_renamed_to_anothers_name_is_not_that_one_made_anew(policy):
    settings = configured(on_recreate=policy)
    first = run_plan(relation("id*", oid=1), settings=settings)
    new, taken = relation("id*", oid=2, name="t_new"), relation("id*", oid=2)
    at_once = run_plan(new, taken, settings=settings, entries=first.entries)
    between = run_plan(new, settings=settings, entries=first.entries)
    apart = run_plan(taken, settings=settings, entries=between.entries, before=[new])
    assert without_doubts(at_once.entries) == without_doubts(apart.entries)
    assert [entry.set_aside for entry in at_once.entries] == [True, False]


def test_two_tables_that_would_be_one_are_refused():
    one_, other = relation("id*", oid=1, namespace="a"), relation("id*", oid=2, namespace="b")
    target = Target.parse("main.raw")
    with pytest.raises(ConfigError, match="would be the same table"):
        run_plan(one_, other, target=target)
    # Also if only one of them has changes.
    first = run_plan(one_, target=target)
    with pytest.raises(ConfigError, match="would be the same table"):
        run_plan(other, before=[one_], entries=first.entries, target=target)


def test_a_type_that_is_changed_stops_the_run_where_that_is_wanted():
    settings = configured(on_type_change="stop")
    first = run_plan(relation("id* a b"), settings=settings)
    options = {"settings": settings, "entries": first.entries}
    # What Delta does in place, what is gone in the end, and what has no old values is no reason.
    one(relation(f"id* a:{BIGINT} b"), **options)
    one(relation(f"id* a:{TEXT} b"), relation("id* b"), relation(f"id* b a:{TEXT}"), **options)
    one(relation(f"id* a:{TEXT} b"), truncated=[9], **options)
    with pytest.raises(OrderError, match="column a retyped from integer to text, which rewrites the table") as caught:
        one(relation(f"id* a:{TEXT} b:{BIGINT}"), **options)
    assert caught.value.table == "s.t"


def test_soft_deletes_cannot_be_switched_for_a_table_that_is_there():
    off, on = configured(), configured(soft_deletes=True)
    for was, now, what in ((off, on, "on"), (on, off, "off")):
        first = run_plan(relation("id*"), settings=was)
        with pytest.raises(ConfigError, match=f"switched {what}"):
            one(relation("id*"), settings=now, entries=first.entries)


def test_the_mark_of_deleted_rows_stays_behind_the_columns():
    settings = configured(soft_deletes=True)
    plan = one(relation("id*"), relation("id* note"), settings=settings)
    assert names(plan) == ["id", "note", "__deleted"]
    assert plan.epochs[0].projections[0][1].numbers == (0, None, 1)
    assert plan.epochs[0].shape.columns[-1].source == OWN


@pytest.mark.parametrize(("was", "now", "what"), [(None, ["mail"], "masked now"), (["mail"], None, "no longer masked")])
def test_masks_cannot_be_switched_for_values_that_are_there(was, now, what):
    def settings(columns):
        return configured(
            column_mask_salt="x", table={"keys": ["id"], **({"column_mask_hash": columns} if columns else {})}
        )

    given = relation(f"id* mail:{TEXT}")
    first = run_plan(given, settings=settings(was))
    with pytest.raises(ConfigError, match=what):
        one(given, settings=settings(now), entries=first.entries)
    # A column that comes masked is no change.
    first = run_plan(relation("id*"), settings=configured())
    one(given, settings=settings(["mail"]), entries=first.entries)


def test_masked_values_are_the_same_whatever_their_type():
    settings = configured(column_mask_salt="x", table={"column_mask_hash": ["mail"]})
    (epoch,) = one(relation("id* mail b"), relation(f"id* mail:{TEXT} b"), settings=settings).epochs
    assert epoch.projections[0][1].is_identity


def test_left_out_columns_are_not_in_the_table():
    settings = configured(table={"exclude_columns": ["secret"], "not_renamed": ["id", "note", "more"]})
    plan = one(relation("secret id* note"), relation("id* note secret more"), settings=settings)
    assert names(plan) == ["id", "note", "more"]
    # A column that is left out later is a dropped one.
    first = run_plan(relation("id* secret note"))
    plan = one(relation("id* secret note"), settings=settings, entries=first.entries)
    assert [(column.name, column.dropped) for column in plan.epochs[0].shape.columns][1] == ("secret", True)


def told(text, *numbers):
    """Return a version whose columns are announced."""
    found = relation(text)
    columns = (replace(column, number=number) for column, number in zip(found.columns, numbers, strict=True))
    return replace(found, columns=tuple(columns))


def named(**names):
    """Return an announcement by which columns had these names, by their numbers."""
    return Layout(9, 100, 9, (), names=tuple((int(number[1:]), tuple(of)) for number, of in names.items()))


PHONE, NOTE = told(f"id* phone:{TEXT} note:{TEXT}", 1, 2, 3), told(f"id* note:{TEXT} phone:{TEXT}", 1, 2, 3)
GONE = told(f"id* note:{TEXT}", 1, 3)


@pytest.mark.parametrize("key", ["exclude_columns", "column_mask_hash"])
def test_a_column_that_gets_a_hidden_name_stops_the_run_if_the_table_has_its_values(key):
    def hiding(*columns):
        return configured(column_mask_salt="s", table={key: list(columns)})

    renamed, announced = told(f"id* phone:{TEXT}", 1, 3), named(n1=["id"], n2=["phone"], n3=["note", "phone"])
    hidden = hiding("phone")
    first = run_plan(PHONE, settings=hidden)
    with pytest.raises(ConfigError, match=key) as refused:
        run_plan(renamed, settings=hidden, entries=first.entries, before=[GONE], layouts=[announced])
    assert "rebuild --table 's\\.t'" in refused.value.remedy
    # The remedy: the other name, too, and the table made again by it.
    again = run_plan(PHONE, settings=hiding("phone", "note"))
    (plan,) = run_plan(
        renamed, settings=hiding("phone", "note"), entries=again.entries, before=[GONE], layouts=[announced]
    ).tables
    assert "note" in refused.value.remedy
    assert "note" not in names(plan) or key == "column_mask_hash"
    # From the beginning it is hidden under both names, in one run and in two.
    (plan,) = run_plan(PHONE, GONE, renamed, settings=hidden, layouts=[announced]).tables
    kinds = {column.name: column.type.postgres_name for column in plan.epochs[-1].shape.columns}
    assert {kinds.get("note", "masked text"), kinds.get("phone", "masked text")} == {"masked text"}


@pytest.mark.parametrize("key", ["exclude_columns", "column_mask_hash"])
def test_a_hidden_column_that_is_renamed_in_a_later_run_stays_hidden(key):
    hidden = configured(column_mask_salt="s", table={key: ["phone"]})
    first = run_plan(PHONE, settings=hidden)
    mobile = told(f"id* mobile:{TEXT} note:{TEXT}", 1, 2, 3)
    names = named(n1=["id"], n2=["phone", "mobile"], n3=["note"])
    second = run_plan(mobile, settings=hidden, entries=first.entries, before=[PHONE], layouts=[names])
    third = run_plan(mobile, settings=hidden, entries=second.entries, before=[mobile], layouts=[names])
    for run in (second, third):
        (plan,) = run.tables
        kinds = {column.name: column.type.postgres_name for column in plan.epochs[-1].shape.columns}
        assert kinds == {"id": "integer", "note": "text"} | (
            {"mobile": "masked text"} if key == "column_mask_hash" else {}
        )


def test_a_hidden_column_that_was_loaded_may_have_been_renamed_before_the_first_capture():
    hidden = configured(table={"exclude_columns": ["phone"]})
    loaded = run_plan(relation("id* phone note"), settings=hidden)
    for renamed in (relation("id* mobile note"), told("id* mobile note", 1, 2, 3)):
        with pytest.raises(ConfigError, match="'phone' may have been renamed to 'mobile'"):
            run_plan(renamed, settings=hidden, entries=loaded.entries)
    assert names(one(relation("id* phone note more"), settings=hidden, entries=loaded.entries)) == [
        *("id", "note", "more")
    ]


def test_a_table_without_a_column_for_rescued_texts_says_so_to_its_projections():
    settings = configured(rescued_data_column=None)
    (epoch,) = one(relation("id* a b"), relation(f"id* a:{TEXT} b"), settings=settings).epochs
    assert not any(projection.rescues for _, projection, _ in epoch.projections)


def test_an_ignored_key_is_noted():
    plan = one(relation("id code*", "i"), settings=configured(table={"keys": ["id"]}))
    assert "replica identity" in plan.notes[0]
    assert not plan.epochs[0].configured


def test_what_the_ledger_will_know_has_all_names_that_were_given():
    plan = one(relation("id* a"), relation("id* A"))
    assert dict(plan.after.names) == {"id": "id", "a": "a", "A": "A__2"}
    assert replace(plan.after, names=()) != plan.after
