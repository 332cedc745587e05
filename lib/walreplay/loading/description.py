"""What tables are: the rows of COPY carry neither names nor types.

It is told by the stream's Relation and Type messages, or by a query on the source, the script ``describe.sql``.
Either way it is the same relation versions that captures have, so that rows of both get the same columns.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from walreplay.errors import ConfigError
from walreplay.protocol.messages import REPLICA_IDENTITIES, Column, Relation, Type

HOW_TO_DESCRIBE: Final = (
    "Describe the tables: walreplay sql describe.sql | PGOPTIONS='-c walreplay.publication=NAME' psql -AtX -d DATABASE "
    "> tables.jsonl; and give --describe tables.jsonl"
)

_CATALOG: Final = "pg_catalog"

_FIRST_ANNOUNCED: Final = 12_000
"""Types with lower oids are built in, and the stream does not announce them."""


@dataclass(frozen=True, slots=True)
class Description:
    """What is known of tables.

    Attributes:
        relations: by ``schema.table``; more than one where a dot in a name leaves open which is meant.
        types: of their columns, as far as they are not built in.
        rows: how many were copied of each table, by its oid, if the copier has counted them.
        row_filters: the publication's, by the tables' oids: a table's other rows are not sent.
    """

    relations: Mapping[str, tuple[Relation, ...]]
    types: tuple[Type, ...]
    rows: Mapping[int, int] = field(default_factory=dict)
    row_filters: Mapping[int, str] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        relations: Iterable[Relation],
        types: Iterable[Type],
        rows: Mapping[int, int] | None = None,
        row_filters: Mapping[int, str] | None = None,
    ) -> Description:
        """Make one of the stream's messages."""
        found: dict[str, tuple[Relation, ...]] = {}
        for relation in relations:
            found[relation.qualified_name] = (*found.get(relation.qualified_name, ()), relation)
        return cls(found, tuple(types), rows or {}, row_filters or {})

    def relation(self, name: str) -> Relation:
        """Give a table's relation.

        Raises:
            ConfigError: there is no such table, or two.
        """
        found = self.relations.get(name, ())
        if len(found) == 1:
            return found[0]
        raise ConfigError(
            "nothing says what the table's columns are" if not found else "the name may mean two tables",
            table=name,
            remedy=f"Name it by --table as schema.table. Of a dump: dump the tables that are published, and no others "
            "(pg_dump --table), with --load-via-partition-root where partitions are published as their root. "
            f"{HOW_TO_DESCRIBE}",
        )


def read_description(text: str, path: str) -> Description:
    """Read what ``describe.sql`` wrote, and what ``base.sh`` has counted.

    Raises:
        ConfigError: it is something else.
    """
    columns: dict[tuple[int, str, str, str], list[tuple[int, Column]]] = {}
    types: dict[int, Type] = {}
    rows: dict[int, int] = {}
    row_filters: dict[int, str] = {}
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        try:
            values = json.loads(line)
            if "rows" in values:
                rows[int(values["oid"])] = int(values["rows"])
                continue
            table = _table(values)
            if values.get("row_filter") is not None:
                row_filters[table[0]] = str(values["row_filter"])
            found = columns.setdefault(table, [])
            if values["attnum"] is None:
                continue
            found.append((int(values["attnum"]), _column(values)))
        except (ValueError, KeyError, TypeError, AttributeError):
            raise ConfigError(
                f"line {number} is not what describe.sql writes",
                path=path,
                remedy=HOW_TO_DESCRIBE,
            ) from None
        if int(values["type_oid"]) >= _FIRST_ANNOUNCED and values["type_name"] is not None:
            oid = int(values["type_oid"])
            types[oid] = Type(oid, _namespace(values["type_schema"]), str(values["type_name"]))
    relations = [
        Relation(oid, namespace, name, identity, tuple(column for _, column in sorted(found, key=lambda one: one[0])))
        for (oid, namespace, name, identity), found in columns.items()
    ]
    twice = any(len({attnum for attnum, _ in found}) < len(found) for found in columns.values())
    if twice or len({relation.oid for relation in relations}) < len(relations):
        raise ConfigError("a table is described twice", path=path, remedy="Describe one database, once")
    if not rows.keys() <= {relation.oid for relation in relations}:
        raise ConfigError("rows are counted of a table that is not described", path=path, remedy=HOW_TO_DESCRIBE)
    return Description.of(relations, types.values(), rows, row_filters)


def write_description(relations: Iterable[Relation], of: Description) -> str:
    """Return what ``describe.sql`` and ``base.sh`` would write of relations, for `read_description`."""
    named = {type_.oid: type_ for type_ in of.types}
    lines = []
    for relation in relations:
        table = {
            "schema": relation.namespace or _CATALOG,
            "table": relation.name,
            "oid": relation.oid,
            "replica_identity": relation.replica_identity,
        }
        for number, column in enumerate(relation.columns, start=1):
            type_ = named.get(column.type_oid)
            found = {
                "attnum": number,
                "column": column.name,
                "type_oid": column.type_oid,
                "typmod": column.typmod,
                "key": column.key,
                "type_schema": None if type_ is None else type_.namespace or _CATALOG,
                "type_name": None if type_ is None else type_.name,
            }
            lines.append(json.dumps(table | found))
        if not relation.columns:
            lines.append(json.dumps(table | {"attnum": None}))
        if relation.oid in of.rows:
            lines.append(json.dumps({"oid": relation.oid, "rows": of.rows[relation.oid]}))
    return "".join(f"{line}\n" for line in lines)


def _table(values: Mapping[str, Any]) -> tuple[int, str, str, str]:
    identity = str(values["replica_identity"])
    if identity not in REPLICA_IDENTITIES or len(identity) != 1:
        raise ValueError("no replica identity")
    return int(values["oid"]), _namespace(values["schema"]), str(values["table"]), identity


def _column(values: Mapping[str, Any]) -> Column:
    if not isinstance(values["key"], bool) or not isinstance(values["column"], str):
        raise TypeError("no column")
    return Column(values["column"], int(values["type_oid"]), int(values["typmod"]), values["key"])


def _namespace(name: str) -> str:
    return "" if name == _CATALOG else str(name)


__all__ = ["HOW_TO_DESCRIBE", "Description", "read_description", "write_description"]
