"""What Java has thrown, without a JVM to ask for it."""

from __future__ import annotations

from py4j.protocol import Py4JJavaError


class Thrown(Py4JJavaError):
    """An exception of Java's by its text."""

    def __init__(self, text: str) -> None:
        Exception.__init__(self, text)
        self._text = text

    def __str__(self) -> str:
        return self._text
