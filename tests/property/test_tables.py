"""What becomes of tables does not hang on where runs end: the ledger knows the same, and every row is in one commit."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from support.planned import BIGINT, INT, TEXT, Used, configured, run_plan
from walreplay.errors import OrderError
from walreplay.evolution.shapes import conversions
from walreplay.fold.events import Mode
from walreplay.names import source_oid
from walreplay.protocol.messages import Column, Relation
from walreplay.table.registry import Doubt, MirrorEntry

NAMES = ("a", "b", "A", "c")


@st.composite
def histories(draw: st.DrawFn) -> list[Relation]:
    """Return the versions of some relations, in the order in which they are used."""
    tables: dict[int, tuple[str, str, list[tuple[int, str, int, bool]]]] = {}
    number, seen = 100, []
    for _ in range(draw(st.integers(1, 14))):
        what = draw(
            st.sampled_from(["create", "add", "drop", "rename", "retype", "key", "identity", "move", "use", "use"])
        )
        if what == "create" or not tables:
            name = draw(st.sampled_from(NAMES))
            tables = {oid: table for oid, table in tables.items() if table[0] != name}
            number += 1
            tables[number] = (name, "d", [(1, "id", INT, True), (2, "a", INT, False)])
            continue
        oid = draw(st.sampled_from(sorted(tables)))
        name, identity, columns = tables[oid]
        at = draw(st.integers(0, len(columns) - 1))
        attnum, column, kind, key = columns[at]
        new = draw(st.sampled_from(NAMES))
        if what == "add" and all(one[1] != new for one in columns):
            columns = [*columns, (max(one[0] for one in columns) + 1, new, INT, False)]
        elif what == "drop" and len(columns) > 1:
            columns = columns[:at] + columns[at + 1 :]
        elif what == "rename" and all(one[1] != new for one in columns):
            columns = [*columns[:at], (attnum, new, kind, key), *columns[at + 1 :]]
        elif what == "retype":
            columns = [
                *columns[:at],
                (attnum, column, draw(st.sampled_from([INT, BIGINT, TEXT])), key),
                *columns[at + 1 :],
            ]
        elif what == "key":
            columns = [*columns[:at], (attnum, column, kind, not key), *columns[at + 1 :]]
        elif what == "identity":
            identity = draw(st.sampled_from("dfn"))
        elif what == "move" and all(other[0] != new for other in tables.values()):
            name = new
        tables[oid] = (name, identity, columns)
        if what == "use":
            listed = tuple(Column(one[1], one[2], -1, one[3] or identity == "f") for one in columns)
            seen.append(Relation(oid, "s", name, identity, listed))
    return seen


settings = st.builds(
    lambda drop, infer, soft: configured(on_drop_column=drop, infer_renames=infer, soft_deletes=soft),
    st.sampled_from(["keep", "drop"]),
    st.booleans(),
    st.just(False),
)


def without_doubts(entries: Iterable[MirrorEntry]) -> dict[int, MirrorEntry]:
    """Return what is known of each table, by oid, but for its doubts."""
    return {entry.oid: replace(entry, doubts=()) for entry in entries}


def doubts_of(entries: Iterable[MirrorEntry]) -> set[tuple[int, Doubt]]:
    """Return the doubts of all tables, each with the table's oid."""
    return {(entry.oid, doubt) for entry in entries for doubt in entry.doubts}


@given(histories(), settings, st.lists(st.integers(0, 14), max_size=3).map(sorted))
def test_the_ledger_knows_the_same_wherever_runs_end(history, settings, cuts) -> None:  # type: ignore[no-untyped-def]
    try:
        at_once = run_plan(*history, settings=settings)
        entries, force = (), {}
        for begin, end in zip([0, *cuts], [*cuts, len(history)], strict=True):
            entries = run_plan(
                *history[begin:end], settings=settings, entries=entries, before=list(force.values())
            ).entries
            force |= {relation.oid: relation for relation in history[begin:end]}
    except OrderError:
        return

    assert without_doubts(entries) == without_doubts(at_once.entries)
    # A run that ends while a column is there has its doubts, too, which one run passes over.
    assert doubts_of(entries) >= doubts_of(at_once.entries)


@given(histories(), settings)
def test_every_row_is_in_one_commit_and_has_its_key(history, settings) -> None:  # type: ignore[no-untyped-def]
    found = run_plan(*[Used(relation, tracked=(0,)) for relation in history], settings=settings)
    for plan in found.tables:
        starts = [epoch.start for epoch in plan.epochs]
        assert [epoch.stop for epoch in plan.epochs] == [*starts[1:], None]
        for epoch in plan.epochs:
            assert epoch.projections[0][0] == epoch.start
            columns = epoch.shape.columns
            for start, projection, key in epoch.projections:
                relation = history[start]
                assert relation.oid == source_oid(plan.oid)
                assert [projection.numbers[k] for k in epoch.identity.key] == list(key)
                assert projection.after == tuple(column.name for column in columns)
                for place, number in enumerate(projection.numbers):
                    assert projection.chains[place][-1] == columns[place].type
                    if number is not None:
                        assert columns[place].type.arrow is not None
                    elif epoch.identity.mode is Mode.KEYED:
                        assert place in epoch.tracked
                if epoch.identity.mode is Mode.MULTISET:
                    # Images of one layout alone are folded together.
                    assert projection.numbers == epoch.projections[0][1].numbers
                    assert not any(conversions(chain) for chain in projection.chains)
