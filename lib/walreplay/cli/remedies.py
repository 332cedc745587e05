"""Commands that remedies and warnings show, with the values of the call that prints them: as they are to be pasted."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from shlex import quote
from typing import Final

_OF_TARGET: Final = frozenset({"apply", "backfill", "rebuild", "load", "maintain", "status"})
_OF_CAPTURES: Final = frozenset({"apply", "backfill", "rebuild", "load", "index", "audit"})
_OPTIONS: Final = {
    "--captures": _OF_CAPTURES,
    "--target": _OF_TARGET,
    "--config": _OF_TARGET | _OF_CAPTURES,
    "--source": _OF_TARGET | _OF_CAPTURES,
    "--index": frozenset({"index", "audit"}),
}
"""The options whose values the commands have in common, and which commands take each."""

# A name in quotes is data, also if it reads like a command.
_COMMAND: Final = re.compile(r"(?<![\w./\\'\"-])walreplay ([a-z]+)\b(?=([^;]*))")

_call: Final[ContextVar[Sequence[tuple[str, str]]]] = ContextVar("call", default=())


@contextmanager
def of_call(arguments: Sequence[str]) -> Iterator[None]:
    """Fill the values of a call's arguments into the commands that are shown meanwhile."""
    given: dict[str, list[str]] = {}
    for argument, value in zip(arguments, [*arguments[1:], ""], strict=False):
        option, equals, inline_value = argument.partition("=")  # --option=value, or the value is the next argument
        if option in _OPTIONS:
            given.setdefault(option, []).append(inline_value if equals else value)
    # Of an option that is given several times (--source), nobody knows which value a remedy is about.
    token = _call.set([(option, given[option][0]) for option in _OPTIONS if len(given.get(option, ())) == 1])
    try:
        yield
    finally:
        _call.reset(token)


def filled(text: str) -> str:
    """Return a remedy or a warning, in which commands have the call's values.

    >>> with of_call(["audit", "--captures", "in put", "--target=out", "--index", "x"]):
    ...     filled("Run walreplay load --replace; then walreplay audit")
    "Run walreplay load --captures 'in put' --target out --replace; then walreplay audit --captures 'in put' --index x"
    """

    def fill(command: re.Match[str]) -> str:
        options = ((option, value) for option, value in _call.get() if command[1] in _OPTIONS[option])
        values = [f"{option} {quote(value)}" for option, value in options if option not in command[2]]
        return " ".join([command[0], *values])

    return _COMMAND.sub(fill, text)
