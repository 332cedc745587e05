"""Errors that the text of a worker's exception carries to the driver, where there is no row to give them back in."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from walreplay.errors import WalReplayError, from_dict

_REFUSED: Final = "walreplay refuses: "


def refusal_text(error: WalReplayError) -> str:
    """Write an error into the text of an exception, where there is no row to give it back in."""
    return _REFUSED + json.dumps(error.to_dict())


@contextmanager
def refusals_told() -> Iterator[None]:
    """Raise what a worker refuses as what it is, and not as Spark tells of it."""
    try:
        yield
    except Exception as error:
        refusal = refusal_in(str(error))
        if refusal is not None:
            raise refusal from None
        raise


def refusal_in(text: str) -> WalReplayError | None:
    """Give the error that a worker has put into its exception's text, wherever it stands in it."""
    _, found, rest = text.partition(_REFUSED)
    if not found:
        return None
    try:
        return from_dict(json.JSONDecoder().raw_decode(rest)[0])
    except ValueError:
        return None
