r"""Arrays of built-in types: ``{a,"b\"c",NULL}``.

A list column has one dimension and counts from its beginning, so an array with several dimensions or with
bounds of its own (``[0:1]={1,2}``) does not fit.
"""

import re

from wal2delta.errors import ValueFormatError
from wal2delta.types.base import DoesNotFit

_BOUNDS = re.compile(r"(?:\[-?[0-9]+:-?[0-9]+\])+=\{")
_ELEMENT = re.compile(r'"((?:[^"\\]|\\.)*)"', re.DOTALL)


def elements_from_text(text: str, delimiter: str) -> list[str | None]:
    """Take an array's text apart; None is a NULL element.

    Raises:
        DoesNotFit: several dimensions, or bounds that do not begin at 1.
    """
    if _BOUNDS.match(text) or (text.startswith("{{") and text.endswith("}}")):
        raise DoesNotFit
    if len(text) < 2 or text[0] != "{" or text[-1] != "}":
        raise _malformed()
    elements: list[str | None] = []
    position, end = 1, len(text) - 1
    if position == end:
        return elements
    while True:
        quoted = _ELEMENT.match(text, position, end)
        if quoted is not None:
            elements.append(re.sub(r"\\(.)", r"\1", quoted[1], flags=re.DOTALL))
            position = quoted.end()
        else:
            start = position
            while position < end and text[position] != delimiter:
                if text[position] in '"\\{}':
                    raise _malformed()
                position += 1
            if position == start:
                raise _malformed()
            word = text[start:position]
            elements.append(None if word == "NULL" else word)
        if position == end:
            return elements
        if text[position] != delimiter:
            raise _malformed()
        position += 1


def _malformed() -> ValueFormatError:
    return ValueFormatError("an array is not in PostgreSQL's form")
