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
from walreplay.loading.sources import table_of
from walreplay.protocol.compression import HEAD_BYTES, detect_compression
from walreplay.protocol.messages import Relation
from walreplay.spark.captures.base import BaseRows, BaseSource, Works
from walreplay.spark.captures.files import MAX_FILE_BYTES, are_mapped, files_a_batch, number_files, root_of
from walreplay.spark.workers.load import LoadPart, LoadTask, load_batches
from walreplay.spark.workers.scan import LOCAL_SCHEME, map_capture

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_RANGE_BYTES: Final = 64 << 20
"""A file of text is read in ranges of about so many bytes."""

_PLAIN_DUMP: Final = (".sql", *(f".sql{ending}" for ending in COMPRESSED))

_FEW_PARTS: Final = 32
_MOST_TASKS: Final = 1024


@dataclass(frozen=True, slots=True)
class BaseFile:
    """A file of a base load, or a section of a plain dump.

    Attributes:
        path: as Spark gives it.
        changed: when it was written, in ms since 1970.
        section: what a dump says of it; else its name says whose rows it has.
    """

    path: str
    length: int
    section: Section | None = None
    changed: int = 0


def list_base(spark: SparkSession, origin: str) -> list[BaseFile]:
    """List the files of a base load; those of a local folder with those that are empty, as are those of empty tables.

    Raises:
        ConfigError: the place does not exist, or has no file.
        CaptureError: a file is too large to be read from where it lies.
    """
    root = root_of(origin)
    if root.startswith(("/", LOCAL_SCHEME)):
        path = "/" + root.removeprefix(LOCAL_SCHEME).lstrip("/")
        found = [(name, Path(name).stat()) for name in list_files(path)]
        files = [
            BaseFile(f"{LOCAL_SCHEME}{name}", one.st_size, changed=one.st_mtime_ns // 1_000_000) for name, one in found
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
    """Give the files of rows of a folder that pg_dump has written; others are as they are.

    Raises:
        CaptureError: a table's file is missing.
    """
    tocs = [file for file in files if PurePath(file.path).name == TOC]
    if not tocs:
        return files
    found: list[BaseFile] = []
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
    if file.section is not None or not file.path.endswith(_PLAIN_DUMP):
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
        """Name the tables whose rows are there."""
        return frozenset(self._table_of(file, description) for file in self._files)

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
        """Give the rows of some tables, which were not read yet."""
        found = [(file, description.relation(self._table_of(file, description))) for file in self._files]
        chosen = [(file, relation) for file, relation in found if relation in relations]
        files = [file for file, _ in chosen]
        parts = parts_of(files, [relation for _, relation in chosen], self._options)

        def works(task: LoadTask) -> Works:
            rows, values = _rows_to_read(self._spark, parts)
            return [(rows, partial(load_batches, task=task, parts=parts, options=self._options))], values

        return BaseRows(len({file.path for file in files}), sum(file.length for file in files), len(parts), works)

    def _table_of(self, file: BaseFile, description: Description) -> str:
        if file.section is not None:
            return file.section.table
        return self._table or table_of(file.path, root_of(self.origin), description.relations.keys())


def _rows_to_read(spark: SparkSession, parts: Sequence[LoadPart]) -> tuple[DataFrame, Mapping[str, str]]:
    """Give a row for each part, as `load_batches` takes them, and the settings for the job."""
    paths = [part.path for part in parts]
    if are_mapped(paths):
        tasks = None if len(parts) <= _FEW_PARTS else min(len(parts), _MOST_TASKS)
        return number_files(spark, len(parts), tasks), {}
    frame = spark.read.format("binaryFile").load([escape_glob(path) for path in paths])
    return frame.select("path", "content"), files_a_batch(paths)


__all__ = ["BaseFile", "FilesOfBase", "list_base", "parts_of"]
