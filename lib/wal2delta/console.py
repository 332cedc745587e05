"""How the command line looks: tables and progress on a terminal, plain lines everywhere else."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterable, Sequence
from datetime import timedelta
from typing import Any, Final, TextIO

from rich.cells import cell_len
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bars
from rich.table import Table
from rich.text import Text

_UNITS: Final = ("bytes", "KiB", "MiB", "GiB", "TiB")
_TIME_UNITS: Final = (("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1))


class Output:
    """Write to a stream what suits it.

    Args:
        stream: standard output when None.
    """

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream or sys.stdout
        self._rich = Console(file=self._stream, highlight=False) if self._stream.isatty() else None

    def line(self, text: str = "", *, style: str = "") -> None:
        """Write a line."""
        if self._rich:
            self._rich.print(Text(text, style=style), soft_wrap=True)
        else:
            self._stream.write(text + "\n")

    def table(self, headers: Sequence[str], rows: Iterable[Sequence[Any]], *, title: str = "") -> None:
        """Write a table; numbers stand right and None is blank."""
        body = [tuple(row) for row in rows]
        right = [
            any(isinstance(row[column], (int, float)) for row in body)
            and all(row[column] is None or isinstance(row[column], (int, float)) for row in body)
            for column in range(len(headers))
        ]
        cells = [[_cell(value) for value in row] for row in body]
        if self._rich:
            table = Table(title=title or None, title_justify="left", title_style="bold", header_style="bold")
            for header, numeric in zip(headers, right, strict=True):
                table.add_column(header, justify="right" if numeric else "left", overflow="fold")
            for row in cells:
                table.add_row(*(Text(cell) for cell in row))
            self._rich.print(table)
            return
        if title:
            self._stream.write(f"{title}\n")
        lines = [list(headers), *cells]
        widths = [max(cell_len(line[column]) for line in lines) for column in range(len(headers))]
        for line in lines:
            aligned = (
                _pad(cell, width, right=numeric) for cell, width, numeric in zip(line, widths, right, strict=True)
            )
            self._stream.write("  ".join(aligned).rstrip() + "\n")


class BarProgress:
    """A bar for the stage that is at work, on a terminal."""

    def __init__(self, stream: TextIO) -> None:
        self._bars = Bars(
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(bar_width=30),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            console=Console(file=stream),
            transient=True,
        )
        self._task: TaskID | None = None

    def stage(self, name: str, total: int | None) -> None:
        """Show a new bar in the place of the last."""
        self._bars.start()
        if self._task is not None:
            self._bars.remove_task(self._task)
        self._task = self._bars.add_task(name, total=total)

    def advance(self, count: int = 1) -> None:
        """Move the bar on."""
        if self._task is not None:
            self._bars.advance(self._task, count)

    def done(self) -> None:
        """Take the bar away."""
        self._bars.stop()
        self._task = None


class LineProgress:
    """A line for every stage: for logs."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._lock = threading.Lock()
        self._name = ""
        self._count = 0
        self._began = 0.0

    def stage(self, name: str, total: int | None) -> None:
        """Close the stage before and open a new one."""
        self.done()
        with self._lock:
            self._name, self._count, self._began = name, 0, time.monotonic()

    def advance(self, count: int = 1) -> None:
        """Count."""
        with self._lock:
            self._count += count

    def done(self) -> None:
        """Say what the stage did and how long it took."""
        with self._lock:
            if self._name:
                count = f" {self._count:,}" if self._count else ""
                seconds = time.monotonic() - self._began
                self._stream.write(f"{self._name}:{count} ({seconds:.1f} s)\n")
                self._stream.flush()
            self._name = ""


def size(count: int) -> str:
    """Write a number of bytes for people.

    >>> size(1536)
    '1.5 KiB'
    """
    value, unit = float(count), 0
    while value >= 1024 and unit < len(_UNITS) - 1:
        value, unit = value / 1024, unit + 1
    return f"{count:,} bytes" if unit == 0 else f"{value:,.1f} {_UNITS[unit]}"


def age(span: timedelta) -> str:
    """Write how long something has lasted, in its two largest units.

    >>> age(timedelta(hours=76, minutes=12))
    '3 d 4 h'
    """
    seconds = max(0, int(span.total_seconds()))
    parts: list[str] = []
    for unit, length in _TIME_UNITS:
        count, seconds = divmod(seconds, length)
        if count or parts or unit == "s":
            parts.append(f"{count} {unit}")
    return " ".join(parts[:2])


def _pad(cell: str, width: int, *, right: bool) -> str:
    """Pad to a width on the screen, where a Chinese character takes two places."""
    blank = " " * (width - cell_len(cell))
    return blank + cell if right else cell + blank


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:,.1f}"
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    # A table's cell is one line, and no value steers the terminal.
    return "".join(char if char.isprintable() else f"\\x{ord(char):02x}" for char in str(value))
