"""One base error.  Each error says where it happened and what to do.

An error's text never holds a cell value: rows are the user's data, and errors end up in logs and tickets.  Names, LSNs,
offsets and counts may be in it.  Names come from captures and configurations, and may hold anything: see `visible`.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from typing import Any, Final

_BYTE: Final = 0xFF
_PLANE: Final = 0xFFFF
_FIELDS: Final = ("problem", "path", "offset", "table", "remedy")


def visible(text: str) -> str:
    r"""Return a text as one line that shows all there is in it, and does nothing else.

    Controls (line ends, escape sequences), formats (what turns the direction of writing, or has no width), blanks that
    look like a space, private and unassigned characters, and halves of surrogate pairs (which stand for the bytes of a
    file's name that are no text) are written as in a Python string.  What comes out is left as it is the next time.

    >>> visible("a\nb\x1b[2J")
    'a\\x0ab\\x1b[2J'
    """
    return text if text.isprintable() else "".join(char if char.isprintable() else _escaped(char) for char in text)


def listed(names: Collection[str], most: int = 5) -> str:
    """Return the first names, for a sentence; dots stand for the others."""
    return ", ".join(list(names)[:most]) + (", …" if len(names) > most else "")


def _escaped(char: str) -> str:
    code = ord(char)
    return f"\\x{code:02x}" if code <= _BYTE else f"\\u{code:04x}" if code <= _PLANE else f"\\U{code:08x}"


def visible_json(values: Any, *, indent: int | None = None) -> str:
    """Write JSON in which such characters are escaped as JSON has it."""
    text = json.dumps(values, ensure_ascii=False, indent=indent)
    # Within texts line ends are escaped already.
    return "".join(char if char.isprintable() or char == "\n" else json.dumps(char)[1:-1] for char in text)


class WalReplayError(Exception):
    """Any error that walreplay raises, with what is known of its place.

    Args:
        problem: what is wrong, without the place and without a full stop.
        path: the file it was seen in.
        offset: byte position in that file (after decompression).
        table: ``schema.table`` or ``schema.table.column``.
        remedy: what the user can do about it.
    """

    exit_code = 1  # of the command line

    def __init__(
        self,
        problem: str,
        *,
        path: str | None = None,
        offset: int | None = None,
        table: str | None = None,
        remedy: str | None = None,
    ) -> None:
        super().__init__(problem)
        self.problem = problem
        self.path = path
        self.offset = offset
        self.table = table
        self.remedy = remedy

    def at(self, *, path: str | None = None, offset: int | None = None, table: str | None = None) -> WalReplayError:
        """Add the place if the code that raised the error did not know it.  A known place stays."""
        if self.path is None:
            self.path = path
        if self.offset is None:
            self.offset = offset
        if self.table is None:
            self.table = table
        return self

    def __str__(self) -> str:
        """Return one line for people, in which no name can control a terminal."""
        place = []
        if self.path is not None:
            place.append(self.path)
        if self.offset is not None:
            place.append(f"offset {self.offset:,}")
        if self.table is not None:
            place.append(f"table {self.table}")
        text = f"{', '.join(place)}: {self.problem}" if place else self.problem
        return visible(f"{text}. {self.remedy}" if self.remedy else text)

    def to_dict(self) -> dict[str, Any]:
        """Return the error as plain values, to carry it from an executor to the driver."""
        return {"type": type(self).__name__, **{name: getattr(self, name) for name in _FIELDS}}

    def __reduce__(self) -> tuple[Any, ...]:
        return (from_dict, (self.to_dict(),))  # pickled by its fields: executors send errors to the driver


class ConfigError(WalReplayError):
    """The configuration or the command line asks for something impossible."""

    exit_code = 2


class CaptureError(WalReplayError):
    """The bytes of a capture are not what they have to be."""


class FramingError(CaptureError):
    """No framing fits the bytes, or they stop fitting the one that was detected."""


class NotACapture(FramingError):
    """A file is not part of a pgoutput stream."""


class FramingChange(FramingError):
    """A file is in another framing than the files before it."""


class MalformedMessage(CaptureError):
    """A message breaks the protocol's layout."""


class EncodingMismatch(MalformedMessage):
    """A name is not in the encoding that was expected."""


class TruncatedMessage(MalformedMessage):
    """The bytes end before the message does."""


class UnknownMessage(MalformedMessage):
    """A byte that should be a message's tag is none."""


class UnknownRelation(CaptureError):
    """A row names a relation that no Relation message announced."""


class OrderError(CaptureError):
    """Files, sessions or transactions do not follow one another."""


class ValueFormatError(CaptureError):
    """A value does not have the form of its type."""


class NotSupported(WalReplayError):
    """The capture uses something that this version does not support."""


class TargetError(WalReplayError):
    """The state of the target's tables or ledger does not allow what the run wants to do."""


class LedgerConflict(TargetError):
    """A table contradicts the ledger or the run that is at work, which is not the table's fault alone."""


class SparkFailure(WalReplayError):
    """Spark, Delta or Java failed to do what was asked of them."""


def from_dict(fields: dict[str, Any]) -> WalReplayError:
    """Rebuild the error that `WalReplayError.to_dict` described."""
    kinds = {kind.__name__: kind for kind in _all_errors(WalReplayError)}  # all subclasses, wherever they are defined
    return kinds.get(fields["type"], WalReplayError)(**{name: fields[name] for name in _FIELDS})


def _all_errors(kind: type[WalReplayError]) -> list[type[WalReplayError]]:
    return [kind, *(error for sub in kind.__subclasses__() for error in _all_errors(sub))]
