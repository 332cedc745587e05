"""The index of an archive: a Delta table with one row for each capture file, and each way in which it was read.

A row has facts of a file, and the checksum that proves its bytes.  A run scans its files itself, and what it reads has
to agree with the rows (`ScanTask.proof`), as has its listing (`ArchiveIndex.check`).  A changed row contradicts its
file; one that was taken out is missed in the ``stream`` of the rows behind it.  Who can write rows could make any
digests anew: an index is as safe as its place.  Rows of other versions of walreplay prove, too: of their files only the
facts are found anew, and then they are removed.

`ArchiveIndex` writes what a `Recording` has collected: by MERGE on the file's name and way, or by an append where all
of them are new.  Of two writers at the same time one tries again.  An append and a MERGE may miss each other and leave
two rows of a file: the later one counts, and the next MERGE removes the other, unless one has made equals of them.
"""

from __future__ import annotations

import hashlib
import random
import re
import time
import uuid
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import astuple, dataclass, fields, replace
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pydantic import ValidationError
from pyspark.sql import functions as f

from walreplay.archive.facts import FileFacts, FoundFile, Open, RelationChangeCounts
from walreplay.config import Settings
from walreplay.decode.files import ScanTask
from walreplay.decode.proof import ACCEPT, NOTHING, Proof
from walreplay.decode.scan import Until
from walreplay.delta import statements as delta
from walreplay.delta.local import newest_version
from walreplay.delta.target import TableName, Target
from walreplay.errors import CaptureError, ConfigError, NotACapture, OrderError, TargetError, WalReplayError
from walreplay.ledger.state import from_json
from walreplay.listing import matches_glob, sort_key
from walreplay.lsn import POSTGRES_EPOCH_UNIX_MICROS
from walreplay.session.failures import failure_of, is_refused
from walreplay.session.isolation import one_name, session_with
from walreplay.session.reach import folder_of
from walreplay.spark.captures import GLOB, INDEX_FOLDER, CaptureFile, list_captures, root_of
from walreplay.stream.plan import Plan, Resume
from walreplay.writing.by_files import choose_writer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


FORMAT: Final = 15
"""To be raised with each change of the facts, or of a `Resume`: files are scanned again then.

A row of any format from 14 on proves its file: what ``name``, ``length``, ``modified``, ``checksum``, ``scanned_as``,
``archive``, ``stream`` and ``indexed_at`` mean never changes.  Other columns are added, and none is removed.
"""

_TIMESTAMP: Final = pa.timestamp("us", "UTC")

_KINDS: Final = {
    "int": pa.int64(),
    "str": pa.string(),
    "Kind": pa.string(),
    "datetime": _TIMESTAMP,
    "tuple[str, ...]": pa.list_(pa.string()),
}


def _columns_of(record: type[FileFacts | Open | RelationChangeCounts]) -> list[tuple[str, pa.DataType]]:
    return [(field.name, _KINDS[str(field.type).removesuffix(" | None")]) for field in fields(record)]


_KINDS.update(
    {f"tuple[{kind.__name__}, ...]": pa.list_(pa.struct(_columns_of(kind))) for kind in (Open, RelationChangeCounts)}
)

_MODIFIED: Final = FileFacts.__slots__.index("modified")

SCHEMA: Final = pa.schema(
    [
        *((name, _TIMESTAMP if name == "modified" else type_) for name, type_ in _columns_of(FileFacts)),
        ("indexed_at", _TIMESTAMP),
        ("facts", pa.string()),
        ("scanned_as", pa.string()),
        ("archive", pa.string()),
        ("stream", pa.string()),
        ("gap", pa.bool_()),
        ("resumes", pa.bool_()),
        ("resume", pa.string()),
    ]
)
"""``facts`` is a digest of the facts, ``scanned_as`` says how the file was read; ``archive`` is the captures' folder of
an index elsewhere; ``stream`` is a checksum of all files up to this one, NULL where one of them has no row as it is;
``gap`` and ``resume`` are a `FoundFile`'s, the latter if it ``resumes``."""

_NAMES: Final = pa.schema([("name", pa.string()), ("archive", pa.string())])
_DOUBLES: Final = pa.schema([*_NAMES, ("scanned_as", pa.string()), ("indexed", pa.int64())])

_UNIX_EPOCH: Final = datetime(1970, 1, 1, tzinfo=timezone.utc)

_TRIES: Final = 12
_APPEND_TRIES: Final = 3

_OF_FILE: Final = "t.name = s.name AND t.archive = s.archive"
_SAME: Final = f"{_OF_FILE} AND t.scanned_as = s.scanned_as"
"""Targets may read an archive in several ways, and archives may share an index: none is to overwrite another's rows."""

_KEPT: Final = (
    *("name", "length", "unix_micros(modified) AS modified", "checksum", "facts", "scanned_as", "stream"),
    *("gap", "resumes", "transactions", "changes", "sessions", "first_lsn", "last_lsn", "warnings"),
    *("coalesce(resent, 0) AS resent", "unix_micros(last_commit_ts) AS last_commit"),
    "unix_micros(indexed_at) AS indexed",
)

_GONE: Final = "the file was indexed, and is gone or empty"
_ACCEPT_CLEARED: Final = "or, if the oldest files were cleared away on purpose: walreplay index --cleared"
_STRANGE: Final = "the file was not indexed, and is among files that were, with nothing between them then"

_APPENDS: Final = "walreplay index"  # What appends are numbered for, so that of two at the same time one fails

_REMEDY: Final = "Delete it, and walreplay index makes it again; or give another place as `index` in the configuration"
_DENIED_REMEDY: Final = "Give a place where it may be written as `index` in the configuration"


def home_of(captures: str, files: Sequence[CaptureFile]) -> str:
    """Return the folder that an archive's files are named below: above a glob's first part, or above a single file."""
    root = root_of(captures)
    parts = root.split("/")
    # A folder's name may have such characters, too: then files lie below the root as it is written.
    first = next((number for number, part in enumerate(parts) if GLOB.search(part)), None)
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
class IndexedFile:
    """What is asked of a file's row; see `FileFacts`.

    Attributes:
        facts, scanned_as, stream, gap, resumes: see `SCHEMA`.
        last_commit: µs since 1970.
    """

    length: int
    modified: int
    checksum: str
    facts: str
    scanned_as: str
    stream: str | None
    gap: bool
    resumes: bool
    transactions: int
    resent: int
    changes: int
    sessions: int
    first_lsn: int | None
    last_lsn: int | None
    last_commit: int | None
    warnings: tuple[str, ...]

    @classmethod
    def of(cls, file: FoundFile, scanned_as: str, rows: Mapping[str, IndexedFile]) -> IndexedFile:
        """Return what a file's row says, beside the rows that there are."""
        facts, last = file.facts, file.facts.last_commit_ts
        before = rows.get(file.behind or "")
        stream = "" if file.behind == "" else None if before is None else before.stream  # "": it is the first
        same: dict[str, Any] = {name: getattr(facts, name) for name in cls.__slots__ if name in FileFacts.__slots__}
        return cls(
            **same,
            facts=facts.digest,
            scanned_as=scanned_as,
            stream=None if stream is None else _stream(stream, facts.name, Proof(facts.length, facts.checksum)),
            gap=file.gap,
            resumes=file.resume is not None,
            last_commit=None if last is None else (last - _UNIX_EPOCH) // timedelta(microseconds=1),
        )

    @property
    def proof(self) -> Proof:
        """What proves the file's bytes."""
        return Proof(self.length, self.checksum)

    def is_of(self, file: CaptureFile | FileFacts) -> bool:
        """Whether a file seems to be as it was."""
        return (self.length, self.modified) == (file.length, file.modified)

    def has_passed(self, until: Until) -> bool:
        """Whether a transaction commits in the file that is too late."""
        last, commit = self.last_lsn, self.last_commit
        return last is not None and commit is not None and until.is_before(last, commit - POSTGRES_EPOCH_UNIX_MICROS)


def _stream(before: str, name: str, proof: Proof) -> str:
    text = repr((before, name, proof.length, proof.checksum))
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _followed(stream: str | None, name: str, row: IndexedFile) -> str:
    """Return the stream of a file's row if it follows that of the files in front, and another text if it does not."""
    if stream is None and row.stream is not None:  # in front of the first file others may have been cleared away
        return row.stream
    return _stream(stream or "", name, row.proof)


def in_order(names: Sequence[str], rows: Sequence[IndexedFile | None]) -> list[IndexedFile]:
    """Return the rows of an archive's first files, as long as all have one and follow one another as they did then.

    What is in a file depends on those in front of it.  So where one was added, removed or changed, or something is
    missing, the rows behind it are not certain.
    """
    stream, certain = None, list[IndexedFile]()
    for name, row in zip(names, rows, strict=True):
        stream = "" if row is None else _followed(stream, name, row)
        if row is None or row.stream != stream:
            break
        certain.append(row)
    return certain


def sessions_of(
    files: Sequence[CaptureFile], rows: Sequence[IndexedFile | None], session: int
) -> dict[Proof, tuple[str, int]]:
    """Return files by their bytes, each with the session that it ends in, from that of the last one backwards."""
    sessions: dict[Proof, tuple[str, int]] = {}
    for file, row in zip(reversed(files), reversed(rows), strict=True):
        if row is None:
            break
        sessions.setdefault(row.proof, (file.path, session))
        session -= row.sessions + row.gap  # behind a gap another one begins
    return sessions


class IndexedFileGone(OrderError):
    """A file that the index has is not there."""


class OldestFileGone(IndexedFileGone):
    """Nor is any file in front of it."""


class ArchiveIndex:
    """The index of one archive.

    Args:
        captures: the folder, file or glob of which files are listed.
        table: where the index is; None for the configuration's place, or the one in the archive's folder.

    Attributes:
        table: where it is.
        exists: whether it is there.
        is_empty: it has no file of the archive.
        unlinked: the first file of which it does not know whether it follows the one in front; empty for none.
    """

    def __init__(
        self,
        spark: SparkSession,
        captures: str,
        files: Sequence[CaptureFile],
        settings: Settings,
        table: str | None = None,
    ) -> None:
        self._spark, self._settings = spark, settings
        self._root, self._home = root_of(captures), home_of(captures, files)
        self.table = table_of(table or settings.index, self._home)
        # Another archive may have files of the same names, lengths and times; one with its index inside may be moved.
        is_inside = self.table.path is not None and _plain(self.table.path).startswith(f"{_plain(self._home)}/")
        self._archive = "" if is_inside else self._home
        self._how = f"{FORMAT} {settings.framing} {settings.source_codec} {self._archive}".rstrip()
        self._rows: dict[str, IndexedFile] | None = None
        self._proved = dict[str, IndexedFile]()  # however files were read, in any format, the longest row of each
        self._doubles = list[tuple[Any, ...]]()  # rows of files that have a later one
        self._lengths = dict[str, int]()  # of the files that are listed
        self._seen: int | None = None  # the version of the table that `_rows` is of
        self._lacks_columns = self.exists = False
        self.is_empty, self.unlinked = True, ""

    def name_of(self, path: str) -> str:
        """Return a file's name in the index."""
        return name_below(self._home, path)

    def rows_of(self, files: Sequence[CaptureFile]) -> list[IndexedFile | None]:
        """Return the rows of files; None for those that have none as they are."""
        rows = self._read()
        if self.follow_others(files):  # the first one may not be scanned again, so other versions' rows count, too
            rows = {name: replace(row, resumes=False) for name, row in self._proved.items()} | rows
        indexed = (rows.get(self.name_of(file.path)) for file in files)
        return [row if row is not None and row.is_of(file) else None for row, file in zip(indexed, files, strict=True)]

    def follow_others(self, files: Sequence[CaptureFile]) -> bool:
        """Return whether other files were in front of the first one when it was indexed."""
        rows = ((name, self._proved.get(name)) for name in (self.name_of(file.path) for file in files[:1]))
        return any(row is not None and row.stream not in (None, _stream("", name, row.proof)) for name, row in rows)

    def proof_of(self, path: str) -> Proof:
        """Return what proves a file's bytes, of one without a row `NOTHING`."""
        self._read()
        row = self._proved.get(self.name_of(path))
        return NOTHING if row is None else row.proof

    def proved(self, tasks: Mapping[str, ScanTask]) -> dict[str, ScanTask]:
        """Return the scans of files, by path, with what proves the files' bytes."""
        return {path: replace(task, proof=self.proof_of(path)) for path, task in tasks.items()}

    def proving(self, plan: Plan, *, whole: bool = False) -> Plan:
        """Return a plan by which decoding proves the files that no scan has proved: of earlier runs, or all."""
        files = []
        for file in plan.files:
            # A run that goes on inside a file scans no bytes in front, of which a streamed transaction may have some.
            is_proved = file.scanned and all(step.seam or step.start >= file.start for step in file.steps)
            files.append(file if is_proved and not whole else replace(file, proof=self.proof_of(file.path)))
        return replace(plan, files=tuple(files))

    def check(self, files: Sequence[CaptureFile]) -> list[CaptureError]:
        """Compare a listing with the index, and return what is wrong; files behind the indexed ones are right."""
        self._read()
        if self.is_empty:
            return []
        self.unlinked, listed = "", {self.name_of(file.path): file for file in files}
        self._lengths = {name: file.length for name, file in listed.items()}
        proved = {name: row for name, row in self._proved.items() if name in listed or self._would_list(name)}
        times = {name: entry.modified for entries in (proved, listed) for name, entry in entries.items()}
        errors, unproved, stream = list[CaptureError](), list[CaptureError](), None
        is_oldest = not proved.keys().isdisjoint(listed)  # if all are gone, nobody has cleared away the oldest
        unknown = {file.length: name for name, file in listed.items() if name not in proved}
        for name in sorted(times, key=lambda name: sort_key(self._settings.file_order, name, times[name])):
            row, file = proved.get(name), listed.get(name)
            path = f"{self._home}/{name}" if file is None else file.path
            is_oldest = is_oldest and file is None
            if row is None:
                unproved.append(NotACapture(_STRANGE, path=path, remedy=f"Take it out of the captures; {ACCEPT}"))
                continue
            self.unlinked = self.unlinked or (name if row.stream is None and file is not None else "")
            stream = _followed(stream, name, row)
            if stream == row.stream:  # when they were indexed, nothing was between the files up to this one
                errors += unproved
                unproved = []
            if file is None:
                other = unknown.get(row.length)
                problem = f"{_GONE}; {other}, which was not, has as many bytes" if other else _GONE
                gone, accept = (OldestFileGone, _ACCEPT_CLEARED) if is_oldest else (IndexedFileGone, ACCEPT)
                errors.append(gone(problem, path=path, remedy=f"Bring it back under its name; {accept}"))
            elif file.length != row.length:
                problem = f"the file had {row.length:,} bytes when it was indexed, and has {file.length:,}"
                error = CaptureError(problem, path=path, remedy=f"Restore it; {ACCEPT}")
                (errors if file.length < row.length else unproved).append(error)  # a file that was the last may grow
        return errors

    def _would_list(self, name: str) -> bool:
        """Return whether a file of that name would be among those that are listed, if it were there."""
        path, root, pattern = _plain(f"{self._home}/{name}"), _plain(self._root), self._settings.file_pattern or "*"
        is_root = path == root or matches_glob(path, root)
        is_below = is_root or self._home == self._root or matches_glob(path, f"{root}/**")
        return is_below and matches_glob(name.rpartition("/")[2], pattern)

    def resume_of(self, row: IndexedFile) -> Resume | None:
        """Return where the stream goes on behind a file, with names for paths; None if that is no longer there."""
        with index_errors(self.table.text), session_with(self._spark, delta.FEW_ROWS) as spark:
            kept = delta.read(spark, self.table).where("resumes").where(f.col("scanned_as") == row.scanned_as)
            rows = kept.where(f.col("stream") == f.lit(row.stream)).select("resume").limit(1).collect()
            return from_json(Resume, rows[0].resume) if rows else None

    def add(self, files: Sequence[FoundFile], *, renews: bool = True) -> None:
        """Write the rows of files that are not there yet, in one commit.

        Args:
            renews: rows that say something else of the same file are written anew; not by who may know less of where
                the archive's stream begins, and which files it has.

        Raises:
            TargetError: the index cannot be written to.
        """
        if not files and not self._doubles:
            return
        self.forget([file.facts.name for file in files if file.differs])
        with index_errors(self.table.text):
            for _ in range(_APPEND_TRIES):
                with session_with(self._spark, delta.FEW_ROWS) as spark:
                    # It begins before the rows are read: whoever appends later than that is in conflict with it.
                    writer = choose_writer(spark, Target(self.table.path))
                    is_new = not delta.exists(spark, self.table)
                    append = writer.begin_append(spark, delta.TableDefinition(self.table, SCHEMA), create=is_new)
                    if self._seen is None or self._seen != self._version():  # somebody may have written since
                        self._rows = None
                    names = {*self._read()}
                    new_rows = self._new_rows(files, renews=renews)
                    # An append would leave an old row beside the new one, so these are merged.
                    is_merged = self._doubles or self._lacks_columns or not names.isdisjoint(row[0] for row in new_rows)
                    if is_merged or not new_rows:
                        break
                    append.write_rows(new_rows)
                    try:  # a later append has a higher number, by whomever
                        version = append.commit(delta.CommitId(_APPENDS, time.time_ns() // 1000), follows=False)
                    except Exception as error:
                        if not delta.is_conflict(error):  # somebody has appended since the writer was opened
                            raise
                        version = None
                    if version is not None:  # else it is not certain that the rows are there
                        if self._seen is not None and self._version() == self._seen + 1:  # nobody else has written
                            self._seen += 1
                        return
                # Somebody else has appended; or his clock is wrong, and no number is higher than his.
                self._rows = None
            if self._doubles:  # first, as a MERGE would make equals of them
                same = f"{_SAME} AND unix_micros(t.indexed_at) = s.indexed"
                self._merge(self._doubles, _DOUBLES, f"{same} WHEN MATCHED THEN DELETE")
                self._doubles = []
            if new_rows:
                self._merge(new_rows, SCHEMA, f"{_SAME} WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *")

    def add_sound(self, files: Sequence[FoundFile]) -> None:
        """Write the rows of files, but of those that have other bytes: the next audit finds these, too."""
        self.add([file for file in files if not file.differs])

    def forget(self, names: Collection[str]) -> None:
        """Remove the rows of files, however these were read."""
        if names:
            with index_errors(self.table.text):
                self._merge([(name, self._archive) for name in names], _NAMES, f"{_OF_FILE} WHEN MATCHED THEN DELETE")
            self._rows = None

    def accept(self, errors: Sequence[CaptureError], *, gone: bool) -> None:
        """Remove the rows of files that are gone, or of those that are other ones, according to errors."""
        self.forget([self.name_of(error.path or "") for error in errors if isinstance(error, IndexedFileGone) is gone])

    def _new_rows(self, files: Sequence[FoundFile], *, renews: bool) -> list[tuple[Any, ...]]:
        """Return the rows of files that are not there yet, and add them to those that are."""
        rows, new_rows = self._read(), list[tuple[Any, ...]]()
        for file in files:
            facts = file.facts
            before = self._proved.get(file.behind or "")
            if before is not None and before.length < self._lengths.get(file.behind or "", 0):
                file = replace(file, behind=None)  # the file in front has grown, and was not read as a whole
            row, earlier = IndexedFile.of(file, self._how, self._proved), rows.get(facts.name)
            is_kept = earlier is not None and not renews and earlier.is_of(facts)
            if is_kept or (earlier and earlier == replace(row, resumes=row.resumes or earlier.resumes)):
                continue
            rows[facts.name] = self._proved[facts.name] = row
            values = list(astuple(facts))
            values[_MODIFIED] = _UNIX_EPOCH + timedelta(microseconds=facts.modified)
            values += (datetime.now(timezone.utc), row.facts, row.scanned_as, self._archive)
            values += (row.stream, row.gap, row.resumes, file.resume)
            new_rows.append(tuple(values))
        return new_rows

    def _read(self) -> dict[str, IndexedFile]:
        """Return the rows, by name; what could not be read is read again by the next call."""
        if self._rows is not None:
            return self._rows
        result, proved, newest = dict[str, IndexedFile](), dict[str, IndexedFile](), dict[str, Any]()
        self._seen, ours = self._version(), f"{FORMAT} "
        with index_errors(self.table.text), session_with(self._spark, delta.FEW_ROWS) as spark:
            self.exists = delta.exists(spark, self.table)
            rows: list[Any] = []
            if self.exists:  # other archives may share the index
                kept = delta.read(spark, self.table).where(f.col("archive") == f.lit(self._archive))
                self._lacks_columns = not {*SCHEMA.names} <= {*kept.columns}  # an older version has made the table
                if self._lacks_columns:
                    kept = delta.shaped(kept, delta.spark_schema(SCHEMA))
                rows = kept.selectExpr(*_KEPT).collect()
        rows.sort(key=lambda row: row.indexed)  # of two rows of a file the later one counts
        for row in rows:
            values = row.asDict()
            name, _, warnings = map(values.pop, ("name", "indexed", "warnings"))
            indexed = IndexedFile(**values, warnings=tuple(warnings or ()))  # None: the row has no such column
            if row.scanned_as == self._how:
                result[name], newest[name] = indexed, row
            longest = proved.get(name)
            proved[name] = indexed if longest is None or longest.length <= indexed.length else longest
        self._doubles = [
            (row.name, self._archive, row.scanned_as, row.indexed)
            for row in rows
            if (last := newest.get(row.name)) is not None and row.indexed < last.indexed
            if row.scanned_as == self._how or (not row.scanned_as.startswith(ours) and row.length <= last.length)
        ]
        self._rows, self._proved, self.is_empty = result, proved, not proved
        return result

    def _version(self) -> int | None:
        """Return the table's newest version, or -1 if there is none; None if only Spark can tell."""
        folder = folder_of(self._spark, self.table.path)
        return None if folder is None else newest_version(folder)

    def _merge(self, rows: Sequence[tuple[Any, ...]], schema: pa.Schema, on: str) -> None:
        view = f"walreplay_index_{uuid.uuid4().hex}"
        for tries_left in reversed(range(_TRIES)):
            try:
                with session_with(self._spark, delta.FEW_ROWS_REWRITTEN) as spark:
                    delta.local_rows(spark, rows, schema).createOrReplaceTempView(view)
                    try:
                        merge = "MERGE WITH SCHEMA EVOLUTION INTO"  # an older version may have made the table
                        spark.sql(f"{merge} {self.table.sql} AS t USING {view} AS s ON {on}").collect()
                    finally:
                        spark.catalog.dropTempView(view)
                return
            except Exception as error:
                if not tries_left or not delta.is_conflict(error):
                    raise
                time.sleep(random.uniform(0.1, 1.0))  # so that two writers do not meet again


def list_beside(
    spark: SparkSession, captures: str, settings: Settings, table: str | None = None
) -> tuple[list[CaptureFile], ArchiveIndex, list[CaptureError]]:
    """List captures, open their index, and compare the listing with it: see `ArchiveIndex.check`."""
    files = list_captures(spark, captures, settings)
    index = ArchiveIndex(spark, captures, files, settings, table)
    if not index.check(files):
        return files, index, []
    files = list_captures(spark, captures, settings)  # the index may know what has come since they were listed
    return files, index, index.check(files)


def allowed(errors: Sequence[CaptureError], settings: Settings, *, cleared: bool = False) -> list[str]:
    """Return what is wrong in a listing as warnings; raise it, unless gaps are allowed, or the oldest ``cleared``."""
    accepted = CaptureError if settings.allow_gaps else OldestFileGone if cleared else ()
    refused = [error for error in errors if not isinstance(error, accepted)]
    if refused:
        if len(refused) > 1:
            refused[0].problem += f" ({len(refused) - 1:,} more are not as indexed; walreplay audit names all)"
        raise refused[0]
    return [f"{error.path}: {error.problem} (allowed)" for error in errors]


@contextmanager
def index_errors(table: str) -> Iterator[None]:
    """Turn what Spark cannot do with an index's table into an error for people."""
    try:
        yield
    except (WalReplayError, ConnectionError):
        raise
    except Exception as error:
        failure = failure_of(error)
        if failure is None and not isinstance(error, (OSError, ValidationError)):
            raise
        problem = failure.problem if failure else getattr(error, "strerror", None) or type(error).__name__
        place = (failure.path if failure else None) or table
        remedy = _DENIED_REMEDY if is_refused(problem) else _REMEDY
        raise TargetError(f"the index cannot be read or written: {problem}", path=place, remedy=remedy) from error
