"""The files of a base load: which there are, whose sections of a dump they have, and what each task reads of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Final

from pyspark.errors import AnalysisException

from walreplay.errors import CaptureError, ConfigError, NotSupported
from walreplay.listing import escape_glob, is_hidden, list_files
from walreplay.loading.formats import COMPRESSED, CopyOptions
from walreplay.loading.pg_dump import TOC, Section, is_archive, read_toc, sections_of
from walreplay.loading.typed_rows import ENDING as PARQUET
from walreplay.protocol.compression import HEAD_BYTES, detect_compression
from walreplay.protocol.messages import Relation
from walreplay.spark.captures import MAX_FILE_BYTES, is_not_found, root_of
from walreplay.spark.workers.load import LoadPart
from walreplay.spark.workers.scan import LOCAL_SCHEME, map_capture, view_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


_RANGE_BYTES: Final = 64 << 20  # A file of text is read in ranges of about so many bytes

_PLAIN_DUMP: Final = (".sql", *(f".sql{ending}" for ending in COMPRESSED))


@dataclass(frozen=True, slots=True)
class BaseFile:
    """A file of a base load, or a section of a plain dump.

    Attributes:
        path: as Spark writes it.
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
    if root.startswith(("/", LOCAL_SCHEME)):  # Python lists them: Spark would leave out hidden and empty ones
        path = "/" + root.removeprefix(LOCAL_SCHEME).lstrip("/")
        stats = [(name, Path(name).stat()) for name in list_files(path, hidden=True)]
        files = []
        for name, stat in stats:
            changed, hidden = stat.st_mtime_ns // 1_000_000, is_hidden(Path(name), Path(path))
            files.append(BaseFile(f"{LOCAL_SCHEME}{name}", stat.st_size, changed=changed, is_hidden=hidden))
        return [section for file in _without_toc(spark, files) for section in _sections(file)]
    reader = spark.read.format("binaryFile").option("recursiveFileLookup", "true")
    try:
        listed = reader.load(escape_glob(root)).selectExpr("path", "length", "unix_millis(modificationTime) AS changed")
        rows = listed.orderBy("path").collect()
    except AnalysisException as error:
        if not is_not_found(error):
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
    row_files = [file for file in files if not file.path.startswith(folders)]
    for toc in tocs:
        folder = toc.path.removesuffix(TOC)
        by_name = {file.path.removeprefix(folder): file for file in files}
        for section in read_toc(_content(spark, toc.path), toc.path):
            names = [f"{section.file}{ending}" for ending in ("", *COMPRESSED)]
            name = next((name for name in names if name in by_name), None)  # pg_dump may have compressed it
            if name is None:
                raise CaptureError(
                    f"the file {section.file}, with the table's rows, is missing",
                    path=toc.path,
                    table=section.table,
                    remedy="Dump again, or copy the folder again",
                )
            row_files.append(replace(by_name[name], section=section))
    return row_files


def _content(spark: SparkSession, path: str) -> bytes:
    if path.startswith(LOCAL_SCHEME):
        return bytes(view_of(map_capture(path)))
    (row,) = spark.read.format("binaryFile").load(escape_glob(path)).select("content").collect()
    return bytes(row.content)


def _sections(file: BaseFile) -> list[BaseFile]:
    """Return the sections of a plain dump; any other file is as it is."""
    if file.section is not None or file.is_hidden or not file.path.endswith(_PLAIN_DUMP):
        return [file]
    content = view_of(map_capture(file.path))
    if detect_compression(bytes(content[:HEAD_BYTES])) is not None:
        raise NotSupported(
            "the plain dump is compressed",
            path=file.path,
            remedy="Decompress it, or dump with --format=directory, whose files may be compressed",
        )
    sections = list(sections_of(content, file.path))
    return [replace(file, length=(section.stop or 0) - section.start, section=section) for section in sections]


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
        # The edges lie anywhere: `range_of` moves them to the next row's beginning.
        parts += [LoadPart(file.path, relation, start, stop, columns) for start, stop in pairwise(edges)]
    seen: Counter[Relation] = Counter()  # parts are numbered by table, so that other tables do not change the numbers
    for index, part in enumerate(parts):
        parts[index] = replace(part, number=seen[part.relation])
        seen[part.relation] += 1
    return tuple(parts)


def _has_ranges(file: BaseFile, options: CopyOptions) -> bool:
    if not file.path.startswith(LOCAL_SCHEME) or file.path.endswith(PARQUET):
        return False
    head = bytes(view_of(map_capture(file.path))[: 1 << 10])
    if detect_compression(head[:HEAD_BYTES]) is not None:
        return False
    # Only in text a newline always ends a row; in CSV it may be quoted, in binary be part of a value.
    return file.section is not None or options.format_of(file.path, head).kind == "text"


def refuse_archive(file: BaseFile) -> None:
    """Refuse, by NotSupported, what pg_dump writes as one file that is no text."""
    if file.path.startswith(LOCAL_SCHEME) and is_archive(view_of(map_capture(file.path))):
        raise NotSupported(
            "the file is a dump in pg_dump's custom format, which only pg_restore reads",
            path=file.path,
            remedy="Make a plain dump of it, by pg_restore --file=dump.sql, or dump with --format=directory",
        )
