"""The index of an archive: a Delta table with one row for each capture file, and each way in which it was read.

A row has what people ask for in columns of its own.  ``scan`` has what a later run needs to join the file to its stream
without reading it: a pickle.  Whoever may write to the index could put another pickle there, so `unpack` makes nothing
of it but what scans consist of.  The index is a cache: nothing else depends on it, and files are scanned again if it
is lost or this version cannot read it.

`Recording` collects rows while files are joined, and `ArchiveIndex` writes them: by MERGE on the file's name and way,
or by an append where all of them are new.  Of two writers at the same time one tries again.  An append and a MERGE may
miss each other and leave two rows of a file: the later one counts, and the next MERGE removes the other.
"""

from __future__ import annotations

import io
import pickle
import random
import re
import time
import uuid
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import pyarrow as pa
from pyspark.sql import functions as f

from walreplay.archive.facts import FileFacts, Follower, Open, RelationChangeCounts, standing, values_of
from walreplay.config import Settings
from walreplay.decode.partitions import Partition
from walreplay.decode.summary import Block, Body, Counts, Decided, FileScan, Part, Summary, TruncateAt, XidCounts
from walreplay.decode.walk import Place, Transaction
from walreplay.delta import statements as delta
from walreplay.delta.local import newest_version
from walreplay.delta.statements import sql_schema
from walreplay.delta.target import TableName, Target
from walreplay.errors import CaptureError, ConfigError, TargetError, WalReplayError
from walreplay.protocol import messages as m
from walreplay.protocol.framing import Framing
from walreplay.session.failures import failure_of, is_refused
from walreplay.session.isolation import one_name, session_with
from walreplay.session.reach import folder_of
from walreplay.spark.captures import INDEX_FOLDER as INDEX_FOLDER
from walreplay.spark.captures import CaptureFile, root_of
from walreplay.stream.stitch import Stitch
from walreplay.writing.by_files import choose_writer
from walreplay.writing.writer import Append

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


FORMAT: Final = 9
"""To be raised with each change of these classes, or of what a scan finds: files are scanned again then."""

CLASSES: Final = (
    *(FileScan, Part, Summary, Block, Body, Decided, Counts, TruncateAt, XidCounts),
    *(Partition, Place, Transaction, Framing, m.Relation, m.Column, m.Type, m.Message),
    *(m.StreamCommit, m.StreamAbort, m.StreamPrepare, m.Prepare, m.CommitPrepared, m.RollbackPrepared),
)

_KNOWN: Final = {(kind.__module__, kind.__qualname__): kind for kind in CLASSES}

MOST_BYTES: Final = 16 << 20
"""A scan that takes more is not kept: an unfinished message of that size is in it.  The file is scanned again."""

_MOST_INFLATED: Final = 256 << 20


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        try:
            return _KNOWN[module, name]  # any other class could run code when it is made
        except KeyError:
            raise pickle.UnpicklingError(f"a scan has no {name}") from None


def pack(scan: FileScan) -> bytes | None:
    """Return a scan as bytes; None if they are too many to be kept."""
    data = pickle.dumps(replace(scan, known_fingerprint=0), 4)  # what an earlier run knew is no part of the scan
    packed = zlib.compress(data, 1)
    return packed if len(packed) <= MOST_BYTES and len(data) <= _MOST_INFLATED else None


def unpack(packed: bytes, path: str) -> FileScan | None:
    """Read what `pack` gave; None where it is anything else."""
    inflate = zlib.decompressobj()
    try:
        data = inflate.decompress(packed, _MOST_INFLATED)  # a few bytes could inflate to more than memory
        scan = _Unpickler(io.BytesIO(data)).load()
    except Exception:
        # Whatever damaged bytes lead to, the file itself tells all again.
        return None
    if not inflate.eof or not isinstance(scan, FileScan):  # more than the limit, or cut off
        return None
    scan.path = path  # archives may be moved; the row has only the name below their folder
    return scan


# The table

_TIMESTAMP: Final = pa.timestamp("us", "UTC")

_KINDS: Final = {"int": pa.int64(), "str": pa.string(), "Kind": pa.string(), "datetime": _TIMESTAMP}


def _struct_of(record: type[Open | RelationChangeCounts]) -> pa.StructType:
    """Return the type of the column in which a file's records are."""
    return pa.struct([(field.name, _KINDS[str(field.type).removesuffix(" | None")]) for field in fields(record)])


SCHEMA: Final = pa.schema(
    [
        ("name", pa.string()),
        ("length", pa.int64()),
        ("modified", _TIMESTAMP),
        ("size", pa.int64()),
        ("checksum", pa.int64()),
        ("framing", pa.string()),
        ("compression", pa.string()),
        ("first_lsn", pa.int64()),
        ("last_lsn", pa.int64()),
        ("first_commit_ts", _TIMESTAMP),
        ("last_commit_ts", _TIMESTAMP),
        ("transactions", pa.int64()),
        ("resent", pa.int64()),
        ("changes", pa.int64()),
        ("sessions", pa.int64()),
        ("relations", pa.list_(_struct_of(RelationChangeCounts))),
        ("open_at_start", pa.list_(_struct_of(Open))),
        ("open_at_end", pa.list_(_struct_of(Open))),
        ("torn_bytes", pa.int64()),
        ("unfinished_bytes", pa.int64()),
        ("warnings", pa.list_(pa.string())),
        ("indexed_at", _TIMESTAMP),
        ("facts", pa.string()),
        ("scanned_as", pa.string()),
        ("scanned_at", pa.string()),
        ("scan_bytes", pa.int64()),
        ("scan", pa.binary()),
    ]
)
"""``facts`` is the columns' digest; ``scanned_as`` says how the file was read, ``scanned_at`` what the scan depends on
(`standing`), NULL for nothing."""

_UNIX_EPOCH: Final = datetime(1970, 1, 1, tzinfo=timezone.utc)

_TRIES: Final = 12
_APPEND_TRIES: Final = 3

_MOST_APPENDED: Final = 1_000
_MOST_PACKED: Final = 32 << 20
"""So many rows, with so many bytes of scans, are written at a time; all of an append's become visible at once."""

_FEW_NAMES: Final = 100

_SAME: Final = "t.name = s.name AND t.scanned_as = s.scanned_as"
"""Targets may read an archive in several ways, and archives may share an index: none is to overwrite another's rows."""

_KEPT: Final = (
    *("name", "length", "unix_micros(modified) AS modified", "checksum"),
    *("facts", "scanned_as", "scanned_at", "scan_bytes", "unix_micros(indexed_at) AS indexed"),
)

_APPENDS: Final = "walreplay index"  # What appends are numbered for, so that of two at the same time one fails

_GLOB: Final = re.compile(r"[\[\]{}*?\\]")

_REMEDY: Final = "Delete it, and it is made again from the captures; or name another place by --index URI"
_DENIED_REMEDY: Final = "Name a place by --index URI where it may be written"


def home_of(captures: str, files: Sequence[CaptureFile]) -> str:
    """Return the folder that an archive's files are named below: above a glob's first part, or above a single file."""
    root = root_of(captures)
    parts = root.split("/")
    # A folder's name may have such characters, too: then files lie below the root as it is written.
    first = next((number for number, part in enumerate(parts) if _GLOB.search(part)), None)
    if first is not None and not any(_plain(file.path).startswith(f"{_plain(root)}/") for file in files):
        return "/".join(parts[:first])
    if len(files) == 1 and _plain(files[0].path) == _plain(root):
        return root.rpartition("/")[0]
    return root


def _plain(path: str) -> str:
    """Return a path in the one form of several that mean the same."""
    return re.sub(r"^file:/+", "/", one_name(path))  # file:/a, file:///a and /a are one path


def name_below(home: str, path: str) -> str:
    """Return a file's name below a folder; of one that lies elsewhere its whole path."""
    return _plain(path).removeprefix(f"{_plain(home)}/")


def table_of(index: str | None, home: str) -> TableName:
    """Return the table of an index.

    Args:
        index: a folder's URI, or a table's name in a catalog; None for the one in the archive's folder.

    Raises:
        ConfigError: it can be no table's place, or its files would be taken for captures.
    """
    if index is None:
        return TableName(path=f"{home}/{INDEX_FOLDER}")
    parts = tuple(index.strip().split("."))
    if "/" not in index and ":" not in index and len(parts) == 3 and all(parts):  # a URI or path has a slash or colon
        return TableName(parts=parts)
    root = Target.parse(index).root
    if root is None:
        raise ConfigError(
            f"{index!r} names no table for the index",
            remedy="Give a folder's URI (./index, s3a://bucket/index), or catalog.schema.table",
        )
    below = name_below(home, root)
    if _plain(root) == _plain(home) or (below != _plain(root) and INDEX_FOLDER not in below.split("/")):
        raise ConfigError(
            "the index would lie among the captures, and be read as one of them",
            path=index,
            remedy=f"Give it a folder elsewhere, or leave --index out: it lies in {home}/{INDEX_FOLDER} then",
        )
    return TableName(path=root)


@dataclass(frozen=True, slots=True)
class KnownScan:
    """A file's scan, as the index has it or is to have it.

    Attributes:
        standing: what it depends on (`standing`); None if it was made on a guess, which the stream checks again.
    """

    scan: FileScan
    standing: str | None

    def join(self, stitch: Stitch, *, gap: bool = False) -> bool:
        """Add the file to the stream it is the next of; return False if it has to be read for that.

        Args:
            gap: what is in front of it is lost; see `standing`.
        """
        if self.standing is None and not gap:  # behind a gap there is nothing that a guess could be compared with
            return stitch.add(self.scan)
        if self.standing != standing(stitch, gap=gap):
            return False
        stitch.add_exact(self.scan)
        return True


@dataclass(frozen=True, slots=True)
class _Row:
    length: int
    modified: int
    checksum: int
    facts: str
    scanned_as: str
    scanned_at: str | None
    scan_bytes: int = 0


_Files: TypeAlias = Sequence[tuple[FileFacts, KnownScan]]


class ArchiveIndex:
    """The index of one archive."""

    def __init__(self, spark: SparkSession, table: TableName, home: str, settings: Settings) -> None:
        self._spark = spark
        self._table = table
        self._home = home
        self._how = f"{FORMAT} {settings.framing} {settings.source_codec}"
        if table.path is None or not _plain(table.path).startswith(f"{_plain(home)}/"):
            # Another archive may have files of the same names, lengths and times.
            self._how += f" {home}"
        self._rows: dict[str, _Row] | None = None
        self._names: frozenset[str] | None = None
        self._seen: int | None = None  # the version of the table that `_rows` is of
        self._spoilt: set[str] = set()  # rows that could not be read, by name; an append would leave two
        self._has_doubles = False

    @property
    def table(self) -> TableName:
        """Where it is."""
        return self._table

    def name_of(self, path: str) -> str:
        """Return a file's name in the index."""
        return name_below(self._home, path)

    def sizes(self, files: Iterable[CaptureFile]) -> dict[str, int]:
        """Return the files, by path, that are as they were when they were scanned, and how large their scans are."""
        scan_sizes = {}
        for file in files:
            row = self._read().get(self.name_of(file.path))
            if row is not None and self._holds(row, file):
                scan_sizes[file.path] = row.scan_bytes
        return scan_sizes

    def known(self, files: Iterable[CaptureFile]) -> dict[str, KnownScan]:
        """Return what is known of files, by path, without reading them: of those that are as they were then.

        All of it is in memory: some kilobytes a file, at most 16 MiB.
        """
        paths_by_name = {self.name_of(file.path): file.path for file in files if file.path in self.sizes([file])}
        if not paths_by_name:
            return {}
        scans: dict[str, KnownScan] = {}
        rows = self._read()
        with index_errors(self._table.text), session_with(self._spark, delta.SMALL_STATE) as spark:
            kept = delta.read(spark, self._table).where(f.col("name").isin(list(paths_by_name)))
            kept = kept.where(f.col("scan").isNotNull() & (f.col("scanned_as") == self._how))
            for row in kept.select("name", "facts", "scanned_at", "scan").collect():
                path = paths_by_name[row.name]
                scan = unpack(bytes(row.scan), path) if row.facts == rows[row.name].facts else None
                if scan is not None and scan.length == rows[row.name].length:
                    scans[path] = KnownScan(scan, row.scanned_at)
        for name, path in paths_by_name.items():
            if path not in scans:
                # The row is not what it says, or another has been written meanwhile: it is written anew.
                rows.pop(name, None)
                self._spoilt.add(name)
        return scans

    def compare(self, facts: FileFacts) -> CaptureError | bool:
        """Compare a file that was read with its row: an error if the row is of other bytes; False if there is no row.

        A file that has grown since is not compared.
        """
        row = self._read().get(facts.name)
        if row is None or row.scanned_as != self._how or row.length < facts.length:
            return False
        if row.length == facts.length and row.checksum == facts.checksum:
            return True
        length = f" (it had {row.length:,} bytes, and has {facts.length:,})" if row.length != facts.length else ""
        return CaptureError(
            f"the file's bytes are not those that were indexed{length}",
            path=facts.name,
            remedy=f"Restore the file; or, if it is right, delete the index ({self._table.text}), and make it again",
        )

    def add(self, files: _Files) -> int:
        """Write the rows of files, where they are not there as they are; return how many were written.

        Raises:
            TargetError: the index cannot be written to.
        """
        known_rows = self._read([facts.name for facts, _ in files])
        rows = [row for facts, scan in files if (row := self._row_of(facts, scan, known_rows)) is not None]
        if rows or self._has_doubles:
            with index_errors(self._table.text):
                self._merge(rows)
        return len(rows)

    def add_unknown(self, files: _Files) -> int:
        """Write the rows of those files of which none is there for the file as it is, in one commit; return how many.

        Raises:
            TargetError: the index cannot be written to.
        """
        with index_errors(self._table.text):
            for _ in range(_APPEND_TRIES):
                with session_with(self._spark, delta.FEW_ROWS) as spark:
                    # It begins before the rows are read: whoever appends later than that is in conflict with it.
                    writer = choose_writer(spark, Target(self._table.path))
                    is_new = not delta.exists(spark, self._table)
                    append = writer.begin_append(spark, self._table, SCHEMA, create=is_new)
                    if self._seen is None or self._seen != self._version():  # somebody may have written since
                        self._rows = None
                    known_rows = self._read([facts.name for facts, _ in files])
                    new_files = [entry for entry in files if not self._holds(known_rows.get(entry[0].name), entry[0])]
                    if not new_files:
                        return 0
                    # An append would leave an old row beside the new one, so these are merged.
                    if any(facts.name in known_rows or facts.name in self._spoilt for facts, _ in new_files):
                        break
                    if self._append(append, new_files, known_rows):
                        return len(new_files)
                # Somebody else has appended; or his clock is wrong, and no number is higher than his.
                self._rows = None
        return self.add(new_files)

    def _row_of(self, facts: FileFacts, scanned: KnownScan, known_rows: dict[str, _Row]) -> dict[str, Any] | None:
        """Return a file's row, and take it for known from here on; None if it is there already."""
        row = _Row(facts.length, facts.modified, facts.checksum, facts.digest, self._how, scanned.standing)
        previous = known_rows.get(facts.name)
        if previous is not None and replace(previous, scan_bytes=row.scan_bytes) == row:  # it is not packed yet
            return None
        packed = pack(scanned.scan)
        known_rows[facts.name] = row = replace(row, scan_bytes=len(packed or b""))
        return {
            **values_of(facts),
            "modified": _UNIX_EPOCH + timedelta(microseconds=facts.modified),
            "indexed_at": datetime.now(timezone.utc),
            "facts": row.facts,
            "scanned_as": row.scanned_as,
            "scanned_at": row.scanned_at,
            "scan_bytes": row.scan_bytes,
            "scan": packed,
        }

    def exists(self) -> bool:
        """Return whether there is an index.

        Raises:
            TargetError: its place cannot be looked at.
        """
        with index_errors(self._table.text):
            return delta.exists(self._spark, self._table)

    def _holds(self, row: _Row | None, file: CaptureFile | FileFacts) -> bool:
        if row is None:
            return False
        same = (row.length, row.modified, row.scanned_as) == (file.length, file.modified, self._how)
        return same and row.scan_bytes > 0  # 0: the scan was too large to be kept

    def _read(self, names: Sequence[str] | None = None) -> dict[str, _Row]:
        """Return the rows without their scans, by name; what could not be read is read again by the next call.

        Args:
            names: those that are asked for; of some, the files of the table are not read that cannot have them.
        """
        asked_names = None if names is None or len(names) > _FEW_NAMES else frozenset(names)
        if self._rows is not None and (self._names is None or (asked_names is not None and asked_names <= self._names)):
            return self._rows
        self._rows, result, self._seen = None, dict[str, _Row](), self._version()
        with index_errors(self._table.text), session_with(self._spark, delta.FEW_ROWS) as spark:
            if not delta.exists(spark, self._table):
                self._rows, self._names = result, None
                return result
            kept = delta.read(spark, self._table)
            if asked_names is not None:
                kept = kept.where(f.col("name").isin(sorted(asked_names)))
            rows = kept.selectExpr(*_KEPT).collect()
            matching = [row for row in rows if row.scanned_as == self._how]
            for row in sorted(matching, key=lambda row: row.indexed):  # of two rows of a file the later one counts
                kept_as = row.facts, row.scanned_as, row.scanned_at, row.scan_bytes
                result[row.name] = _Row(row.length, row.modified, row.checksum, *kept_as)
        is_old = any(not row.scanned_as.startswith(f"{FORMAT} ") for row in rows)  # useless to this version
        self._rows, self._names = result, asked_names
        self._has_doubles = len(result) < len(matching) or is_old
        return result

    def _version(self) -> int | None:
        """Return the table's newest version, or -1 if there is none; None if only Spark can tell."""
        folder = folder_of(self._spark, self._table.path)
        return None if folder is None else newest_version(folder)

    def _append(self, append: Append, files: _Files, known_rows: dict[str, _Row]) -> bool:
        """Append the rows of files; return whether it is certain that they are there."""
        names = SCHEMA.names
        # A later append has a higher number, by whomever.
        commit = delta.CommitId(_APPENDS, time.time_ns() // 1000)
        try:
            rows, size = list[tuple[Any, ...]](), 0
            for row in filter(None, (self._row_of(*file, known_rows) for file in files)):
                rows.append(tuple(_plain_value(row[name]) for name in names))
                size += row["scan_bytes"]
                if len(rows) >= _MOST_APPENDED or size >= _MOST_PACKED:
                    append.write_rows(rows)
                    rows, size = [], 0
            if rows:
                append.write_rows(rows)
            return append.commit(commit, follows=False) is not None
        except Exception as error:
            if not delta.is_conflict(error):  # a conflict: somebody has appended since the writer was opened
                raise
            return False

    def _merge(self, rows: Sequence[dict[str, Any]]) -> None:
        view = f"walreplay_index_{uuid.uuid4().hex}"
        for tries_left in reversed(range(_TRIES)):
            try:
                with session_with(self._spark, delta.FEW_ROWS_REWRITTEN) as spark:
                    values = [tuple(row[name] for name in SCHEMA.names) for row in rows]
                    frame = spark.createDataFrame(values, sql_schema(SCHEMA)).coalesce(1)  # one file for a few rows
                    if not delta.exists(spark, self._table):
                        # Empty: of two who make it at once one fails, and finds it made.
                        delta.write(frame.limit(0), self._table, "append", create=delta.NewTable())
                    frame.createOrReplaceTempView(view)
                    try:
                        spark.sql(
                            f"MERGE INTO {self._table.sql} AS t USING {view} AS s ON {_SAME} "
                            "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
                        ).collect()
                    finally:
                        spark.catalog.dropTempView(view)
                    if self._has_doubles:
                        self._remove_doubles(spark)
                return
            except Exception as error:
                if not tries_left or not delta.is_conflict(error):
                    raise
                time.sleep(random.uniform(0.1, 1.0))  # so that two writers do not meet again

    def _remove_doubles(self, spark: SparkSession) -> None:
        """Remove all but the newest of the rows of a file, and those that another version of walreplay has left."""
        newest = f"SELECT name, scanned_as, max(indexed_at) AS newest FROM {self._table.sql} GROUP BY name, scanned_as"
        spark.sql(
            f"MERGE INTO {self._table.sql} AS t USING ({newest}) AS s ON {_SAME} "
            f"AND (t.indexed_at < s.newest OR NOT startswith(t.scanned_as, '{FORMAT} ')) WHEN MATCHED THEN DELETE"
        ).collect()
        self._has_doubles = False


def _plain_value(value: Any) -> Any:
    """Return a value with tuples for records."""
    if isinstance(value, list):
        return [_plain_value(element) for element in value]
    return tuple(value.values()) if isinstance(value, dict) else value


@contextmanager
def index_errors(table: str) -> Iterator[None]:
    """Turn what Spark cannot do with an index's table into an error for people."""
    try:
        yield
    except (WalReplayError, ConnectionError):
        raise
    except Exception as error:
        failure = failure_of(error)
        if failure is None and not isinstance(error, OSError):
            raise
        problem = failure.problem if failure else getattr(error, "strerror", None) or type(error).__name__
        place = (failure.path if failure else getattr(error, "filename", None)) or table
        remedy = _DENIED_REMEDY if is_refused(problem) else _REMEDY
        raise TargetError(f"the index cannot be read or written: {problem}", path=place, remedy=remedy) from error


class Recording:
    """Follows a stitch: `look` before a file is added to it, `take` behind it, and `write` (or another) at the end."""

    def __init__(self, index: ArchiveIndex, stitch: Stitch) -> None:
        self._index = index
        self._follower = Follower(stitch, index.name_of)
        self._rows: list[tuple[FileFacts, KnownScan]] = []
        self._standing = standing(stitch)

    def look(self, stitch: Stitch, *, gap: bool = False) -> str:
        """Note the stitch's place; return it in short (`standing`)."""
        self._follower.look(stitch)
        self._standing = standing(stitch, gap=gap)
        return self._standing

    def take(self, stitch: Stitch, file: CaptureFile, scan: FileScan) -> FileFacts:
        """Take the file that was just added, scanned from its beginning, and return its facts."""
        facts = self._follower.take(stitch, scan, file.modified)
        self._rows.append((facts, KnownScan(scan, None if scan.guessed else self._standing)))
        return facts

    def write(self) -> int:
        """Write the rows of the files since the last call, where they are not there as they are; return how many.

        Raises:
            TargetError: the index cannot be written.
        """
        rows, self._rows = self._rows, []
        return self._index.add(rows)

    def add_sound(self) -> int:
        """Write the rows of the files since the last call; those of files that have other bytes now stay as they are.

        Raises:
            TargetError: the index cannot be read or written.
        """
        rows, self._rows = self._rows, []
        return self._index.add([row for row in rows if not isinstance(self._index.compare(row[0]), CaptureError)])

    def forget(self) -> int:
        """Write none of the rows since the last call."""
        self._rows = []
        return 0

    def add(self) -> int:
        """Write the rows of the files since the last call, in one commit; those that are there for a file stay.

        It is for who may know less of the archive than who wrote them: where its stream begins, and which files it has.

        Raises:
            TargetError: the index cannot be written.
        """
        rows, self._rows = self._rows, []
        return self._index.add_unknown(rows)
