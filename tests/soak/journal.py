"""What has happened: a line each, and how often."""

from __future__ import annotations

import threading
import time
from collections import Counter
from pathlib import Path


class Journal:
    """The lines of a leg, which go to the terminal and into a file.

    Attributes:
        counts: how often each kind of thing has happened.
    """

    def __init__(self, file: Path, seed: int) -> None:
        self.counts = Counter[str]()
        self._file, self._seed, self._begin, self._lock = file, seed, time.monotonic(), threading.Lock()

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._begin

    def note(self, kind: str, text: str = "") -> None:
        """Count something, and write a line on it."""
        line = f"seed {self._seed} +{self.seconds:6.1f}s {kind}{': ' if text else ''}{text}"
        with self._lock:
            self.counts[kind] += 1
            print(line, flush=True)
            with self._file.open("a", encoding="utf-8") as file:
                file.write(f"{line}\n")

    def count(self, kind: str, number: int = 1) -> None:
        """Count something that needs no line."""
        with self._lock:
            self.counts[kind] += number
