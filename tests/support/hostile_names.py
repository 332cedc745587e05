"""Tables and columns whose names are expressions, paths, markup or escape sequences to whoever takes them for that.

A script does to each table all that can happen to one, in several runs, and keeps in plain dictionaries what its mirror
holds then.  It knows columns by their parts in the script; names are only what they are written as.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, Final

from support.framings import frame
from walreplay.names import fold
from walreplay.protocol import messages as m
from walreplay.protocol.framing import Framing

SUFFIXED: Final = (
    *("__commit_lsn", "__commit_ts", "_rescued_data", "__deleted"),
    *("_change_type", "_commit_version", "_commit_timestamp", "_metadata", "__is_cdc", "_file_name_"),
    *("_row_dropped_", "_row_id_", "__CONDITION__", "_Metadata", "__COMMIT_TS"),
)
"""Names that are the mirror's own, or Delta's."""

NAMES: Final = (
    # What a decoded batch, a fold and a MERGE call their columns, and their tables.
    *("__op", "__row", "__commit_lsn", "__commit_ts", "__xid", "__ordinal", "_rescued_data", "__op__2", "__deleted"),
    *("c0", "c1", "k0", "b0", "lsn", "ts", "rescued", "unknown", "deleted", "expected", "claimed", "matches", "net"),
    *("base_rescued", "needed", "copies", "stay", "image", "gone", "place", "s", "t", "walreplay_source", "old0"),
    *("__START_AT", "__END_AT", "col-1", "bucket", "sequence", "data", "file", "path", "content", "0", "1"),
    *("_change_type", "_commit_version", "_commit_timestamp", "_metadata", "__is_cdc", "_file_name_"),
    *("_row_dropped_", "_row_id_", "__CONDITION__"),
    # Expressions, quotes, comments, placeholders.
    *("a.b", "a", "b", "a.b.c", ".", "..", "`", "``", "a`b", "a`.`b", "'", "''", '"', '""', "\\", "\\'", "\\`", "\\n"),
    *("*", "a.*", "-- x", "/* x", "*/", ";", ",", "(", ")", "=", "?", ":x", "@x", "$", "$1", "#", "%", "%s", "%(x)s"),
    *("{}", "{0}", "${env:HOME}", "${x}", "${spark.app.name}", "$${y}", "a[0]", "a|b", "^$", ".*", "(?i)", "&", "<b>"),
    *("select", "NULL", "true", "int", "timestamp", "array", "element", "key", "value", "list", "nan", "-1", "1.5e3"),
    *(" ,;{}()\n\t=", " lead", "trail ", " ", "\t", "\n", "\r\n", "new\nline", "/", "//", "../x", "a/b", "C:\\x", "~"),
    # What a terminal, or whoever writes for one, would do something with.
    *("[red]x[/red]", "[/]", ":rocket:", "\x1b[31mred", "\x1b]0;title\x07", "\x08\x08", "\x7f", "\x9b31m", "\x85"),
    *("\u202eevil", "\u2066x\u2069", "\u200e", "\u061c", "\u200b", "\ufeff", "\u2028", "\u2029", "\xa0", "\u3000"),
    # Letters that are one to some and two to others.
    *("é", "e\u0301", "北京", "🚀" * 15, "👨\u200d👩\u200d👧", "עברית", "ẞ", "ſ", "\u212a", "ﬁ", "x" * 63, "é" * 31),
    *("\ufffd", "\U000e0041", "\U0010fffd", "\ue000", "\u0378"),
)
"""Names that PostgreSQL takes, of tables and schemas as well."""

PLACES: Final = (
    *(("__op", "a`b"), ("${x}", "${env:HOME}"), ("..", "."), ("/", "../x"), ("\x1b[31mred", "\u202eevil"), (" ", "\t")),
    *((" lead", "trail "), ("é", "e\u0301"), ("e\u0301", "é"), ("\u2028", "\x9b31m"), ("*", "{}"), ("a[0]", "?")),
    *(
        ("C:\\x", "//"),
        ("#", "%"),
        ("%2F", "%s"),
        ("'", '"'),
        ("`", "``"),
        ("\\'", "\\"),
        (".*", "^$"),
        ("\x7f", "\x85"),
    ),
    *(("_delta_log", "_metadata"), ("\xa0", "\u200b"), ("\n", "\r\n"), ("[red]x[/red]", ":rocket:"), ("-- x", "/* x")),
    *(
        ("Id", "id"),
        ("id", "Id"),
        ("a", "b.c"),
        ("a.b", "c.d"),
        ("🚀" * 15, "北京"),
        ("x" * 63, "é" * 31),
        ("~", "NULL"),
    ),
)
"""Schemas and tables."""

Text = str | None

RESCUED: Final = "_rescued_data"

OIDS: Final = {"int4": 23, "text": 25, "numeric": 1700, "int8": 20}
_TYPMODS: Final = {"numeric": (10 << 16 | 2) + 4}

SALT: Final = "salt"

PARTS: Final = {
    "id": ("int4", 1),
    "code": ("text", 1),
    "note": ("text", 3),
    "amount": ("numeric", 3),
    "wide": ("int4", 4),
    "gone": ("text", 6),
    "spare": ("text", 1),
    "old": ("text", 6),
    "last": ("text", 1),
    "retyped": ("text", 4),
    "secret": ("text", 3),
}
"""The columns of a table: what they are in the script, their type, and how many there are."""
LATER: Final = {"new": ("text", 6), "added": ("text", 7)}
"""Those that come later; `new` is what `old` is renamed to."""

COUNT: Final = sum(count for _, count in (*PARTS.values(), *LATER.values()))
"""How many names a table takes."""

KEYED, MULTISET, APPEND = "d", "f", "n"

UNCHANGED: Final = "\0unchanged"


def _tuple(values: Sequence[Text]) -> m.TupleData:
    def cell(value: Text) -> m.Cell:
        if value is None:
            return m.NULL_CELL
        return m.UNCHANGED_CELL if value == UNCHANGED else m.Cell("t", value.encode())

    return m.TupleData(tuple(cell(value) for value in values))


@dataclass
class Row:
    """A row: the mirror's values, by column in the script."""

    values: dict[str, Text]
    deleted: bool = False


@dataclass
class Table:
    """A table of the source, and what its mirror holds.

    Attributes:
        kind: the replica identity: keyed, a multiset, or rows that are only added.
        names: each column's name in the source; columns are called by their part and number, as in ``wide1``.
        present: the columns that it has, in their order; ``kept`` are those of the mirror.
        types: the columns', by now.
        soft: deletes are soft; ``drops``: dropped columns are dropped in the mirror; ``masks``: some are masked.
    """

    oid: int
    schema: str
    name: str
    kind: str
    names: Mapping[str, str]
    soft: bool = False
    drops: bool = False
    masks: bool = False
    present: list[str] = field(default_factory=list)
    kept: list[str] = field(default_factory=list)
    types: dict[str, str] = field(default_factory=dict)
    rows: list[Row] = field(default_factory=list)

    @classmethod
    def of(cls, oid: int, place: tuple[str, str], kind: str, names: Sequence[str], **more: bool) -> Table:
        """Make one as it is at first."""
        parts = {f"{part}{n}": type_ for part, (type_, count) in PARTS.items() for n in range(count)}
        later = {f"{part}{n}": type_ for part, (type_, count) in LATER.items() for n in range(count)}
        types = parts | later
        given = dict(zip(types, names, strict=True))
        return cls(oid, *place, kind, given, **more, present=list(parts), kept=list(parts), types=types)

    @property
    def relation(self) -> m.Relation:
        def column(name: str) -> m.Column:
            kind = self.types[name]
            key = self.kind == MULTISET or (self.kind == KEYED and name in ("id0", "code0"))
            return m.Column(self.names[name], OIDS[kind], _TYPMODS.get(kind, -1), key)

        return m.Relation(self.oid, self.schema, self.name, self.kind, tuple(map(column, self.present)))

    # What happens, as messages.

    def insert(self, number: int) -> m.Insert:
        values = {name: _value(name, self.types[name], number) for name in self.present}
        self.rows.append(Row(values))
        return m.Insert(self.oid, _tuple(list(values.values())))

    def update(self, number: int, **changes: str) -> m.Update:
        """Change a row; a value may be `UNCHANGED`, and is not sent."""
        row = self._row(number)
        old = [row.values.get(name) for name in self.present]
        known = {name: value for name, value in changes.items() if value != UNCHANGED}
        if self.kind == MULTISET:
            # What goes and what comes are rows by themselves.
            row.values = {name: row.values.get(name) for name in self.present}
        row.values.update(known)
        new = [changes.get(name, row.values.get(name)) for name in self.present]
        if self.kind == MULTISET:
            return m.Update(self.oid, _tuple(new), old=_tuple(old))
        key = _tuple([*old[:2], *[None] * (len(old) - 2)]) if new[:2] != old[:2] else None
        return m.Update(self.oid, _tuple(new), key=key)

    def delete(self, number: int) -> m.Delete:
        row = self._row(number)
        old = [row.values.get(name) for name in self.present]
        if self.soft:
            row.deleted = True
        else:
            self.rows.remove(row)
        if self.kind == MULTISET:
            return m.Delete(self.oid, old=_tuple(old))
        return m.Delete(self.oid, key=_tuple([*old[:2], *[None] * (len(old) - 2)]))

    def truncate(self) -> m.Truncate:
        for row in self.rows:
            row.deleted = True
        if not self.soft:
            self.rows.clear()
        return m.Truncate((self.oid,), 0)

    def change_columns(self) -> m.Relation:
        """Drop, rename, widen and add columns."""
        renamed = {f"old{n}": f"new{n}" for n in range(PARTS["old"][1])}
        self.present = [renamed.get(name, name) for name in self.present if not name.startswith("gone")]
        self.present += [f"added{n}" for n in range(LATER["added"][1])]
        self.kept = [renamed.get(name, name) for name in self.kept if not (self.drops and name.startswith("gone"))]
        self.kept += [f"added{n}" for n in range(LATER["added"][1])]
        for row in self.rows:
            row.values = {renamed.get(name, name): value for name, value in row.values.items()}
        self.types |= {f"wide{n}": "int8" for n in range(PARTS["wide"][1])}
        return self.relation

    def retype(self) -> m.Relation:
        """Return columns another type, which does not hold all of their values."""
        self.types |= {f"retyped{n}": "int4" for n in range(PARTS["retyped"][1])}
        return self.relation

    def _row(self, number: int) -> Row:
        return next(row for row in self.rows if row.values["id0"] == str(number) and not row.deleted)

    # What the mirror has.

    @property
    def config(self) -> dict[str, Any]:
        """What is configured of it."""
        said: dict[str, Any] = {"source_schema": self.schema, "source_table": self.name}
        said["rename_columns"] = {self.names[f"old{n}"]: self.names[f"new{n}"] for n in range(PARTS["old"][1])}
        if self.masks:
            said["column_mask_hash"] = [self.names[f"secret{n}"] for n in range(PARTS["secret"][1])]
        if self.soft:
            said["soft_deletes"] = True
        if self.drops:
            said["on_drop_column"] = "drop"
        return {"table": said}

    def mirrored_name(self, column: str) -> str:
        """Return a column's name in the mirror."""
        name = self.names[column]
        return f"{name}__2" if name in SUFFIXED else name

    @property
    def columns(self) -> list[str]:
        """The mirror's columns, in their order."""
        own = ["__deleted"] if self.soft else []
        return [*map(self.mirrored_name, self.kept), *own, "__commit_lsn", "__commit_ts", RESCUED]

    def mirrored(self) -> list[tuple[Any, ...]]:
        """Return the mirror's rows, each as its values and those that are rescued."""
        return sorted((self._mirrored(row) for row in self.rows), key=repr)

    def _mirrored(self, row: Row) -> tuple[Any, ...]:
        values, rescued = [], {}
        for name in self.kept:
            text = row.values.get(name)
            try:
                values.append(self._typed(name, text))
            except ValueError:
                values.append(None)
                rescued[self.mirrored_name(name)] = text
        return (*values, *([row.deleted] if self.soft else []), rescued or None)

    def _typed(self, name: str, text: Text) -> Any:
        if text is None:
            return None
        kind = self.types[name]
        if kind == "numeric":
            if text == "NaN":
                raise ValueError
            return Decimal(text).quantize(Decimal("0.01"))
        if kind in ("int4", "int8"):
            return int(text)
        if self.masks and name.startswith("secret"):
            return hashlib.sha256((SALT + text).encode()).hexdigest()
        return text


def _value(name: str, kind: str, number: int) -> str:
    if name == "id0":
        return str(number)
    if kind == "numeric":
        return "NaN" if number % 4 == 2 else f"{number}.50"
    if name.startswith("retyped"):
        return "x" if number == 3 else str(number)
    if kind == "int8":
        return str(number + (1 << 40))
    return str(number) if kind == "int4" else f"{name} {number}"


def read_rows(rows: Sequence[Sequence[Any]], columns: Sequence[str]) -> list[tuple[Any, ...]]:
    """Bring rows that a mirror table holds into the form of `Table.mirrored`."""
    own = [columns.index(name) for name in ("__commit_lsn", "__commit_ts", RESCUED)]
    found = []
    for row in rows:
        text = row[own[2]]
        found.append((*(value for n, value in enumerate(row) if n not in own), json.loads(text) if text else None))
    return sorted(found, key=repr)


def _dealt(tables: int, start: int = 0) -> list[list[str]]:
    """Deal the names out, none that Spark takes for another to the same table; all once at least."""
    left = [*NAMES[start:], *NAMES[:start]]
    hands: list[list[str]] = []
    for _ in range(tables):
        hand: list[str] = []
        for name in [*left, *NAMES]:
            if len(hand) < COUNT and fold(name) not in map(fold, hand):
                hand.append(name)
        left = [name for name in left if name not in hand]
        hands.append(hand)
    return hands


@dataclass
class Small:
    """A table of one column, to which rows are only added."""

    oid: int
    schema: str
    name: str
    values: list[str] = field(default_factory=list)

    @property
    def relation(self) -> m.Relation:
        return m.Relation(self.oid, self.schema, self.name, APPEND, (m.Column(self.name, OIDS["text"], -1, False),))

    def insert(self, value: str) -> m.Insert:
        self.values.append(value)
        return m.Insert(self.oid, _tuple([value]))

    @property
    def columns(self) -> list[str]:
        return [f"{self.name}__2" if self.name in SUFFIXED else self.name, "__commit_lsn", "__commit_ts", RESCUED]

    def mirrored(self) -> list[tuple[Any, ...]]:
        return sorted((value, None) for value in self.values)


@dataclass
class Script:
    """All tables, and the bytes of each run.

    Attributes:
        small: tables that have no other purpose than their names.
        runs: each run's capture file.
        expected: what the mirror holds behind each run: columns and rows, by schema and name.
        changes: how many there are.
    """

    tables: list[Table]
    small: list[Small]
    config: dict[str, Any]
    runs: list[bytes] = field(default_factory=list)
    expected: list[dict[tuple[str, str], tuple[list[str], list[tuple[Any, ...]]]]] = field(default_factory=list)
    changes: int = 0
    _lsn: int = 0x1000

    def run(self, *transactions: Sequence[m.AnyMessage]) -> None:
        """Take a run's transactions, and note what holds behind them."""
        told: list[m.AnyMessage] = []
        for number, messages in enumerate(transactions):
            self._lsn += 0x100
            self.changes += sum(isinstance(one, (m.Insert, m.Update, m.Delete)) for one in messages)
            told += [
                m.Begin(self._lsn, self._lsn, 700 + number),
                *messages,
                m.Commit(0, self._lsn, self._lsn + 8, self._lsn),
            ]
        self.runs.append(frame(told, Framing.RAW))
        self.expected.append(
            {(one.schema, one.name): (one.columns, one.mirrored()) for one in (*self.tables, *self.small)}
        )


def script(*, few: bool = False) -> Script:
    """Do to tables of such names all that can happen to one.

    Args:
        few: to one table of each kind alone.
    """
    places = iter(PLACES)
    hands = _dealt(1, 100) if few else _dealt(-(-len(NAMES) // COUNT))
    tables = [
        Table.of(100 + n, next(places), KEYED, names, soft=n == 0, drops=n % 2 == 1, masks=n < 3)
        for n, names in enumerate(hands)
    ]
    tables += [Table.of(200 + n, next(places), MULTISET, names) for n, names in enumerate(_dealt(1, 40))]
    tables += [Table.of(300, next(places), APPEND, _dealt(1, 75)[0])]
    # One that another relation takes the name of, and one that gets another name.
    aside, other = (Table.of(oid, ("a.b", "c`d"), KEYED, _dealt(1, 50)[0]) for oid in (400, 401))
    renamed = tables[-2]
    new_place = next(places)
    plain = [Small(500 + n, *place) for n, place in enumerate(list(places)[:: 4 if few else 1])]
    objects = [table.config["table"] for table in [*tables, aside]]
    objects.append({**renamed.config["table"], "source_schema": new_place[0], "source_table": new_place[1]})
    made = Script([*tables, aside], plain, {"objects": [{"table": one} for one in objects], "column_mask_salt": SALT})
    changing = [table for table in made.tables if table.kind != APPEND]
    made.run(
        *([one.relation, *(one.insert(n) for n in range(1, 7))] for one in made.tables),
        *([one.relation, one.insert("first")] for one in plain),
    )
    made.run(
        *([one.insert(7), one.insert(7)] if one.kind != KEYED else [one.insert(7)] for one in made.tables),
        *([one.update(1, note0="changed", amount1="1.25"), one.delete(4)] for one in changing),
        *([one.update(2, note1=UNCHANGED, amount0=UNCHANGED, wide0="22")] for one in changing if one.kind == KEYED),
        *([one.update(3, code0="moved", note2=UNCHANGED, wide1="33")] for one in changing if one.kind == KEYED),
        *([one.delete(7)] for one in changing if one.kind == MULTISET),
        *([one.change_columns(), one.insert(8)] for one in made.tables),
        *([one.update(1, added0="added", new1="renamed"), one.delete(5)] for one in changing),
    )
    made.run(
        *([one.retype(), one.insert(9)] for one in made.tables),
        *([one.update(2, retyped0="2222", note0="again"), one.update(6, retyped1="-1")] for one in changing),
        *([one.insert("second")] for one in plain[:2]),
    )
    emptied = [tables[0], tables[-1]]
    renamed.schema, renamed.name = new_place
    made.tables[-1] = other
    made.run(
        *([one.truncate()] for one in emptied),
        *([one.relation, one.insert(10), one.insert(11)] for one in made.tables),
    )
    return made


def short_script() -> Script:
    """Do to a few tables what Spark's statements are made for: merges, changed columns, rewrites, truncates."""
    made = Script(
        [
            Table.of(101, PLACES[2], KEYED, _dealt(1, 30)[0], drops=True, masks=True),
            Table.of(200, PLACES[3], MULTISET, _dealt(1, 60)[0]),
            Table.of(300, PLACES[4], APPEND, _dealt(1, 110)[0]),
        ],
        [],
        {},
    )
    made.config |= {"objects": [table.config for table in made.tables], "column_mask_salt": SALT}
    keyed, counted, added = made.tables
    made.run(*([one.relation, *(one.insert(n) for n in range(1, 5))] for one in made.tables))
    made.run(
        [keyed.update(1, note0="changed"), keyed.delete(4), keyed.change_columns(), keyed.insert(8)],
        [counted.update(1, note0="changed"), counted.delete(4), counted.retype(), counted.insert(9)],
        [added.truncate(), added.insert(10)],
    )
    return made
