"""Read the row changes of capture files as Arrow batches, without Spark or Java."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Final, TypeAlias

from walreplay.decode.change_batch import ChangeBatch
from walreplay.decode.decoder import TILE_BYTES, Decoder
from walreplay.decode.files import scan_file
from walreplay.decode.onepass import NotPlain, OnePass, behind
from walreplay.decode.sessions.foreign_files import told_for_paths
from walreplay.errors import ConfigError, FramingChange, NotACapture
from walreplay.listing import list_files, map_file
from walreplay.protocol.framing import Framing
from walreplay.transactions.copies import Copies
from walreplay.transactions.plan import Plan
from walreplay.transactions.planned import PlannedBytes
from walreplay.transactions.stitch import Stitch
from walreplay.types.text import UTF8, codec_of

__all__ = ["ChangeBatch", "decode_files", "decode_plan", "plan_files", "read_changes"]

Read: TypeAlias = Callable[[str], "bytes | memoryview"]

_FILES_OPEN: Final = 8
"""So many files are kept at hand; a streamed transaction may lie in many."""


def read_changes(
    paths: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    *,
    framing: str | None = None,
    source_encoding: str = "UTF8",
    tile_bytes: int | None = None,
) -> Iterator[ChangeBatch]:
    """Read all committed row changes of capture files, typed, in commit order within each relation.

    Args:
        paths: files of one stream, and folders of such; folders' files are read in the natural order of their
            paths (10 after 9), paths given one by one in the order given.
        framing: its name, such as ``raw``; recognised from the bytes when None.
        source_encoding: the client_encoding that the captures were recorded with, by PostgreSQL's name: what text
            and the names of tables and columns are in.
        tile_bytes: how many bytes are walked before they are converted; the default suits a CPU's cache.

    Yields:
        batches of up to 131,072 row changes of one relation version.  A transaction that is not ended in the
        files is left out.

    Raises:
        CaptureError: with file and offset of what cannot be.
        ConfigError: no framing or encoding has the name that was given.

    >>> orders, *_ = read_changes("tests/captures/o03_basic_split_bytes/capture")
    >>> orders.data.select(["__op", "__xid", "id", "total"]).slice(0, 2).to_pydict()
    {'__op': ['c', 'u'], '__xid': [726, 726], 'id': [1, 1], 'total': [Decimal('0.00'), Decimal('1.00')]}
    """
    framing_given, codec = known_framing(framing), codec_of(source_encoding)
    yield from decode_files(list_files(paths), map_file, framing_given, tile_bytes=tile_bytes, codec=codec)


def decode_files(
    files: Sequence[str],
    read: Read,
    framing: Framing | None = None,
    *,
    tile_bytes: int | None = None,
    codec: str = UTF8,
) -> Iterator[ChangeBatch]:
    """Decode the files of one stream: in one pass as far as that goes, by a plan of all of them behind that.

    Args:
        read: gives a file's bytes as stored.
        framing: where it is known.
        tile_bytes, codec: as `decode_plan` takes them.
    """
    one_pass = OnePass(framing, tile_bytes=tile_bytes, codec=codec)
    try:
        for path in files:
            yield from one_pass.read(read(path))
        one_pass.check_end()
        yield from one_pass.rest()
        return
    except NotPlain:
        pass
    yield from one_pass.rest()
    known, known_rows = frozenset(files[: one_pass.first_needed]), one_pass.known_rows()
    # What it holds is not needed any more.
    del one_pass
    plan = plan_files(files, framing, codec=codec, read=read)
    yield from behind(decode_plan(plan, read, tile_bytes=tile_bytes, codec=codec, known=known), known_rows)


def known_framing(name: str | None) -> Framing | None:
    if name is None:
        return None
    try:
        return Framing(name)
    except ValueError:
        known = ", ".join(framing.value for framing in Framing)
        raise ConfigError(f"no framing is called {name!r}", remedy=f"There are {known}") from None


def plan_files(
    files: Sequence[str], framing: Framing | None = None, *, codec: str = UTF8, read: Read = map_file
) -> Plan:
    """Scan files one after the other, each from where the one before ends.

    Args:
        framing: where it is known.
        codec: what names are in.
        read: gives a file's bytes as stored.
    """
    stitch = Stitch(None)
    for path in files:
        content = read(path)
        try:
            scan = scan_file(
                path,
                content,
                framing=framing,
                place=stitch.place,
                first=stitch.place is None,
                prefix=stitch.tail,
                edges=stitch.edges,
                origins=stitch.origins,
                codec=codec,
                before=stitch.last_path,
            )
        except (NotACapture, FramingChange) as error:
            raise told_for_paths(error, "`framing`") from None
        stitch.add(scan, exact=True)
    return stitch.plan()


def decode_plan(
    plan: Plan,
    read: Read,
    *,
    tile_bytes: int | None = None,
    codec: str = UTF8,
    known: Collection[str] = (),
) -> Iterator[ChangeBatch]:
    """Decode what a plan applies, in commit order within each relation.

    Args:
        read: gives a file's bytes as stored.
        tile_bytes: as `read_changes` takes it.
        codec: what text and names are in: the files were planned with it.
        known: files of which nothing is wanted.

    Raises:
        CaptureError: with file and offset.
        OrderError: when a file is not the one that was planned, or a transaction has come again as another.
    """
    if plan.resent:
        copies = Copies(plan.decided, plan.after_lsn)
        for _ in _decode_steps(plan, read, _decoder(plan, tile_bytes, codec, recording=True), copies):
            pass
        copies.check()
    yield from _decode_steps(plan, read, _decoder(plan, tile_bytes, codec, recording=False), None, known)


def _decoder(plan: Plan, tile_bytes: int | None, codec: str, *, recording: bool) -> Decoder:
    framing = plan.resume.place.framing
    return Decoder(framing, recording=recording, tile_bytes=tile_bytes or TILE_BYTES, codec=codec)


def _decode_steps(
    plan: Plan, read: Read, decoder: Decoder, copies: Copies | None, known: Collection[str] = ()
) -> Iterator[ChangeBatch]:
    opened: dict[str, PlannedBytes] = {}
    wanted = ((step, file) for file in plan.files if file.path not in known for step in file.steps)
    steps = sorted(wanted, key=lambda pair: pair[0].sequence)
    for step, file in steps:
        if file.path not in opened:
            if len(opened) >= _FILES_OPEN:
                opened.pop(next(iter(opened)))
            opened[file.path] = PlannedBytes.of(file, read(file.path))
        yield from opened[file.path].decode(decoder, step, plan.versions, plan.type_versions)
        if copies is not None:
            copies.add(decoder.take_recorded()[0])
    yield from decoder.rest()
