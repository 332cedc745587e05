"""What tables are, and which table each file's rows belong to: rows of COPY carry neither names nor types.

The stream's Relation and Type messages describe tables, or a query on the source, the script ``describe.sql``.  Either
way the result is the relation versions that captures have, so that rows of both get the same columns.  `table_of` finds
a file's table by the names of the file and of its folders.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import PurePath
from typing import Any, Final
from urllib.parse import unquote

from walreplay.errors import ConfigError
from walreplay.listing import HIDDEN
from walreplay.loading.formats import bare_name
from walreplay.lsn import parse_lsn
from walreplay.protocol.messages import REPLICA_IDENTITIES, Column, Relation, Type

HOW_TO_DESCRIBE: Final = (
    "Describe the tables: walreplay --scripts FOLDER; PGOPTIONS='-c walreplay.publication=NAME' psql -AtX "
    "-f FOLDER/describe.sql -d DATABASE > tables.jsonl; and give --describe tables.jsonl"
)

_CATALOG: Final = "pg_catalog"

_FIRST_ANNOUNCED: Final = 12_000  # Types with lower oids are built in, and the stream does not announce them


@dataclass(frozen=True, slots=True)
class Description:
    """What is known of tables.

    Attributes:
        relations: by ``schema.table``; more than one where a dot in a name leaves open which is meant.
        types: of their columns, as far as they are not built in.
        rows: how many were copied of each table, by its oid, if the copier has counted them.
        row_filters: the publication's, by the tables' oids: a table's other rows are not sent.
        emptied: by oid the LSN up to which a TRUNCATE has emptied a table after the snapshot, before it was read.
        by_captures: it is what the captures say: by now a table may have columns that these do not know.
    """

    relations: Mapping[str, tuple[Relation, ...]]
    types: tuple[Type, ...]
    rows: Mapping[int, int] = field(default_factory=dict)
    row_filters: Mapping[int, str] = field(default_factory=dict)
    emptied: Mapping[int, int] = field(default_factory=dict)
    by_captures: bool = False

    @classmethod
    def of(
        cls, relations: Iterable[Relation], types: Iterable[Type], row_filters: Mapping[int, str] | None = None
    ) -> Description:
        """Make one of the stream's messages."""
        by_name: dict[str, tuple[Relation, ...]] = {}
        for relation in relations:
            by_name[relation.qualified_name] = (*by_name.get(relation.qualified_name, ()), relation)
        return cls(by_name, tuple(types), row_filters=row_filters or {})

    def relation(self, name: str) -> Relation:
        """Return a table's relation.

        Raises:
            ConfigError: there is no such table, or two.
        """
        relations = self.relations.get(name, ())
        if len(relations) == 1:
            return relations[0]
        raise ConfigError(
            "nothing says what the table's columns are" if not relations else "the name may mean two tables",
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
    emptied: dict[int, int] = {}
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        try:
            values = json.loads(line)
            if "rows" in values:  # a line of base.sh
                rows[int(values["oid"])] = int(values["rows"])
                emptied[int(values["oid"])] = parse_lsn(values.get("emptied", "0/0"))
                continue
            table = _table(values)
            if values.get("row_filter") is not None:
                row_filters[table[0]] = str(values["row_filter"])
            pairs = columns.setdefault(table, [])
            if values["attnum"] is None:  # a table without columns has a line, too
                continue
            pairs.append((int(values["attnum"]), _column(values)))
            if int(values["type_oid"]) >= _FIRST_ANNOUNCED and values["type_name"] is not None:
                oid = int(values["type_oid"])
                types[oid] = Type(oid, _namespace(values["type_schema"]), str(values["type_name"]))
        except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError):
            problem = f"line {number} is not what describe.sql writes"
            raise ConfigError(problem, path=path, remedy=HOW_TO_DESCRIBE) from None
    relations = [
        Relation(oid, namespace, name, identity, tuple(column for _, column in sorted(pairs, key=lambda item: item[0])))
        for (oid, namespace, name, identity), pairs in columns.items()
    ]
    twice = any(len({attnum for attnum, _ in pairs}) < len(pairs) for pairs in columns.values())
    if twice or len({relation.oid for relation in relations}) < len(relations):
        raise ConfigError("a table is described twice", path=path, remedy="Describe one database, once")
    if not rows.keys() <= {relation.oid for relation in relations}:
        raise ConfigError("rows are counted of a table that is not described", path=path, remedy=HOW_TO_DESCRIBE)
    return replace(Description.of(relations, types.values(), row_filters), rows=rows, emptied=emptied)


def write_description(relations: Iterable[Relation], of: Description) -> str:
    """Return what ``describe.sql`` and ``base.sh`` would write of relations, for `read_description`."""
    types_by_oid = {type_.oid: type_ for type_ in of.types}
    lines = []
    for relation in relations:
        table = {
            "schema": relation.namespace or _CATALOG,
            "table": relation.name,
            "oid": relation.oid,
            "replica_identity": relation.replica_identity,
        }
        for number, column in enumerate(relation.columns, start=1):
            type_ = types_by_oid.get(column.type_oid)
            values = {
                "attnum": number,
                "column": column.name,
                "type_oid": column.type_oid,
                "typmod": column.typmod,
                "key": column.key,
                "type_schema": None if type_ is None else type_.namespace or _CATALOG,
                "type_name": None if type_ is None else type_.name,
                # A relation of the stream has no numbers, or announced ones.
                "described_number": column.described_number or max(column.number, 0),
                "labels": column.described_labels,
            }
            lines.append(json.dumps(table | values))
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
    # The ledger's lines count the columns; the script's have the catalog's numbers, and the table's kind.
    described = int(values.get("described_number", values["attnum"] if "kind" in values else 0))
    column = Column(values["column"], int(values["type_oid"]), int(values["typmod"]), values["key"])
    labels = tuple((int(oid), text) for oid, text in values.get("labels") or ())
    if not all(isinstance(text, str) for _, text in labels):
        raise TypeError("no label")
    return replace(column, described_number=described, described_labels=labels)


def _namespace(name: str) -> str:
    return "" if name == _CATALOG else str(name)  # the stream writes pg_catalog as an empty name


_LOCAL: Final = re.compile(r"^file:/+")
_PART: Final = re.compile(r"[._-]\d+$")


def table_of(path: str, root: str, tables: Collection[str]) -> str | None:
    """Return the table (``schema.table``) of a file; None if it is hidden, and no table is called as it is.

    It is named by the file, ``shop.orders.csv.gz``, with or without a part's number, ``shop.orders.0001.csv``; or by
    folders, ``shop/orders.csv``, ``shop.orders/0001.csv``, ``shop/orders/0001.csv``.  Signs may be percent-encoded, as
    in a target's folders.  A name that begins with ``.`` or ``_`` hides what is called so, unless the table is.

    Raises:
        ConfigError: it is none of the tables'.
    """
    whole, base = _pure(path), _pure(root)
    below: Sequence[str] = (
        whole.relative_to(base).parts if whole.is_relative_to(base) and whole != base else (whole.name,)
    )
    # The root itself may be a table's folder.
    above = (base if whole != base else base.parent).parts[-2:]
    parts = (*above, *below)
    first_below = len(parts) if whole == base else len(above)
    hidden = {level for level in range(first_below, len(parts)) if parts[level].startswith(HIDDEN)}
    for name, first, last in _candidates(parts):
        if name in tables and all(first <= level <= last for level in hidden):
            return name
    if hidden:
        return None
    raise ConfigError(
        "the file is named like none of the tables that are described",
        path=path,
        remedy="If it is not of this copy, take it away; else call it schema.table.copy (or .csv, .bin), put it into a "
        "folder schema.table, or load one table at a time, with --table schema.table",
    )


def is_same(path: str, other: str) -> bool:
    """Return whether two paths are the same, with ``file:`` in front or without."""
    return _pure(path) == _pure(other)


def _pure(path: str) -> PurePath:
    return PurePath(_LOCAL.sub("/", path))


def _candidates(parts: Sequence[str]) -> Iterator[tuple[str, int, int]]:
    """Yield what a file may be called after, and which of the path's parts say so: the first and the last."""
    *folders, file_name = parts
    end = len(folders)
    bare = bare_name(file_name)[0]
    for last in dict.fromkeys((bare, _PART.sub("", bare))):  # the whole name first: a table may be called t_1
        yield from _spelled(last, end, end)
        if folders:
            yield from _spelled(f"{folders[-1]}.{last}", end - 1, end)  # schema/table.csv
    for level in range(end - 1, -1, -1):
        yield from _spelled(folders[level], level, level)  # schema.table/0001.csv
        if level:
            yield from _spelled(f"{folders[level - 1]}.{folders[level]}", level - 1, level)  # schema/table/0001.csv


def _spelled(name: str, first: int, last: int) -> Iterator[tuple[str, int, int]]:
    # What is encoded is part of a name, and does not part two.
    if "%" in name and "." in name:
        yield unquote(name), first, last
    yield name, first, last
