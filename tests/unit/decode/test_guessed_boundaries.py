"""The first boundary of a file that begins anywhere is found without walking from every place that could be one."""

from __future__ import annotations

import random

import pytest

from support.captures import case
from support.framings import FORMS, Form
from walreplay.decode.sessions import resync
from walreplay.protocol import messages as m
from walreplay.protocol.reader import read_stream

MOST_WALKS = 200
"""A walk from a wrong place takes 20 µs.  Four bytes in front of each of the thousands of messages may be a length."""


def pgbench() -> list[m.AnyMessage]:
    """Return many small transactions."""
    recorded = case("o07")
    return [message for stream in recorded.streams() for _, message in read_stream(stream, framing=recorded.framing)]


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.name)
def test_few_places_are_tried(form: Form, monkeypatch: pytest.MonkeyPatch) -> None:
    data = form.write(pgbench())
    walked: list[int] = []
    fits = resync._fits

    def counted(data: bytes, start: int, *arguments: object, **options: object) -> int:
        walked.append(start)
        return fits(data, start, *arguments, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(resync, "_fits", counted)
    chance = random.Random(form.name)
    for _ in range(5):
        walked.clear()
        guess = resync.guess_framing(data[chance.randrange(len(data) // 2) :])
        assert guess is not None
        assert guess[0] is form.framing
        assert len(walked) <= MOST_WALKS
