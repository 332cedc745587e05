"""Open a file as it is stored: decompress its bytes, and recognise by the first ones what it is.

`detect_framing` finds the framing of a capture, `what_is` the kind of a file that is none.
"""

from __future__ import annotations

import itertools
import re
from typing import Final, NamedTuple

from walreplay.errors import CaptureError, TruncatedMessage
from walreplay.protocol.compression import MAGIC, decompress, detect_compression
from walreplay.protocol.framing import FRAMING_ORDER, KEEPALIVE, LENGTH_SIZE, PGCOPY_SIGNATURE, Framing
from walreplay.protocol.reader import Names, names_in_utf8, read_stream

_DETECT_MESSAGES: Final = 16  # So many messages at a file's head must be sound for its framing to be believed


def detect_framing(head: bytes, *, names: Names = names_in_utf8) -> Framing | None:
    """Recognise the framing of a file that begins where a session does.

    Args:
        head: the file's first bytes (decompressed), with the first message whole and one byte more.  A single
            message with nothing behind it counts as raw.
        names: see `read_message`.

    Returns:
        None when no framing fits, or the head is too short to tell.
    """
    if head.startswith(PGCOPY_SIGNATURE):
        return Framing.PGCOPY
    # No message has the tag d, w or k, and none begins with a newline; so hardly a head fits two of these.
    return next((framing for framing in FRAMING_ORDER if _fits(head, framing, names)), None)


def _begins_with_keepalives(head: bytes, framing: Framing) -> bool:
    if framing.layout.mark:
        return len(head) > len(framing.layout.mark) + LENGTH_SIZE
    # No text begins so, and no LSN is that large.
    return not framing.is_sized and framing.layout.is_sent and head[:2] == b"k\0" and len(head) > KEEPALIVE.size


def _fits(head: bytes, framing: Framing, names: Names) -> bool:
    """Return whether a head begins with sound messages, or keepalives, in a framing, and nothing behind refutes it."""
    begins = _begins_with_keepalives(head, framing)
    try:
        for _ in itertools.islice(read_stream(head, framing=framing, names=names), _DETECT_MESSAGES):
            begins = True
    except TruncatedMessage:
        return begins
    except CaptureError:
        return False
    return begins


HEAD_BYTES: Final = 4096  # So many of a file's first bytes are looked at

_TEXT_BYTES: Final = 512
"""Every stream has a NUL among so many of its first bytes: the first of an LSN, or what ends a name."""

_CONTROL: Final = frozenset(range(32)) - frozenset(b"\t\n\v\f\r\x1b") | {127}

_MAGIC: Final = (
    (b"PAR1", "a Parquet file"),
    (b"Obj\x01", "an Avro file"),
    (b"ORC", "an ORC file"),
    (b"ARROW1", "an Arrow file"),
    (b"PGDMP", "a dump by pg_dump in its custom format"),
    (b"PK\x03\x04", "a ZIP archive"),
    (b"7z\xbc\xaf\x27\x1c", "a 7-Zip archive"),
    (b"\xfd7zXZ\x00", "data compressed with xz, which is not undone here"),
    (b"\x1f\x9d", "data compressed with compress, which is not undone here"),
    (b"\xff\x06\x00\x00sNaPpY", "data compressed with snappy, which is not undone here"),
    (b"\x89LZO", "data compressed with lzop, which is not undone here"),
    *((magic, f"data compressed with {name} once more") for name, magic in MAGIC),
    (b"SQLite format 3\x00", "an SQLite database"),
    (b"%PDF-", "a PDF document"),
    (b"\x89PNG", "a picture"),
    (b"\xff\xd8\xff", "a picture"),
    (b"\x7fELF", "a program"),
    (b"MZ", "a program"),
    (b"\xff\xfe", "text in UTF-16, as PowerShell's > makes of any program's output"),
    (b"\xfe\xff", "text in UTF-16"),
)
_TAR: Final = (257, b"ustar")

_JSON: Final = re.compile(r"\s*[\[{]\s*(?:[\"\[{\]}]|$)")
_JSON_KINDS: Final = (
    (re.compile(r'"(?:change|nextlsn)"\s*:|"action"\s*:\s*"[BCIUDTM]"'), "JSON by the plugin wal2json"),
    (re.compile(r'"(?:payload|before|after)"\s*:'), "JSON as Debezium writes it"),
)
_TEXT_KINDS: Final = (
    (re.compile(r"(?:BEGIN(?: \d+)?\s*\n|COMMIT(?: \d+)?|table \S+\.\S+: )"), "text by the plugin test_decoding"),
    (re.compile(r"--\n-- PostgreSQL database (?:cluster )?dump"), "a dump by pg_dump as SQL"),
    (
        re.compile(r"(?s).{0,300}?\\x[0-9a-fA-F]{8}"),
        "binary data printed as hexadecimal text, as psql and COPY in text do",
    ),
    (re.compile(r"[0-9a-fA-F\s]{32,}$"), "hexadecimal text"),
    (re.compile(r"(?:Qg|Uw|Yg|TQ|Ug|ZA|UEdDT1BZ|dw|aw|AAAA)[A-Za-z0-9+/\s]{30,}={0,2}\s*$"), "base64 text"),
    (re.compile(r"\s*<(?:\?xml|!DOCTYPE|html)", re.IGNORECASE), "XML or HTML"),
)
REMEDIES: Final = {
    "text by the plugin test_decoding": "Record with --plugin=pgoutput",
    "JSON by the plugin wal2json": "Record with --plugin=pgoutput",
    "binary data printed as hexadecimal text, as psql and COPY in text do": "Record with COPY ... (FORMAT binary)",
}
"""What to do about files that may have been meant to be captures."""


def what_is(data: bytes | memoryview) -> str | None:
    """Return what some bytes are at whose first no stream of pgoutput begins; None where they may be one, or anything.

    Args:
        data: of the file, its first `HEAD_BYTES`, decompressed.
    """
    head = bytes(data[:HEAD_BYTES])
    if head[_TAR[0] : _TAR[0] + len(_TAR[1])] == _TAR[1]:
        return "a tar archive"
    kind = next((name for magic, name in _MAGIC if head.startswith(magic)), None)
    if kind is None and _is_wal_segment(head):
        return "a segment of PostgreSQL's WAL, which holds no logical messages"
    if kind is None and head and _CONTROL.isdisjoint(head[:_TEXT_BYTES]):
        return _kind_of_text(head)
    return kind


def _kind_of_text(head: bytes) -> str:
    text = head.removeprefix(b"\xef\xbb\xbf").decode("utf-8", "replace")  # a byte order mark, as Windows writes it
    if _JSON.match(text):
        return next((name for pattern, name in _JSON_KINDS if pattern.search(text)), "JSON")
    return next((name for pattern, name in _TEXT_KINDS if pattern.match(text)), "text")


def _is_wal_segment(head: bytes) -> bool:
    """Look at the header of a WAL page: a magic number, flags, a timeline, and the page's address."""
    if len(head) < 24 or head[1] not in (0xD0, 0xD1):  # the magic number: 0xD097 in PostgreSQL 10, 0xD118 in 18
        return False
    flags, timeline = int.from_bytes(head[2:4], "little"), int.from_bytes(head[4:8], "little")
    # A page's address is a multiple of its size.
    return flags < 16 and 0 < timeline < 1 << 20 and int.from_bytes(head[8:16], "little") % 8192 == 0


RECOGNISABLE_BYTES: Final = 64
"""A stream cut before this many bytes may not show its framing yet; it goes on in the next file."""


class Opened(NamedTuple):
    """A file as it is opened.

    Attributes:
        compression: what it was stored in, if anything.
        data: its bytes without that.
        framing: the one that its first bytes fit; None where they fit none, are too few to tell, or were not asked.
    """

    compression: str | None
    data: memoryview
    framing: Framing | None = None

    @property
    def foreign(self) -> str | None:
        """What it is by its first bytes, where no stream of pgoutput begins so."""
        return what_is(self.data[:HEAD_BYTES])


def open_file(content: bytes | memoryview, names: Names | None = None) -> Opened:
    """Open a file; bytes that are not compressed are not copied.

    Args:
        content: its bytes as stored.
        names: decodes names, where a stream of unknown framing begins with the file: else that is not asked.

    Raises:
        as `decompress`.
    """
    compression = detect_compression(content)
    opened = Opened(compression, memoryview(decompress(bytes(content)) if compression else content).cast("B"))
    if names is None or len(opened.data) < RECOGNISABLE_BYTES or opened.foreign is not None:
        return opened
    return opened._replace(framing=detect_framing(bytes(opened.data[:HEAD_BYTES]), names=names))
