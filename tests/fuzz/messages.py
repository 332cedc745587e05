"""The scalar reader: what it reads, written again, is the same bytes; a message that is cut is one that ends early."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from fuzz.target import Target
from support.captures import cases
from support.wire import encode
from walreplay.errors import CaptureError, TruncatedMessage
from walreplay.protocol import messages as m
from walreplay.protocol.reader import is_streaming_after, read_message, read_stream

_PARALLEL = (None, True, False, None)
_REPEATED = 0xF
_TIMES = 64
_LOOKED_AT = 500


def read(data: bytes) -> None:
    """Read messages until an error.

    Args:
        data: in the first byte, bit 0 says whether they lie in a stream, bits 1 and 2 whether aborts are long; where
            bits 4 to 7 are set, the bytes behind it stand there 64 times.
    """
    if not data:
        return
    options, body = data[0], data[1:]
    if options >> 4 == _REPEATED:
        body *= _TIMES
    streaming, parallel = bool(options & 1), _PARALLEL[options >> 1 & 3]
    offset, view = 0, memoryview(body)
    while offset < len(body):
        try:
            message, end = read_message(view, offset, streaming=streaming, parallel=parallel)
        except CaptureError:
            return
        written = encode(message)
        assert body[offset:end] == written, "what was read is not what was written"
        if not (isinstance(message, m.StreamAbort) and parallel is None):
            cut = offset + len(written) * options // 256  # in front of its end, anywhere
            try:
                read_message(view[:cut], offset, streaming=streaming, parallel=parallel)
            except TruncatedMessage:
                pass
            else:
                raise AssertionError("a message that is cut is read")
        streaming = is_streaming_after(message, streaming)
        offset = end


def seeds() -> Iterator[bytes]:
    """Yield the first message of each kind and length in the captures, and a few together."""
    known = set[tuple[type, int]]()
    for case in cases():
        for stream in case.streams():
            streaming = False
            try:
                for _, message in islice(read_stream(stream, framing=case.framing), _LOOKED_AT):
                    written, is_inside = encode(message), streaming
                    streaming = is_streaming_after(message, streaming)
                    kind = (type(message), len(written).bit_length())
                    if len(written) < 200 and kind not in known:
                        known.add(kind)
                        yield bytes([is_inside]) + written
            except CaptureError:
                pass  # what a torn session has in front is enough


TARGET = Target("messages", read, seeds, tuple(bytes([tag]) for tag in b"BCOMRYIUDTSEcAbPKrpntubNOK"), longest=512)
