"""One base error; each error carries its place and its remedy.

An error's text never holds a cell value: rows are the user's data, logs and tickets are not the
place for them.  Names, LSNs, offsets and counts are.
"""

from typing import Any

from walreplay.visible import visible


class WalReplayError(Exception):
    """Anything that walreplay refuses, with what is known of where it happened.

    Args:
        problem: what is wrong, without the place and without a full stop.
        path: the file it was seen in.
        offset: byte position in that file (after decompression).
        table: ``schema.table`` or ``schema.table.column``.
        remedy: what the user can do about it.
    """

    exit_code = 1

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

    def at(self, *, path: str | None = None, offset: int | None = None) -> "WalReplayError":
        """Fill in the place where the raiser did not know it; a place already known stays."""
        if self.path is None:
            self.path = path
        if self.offset is None:
            self.offset = offset
        return self

    def __str__(self) -> str:
        """Put it into one line for people: whoever prints it, no name in it steers the terminal."""
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
        """Give the error as plain values, to carry it from an executor to the driver."""
        return {
            "type": type(self).__name__,
            "problem": self.problem,
            "path": self.path,
            "offset": self.offset,
            "table": self.table,
            "remedy": self.remedy,
        }

    def __reduce__(self) -> tuple[Any, ...]:
        return (_restore, (self.to_dict(),))


class ConfigError(WalReplayError):
    """The configuration or the command line asks for something that cannot be."""

    exit_code = 2


class CaptureError(WalReplayError):
    """The bytes of a capture cannot be what they should be."""


class FramingError(CaptureError):
    """No framing fits the bytes, or they leave the one that was recognised."""


class NotACapture(FramingError):
    """A file is something else than a part of a stream of pgoutput's."""


class FramingChange(FramingError):
    """A file is in another framing than the files before it."""


class MalformedMessage(CaptureError):
    """A message breaks the protocol's layout."""


class EncodingMismatch(MalformedMessage):
    """A name is not in the encoding that names are said to be in."""


class TruncatedMessage(MalformedMessage):
    """The bytes end before the message does."""


class UnknownMessage(MalformedMessage):
    """A byte stands where a message's tag should, and is none."""


class UnknownRelation(CaptureError):
    """A row names a relation that no Relation message announced."""


class OrderError(CaptureError):
    """Files, sessions or transactions do not follow one on the other."""


class ValueFormatError(CaptureError):
    """A value is not in the form that its type has."""


class MissingRow(CaptureError):
    """A row that is updated or deleted is not in its table."""


class NotSupported(WalReplayError):
    """The capture uses something that this version does not do yet."""


class TargetError(WalReplayError):
    """The target's tables or ledger do not allow what the run wants to do."""


class SparkFailure(WalReplayError):
    """Spark, Delta or Java could not do what was asked of them."""


def _restore(fields: dict[str, Any]) -> WalReplayError:
    kinds = {kind.__name__: kind for kind in _all_errors(WalReplayError)}
    kind = kinds.get(fields["type"], WalReplayError)
    return kind(
        fields["problem"],
        path=fields["path"],
        offset=fields["offset"],
        table=fields["table"],
        remedy=fields["remedy"],
    )


def from_dict(fields: dict[str, Any]) -> WalReplayError:
    """Make the error again that `WalReplayError.to_dict` described."""
    return _restore(fields)


def _all_errors(kind: type[WalReplayError]) -> list[type[WalReplayError]]:
    found = [kind]
    for sub in kind.__subclasses__():
        found.extend(_all_errors(sub))
    return found
