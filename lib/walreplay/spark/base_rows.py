"""The rows of a base load as Spark reads them: from a DataFrame, from files, or from a database.

`BaseSource` is the interface, with one class for each.
"""

from __future__ import annotations

import hashlib
import json
import os
import traceback
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Final, TypeAlias

from walreplay.errors import CaptureError, ConfigError, NotSupported, SparkFailure, WalReplayError
from walreplay.listing import escape_glob
from walreplay.loading import database
from walreplay.loading.database import Address, credentials_of
from walreplay.loading.description import Description, is_same, read_description, table_of
from walreplay.loading.formats import CopiedFiles, CopyOptions
from walreplay.loading.typed_rows import order_of
from walreplay.protocol.messages import Relation
from walreplay.scripts import script
from walreplay.spark.base_files import BaseFile, list_base, parts_of, refuse_archive
from walreplay.spark.captures import are_mapped, files_a_batch, number_files, root_of
from walreplay.spark.workers.load import LoadPart, LoadTask, load_batches, load_rows, make_tables, with_part
from walreplay.spark.workers.rows import Work
from walreplay.spark.workers.scan import LOCAL_SCHEME

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


Works: TypeAlias = "tuple[Sequence[tuple[DataFrame, Work]], Mapping[str, str]]"
"""Rows and what becomes of them, which results in rows to be staged; and settings for the job."""


@dataclass(frozen=True, slots=True)
class BaseRows:
    """The rows of the tables that are wanted.

    Attributes:
        files: how many there are; none where the rows are not in files.
        size: bytes, about; None if nobody knows.
        parts: how many tasks read them, if that is known.
        tasks: how many may be at work at a time; None for any number.
    """

    files: int
    size: int | None
    parts: int | None
    works: Callable[[LoadTask], Works]
    tasks: int | None = None


class BaseSource(ABC):
    """Where rows come from.

    Attributes:
        origin: its name, for errors and the report.
        warnings: what people should know of it, once the rows are asked for.
    """

    origin: str
    warnings: Sequence[str] = ()

    @property
    def place(self) -> str:
        """Its name in the ledger."""
        return self.origin

    @abstractmethod
    def open(self) -> None:
        """Find out what there is.

        Raises:
            WalReplayError: there is nothing, or it cannot be read.
        """

    def described(self) -> Description | None:
        """Return what the source itself says of its tables; None if it does not, as rows and files."""
        return None

    @abstractmethod
    def tables(self, description: Description) -> frozenset[str]:
        """Name the tables (``schema.table``) whose rows are there.

        Raises:
            ConfigError: nothing says which tables they are.
        """

    @abstractmethod
    def rows(self, relations: Collection[Relation], description: Description) -> BaseRows:
        """Return the rows of some tables, which were not read yet."""

    def files(self, description: str) -> CopiedFiles | None:
        """Return what it takes to read the rows once more, when `open` has found them; None if that cannot be.

        Args:
            description: of the tables, as ``describe.sql`` writes it.
        """
        return None

    def errors(self) -> AbstractContextManager[None]:
        """Turn what is raised while the rows are read into what the source knows of it."""
        return nullcontext()

    def check(self, rows: Mapping[int, int]) -> None:  # noqa: B027 (most have nothing to look at)
        """Check, once all rows are staged, whether they are what they should be.

        Args:
            rows: how many were found of each table that is loaded, by its oid.

        Raises:
            WalReplayError: they are not.
        """


BYTES_A_BATCH: Final = {"spark.sql.execution.arrow.maxBytesPerBatch": str(32 << 20)}
"""Rows may be large, and Spark counts them else."""


class FrameOfBase(BaseSource):
    """A DataFrame that Spark has, of a table or of a query, with the rows of the one table that is named."""

    def __init__(self, frame: DataFrame, origin: str, table: str | None) -> None:
        self._frame = frame
        self._table = table or ""
        self.origin = origin

    def open(self) -> None:
        """Look whether it is said whose rows they are."""
        if not self._table:
            problem = "it is not said which table's rows they are"
            raise ConfigError(problem, path=self.origin, remedy="Give --table schema.table")

    def tables(self, description: Description) -> frozenset[str]:
        """Name the table."""
        return frozenset([self._table])

    def rows(self, relations: Collection[Relation], description: Description) -> BaseRows:
        """Return the rows."""
        relation = description.relation(self._table)
        order = tuple(order_of(relation, self._frame.columns, self.origin, by_captures=description.by_captures))

        def works(task: LoadTask) -> Works:
            load = partial(load_rows, task=task, relation=relation, order=order, path=self.origin)
            one_row = self._frame.sparkSession.range(0, 1, 1, 1)  # without a row there may be no task
            made = partial(make_tables, task=task)
            return [(with_part(self._frame), load), (one_row, made)], BYTES_A_BATCH

        return BaseRows(0, None, None, works)


_MAX_NAMED: Final = 5  # So many of the files that are left out are named

_FEW_PARTS: Final = 32
_MAX_TASKS: Final = 1024


class FilesOfBase(BaseSource):
    """A folder of files, or one file; ``table``: the one that all files are of, or of a dump the one that is wanted."""

    def __init__(self, spark: SparkSession, origin: str, options: CopyOptions, table: str | None) -> None:
        self._spark = spark
        self._options = options
        self._table = table
        self._files: Sequence[BaseFile] = ()
        self._counted: Mapping[int, tuple[str, int]] = {}  # by oid: a table's name, and its rows when it was copied
        self.origin = origin

    @property
    def place(self) -> str:
        """Return the folder, wherever the program was started."""
        return root_of(self.origin)

    def open(self) -> None:
        """List the files: of a dump those of the one table, if one is named."""
        files = list_base(self._spark, self.origin)
        self._files = [file for file in files if file.section is None or self._table in (None, file.section.table)]
        if not self._files:
            raise ConfigError("there are no rows of the table", path=self.origin, table=self._table)

    def tables(self, description: Description) -> frozenset[str]:
        """Name the tables whose rows are there, or are counted, so that they should be there."""
        named = {file: self._table_of(file, description) for file in self._files}
        names = {name for name in named.values() if name is not None}
        left_out = [file.path for file, name in named.items() if name is None]
        if left_out:
            others = f" and {len(left_out) - _MAX_NAMED} more" if len(left_out) > _MAX_NAMED else ""
            self.warnings = [
                f"left out, as their names begin with . or _, and no table is called so: "
                f"{', '.join(left_out[:_MAX_NAMED])}{others}"
            ]
        if not names:
            raise ConfigError("there are no files of tables", path=self.origin, remedy="Check --from")
        # A folder should have a file of each table that was counted; one file is one table's.
        if self._table is None and not is_same(self._files[0].path, root_of(self.origin)):
            relations = (relation for versions in description.relations.values() for relation in versions)
            names |= {relation.qualified_name for relation in relations if relation.oid in description.rows}
        return frozenset(names)

    def files(self, description: str) -> CopiedFiles:
        """Return what it takes to read the files once more."""
        # Below the folder, or the one file's own name: the folder may move.
        root = root_of(self.origin).removeprefix(LOCAL_SCHEME).strip("/")
        lengths = sorted((file.path.partition(root)[2], file.length) for file in self._files)
        digest = hashlib.sha256(json.dumps(lengths).encode()).hexdigest()
        changed = max(file.changed for file in self._files)
        return CopiedFiles(self._table, self._options, description, digest, changed)

    def rows(self, relations: Collection[Relation], description: Description) -> BaseRows:
        """Return the rows of some tables, which were not read yet.

        Raises:
            CaptureError: of a table that has rows there is no file.
            ConfigError: a dump has rows that are not published.
        """
        counts = description.rows
        counted = [relation for relation in relations if relation.oid in counts]
        self._counted = {relation.oid: (relation.qualified_name, counts[relation.oid]) for relation in counted}
        named = ((file, self._table_of(file, description)) for file in self._files)
        tables = [(file, description.relation(name)) for file, name in named if name is not None]
        chosen = [(file, relation) for file, relation in tables if relation in relations]
        _check_published(chosen, description)
        files = [file for file, _ in chosen]
        with_files = {relation for _, relation in chosen}
        without = [relation for relation in relations if relation not in with_files]
        self.check({relation.oid: 0 for relation in without})  # an object store may keep no empty file
        parts = parts_of(files, [relation for _, relation in chosen], self._options)

        def works(task: LoadTask) -> Works:
            rows, values = _rows_to_read(self._spark, parts)
            read = rows, partial(load_batches, task=task, parts=parts, options=self._options)
            made = self._spark.range(0, 1, 1, 1), partial(make_tables, task=task)
            return [read, made] if without else [read], values

        return BaseRows(len({file.path for file in files}), sum(file.length for file in files), len(parts), works)

    def check(self, rows: Mapping[int, int]) -> None:
        """Check whether all rows are there that were copied."""
        for oid, count in rows.items():
            name, copied = self._counted.get(oid, ("", count))
            if copied != count:
                raise CaptureError(
                    f"{copied:,} rows of the table were copied, and {count:,} are here",
                    path=self.origin,
                    table=name,
                    remedy="A file is missing, was cut off, or is not of this copy: bring the files again as they were "
                    "copied, and --describe with them",
                )

    def _table_of(self, file: BaseFile, description: Description) -> str | None:
        root, described = root_of(self.origin), description.relations.keys()
        if file.section is not None:
            return file.section.table
        if self._table is None or file.is_hidden:
            try:
                return table_of(file.path, root, [self._table] if self._table else described)
            except ConfigError:
                refuse_archive(file)
                raise
        # One file may be named anyhow; in a folder of all tables the others' rows must not become this one's.
        with suppress(ConfigError):
            other = None if is_same(file.path, root) else table_of(file.path, root, described)
            if other not in (None, self._table):
                raise NotSupported(
                    f"the file is named like another table, {other}",
                    path=file.path,
                    table=self._table,
                    remedy="Give --from the file, or a folder of this table's files alone",
                )
        return self._table


def _check_published(files: Sequence[tuple[BaseFile, Relation]], description: Description) -> None:
    """Refuse a dump of a table of which a part is published: pg_dump knows nothing of row filters."""
    for file, relation in files:
        if file.section is not None and relation.oid in description.row_filters:
            raise ConfigError(
                "the dump has all rows of the table, and the publication sends a part of them",
                path=file.path,
                table=relation.qualified_name,
                remedy="Copy the table by base.sh, or load it from the database itself (docs/starting.md)",
            )


def _rows_to_read(spark: SparkSession, parts: Sequence[LoadPart]) -> tuple[DataFrame, Mapping[str, str]]:
    """Return a row for each part, as `load_batches` takes them, and the settings for the job."""
    paths = [part.path for part in parts]
    if are_mapped(paths):
        tasks = None if len(parts) <= _FEW_PARTS else min(len(parts), _MAX_TASKS)
        return number_files(spark, len(parts), tasks), {}
    frame = spark.read.format("binaryFile").load([escape_glob(path) for path in paths])
    return frame.select("path", "content"), files_a_batch(paths)


DRIVER: Final = "org.postgresql.Driver"

CONNECTIONS: Final = 8  # So many sessions read at a time, if nothing else is said: a server has a hundred for everybody

_EVERYTHING: Final = ("true",)


class DatabaseOfBase(BaseSource):
    """Tables of a PostgreSQL database, over JDBC, with a snapshot that all of Spark's sessions use.

    With a number of rows to fetch, Spark switches autocommit off, so a session's first statements and its query are one
    transaction.  `walreplay.loading.database` has both, and makes a session fail that has not got the snapshot.

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
        publication: str | None = None,
        table: str | None = None,
        snapshot: str | None = None,
        connections: int | None = None,
    ) -> None:
        if publication is None and table is None:
            raise ConfigError(
                "it is not said which tables are to be read",
                path=address.shown,
                remedy="Give --publication, whose tables they are, or --table schema.table",
            )
        if connections is not None and connections < 1:
            raise ConfigError("connections has to be 1 or more", path=address.shown)
        self.origin = address.shown
        self._spark = spark
        self._url = address.url
        self._lsn = lsn
        self._snapshot = snapshot
        self._connections = connections or CONNECTIONS
        self._publication = {} if publication is None else {"walreplay.publication": publication}  # for describe.sql
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
        all_relations = (relation for versions in described.relations.values() for relation in versions)
        relations = [relation for relation in all_relations if self._table in (None, relation.qualified_name)]
        if not relations:
            problem = "the database has no such table or publication"
            raise ConfigError(problem, path=self.origin, remedy="Check the names")
        self._description = Description.of(relations, described.types, row_filters=described.row_filters)
        self._tables = {relation.oid: relation.qualified_name for relation in relations}
        self._pieces = self._ask_pieces()
        if not self._publication and any(piece.oid not in self._tables for piece in self._pieces):
            # Without publish_via_partition_root the stream names the partitions alone.
            self.warnings = [
                f"{self._table}: partitioned, and no publication is named: if it is published by its partitions, their "
                "changes become tables of their own and never reach this one. Give --publication"
            ]
        self._check_kept(self._pieces)

    def described(self) -> Description:
        """Return what the catalogs say, as of the snapshot."""
        return self._description

    def tables(self, description: Description) -> frozenset[str]:
        """Name the tables."""
        return frozenset(self._tables.values())

    def rows(self, relations: Collection[Relation], description: Description) -> BaseRows:
        """Return the rows, in parts of some blocks each."""
        by_name = {relation.qualified_name: relation for relation in relations}
        pieces = [piece for piece in self._pieces if piece.table in by_name]
        parts = {piece.oid: database.ranges_of(piece, self._server.block_size) for piece in pieces}

        def works(task: LoadTask) -> Works:
            works_of_pieces: list[tuple[DataFrame, partial[Iterator[object]]]] = []
            first = 0
            for piece in pieces:
                relation = by_name[piece.table]  # it may be the one that the target knows already
                query = database.rows_query(piece, relation)
                fetch_size = database.rows_at_a_time(piece)
                frame = self._read(query, parts[piece.oid], fetch_size, database.session_statements(self._snapshot))
                columns = tuple(range(len(relation.columns)))
                names = [f"c{number}" for number in columns] or ["c0"]  # a query needs a column
                load = partial(load_rows, task=task, relation=relation, order=columns, path=self.origin, first=first)
                works_of_pieces.append((with_part(frame.select(*names)), load))
                first += len(parts[piece.oid])  # parts are numbered through all pieces
            one_row = self._spark.range(0, 1, 1, 1)
            return [*works_of_pieces, (one_row, partial(make_tables, task=task))], BYTES_A_BATCH

        count = sum(len(ranges) for ranges in parts.values())
        return BaseRows(0, sum(piece.size for piece in pieces), count, works, self._connections)

    def check(self, rows: Mapping[int, int]) -> None:
        """Check whether all has kept to the snapshot, and whether a standby is still at rest."""
        pieces = self._ask_pieces()
        self._check_kept(pieces)
        server, moved = self._ask_server(), {piece.table for piece in pieces if piece.is_elsewhere}
        emptied = {oid: server.position for oid, name in self._tables.items() if name in moved}
        self._description = replace(self._description, emptied=emptied)

    def _ask_server(self) -> database.Server:
        (line,) = self._lines(database.SERVER)
        server = database.read_server(line)
        try:
            database.check_moment(server, self._snapshot, self._lsn)
        except WalReplayError as error:
            raise error.at(path=self.origin) from None
        return server

    def _ask_pieces(self, *, now: bool = False) -> tuple[database.TablePiece, ...]:
        lines = self._lines(database.PIECES, database.tables_setting(self._tables), now=now)
        return database.read_pieces(lines, self._server, self._tables, self._description.row_filters)

    def _check_kept(self, seen: Sequence[database.TablePiece]) -> None:
        if self._snapshot is None:
            return  # the server is at rest
        tables, kept = {**database.tables_setting(self._tables), **database.BY_PART}, script("kept.sql")
        lines = self._lines(kept, {**tables, **database.MOVED})
        try:
            database.check_kept(lines, self._lines(kept, tables, now=True) if lines else ())
            if any(piece.is_elsewhere for piece in seen):
                database.check_blocks(seen, self._ask_pieces(now=True), self._server)
        except WalReplayError as error:
            raise error.at(path=self.origin) from None

    def _lines(self, statement: str, settings: Mapping[str, str] | None = None, *, now: bool = False) -> list[str]:
        """Run a query that returns lines of JSON.

        Args:
            settings: the settings that it reads.
            now: as things are now, whatever the snapshot sees.
        """
        with self.errors():
            first = database.session_statements(None if now else self._snapshot, settings)
            return [row.line for row in self._read(database.query_of(statement), _EVERYTHING, 1000, first).collect()]

    def _read(self, query: str, ranges: Sequence[str], fetch_size: int, first: str) -> DataFrame:
        properties = {**self._properties, "sessionInitStatement": first, "fetchsize": str(fetch_size)}
        with self.errors():
            # Each predicate becomes a partition of the frame, which a session of its own reads.
            return self._spark.read.jdbc(self._url, query, predicates=list(ranges), properties=properties)

    @contextmanager
    def errors(self) -> Iterator[None]:
        """Return why the database cannot be read, where that is known."""
        try:
            yield
        except WalReplayError:
            raise
        except Exception as error:
            # What Java has thrown stands in the text, or behind it.
            text = "".join(map(str, (error, getattr(error, "_cause", ""), *traceback.format_exception(error))))
            problem = database.problem_of(text)
            if problem is None:
                raise
            raise SparkFailure(problem[0], path=self.origin, remedy=problem[1]) from None
