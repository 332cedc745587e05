"""A table's columns come out alike wherever runs end, and as PostgreSQL's own column numbers say.

The model is PostgreSQL's: columns have numbers, survivors keep their order, what is added stands behind.  A version
is seen at some points only.  Where the bytes cannot tell what happened (a rename at the end, the last columns dropped
and added again) nothing is claimed but that the columns are right.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import pairwise

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from support.evolutions import MARK, TYPES
from walreplay.evolution.convert import keeps_values
from walreplay.evolution.shapes import OWN, Evolution, MirrorColumn, Policy, SourceColumn, TableShape, conversions
from walreplay.fold.change_log import Projection, project_columns
from walreplay.names import column_names
from walreplay.types import resolve

KINDS = {name: TYPES[name] for name in ("int", "bigint", "text", "char5", "n52", "double")}
KINDS["numeric"] = resolve(1700, -1, {})
NAMES = ("a", "b", "c", "A", "d")


@dataclass(frozen=True)
class Column:
    number: int
    name: str
    type: str


@dataclass(frozen=True)
class Version:
    columns: tuple[Column, ...]

    def source(self, names: dict[str, str], *, marked: bool) -> tuple[SourceColumn, ...]:
        own = tuple(SourceColumn(one.name, names[one.name], KINDS[one.type]) for one in self.columns)
        return (*own, MARK) if marked else own


@dataclass
class Server:
    """A table whose columns have numbers."""

    columns: list[Column] = field(default_factory=list)
    next: int = 1

    def add(self, name: str, kind: str) -> None:
        if all(one.name != name for one in self.columns):
            self.columns.append(Column(self.next, name, kind))
            self.next += 1

    def drop(self, at: int) -> None:
        if len(self.columns) > 1:
            del self.columns[at % len(self.columns)]

    def rename(self, at: int, name: str) -> None:
        at %= len(self.columns)
        if all(one.name != name for one in self.columns):
            self.columns[at] = replace(self.columns[at], name=name)

    def retype(self, at: int, kind: str) -> None:
        at %= len(self.columns)
        self.columns[at] = replace(self.columns[at], type=kind)


kinds = st.sampled_from(sorted(KINDS))
names = st.sampled_from(NAMES)
places = st.integers(0, 4)
operations = st.one_of(
    st.tuples(st.just("add"), names, kinds),
    st.tuples(st.just("drop"), places),
    st.tuples(st.just("rename"), places, names),
    st.tuples(st.just("retype"), places, kinds),
    st.tuples(st.just("see")),
    st.tuples(st.just("see")),
)


@st.composite
def histories(draw: st.DrawFn, *, renames: bool = True) -> list[Version]:
    server = Server()
    for name in draw(st.lists(names, min_size=1, max_size=4, unique=True)):
        server.add(name, draw(kinds))
    seen = [Version(tuple(server.columns))]
    for operation, *arguments in draw(st.lists(operations, max_size=14)):
        if operation == "see":
            seen.append(Version(tuple(server.columns)))
        elif renames or operation != "rename":
            getattr(server, operation)(*arguments)
    seen.append(Version(tuple(server.columns)))
    return seen


def sources(
    history: list[Version], *, marked: bool = False, renames: tuple[tuple[str, str], ...] = ()
) -> list[tuple[SourceColumn, ...]]:
    listed = [[one.name for one in version.columns] for version in history]
    return [
        version.source(column_names(listed[: number + 1], renames=renames), marked=marked)
        for number, version in enumerate(history)
    ]


def evolve(before: TableShape | None, versions: list[tuple[SourceColumn, ...]], policy: Policy) -> Evolution:
    evolution = Evolution(before, policy)
    for version in versions:
        evolution.take(version)
    return evolution


Table = tuple[list[pa.Array], pa.Array]
"""The columns, and the rescued texts."""


def through(evolution: Evolution, table: Table, rows: int) -> Table:
    """Rewrite a table."""
    assert evolution.before is not None
    before = [one.name for one in evolution.before.columns]
    after = [one.name for one in evolution.shape.columns]
    return project_columns(*table, rows, Projection.of(evolution.of_table(), before, after))


def values_of(column: SourceColumn | MirrorColumn) -> pa.Array:
    kind = column.type.arrow
    if pa.types.is_boolean(kind):
        return pa.array([True, False, None, None])
    texts = ["7", "12.5", None, "99999999999"] if column.type.postgres_name != "character" else ["7    "] * 4
    whole = [7, 12, None, 2_000_000_000]
    if pa.types.is_string(kind):
        return pa.array(texts)
    if pa.types.is_integer(kind):
        return pa.array(whole, kind)
    return pa.array(["7", "12.5", None, "33.1"]).cast(kind)


def first_table(version: tuple[SourceColumn, ...]) -> Table:
    return [values_of(column) for column in version], pa.nulls(4, pa.string())


def as_rows(table: Table) -> list[tuple[object, ...]]:
    columns, rescued = table
    return list(zip(*(column.to_pylist() for column in columns), rescued.to_pylist(), strict=True))


policies = st.builds(
    Policy,
    keep_dropped=st.booleans(),
    renames=st.sampled_from(((), (("a", "b"),), (("b", "c"), ("a", "b")), (("a", "A"),))),
    infer_renames=st.booleans(),
)


@given(histories(), policies, st.data(), st.booleans())
def test_a_table_comes_out_alike_wherever_runs_end(
    history: list[Version], policy: Policy, data: st.DataObject, marked: bool
) -> None:
    versions = sources(history, marked=marked, renames=policy.renames)
    first, rest = versions[0], versions[1:]
    cuts = data.draw(st.lists(st.integers(0, len(rest)), max_size=4).map(sorted))
    start = evolve(None, [first], policy).shape
    at_once = evolve(start, rest, policy)
    table = first_table(first)
    expected = as_rows(through(at_once, table, 4))
    shape = start
    for begin, end in zip([0, *cuts], [*cuts, len(rest)], strict=True):
        step = evolve(shape, rest[begin:end], policy)
        table = through(step, table, 4)
        shape = step.shape
    assert shape == at_once.shape
    assert as_rows(table) == expected


@given(histories(), policies)
def test_rows_of_the_run_and_rows_of_the_table_end_alike(history: list[Version], policy: Policy) -> None:
    versions = sources(history, renames=policy.renames)
    at_once = evolve(None, versions, policy)
    own = Projection.of(
        at_once.of_version(0), [one.target for one in versions[0]], [one.name for one in at_once.shape.columns]
    )
    table = first_table(versions[0])
    later = evolve(evolve(None, versions[:1], policy).shape, versions[1:], policy)
    assert later.shape == at_once.shape
    assert as_rows(project_columns(*table, 4, own)) == as_rows(through(later, table, 4))


@given(histories(), policies, st.booleans())
def test_a_table_is_well_formed(history: list[Version], policy: Policy, marked: bool) -> None:
    evolution = Evolution(None, policy)
    versions = sources(history, marked=marked, renames=policy.renames)
    for step, version in enumerate(versions):
        assert evolution.ids_of(version) == evolution.ids_of(version)
        foreseen = evolution.ids_of(version)
        evolution.take(version)
        shape = evolution.shape
        ids = [column.id for column in shape.columns]
        assert len(set(ids)) == len(ids)
        assert max(ids) < shape.next_id
        lower = [column.name.lower() for column in shape.columns]
        assert len(set(lower)) == len(lower)
        # The source's columns, in their order.
        assert [(one.source, one.name, one.type) for one in shape.present] == [
            (one.name, one.target, one.type) for one in version
        ]
        places_of = [evolution.number_of(step, number) for number in range(len(version))]
        assert [shape.columns[place].id for place in places_of] == list(foreseen)
        if marked:
            assert shape.columns[-1].source == OWN
        if not policy.keep_dropped:
            assert len(shape.present) == len(shape.columns)


def told(before: Version, after: Version) -> bool:
    """Return whether two versions without renames between them show what became of each column of the first."""
    order = {one.name: place for place, one in enumerate(before.columns)}
    numbers = {one.number for one in before.columns}
    last = -1
    for column in after.columns:
        place = order.get(column.name)
        if column.number in numbers:
            last = order[column.name]
        elif place is not None and place > last:
            # Added again where it might have stayed.
            return False
        elif place is not None:
            # All behind it is known to be new.
            return True
    return True


@given(histories(renames=False), st.booleans())
def test_column_numbers_are_found_without_being_sent(history: list[Version], infer: bool) -> None:
    policy = Policy(infer_renames=infer)
    for before, after in pairwise(history):
        if not told(before, after):
            continue
        one, other = sources([before, after])
        evolution = evolve(evolve(None, [one], policy).shape, [other], policy)
        old = dict(
            zip((column.number for column in before.columns), evolve(None, [one], policy).ids_of(one), strict=True)
        )
        found = evolution.of_version(0)
        ids = {
            shape.id for shape, source in zip(evolution.shape.columns, found, strict=True) if source.column is not None
        }
        assert ids & set(old.values()) == {old[one.number] for one in after.columns if one.number in old}


@given(histories())
def test_a_rename_between_columns_that_stay_is_found(history: list[Version]) -> None:
    for version in history:
        columns = version.columns
        for at in range(len(columns) - 1):
            renamed = Version((*columns[:at], replace(columns[at], name="new"), *columns[at + 1 :]))
            one, other = sources([version, renamed])
            start = evolve(None, [one], Policy()).shape
            assert evolve(start, [other], Policy()).shape.next_id == start.next_id
            # Even if a column is added under its old name.
            again = Version((*renamed.columns, Column(99, columns[at].name, columns[at].type)))
            one, other = sources([version, again])
            shape = evolve(start, [other], Policy()).shape
            assert [column.id for column in shape.columns[: len(columns)]] == [column.id for column in start.columns]


@given(st.lists(kinds, min_size=1, max_size=6))
def test_only_changes_that_change_values_are_converted(chain: list[str]) -> None:
    types = [KINDS[name] for name in chain]
    assert all(not keeps_values(old, new) for old, new in conversions(types))
    assert len(conversions(types)) <= len(types) - 1


@given(histories(), st.integers(0, 20), st.sampled_from(((), (("a", "b"),), (("b", "c"), ("a", "b")), (("a", "A"),))))
def test_names_do_not_hang_on_where_runs_end(
    history: list[Version], cut: int, renames: tuple[tuple[str, str], ...]
) -> None:
    listed = [[one.name for one in version.columns] for version in history]
    cut = 1 + cut % len(listed)
    earlier = column_names(listed[:cut], renames=renames)
    # A run begins with the version that is in force.
    later = column_names(listed[cut - 1 :], renames=renames, earlier=earlier)
    assert later == column_names(listed, renames=renames)
