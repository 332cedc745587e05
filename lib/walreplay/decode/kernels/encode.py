"""Kernels that write gathered bytes as text: base64 and hexadecimal digits."""

# mypy: disable-error-code="no-untyped-def, no-untyped-call"

from __future__ import annotations

from typing import Final

import numpy as np

from walreplay.decode.compile.kernel import kernel
from walreplay.decode.compile.parameters import BYTES, CELLS, INT64, out

_LETTERS: Final = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
BASE64: Final = np.frombuffer(_LETTERS + b"+/", dtype=np.uint8)
BASE64_URL: Final = np.frombuffer(_LETTERS + b"-_", dtype=np.uint8)
HEX: Final = np.frombuffer(b"0123456789abcdef", dtype=np.uint8)

_PAD: Final = 61


@kernel(BYTES, CELLS, CELLS, INT64, BYTES, out("uint8"))
def base64_texts(data, ends, text_ends, rows, alphabet, text):
    """Write each row, the bytes from ``ends[row]`` on, in base64 with its padding from ``text_ends[row]`` on."""
    for row in range(rows):
        at = np.int64(text_ends[row])
        i = np.int64(ends[row])
        end = np.int64(ends[row + 1])
        while i < end:
            first = np.int64(data[i])
            second = np.int64(data[i + 1]) if i + 1 < end else 0
            third = np.int64(data[i + 2]) if i + 2 < end else 0
            text[at] = alphabet[first >> 2]
            text[at + 1] = alphabet[(first & 3) << 4 | second >> 4]
            text[at + 2] = alphabet[(second & 15) << 2 | third >> 6] if i + 1 < end else _PAD
            text[at + 3] = alphabet[third & 63] if i + 2 < end else _PAD
            i += 3
            at += 4
    return rows


@kernel(BYTES, CELLS, CELLS, INT64, BYTES, out("uint8"))
def hex_texts(data, ends, text_ends, rows, alphabet, text):
    """Write each row, the bytes from ``ends[row]`` on, in hexadecimal digits from ``text_ends[row]`` on."""
    for i in range(np.int64(ends[0]), np.int64(ends[rows])):
        byte = np.int64(data[i])
        text[2 * i] = alphabet[byte >> 4]
        text[2 * i + 1] = alphabet[byte & 15]
    return rows
