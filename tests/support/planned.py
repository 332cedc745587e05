"""Runs in the plainest form: the relation versions that were announced, and those whose rows are staged."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from walreplay.config import Settings
from walreplay.decode.announcements import Layout
from walreplay.decode.walk import Place
from walreplay.delta.target import Target
from walreplay.names import Output
from walreplay.protocol import messages as m
from walreplay.protocol.framing import Framing
from walreplay.spark.staging import Staged, StagedVersion, VersionSegment
from walreplay.stream.plan import Plan, Resume
from walreplay.table.plan import TablesPlan, plan_tables
from walreplay.table.registry import MirrorEntry
from walreplay.table.versions import Catalogue, Version

INT, BIGINT, TEXT, NUMERIC = 23, 20, 25, 1700
MIRROR = Target.parse("/mirror")


def relation(text: str, identity: str = "d", *, oid: int = 9, name: str = "t", namespace: str = "s") -> m.Relation:
    """Make a relation version.

    Args:
        text: its columns, such as ``id* note:25``: the key's have a star, types are oids and by default integer.
    """
    columns = []
    for item in text.split():
        column, _, kind = item.partition(":")
        name_ = column.removesuffix("*")
        columns.append(m.Column(name_, int(kind or INT), -1, column.endswith("*") or identity == "f"))
    return m.Relation(oid, namespace, name, identity, tuple(columns))


def configured(**values: Any) -> Settings:
    """Return settings; ``table`` is what is said of the table s.t."""
    table = values.pop("table", None)
    if table is not None:
        values["objects"] = [{"table": {"source_schema": "s", "source_table": "t", **table}}]
    return Settings.from_mapping(values)


@dataclass(frozen=True)
class Used:
    """Changes of one relation version, one after the other; no rows: a truncate alone."""

    relation: m.Relation
    rows: int = 1
    tracked: tuple[int, ...] = ()
    moves: bool = False
    deletes: bool = False


def catalogue_of(
    relations: Sequence[m.Relation],
    settings: Settings | None = None,
    entries: Sequence[MirrorEntry] = (),
    before: Sequence[m.Relation] = (),
    layouts: Sequence[Layout] = (),
) -> Catalogue:
    """Return a run's catalogue."""
    plan = Plan(
        files=(),
        versions=(),
        type_versions=(),
        after_lsn=0,
        upto_lsn=0,
        upto_commit_time=0,
        truncates=(),
        resume=Resume("", 0, 0, 0, True, "", 0, Place(Framing.RAW), (), (), layouts=tuple(layouts)),
        transactions=0,
        resent=0,
        announced=tuple(dict.fromkeys(relations)),
        before=tuple(before),
        types=(),
    )
    return Catalogue.of(plan, settings or Settings(), entries)


def mirrors(catalogue: Catalogue) -> dict[m.Relation, Version]:
    """Return the versions as the mirror's tables take them."""
    return {
        relation: version
        for relation, versions in catalogue.versions.items()
        for version in versions
        if version.output is Output.MIRROR
    }


def _stage(
    item: Used,
    version: Version,
    sequence: int,
    versions: dict[int, dict[int, StagedVersion]],
    segments: dict[int, list[VersionSegment]],
) -> None:
    tracked = item.tracked if version.output is Output.MIRROR else ()
    found = versions.setdefault(version.table, {})
    was = found.get(version.number, StagedVersion(0, (), False, False, sequence, sequence))
    found[version.number] = StagedVersion(
        was.rows + item.rows,
        tuple(sorted({*was.tracked, *tracked})),
        was.moves or item.moves,
        was.deletes or item.deletes,
        was.first,
        sequence,
    )
    places = segments.setdefault(version.table, [])
    if not places or places[-1].version != version.number:
        places.append(VersionSegment(sequence, version.number))


def run_plan(
    *used: Used | m.Relation,
    settings: Settings | None = None,
    entries: Sequence[MirrorEntry] = (),
    truncated: Sequence[int] = (),
    before: Sequence[m.Relation] = (),
    target: Target = MIRROR,
    layouts: Sequence[Layout] = (),
) -> TablesPlan:
    """Plan a run whose changes come in this order."""
    settings = settings or Settings()
    changes = [item if isinstance(item, Used) else Used(item) for item in used]
    catalogue = catalogue_of([item.relation for item in changes], settings, entries, before, layouts)
    versions: dict[int, dict[int, StagedVersion]] = {}
    segments: dict[int, list[VersionSegment]] = {}
    uses: list[tuple[int, int | None]] = []
    for sequence, item in enumerate(changes):
        if item.relation in catalogue.versions:
            uses.append((catalogue.relations.index(item.relation), None))
        for version in catalogue.versions.get(item.relation, ()):
            _stage(item, version, sequence, versions, segments)
    staged = {table: Staged(found, tuple(segments[table])) for table, found in versions.items()}
    return plan_tables(catalogue, staged, uses, truncated, entries, settings, target)
