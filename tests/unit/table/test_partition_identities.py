"""Partitions whose replica identity is not their root's: rows are told apart by what is really sent of them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import settings as examples
from hypothesis import strategies as st

from support.captures import Case, load
from support.fault_cases import FAULTS
from support.framings import frame
from support.mirror_model import MirrorModel
from support.runs import cut, grown_to, plan_runs, staged
from support.truth import source_table
from walreplay.changes import decode_plan, plan_files
from walreplay.config import Settings
from walreplay.decode.partitions import Partition, as_sent
from walreplay.errors import CaptureError
from walreplay.fold.events import IN_PARTITIONS, Mode, events_of
from walreplay.protocol import messages as m
from walreplay.protocol.framing import Framing
from walreplay.stream.plan import Plan
from walreplay.table.versions import Catalogue

KEYS = {
    "full_default": ("id", "created"),
    "full_index": ("code",),
    "default_full": ("id", "created"),
    "default_index": ("code",),
    "full_mixed": ("id", "created"),
    "none_own": ("id",),
    "none_full": (),
    "nothing_default": ("id", "created"),
}
"""What tells the rows of each recorded table apart: the root's identity, then that of its partitions."""

DIFFERING = "full_keys"


def recorded() -> Case:
    return load(FAULTS / "partition_identities")


def joined(case: Case) -> bytes:
    return b"".join(path.read_bytes() for path in case.files)


def mirrored(case: Case, stages: Sequence[dict[str, bytes]], tables: Sequence[str]) -> dict[str, MirrorModel]:
    """Apply a capture run by run, each table by the identity that the catalogue gives it."""
    models: dict[str, MirrorModel] = {}
    for files, planned in plan_runs(stages, framing=Framing(case.info["framing"])):
        catalogue = Catalogue.of(planned.plan, Settings(), ())
        for name in tables:
            versions = [v for (v,) in catalogue.versions.values() if v.relation.qualified_name == name]
            if not versions:
                continue
            (version,) = versions
            types = tuple(kind.arrow for kind in version.types)
            model = models.setdefault(name, MirrorModel(version.identity, version.names, types))
            model.identity = version.identity
            model.sent = {version.relation: version.shown}
            model.apply(planned.plan, files, [version.relation], 2)
    return models


def texts(model: MirrorModel) -> list[tuple[str | None, ...]]:
    return sorted((tuple(None if v is None else str(v) for v in row.values) for row in model.rows), key=repr)


def truth(case: Case, name: str) -> list[tuple[str | None, ...]]:
    return sorted(map(tuple, source_table(case, name).rows), key=repr)


@example(cuts=[], grown=[])
@given(cuts=st.lists(st.integers(0, 15_519), max_size=6), grown=st.lists(st.integers(0, 15_519), max_size=3))
@examples(max_examples=15)
def test_rows_are_those_of_the_source_wherever_files_and_runs_end(cuts: list[int], grown: list[int]) -> None:
    case = recorded()
    tables = [f"p.{name}" for name in KEYS]
    files = cut(joined(case), cuts)
    stages = [*(grown_to(files, size) for size in sorted(grown) if size > 100), files]
    models = mirrored(case, stages, tables)
    for name in tables:
        assert texts(models[name]) == truth(case, name), name
        assert models[name].missed == 0


@pytest.mark.parametrize(("name", "key"), KEYS.items(), ids=KEYS.keys())
def test_the_key_is_what_all_partitions_send(name: str, key: tuple[str, ...]) -> None:
    plan = plan_files([str(path) for path in recorded().files])
    catalogue = Catalogue.of(plan, Settings(), ())
    (version,) = [v for (v,) in catalogue.versions.values() if v.relation.name == name]
    assert tuple(version.names[n] for n in version.identity.key) == key
    assert version.identity.mode is (Mode.KEYED if key else Mode.MULTISET)
    # What is not the root's own key has to prove unique.
    assert version.identity.claims == (IN_PARTITIONS if key and name != "default_full" else None)


def test_partitions_that_send_nothing_in_common_are_refused_by_name() -> None:
    case = recorded()
    plan = plan_files([str(path) for path in case.files])
    catalogue = Catalogue.of(plan, Settings(), ())
    assignments = catalogue.assignments
    wanted = {relation: one for relation, one in assignments.items() if relation.name == DIFFERING}
    files = {str(path): path.read_bytes() for path in case.files}
    infos = [info for batch in staged(plan, files, wanted) for info in batch.column("info").to_pylist()]
    (refused,) = [json.loads(info) for info in infos if "problem" in info]
    assert "p.full_keys_1: primary key (id, created); p.full_keys_2: index (code)" in refused["problem"]
    assert "table_exclude_list" in refused["remedy"]
    # The remedy works: the others are as they should be.
    settings = Settings.from_mapping({"table_exclude_list": [r"p\.full_keys"]})
    assert not {r for r in Catalogue.of(plan, settings, ()).versions if r.name == DIFFERING}


def test_configured_keys_that_all_partitions_send_are_taken() -> None:
    plan = plan_files([str(path) for path in recorded().files])
    said = {"objects": [{"table": {"source_schema": "p", "source_table": "full_mixed", "keys": ["id"]}}]}
    catalogue = Catalogue.of(plan, Settings.from_mapping(said), ())
    (version,) = [v for (v,) in catalogue.versions.values() if v.relation.name == "full_mixed"]
    assert (version.identity.key, version.configured) == ((0,), True)


# What is a partition, and what is not.

ROOT = m.Relation(1, "s", "root", "f", (m.Column("id", 23, -1, True), m.Column("v", 25, -1, True)))
LEAF = m.Relation(2, "s", "leaf", "d", (m.Column("id", 23, -1, True), m.Column("v", 25, -1, False)))
OTHER = m.Relation(3, "s", "other", "f", (m.Column("id", 23, -1, True), m.Column("v", 25, -1, True)))
KIND = m.Type(70_000, "s", "kind")


def row(oid: int, id_: int = 1) -> m.Insert:
    return m.Insert(oid, m.TupleData((m.Cell("t", b"%d" % id_), m.Cell("t", b"x"))))


def transaction(number: int, *changes: m.AnyMessage) -> list[m.AnyMessage]:
    return [m.Begin(100 * number, 1, number), *changes, m.Commit(0, 100 * number, 100 * number + 8, 1)]


STREAMS: dict[str, tuple[list[m.AnyMessage], list[Partition]]] = {
    "announced behind its root": (transaction(1, ROOT, LEAF, row(1)), [Partition(1, LEAF)]),
    "with a type between": (transaction(1, ROOT, KIND, LEAF, row(1)), [Partition(1, LEAF)]),
    "announced again with another identity": (
        [
            *transaction(1, ROOT, LEAF, row(1)),
            *transaction(2, ROOT, m.Relation(2, "s", "leaf", "f", ROOT.columns), row(1)),
        ],
        [Partition(1, LEAF), Partition(1, m.Relation(2, "s", "leaf", "f", ROOT.columns))],
    ),
    "a table of its own": (transaction(1, ROOT, row(1), LEAF, row(2)), []),
    "used itself": (transaction(1, ROOT, LEAF, row(2)), []),
    "used itself, then attached": (
        [*transaction(1, LEAF, row(2)), *transaction(2, ROOT, LEAF, row(1))],
        [Partition(1, LEAF)],
    ),
    "a partition, then published as itself": (
        [*transaction(1, ROOT, LEAF, row(1)), *transaction(2, LEAF, row(2)), *transaction(3, ROOT, row(1))],
        [Partition(1, LEAF)],
    ),
    "published as itself, as its root's, and as itself again": (
        [
            *(*transaction(1, LEAF, row(2)), *transaction(2, ROOT, LEAF, row(1)), *transaction(3, LEAF, row(2))),
            *(*transaction(4, ROOT, LEAF, row(1)), *transaction(5, LEAF, OTHER, m.Truncate((2, 3), 0), row(2))),
        ],
        [Partition(1, LEAF)],
    ),
    "truncated together": (transaction(1, ROOT, LEAF, OTHER, m.Truncate((1, 2, 3), 0)), []),
    "in a streamed transaction": (
        [
            m.StreamStart(9, True),
            *(m.Relation(r.oid, r.namespace, r.name, r.replica_identity, r.columns, 9) for r in (ROOT, LEAF)),
            m.Insert(1, row(1).new, 9),
            m.StreamStop(),
            m.StreamCommit(9, 0, 300, 308, 1),
        ],
        [Partition(1, LEAF)],
    ),
}


@pytest.mark.parametrize(("messages", "partitions"), STREAMS.values(), ids=STREAMS.keys())
def test_a_partition_is_what_is_announced_behind_its_root_and_not_used(
    messages: list[m.AnyMessage], partitions: list[Partition]
) -> None:
    data = frame(messages, Framing.RAW)
    for place in range(len(data)):
        files = cut(data, [place])
        (_, planned) = list(plan_runs([files], guessing=False, framing=Framing.RAW))[-1]
        assert list(planned.plan.partitions) == partitions
        if 100 < place < len(data):
            # Known from an earlier run, whose end may lie anywhere.
            *_, (_, last) = plan_runs([grown_to({"a": data}, place), {"a": data}], guessing=False, framing=Framing.RAW)
            assert set(last.plan.resume.partitions) == set(planned.plan.resume.partitions)


def test_a_session_that_begins_anew_forgets_partitions_of_the_one_before() -> None:
    data = frame(
        [*transaction(1, ROOT, LEAF, row(1)), *transaction(1, ROOT, LEAF, row(1)), *transaction(2, OTHER, row(3))],
        Framing.RAW,
    )
    ((_, planned),) = plan_runs([{"a": data}], framing=Framing.RAW)
    assert planned.plan.resume.partitions == (Partition(1, LEAF),)
    data += frame([*transaction(1, ROOT, row(1))], Framing.RAW)
    ((_, planned),) = plan_runs([{"a": data}], framing=Framing.RAW)
    assert planned.plan.resume.partitions == ()


@pytest.mark.parametrize("tag", ["key", "old"])
def test_null_in_a_column_of_the_replica_identity_is_refused(tag: str) -> None:
    flagged = m.Relation(1, "s", "t", "d", LEAF.columns)
    nothing = m.TupleData((m.NULL_CELL, m.Cell("t", b"x")))
    changes: list[Any] = [m.Delete(1, **{tag: nothing}), m.Update(1, row(1).new, **{tag: nothing})]
    for change in changes:
        data = frame(transaction(1, flagged, change), Framing.RAW)
        with pytest.raises(CaptureError, match="never NULL") as refused:
            decode(data)
        assert refused.value.table == "s.t.id"


def decode(data: bytes) -> None:
    ((_, planned),) = plan_runs([{"a": data}], framing=Framing.RAW)
    catalogue = Catalogue.of(planned.plan, Settings(), ())
    for batch in decode_plan(planned.plan, lambda _: data):
        (version,) = catalogue.versions[batch.relation]
        events_of(batch, version.identity)


def test_the_roots_key_holds_where_all_partitions_send_it() -> None:
    root = m.Relation(1, "s", "root", "d", LEAF.columns)
    for leaf in (LEAF, m.Relation(2, "s", "leaf", "f", ROOT.columns)):
        assert as_sent(root, [leaf]).relation == root
    assert not as_sent(root, [m.Relation(2, "s", "leaf", "n", LEAF.columns)]).claims


def test_a_key_of_partitions_that_proves_not_unique_stops_the_run() -> None:
    # Each partition has a row 1 of its own: an old row would not say which it is of.
    for changes in (
        [row(1), row(1)],
        [row(1), row(1, 2), m.Update(1, row(1, 1).new, key=m.TupleData((m.Cell("t", b"2"), m.NULL_CELL)))],
    ):
        data = frame(transaction(1, ROOT, LEAF, *changes), Framing.RAW)
        ((_, planned),) = plan_runs([{"a": data}], framing=Framing.RAW)
        (refused,) = [info for info in staged_infos(planned.plan, {"a": data}) if "problem" in info]
        assert "is not unique in the whole table" in json.loads(refused)["problem"]
    data = frame(
        transaction(1, ROOT, LEAF, row(1), m.Delete(1, old=m.TupleData(row(1).new.cells)), row(1)), Framing.RAW
    )
    ((_, planned),) = plan_runs([{"a": data}], framing=Framing.RAW)
    assert not [info for info in staged_infos(planned.plan, {"a": data}) if "problem" in info]


def staged_infos(plan: Plan, files: Mapping[str, bytes]) -> list[str]:
    found = staged(plan, files, Catalogue.of(plan, Settings(), ()).assignments)
    return [info for batch in found for info in batch.column("info").to_pylist()]
