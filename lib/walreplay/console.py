"""The one module that writes to a terminal: tables and progress on one, plain lines everywhere else.

All output goes through `walreplay.errors`, and nothing is read as markup, because names may hold anything.  While the
command line runs, that is also true for what others write to standard error (`guarded`): warnings, logs, tracebacks.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import threading
import time
import traceback
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import Any, Final, TextIO

from rich.cells import cell_len
from rich.console import Console, JustifyMethod
from rich.progress import BarColumn, MofNCompleteColumn, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bars
from rich.table import Table
from rich.text import Text

from walreplay.errors import visible, visible_json
from walreplay.progress import LOGGER, Progress

_UNITS: Final = ("bytes", "KiB", "MiB", "GiB", "TiB")
_SILENCE: Final = 10.0  # seconds of a stage without a line, after which there is one
_LONGER: Final = 1.5  # the factor by which the silence between two lines of a stage grows
_LONGEST: Final = 6  # so many times the first silence is the longest
_TIME_UNITS: Final = (("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1))


class Screen:
    """Write to a stream, in a form that suits it.

    Args:
        stream: standard output when None.
    """

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = _bare(stream or sys.stdout)  # its lines are made visible here, once
        self._rich = Console(file=self._stream, highlight=False) if self._stream.isatty() else None

    @classmethod
    def of_errors(cls) -> Screen:
        """Write to standard error."""
        return cls(sys.stderr)

    def line(self, text: str = "", *, style: str = "") -> None:
        """Write a line."""
        self._write(self._shown(text), style)

    def lines(self, text: str) -> None:
        """Write a text of this program that may have several lines."""
        for line in text.split("\n"):
            self.line(line)

    def json(self, values: Any, *, indent: int | None = None) -> None:
        """Write JSON."""
        text = visible_json(values, indent=indent)
        self._write(text if _fits(self._stream, text) else json.dumps(values, indent=indent))

    def traceback(self) -> None:
        """Write the traceback of the current exception."""
        self.lines(traceback.format_exc().rstrip("\n"))

    def _write(self, text: str, style: str = "") -> None:
        if self._rich:
            self._rich.print(Text(text, style=style), soft_wrap=True)  # lines are not broken: a remedy can be copied
        else:
            self._stream.write(text + "\n")

    def _shown(self, text: str) -> str:
        return _encodable(self._stream, visible(text))

    def pictures(self, report: Any) -> None:
        """Draw what pictures show of a report: a terminal has none."""

    def table(self, headers: Sequence[str], rows: Iterable[Sequence[Any]], *, title: str = "") -> None:
        """Write a table; numbers are aligned to the right, and None is blank."""
        right, cells = aligned_cells(rows, len(headers))
        cells = [[self._shown(cell) for cell in row] for row in cells]
        headers, title = [self._shown(header) for header in headers], self._shown(title)
        if self._rich:
            if title:
                self._rich.print(Text(title, style="bold"), soft_wrap=True)
            table = Table()
            for header, numeric in zip(headers, right, strict=True):
                justify: JustifyMethod = "right" if numeric else "left"
                # rich reads a plain string as markup: a column called [red] would vanish.
                table.add_column(Text(header), justify=justify, overflow="fold", header_style="bold")
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


class Rate:
    """How fast something goes, and how long it will still take, as far as that is known."""

    def __init__(self) -> None:
        self._began = time.monotonic()

    def describe(self, done: int, total: int) -> str:
        """Return how many bytes are done, how fast, and when it will end; nothing at the beginning."""
        now = time.monotonic()
        if not done:  # it begins, or begins anew
            self._began = now
        seconds = now - self._began
        if seconds <= 0:
            return ""
        rate = done / seconds
        left = timedelta(seconds=round(max(0, total - done) / rate))
        return f"{size(done)} of {size(max(done, total))} read, {size(int(rate))}/s, {left} left"


class BarProgress(Progress):
    """A progress bar for the current stage, on a terminal."""

    def __init__(self, stream: TextIO) -> None:
        self._rate, self._whole, self._name = Rate(), "", ""
        stream = _bare(stream)
        self._bars = Bars(
            SpinnerColumn(),
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=30),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            console=Console(file=stream),
            transient=True,
            # rich would write to the stream itself what others print meanwhile, past `guarded`.
            redirect_stdout=False,
            redirect_stderr=False,
        )
        self._task: TaskID | None = None

    def stage(self, name: str, total: int | None) -> None:
        """Show a new bar in the place of the last."""
        self._bars.start()
        if self._task is not None:
            self._bars.remove_task(self._task)
        self._name = f"{self._whole}{name}"
        self._task = self._bars.add_task(visible(self._name), total=total)

    def doing(self, what: str) -> None:
        """Show it behind the stage's name."""
        if self._task is not None:
            self._bars.update(self._task, description=visible(f"{self._name}: {what}"))

    def so_far(self, done: int, total: int) -> None:
        """Show it in front of the stages that follow."""
        text = self._rate.describe(done, total)
        self._whole = text and f"{text}: "

    def advance(self, count: int = 1) -> None:
        """Move the bar on."""
        if self._task is not None:
            self._bars.advance(self._task, count)

    def done(self) -> None:
        """Take the bar away."""
        self._bars.stop()
        self._task = None


class LineProgress(Progress):
    """For logs: a line at the end of each stage, and now and then what a long stage is at."""

    def __init__(self, stream: TextIO) -> None:
        self._output = Screen(stream)
        self._rate = Rate()
        self._lock = threading.Lock()
        self._ended: threading.Event | None = None
        self._name = self._doing = ""
        self._count = 0
        self._total: int | None = None
        self._began = 0.0

    def stage(self, name: str, total: int | None) -> None:
        """Close the stage before and open a new one."""
        self.done()
        with self._lock:
            self._name, self._doing, self._count, self._total = name, "", 0, total
            self._began = time.monotonic()
            self._ended = ended = threading.Event()
        threading.Thread(target=self._tell, args=(ended,), name="walreplay progress", daemon=True).start()

    def doing(self, what: str) -> None:
        """Keep it for the next line."""
        with self._lock:
            self._doing = what

    def _tell(self, ended: threading.Event) -> None:
        """Show what a stage is at, until it has ended."""
        silence = _SILENCE
        while not ended.wait(silence):
            with self._lock:
                if not ended.is_set():  # it may have ended while this waited for the lock
                    self._output.line(self._so_far())
            silence = min(silence * _LONGER, _SILENCE * _LONGEST)

    def _so_far(self) -> str:
        count = f" {self._count:,} of {self._total:,}" if self._total else ""
        seconds = time.monotonic() - self._began
        return f"{self._name}:{count} so far ({seconds:.1f} s){self._doing and f', at {self._doing}'}"

    def advance(self, count: int = 1) -> None:
        """Count."""
        with self._lock:
            self._count += count

    def so_far(self, done: int, total: int) -> None:
        """Write it, in a line of its own."""
        text = self._rate.describe(done, total)
        if text:
            self.done()
            self._output.line(text)

    def done(self) -> None:
        """Print what the stage did and how long it took."""
        with self._lock:
            if self._name:
                count = f" {self._count:,}" if self._count else ""
                seconds = time.monotonic() - self._began
                self._output.line(f"{self._name}:{count} ({seconds:.1f} s)")
            self._name = ""
            if self._ended is not None:
                self._ended.set()  # ends the thread


def progress_shown(*, quiet: bool) -> Progress:
    """Return the progress display for standard error."""
    if quiet:
        return Progress()
    return BarProgress(sys.stderr) if sys.stderr.isatty() else LineProgress(sys.stderr)


class _Guard:
    """A stream that makes each line visible before it passes it on."""

    def __init__(self, stream: TextIO) -> None:
        self.stream = stream

    def write(self, text: str) -> int:
        shown = "\n".join(map(visible, text.split("\n")))
        self.stream.write(_encodable(self.stream, shown))
        return len(text)  # as the writer expects: of its own text

    def writelines(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


def _bare(stream: TextIO) -> TextIO:
    """Return the underlying stream, for output that is made visible already."""
    return stream.stream if isinstance(stream, _Guard) else stream


@contextmanager
def guarded() -> Iterator[None]:
    """Pass everything that anybody writes to standard error through `visible`, for a while."""
    stream = sys.stderr
    sys.stderr = _Guard(stream)
    try:
        yield
    finally:
        sys.stderr = stream


class _LogLines(logging.Handler):
    """Writes what is logged to standard error."""

    def emit(self, record: logging.LogRecord) -> None:
        time_ = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(record.created))
        with suppress(OSError):  # who has read it is gone: the work goes on
            Screen.of_errors().line(f"{time_} {record.levelname} {record.getMessage()}")


@contextmanager
def logged(level: str) -> Iterator[None]:
    """Write the package's log lines to standard error, for a while.

    Args:
        level: such as ``INFO``; empty for none.
    """
    if not level:
        yield
        return
    handler, before = _LogLines(), LOGGER.level
    LOGGER.addHandler(handler)
    LOGGER.setLevel(level.upper())
    try:
        yield
    finally:
        LOGGER.removeHandler(handler)
        LOGGER.setLevel(before)


def drop_output() -> None:
    """Discard what is still to be written to standard output, because nobody reads it any more."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _encodable(stream: TextIO, text: str) -> str:
    """Escape what a stream's encoding has no bytes for."""
    if _fits(stream, text):
        return text
    encoding = stream.encoding
    return text.encode(encoding, "backslashreplace").decode(encoding)


def _fits(stream: TextIO, text: str) -> bool:
    encoding = getattr(stream, "encoding", None)
    if text.isascii() or encoding is None:
        return True
    try:
        text.encode(encoding)
    except UnicodeEncodeError:
        return False
    return True


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
        if count or parts or unit == "s":  # 0 s for nothing at all
            parts.append(f"{count} {unit}")
    return " ".join(parts[:2])


def _pad(cell: str, width: int, *, right: bool) -> str:
    """Pad to a width on the screen, where a Chinese character is two columns wide."""
    blank = " " * (width - cell_len(cell))
    return blank + cell if right else cell + blank


def aligned_cells(rows: Iterable[Sequence[Any]], columns: int) -> tuple[list[bool], list[list[str]]]:
    """Return which columns of a table have numbers, which are aligned to the right, and the cells as text."""
    body = [tuple(row) for row in rows]
    right = [
        any(isinstance(row[column], (int, float)) for row in body)  # a column of blanks stays on the left
        and all(row[column] is None or isinstance(row[column], (int, float)) for row in body)
        for column in range(columns)
    ]
    return right, [[_cell(value) for value in row] for row in body]


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:,.1f}"
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    return str(value)
