"""Errors that travel to the driver in the text of a worker's exception, when no row can carry them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from walreplay.errors import WalReplayError, from_dict

_REFUSED: Final = "walreplay refuses: "


def refusal_text(error: WalReplayError) -> str:
    """Write an error as the text of an exception."""
    return _REFUSED + json.dumps(error.to_dict())


@contextmanager
def refusals_told() -> Iterator[None]:
    """Raise a worker's error as itself, and not as Spark's exception about it."""
    try:
        yield
    except Exception as error:
        refusal = refusal_in(str(error))
        if refusal is not None:
            raise refusal from None
        raise


def refusal_in(text: str) -> WalReplayError | None:
    """Find the error that a worker has put into the text of its exception."""
    _, found, rest = text.partition(_REFUSED)
    if not found:
        return None
    try:
        return from_dict(json.JSONDecoder().raw_decode(rest)[0])
    except ValueError:
        return None
