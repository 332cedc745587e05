"""xml: text, whose declaration names an encoding only in binary format.

In binary format the server adds the recording session's encoding to the declaration, unless it is UTF8.  In text format
it leaves the encoding out, and the whole declaration if that says nothing else.
"""

from __future__ import annotations

import re

from walreplay.types.text import decode_text

_ENCODED = re.compile(r'<\?xml version="([^"]*)" encoding="[^"]*"( standalone="(?:yes|no)")?\?>')
_DEFAULT_VERSION = "1.0"


def xml_text(data: bytes, codec: str) -> str:
    """Write an xml's bytes as PostgreSQL does."""
    text = decode_text(data, codec)
    declaration = _ENCODED.match(text)
    if declaration is None:
        return text
    version, standalone = declaration[1], declaration[2] or ""
    rest = text[declaration.end() :]
    if version == _DEFAULT_VERSION and not standalone:
        return rest.removeprefix("\n")
    return f'<?xml version="{version}"{standalone}?>{rest}'
