"""Read the row changes of capture files as Arrow batches, without Spark or Java."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping, Sequence

from wal2delta.decode.batches import ChangeBatch, Decoder
from wal2delta.decode.scan import fingerprint, scan_file
from wal2delta.errors import ConfigError, OrderError, Wal2DeltaError
from wal2delta.listing import list_files, map_file
from wal2delta.protocol.compression import decompress, detect_compression
from wal2delta.protocol.framing import Framing
from wal2delta.protocol.messages import Relation
from wal2delta.transactions.plan import FilePlan, Plan
from wal2delta.transactions.stitch import Stitch

__all__ = ["ChangeBatch", "decode_file", "read_changes"]


def read_changes(
    paths: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    *,
    framing: str | None = None,
    tile_bytes: int | None = None,
) -> Iterator[ChangeBatch]:
    """Read all committed row changes of capture files, typed, in commit order within each relation.

    Args:
        paths: files of one stream, and folders of such; folders' files are read in the natural order of their
            paths (10 after 9), paths given one by one in the order given.
        framing: raw, recvlogical, copydata or pgcopy; recognised from the bytes when None.
        tile_bytes: how many bytes are walked before they are converted; the default suits a CPU's cache.

    Yields:
        batches of up to 131,072 row changes of one relation version.  A transaction that is not ended in the
        files is left out.

    Raises:
        CaptureError: with file and offset of what cannot be.
    """
    files = list_files(paths)
    forced = known_framing(framing)
    plan = plan_files(files, forced)
    for file in plan.files:
        content = map_file(file.path)
        yield from decode_file(file, content, after_lsn=plan.after_lsn, upto_lsn=plan.upto_lsn, tile_bytes=tile_bytes)


def known_framing(name: str | None) -> Framing | None:
    if name is None:
        return None
    try:
        return Framing(name)
    except ValueError:
        known = ", ".join(framing.value for framing in Framing)
        raise ConfigError(f"no framing is called {name!r}", remedy=f"There are {known}") from None


def plan_files(files: Sequence[str], framing: Framing | None = None) -> Plan:
    """Scan local files one after the other, each from where the one before ends."""
    stitch = Stitch(None)
    for path in files:
        content = map_file(path)
        first = stitch.place is None
        scan = scan_file(path, content, framing=framing, place=stitch.place, first=first, prefix=stitch.tail)
        stitch.add(scan, exact=True)
    return stitch.plan()


def decode_file(
    file: FilePlan,
    content: bytes | memoryview,
    *,
    after_lsn: int,
    upto_lsn: int,
    truncates: Mapping[int, tuple[int, int]] | None = None,
    wanted: Collection[Relation] | None = None,
    tile_bytes: int | None = None,
) -> Iterator[ChangeBatch]:
    """Decode what a plan says of one file.

    Args:
        file: the file's part of the plan.
        content: the file's bytes as stored.
        truncates, wanted: see `Decoder`.

    Raises:
        CaptureError: with file and offset.
        OrderError: when the file is not the one that was planned.
    """
    if len(content) < file.length or fingerprint(content, file.length) != file.fingerprint:
        raise OrderError(
            "the file has changed since it was scanned",
            path=file.path,
            remedy="Captures must not change but by growing; restore the file, or apply to a new target",
        )
    options = {} if tile_bytes is None else {"tile_bytes": tile_bytes}
    decoder = Decoder(
        file.place.framing,
        place=file.place,
        relations={relation.oid: relation for relation in file.relations},
        types={type_.oid: type_ for type_ in file.types},
        after_lsn=after_lsn,
        upto_lsn=upto_lsn,
        truncates=truncates,
        wanted=wanted,
        **options,
    )
    if file.seam:
        try:
            yield from decoder.decode(file.seam)
        except Wal2DeltaError as error:
            _locate(error, file.seam_path, file.seam_offset)
            raise
    body = content[: file.length]
    try:
        if detect_compression(bytes(content[:8])):
            body = decompress(bytes(body))
        yield from decoder.decode(memoryview(body)[: file.stop], file.start)
        yield from decoder.rest()
    except Wal2DeltaError as error:
        _locate(error, file.path, 0)
        raise


def _locate(error: Wal2DeltaError, path: str, base: int) -> None:
    if error.path is None and error.offset is not None:
        error.offset += base
    error.at(path=path)
