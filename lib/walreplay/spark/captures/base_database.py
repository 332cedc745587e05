"""A base load from PostgreSQL over JDBC: Spark's reader, with a snapshot that all of its sessions take.

With a number of rows to fetch, Spark ends the sessions' own commits before anything is run.  So what a session runs
first, and the query for a part of the rows, are one transaction: `walreplay.loading.database` has what they are, and
what makes a session fail that has not got the snapshot.
"""

from __future__ import annotations

import os
import traceback
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Final

from walreplay.errors import ConfigError, SparkFailure, WalReplayError
from walreplay.loading import database
from walreplay.loading.address import Address, credentials_of
from walreplay.loading.description import Description, read_description
from walreplay.protocol.messages import Relation
from walreplay.scripts import script
from walreplay.spark.captures.base import BaseRows, BaseSource, Works
from walreplay.spark.captures.base_frame import BYTES_A_BATCH
from walreplay.spark.workers.load import LoadTask
from walreplay.spark.workers.load_rows import RowsTask, load_rows, make_tables, with_part

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

DRIVER: Final = "org.postgresql.Driver"

CONNECTIONS: Final = 8
"""So many sessions read at a time, if nothing else is said: a server has a hundred for everybody."""

_EVERYTHING: Final = ("true",)


class DatabaseOfBase(BaseSource):
    """Tables of a PostgreSQL database.

    Args:
        publication: whose tables are read, or several as the option publication_names has them.
        table: the one table that is read; without a publication, all of it.
        snapshot: the name of an exported snapshot; none for a standby at rest.
        lsn: the last commit LSN that is among the rows.
        connections: how many sessions read at a time; None for `CONNECTIONS`.
    """

    def __init__(
        self,
        spark: SparkSession,
        address: Address,
        lsn: int,
        *,
        publication: str | None,
        table: str | None,
        snapshot: str | None,
        connections: int | None,
    ) -> None:
        if publication is None and table is None:
            raise ConfigError(
                "it is not said which tables are to be read",
                path=address.shown,
                remedy="Give --publication, whose tables they are, or --table schema.table",
            )
        if connections is not None and connections < 1:
            raise ConfigError("--connections has to be 1 or more", path=address.shown)
        self.origin = address.shown
        self._spark = spark
        self._url = address.url
        self._lsn = lsn
        self._snapshot = snapshot
        self._connections = connections or CONNECTIONS
        self._publication = {} if publication is None else {"walreplay.publication": publication}
        self._table = table
        self._properties = {**credentials_of(address, os.environ), "driver": DRIVER}

    def open(self) -> None:
        """Ask the server what it is, and what there is.

        Raises:
            ConfigError: there are no such tables, or the rows would not be of one moment.
            CaptureError: a table's rows have left the snapshot.
        """
        self._server = self._ask_server()
        lines = self._lines(script("describe.sql"), self._publication)
        described = read_description("\n".join(lines), self.origin)
        relations = [
            relation
            for found in described.relations.values()
            for relation in found
            if self._table in (None, relation.qualified_name)
        ]
        if not relations:
            raise ConfigError(
                "the database has no such table or publication", path=self.origin, remedy="Check the names"
            )
        self._description = Description.of(relations, described.types, row_filters=described.row_filters)
        self._tables = {relation.oid: relation.qualified_name for relation in relations}
        self._pieces = self._ask_pieces()
        self._check_kept(self._pieces)

    def described(self) -> Description:
        """Give what the catalogs say, as of the snapshot."""
        return self._description

    def tables(self, description: Description) -> frozenset[str]:
        """Name the tables."""
        return frozenset(self._tables.values())

    def rows(self, relations: Collection[Relation], description: Description) -> BaseRows:
        """Give the rows, in parts of some blocks each."""
        by_name = {relation.qualified_name: relation for relation in relations}
        pieces = [piece for piece in self._pieces if piece.table in by_name]
        parts = {piece.oid: database.ranges_of(piece, self._server.block_size) for piece in pieces}

        def works(task: LoadTask) -> Works:
            found: list[tuple[DataFrame, partial[Iterator[object]]]] = []
            first = 0
            for piece in pieces:
                # The relation that is loaded may be the one that the target knows already.
                relation = by_name[piece.table]
                query = database.rows_query(piece, relation)
                fetched = database.rows_at_a_time(piece)
                frame = self._read(query, parts[piece.oid], fetched, database.session_statements(self._snapshot))
                columns = tuple(range(len(relation.columns)))
                names = [f"c{number}" for number in columns] or ["c0"]
                rows = RowsTask(task, relation, columns, self.origin, first)
                found.append((with_part(frame.select(*names)), partial(load_rows, task=rows)))
                first += len(parts[piece.oid])
            one = self._spark.range(0, 1, 1, 1)
            return [*found, (one, partial(make_tables, task=task))], BYTES_A_BATCH

        count = sum(len(ranges) for ranges in parts.values())
        return BaseRows(0, sum(piece.size for piece in pieces), count, works, self._connections)

    def check(self, rows: Mapping[int, int]) -> None:
        """Check whether all has kept to the snapshot, and whether a standby is still at rest."""
        self._ask_server()
        self._check_kept(self._ask_pieces())

    def _ask_server(self) -> database.Server:
        (line,) = self._lines(database.SERVER)
        server = database.read_server(line)
        try:
            database.check_moment(server, self._snapshot, self._lsn)
        except WalReplayError as error:
            raise error.at(path=self.origin) from None
        return server

    def _ask_pieces(self, *, now: bool = False) -> tuple[database.Piece, ...]:
        lines = self._lines(database.PIECES, database.tables_setting(self._tables), now=now)
        return database.read_pieces(lines, self._server, self._tables, self._description.row_filters)

    def _check_kept(self, seen: Sequence[database.Piece]) -> None:
        if self._snapshot is None:
            return  # the server is at rest
        tables, kept = database.tables_setting(self._tables), script("kept.sql")
        lines = self._lines(kept, {**tables, **database.MOVED})
        try:
            database.check_kept(lines, self._lines(kept, tables, now=True) if lines else ())
            if any(piece.is_elsewhere for piece in seen):
                database.check_blocks(seen, self._ask_pieces(now=True), self._server)
        except WalReplayError as error:
            raise error.at(path=self.origin) from None

    def _lines(self, statement: str, said: Mapping[str, str] | None = None, *, now: bool = False) -> list[str]:
        """Run a query that gives lines of JSON.

        Args:
            said: the settings that it reads.
            now: as things are now, whatever the snapshot sees.
        """
        with self.errors():
            first = database.session_statements(None if now else self._snapshot, said)
            return [row.line for row in self._read(database.query_of(statement), _EVERYTHING, 1000, first).collect()]

    def _read(self, query: str, ranges: Sequence[str], fetched: int, first: str) -> DataFrame:
        properties = {**self._properties, "sessionInitStatement": first, "fetchsize": str(fetched)}
        with self.errors():
            return self._spark.read.jdbc(self._url, query, predicates=list(ranges), properties=properties)

    @contextmanager
    def errors(self) -> Iterator[None]:
        """Say why the database cannot be read, where that is known."""
        try:
            yield
        except WalReplayError:
            raise
        except Exception as error:
            # What Java has thrown stands in the text, or behind it.
            text = "".join(map(str, (error, getattr(error, "_cause", ""), *traceback.format_exception(error))))
            told = database.problem_of(text)
            if told is None:
                raise
            raise SparkFailure(told[0], path=self.origin, remedy=told[1]) from None


__all__ = ["CONNECTIONS", "DRIVER", "DatabaseOfBase"]
