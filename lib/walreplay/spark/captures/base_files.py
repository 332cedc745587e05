"""A base load from files: listing them, and dividing them among tasks."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Final

from walreplay.errors import CaptureError, ConfigError, NotSupported, WalReplayError
from walreplay.listing import escape_glob, list_files
from walreplay.loading.description import Description
from walreplay.loading.formats import COMPRESSED, CopiedFiles, CopyOptions
from walreplay.loading.parquet_files import ENDING as PARQUET
from walreplay.loading.pg_dump import TOC, Section, read_toc, sections_of
from walreplay.loading.sources import is_hidden, is_same, table_of
from walreplay.protocol.compression import HEAD_BYTES, detect_compression
from walreplay.protocol.messages import Relation
from walreplay.spark.captures.base import BaseRows, BaseSource, Works
from walreplay.spark.captures.files import MAX_FILE_BYTES, are_mapped, files_a_batch, number_files, root_of
from walreplay.spark.workers.load import LoadPart, LoadTask, load_batches
from walreplay.spark.workers.load_rows import make_tables
from walreplay.spark.workers.scan import LOCAL_SCHEME, map_capture

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_RANGE_BYTES: Final = 64 << 20
"""A file of text is read in ranges of about so many bytes."""

_PLAIN_DUMP: Final = (".sql", *(f".sql{ending}" for ending in COMPRESSED))

_MOST_NAMED: Final = 5
"""So many of the files that are left out are named."""

_FEW_PARTS: Final = 32
_MOST_TASKS: Final = 1024


@dataclass(frozen=True, slots=True)
class BaseFile:
    """A file of a base load, or a section of a plain dump.

    Attributes:
        path: as Spark gives it.
        changed: when it was written, in ms since 1970.
        is_hidden: Spark would leave it out: it, or a folder that it is in, is called so.
        section: what a dump says of it; else its name says whose rows it has.
    """

    path: str
    length: int
    section: Section | None = None
    changed: int = 0
    is_hidden: bool = False


def list_base(spark: SparkSession, origin: str) -> list[BaseFile]:
    """List the files of a base load; of a local folder also those that are empty, or hidden.

    Raises:
        ConfigError: the place does not exist, or has no file.
        CaptureError: a file is too large to be read from where it lies.
    """
    root = root_of(origin)
    if root.startswith(("/", LOCAL_SCHEME)):
        path = "/" + root.removeprefix(LOCAL_SCHEME).lstrip("/")
        stats = [(name, Path(name).stat()) for name in list_files(path, hidden=True)]
        files = [
            BaseFile(
                f"{LOCAL_SCHEME}{name}",
                found.st_size,
                changed=found.st_mtime_ns // 1_000_000,
                is_hidden=is_hidden(name, path),
            )
            for name, found in stats
        ]
        return [one for file in _without_toc(spark, files) for one in _sections(file)]
    from pyspark.errors import AnalysisException

    reader = spark.read.format("binaryFile").option("recursiveFileLookup", "true")
    try:
        listed = reader.load(escape_glob(root)).selectExpr("path", "length", "unix_millis(modificationTime) AS changed")
        rows = listed.orderBy("path").collect()
    except AnalysisException as error:
        if "PATH_NOT_FOUND" not in str(error) and "does not exist" not in str(error):
            raise
        rows = []
    if not rows:
        raise ConfigError("there are no files", path=origin, remedy="Check --from")
    for row in rows:
        if row.length > MAX_FILE_BYTES:
            raise CaptureError(
                f"the file has {row.length:,} bytes, and Spark reads at most {MAX_FILE_BYTES:,} as one",
                path=row.path,
                remedy="Split it between rows, by `split -C 1G FILE FILE.` if it is COPY's text format",
            )
    return _without_toc(spark, [BaseFile(row.path, row.length, changed=row.changed) for row in rows])


def _without_toc(spark: SparkSession, files: list[BaseFile]) -> list[BaseFile]:
    """Return the files of rows of a folder that pg_dump has written; others are as they are.

    Raises:
        CaptureError: a table's file is missing.
    """
    tocs = [file for file in files if PurePath(file.path).name == TOC and not file.is_hidden]
    folders = tuple(toc.path.removesuffix(TOC) for toc in tocs)
    found = [file for file in files if not file.path.startswith(folders)]
    for toc in tocs:
        folder = toc.path.removesuffix(TOC)
        there = {file.path.removeprefix(folder): file for file in files}
        for section in read_toc(_content(spark, toc.path), toc.path):
            names = [f"{section.file}{ending}" for ending in ("", *COMPRESSED)]
            name = next((name for name in names if name in there), None)
            if name is None:
                raise CaptureError(
                    f"the file {section.file}, with the table's rows, is missing",
                    path=toc.path,
                    table=section.table,
                    remedy="Dump again, or copy the folder again",
                )
            found.append(replace(there[name], section=section))
    return found


def _content(spark: SparkSession, path: str) -> bytes:
    if path.startswith(LOCAL_SCHEME):
        return bytes(_mapped(path))
    (row,) = spark.read.format("binaryFile").load(escape_glob(path)).select("content").collect()
    return bytes(row.content)


def _mapped(path: str) -> memoryview:
    content = map_capture(path)
    if isinstance(content, WalReplayError):
        raise content
    return content


def _sections(file: BaseFile) -> list[BaseFile]:
    """Give the sections of a plain dump; any other file is as it is."""
    if file.section is not None or file.is_hidden or not file.path.endswith(_PLAIN_DUMP):
        return [file]
    content = _mapped(file.path)
    if detect_compression(bytes(content[:HEAD_BYTES])) is not None:
        raise NotSupported(
            "the plain dump is compressed",
            path=file.path,
            remedy="Decompress it, or dump with --format=directory, whose files may be compressed",
        )
    found = list(sections_of(content, file.path))
    return [replace(file, length=(one.stop or 0) - one.start, section=one) for one in found]


def parts_of(files: Sequence[BaseFile], relations: Sequence[Relation], options: CopyOptions) -> tuple[LoadPart, ...]:
    """Divide files among tasks: text that is not compressed in ranges, other files as a whole."""
    parts: list[LoadPart] = []
    for file, relation in zip(files, relations, strict=True):
        section = file.section
        columns = None if section is None else section.columns
        in_dump = section is not None and section.stop is not None
        if not in_dump and (file.length <= _RANGE_BYTES or not _has_ranges(file, options)):
            parts.append(LoadPart(file.path, relation, columns=columns))
            continue
        first = 0 if section is None else section.start
        count = max(1, -(-file.length // _RANGE_BYTES))
        edges = [first + file.length * number // count for number in range(count + 1)]
        parts += [LoadPart(file.path, relation, start, stop, columns) for start, stop in pairwise(edges)]
    seen: Counter[Relation] = Counter()
    for at, part in enumerate(parts):
        parts[at] = replace(part, number=seen[part.relation])
        seen[part.relation] += 1
    return tuple(parts)


def _has_ranges(file: BaseFile, options: CopyOptions) -> bool:
    if not file.path.startswith(LOCAL_SCHEME) or file.path.endswith(PARQUET):
        return False
    head = bytes(_mapped(file.path)[: 1 << 10])
    if detect_compression(head[:HEAD_BYTES]) is not None:
        return False
    return file.section is not None or options.format_of(file.path, head).kind == "text"


class FilesOfBase(BaseSource):
    """A folder of files, or one file.

    Args:
        table: the one table that all files are of; of a dump the one that is wanted.
    """

    def __init__(self, spark: SparkSession, origin: str, options: CopyOptions, table: str | None) -> None:
        self._spark = spark
        self._options = options
        self._table = table
        self._files: Sequence[BaseFile] = ()
        self._counted: Mapping[int, tuple[str, int]] = {}
        self.origin = origin

    @property
    def place(self) -> str:
        """Give the folder, wherever the program was started."""
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
        found = {name for name in named.values() if name is not None}
        left = [file.path for file, name in named.items() if name is None]
        if left:
            more = f" and {len(left) - _MOST_NAMED} more" if len(left) > _MOST_NAMED else ""
            self.warnings = [
                f"left out, as their names begin with . or _, and no table is called so: "
                f"{', '.join(left[:_MOST_NAMED])}{more}"
            ]
        if not found:
            raise ConfigError("there are no files of tables", path=self.origin, remedy="Check --from")
        if self._table is None and not is_same(self._files[0].path, root_of(self.origin)):
            relations = (one for same in description.relations.values() for one in same)
            found |= {relation.qualified_name for relation in relations if relation.oid in description.rows}
        return frozenset(found)

    def described(self) -> Description | None:
        """Files do not say what their tables are."""
        return None

    def files(self, description: str) -> CopiedFiles:
        """Return what it takes to read the files once more."""
        # Below the folder, or the one file's own name: the folder may move.
        root = root_of(self.origin).removeprefix(LOCAL_SCHEME).strip("/")
        told = sorted((file.path.partition(root)[2], file.length) for file in self._files)
        digest = hashlib.sha256(json.dumps(told).encode()).hexdigest()
        changed = max(file.changed for file in self._files)
        return CopiedFiles(self._table, self._options, description, digest, changed)

    def rows(self, relations: Collection[Relation], description: Description) -> BaseRows:
        """Give the rows of some tables, which were not read yet.

        Raises:
            CaptureError: of a table that has rows there is no file.
            ConfigError: a dump has rows that are not published.
        """
        counts = description.rows
        self._counted = {one.oid: (one.qualified_name, counts[one.oid]) for one in relations if one.oid in counts}
        named = ((file, self._table_of(file, description)) for file in self._files)
        found = [(file, description.relation(name)) for file, name in named if name is not None]
        chosen = [(file, relation) for file, relation in found if relation in relations]
        _check_published(chosen, description)
        files = [file for file, _ in chosen]
        without = [one for one in relations if one not in {relation for _, relation in chosen}]
        # An object store may keep no empty file.
        self.check({one.oid: 0 for one in without})
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
        if file.section is not None:
            return file.section.table
        if self._table is not None and not file.is_hidden:
            return self._table
        return table_of(file.path, root_of(self.origin), [self._table] if self._table else description.relations.keys())


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
    """Give a row for each part, as `load_batches` takes them, and the settings for the job."""
    paths = [part.path for part in parts]
    if are_mapped(paths):
        tasks = None if len(parts) <= _FEW_PARTS else min(len(parts), _MOST_TASKS)
        return number_files(spark, len(parts), tasks), {}
    frame = spark.read.format("binaryFile").load([escape_glob(path) for path in paths])
    return frame.select("path", "content"), files_a_batch(paths)


__all__ = ["BaseFile", "FilesOfBase", "list_base", "parts_of"]
