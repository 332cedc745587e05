"""A file's scan as bytes, for the index.

It is a pickle, and whoever may write to the index might put another one there.  So nothing is made of it but what scans
consist of.
"""

from __future__ import annotations

import io
import pickle
import zlib
from dataclasses import replace
from typing import Any, Final

from walreplay.decode.partitions import Partition
from walreplay.decode.place import Place, Transaction
from walreplay.decode.summary import (
    Block,
    Body,
    Counts,
    Decided,
    FileScan,
    Part,
    Summary,
    TruncateAt,
    XidCounts,
)
from walreplay.protocol import messages as m
from walreplay.protocol.framing import Framing

FORMAT: Final = 5
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
            return _KNOWN[module, name]
        except KeyError:
            raise pickle.UnpicklingError(f"a scan has no {name}") from None


def pack(scan: FileScan) -> bytes | None:
    """Give a scan as bytes; None if they are too many to be kept."""
    data = pickle.dumps(replace(scan, known_fingerprint=0), 4)
    packed = zlib.compress(data, 1)
    return packed if len(packed) <= MOST_BYTES and len(data) <= _MOST_INFLATED else None


def unpack(packed: bytes, path: str) -> FileScan | None:
    """Read what `pack` gave; None where it is anything else.

    Args:
        path: the file's present one.
    """
    inflate = zlib.decompressobj()
    try:
        data = inflate.decompress(packed, _MOST_INFLATED)
        scan = _Unpickler(io.BytesIO(data)).load()
    except Exception:
        # Whatever damaged bytes lead to, the file itself tells all again.
        return None
    if not inflate.eof or not isinstance(scan, FileScan):
        return None
    scan.path = path
    return scan


__all__ = ["CLASSES", "FORMAT", "MOST_BYTES", "pack", "unpack"]
