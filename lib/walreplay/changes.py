"""Read the row changes of capture files as Arrow batches, without Spark or Java."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence

from walreplay.decode.change_batch import ChangeBatch as ChangeBatch
from walreplay.decode.change_batch import behind
from walreplay.decode.onepass import NotPlain, OnePass
from walreplay.errors import ConfigError
from walreplay.listing import list_files, map_file
from walreplay.protocol.framing import Framing
from walreplay.stream.planned import Read
from walreplay.stream.planned import decode_plan as decode_plan
from walreplay.stream.planned import plan_files as plan_files
from walreplay.types.text import UTF8, codec_of


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
        ConfigError: no framing or encoding has the name that was given, or ``tile_bytes`` is below 0.

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
        read: returns a file's bytes as stored.
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
    decoded_files, decoded_rows = frozenset(files[: one_pass.first_needed]), one_pass.known_rows()
    # Frees the rows and the state of the one pass before the plan is made.
    del one_pass
    plan = plan_files(files, framing, codec=codec, read=read)
    batches = decode_plan(plan, read, tile_bytes=tile_bytes, codec=codec, skipped=decoded_files)
    yield from behind(batches, decoded_rows)


def known_framing(name: str | None) -> Framing | None:
    """Return the framing of that name; None if it is to be found out."""
    if name is None:
        return None
    try:
        return Framing(name)
    except ValueError:
        names = ", ".join(framing.value for framing in Framing)
        raise ConfigError(f"no framing is called {name!r}", remedy=f"There are {names}") from None
