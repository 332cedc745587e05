"""Which files a capture consists of, in which order, and what the numbers in their names say about missing files.

The order is *natural* (numbers compare as numbers), by *path*, or by the time when a file was *modified*.
"""

from __future__ import annotations

import mmap
import os
import re
import stat
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatch
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

from walreplay.errors import ConfigError
from walreplay.recorded_names import RecordedName

Order: TypeAlias = Literal["natural", "path", "modified"]

_NUMBER = re.compile(r"(\d+)")
_GLOB = re.compile(r"([\[\]{}*?\\])")

HIDDEN: Final = (".", "_")  # What is called so is hidden, as Spark has it


# Order


def natural_key(path: str) -> tuple[tuple[int, int | str], ...]:
    """Return a sort key that puts part10 behind part9.

    Numbers compare as numbers, all else as text; a number sorts before text.  Names that differ only in leading zeros
    are ordered by their length, last.
    """
    parts: list[tuple[int, int | str]] = []
    for part in _NUMBER.split(path):
        if part.isdigit() and part.isascii():  # ² is a digit, but int() refuses it
            parts.append((0, int(part)))
        elif part:
            parts.append((1, part))
    parts.append((0, len(path)))  # fewer leading zeros first
    return tuple(parts)


def natural_order(paths: Iterable[str]) -> list[str]:
    """Sort paths naturally; equal keys by their text."""
    return sorted(paths, key=lambda path: (natural_key(path), path))


def sort_key(order: Order, path: str, modified: int) -> tuple[Any, ...]:
    """Return the sort key for the configured order; no two paths have the same key.

    Args:
        order: ``natural``; ``path``, plain text; ``modified``, by time and, if that is equal, naturally.
        modified: the modification time in µs since 1970.
    """
    if order == "path":
        return (path,)
    if order == "modified":
        return (modified, natural_key(path), path)
    return (natural_key(path), path)


def uncompressed(path: str) -> str:
    """Return a file's path without what compression adds to it."""
    return _COMPRESSION.sub("", path)


def list_files(paths: str | os.PathLike[str] | Sequence[str | os.PathLike[str]], *, hidden: bool = False) -> list[str]:
    """Return the named files, and the files of named folders, in the natural order.

    Args:
        hidden: also those whose names, or whose folders', begin with ``.`` or ``_``.

    Raises:
        ConfigError: a path does not exist or is no file, or there is no file at all.
    """
    given = [paths] if isinstance(paths, (str, os.PathLike)) else list(paths)
    files: list[str] = []
    for item in given:
        path = Path(item)
        refuse_endless(path)
        if path.is_dir():
            folder_files = (
                file for file in path.rglob("*") if file.is_file() and (hidden or not is_hidden(file, path))
            )
            files.extend(natural_order(map(str, folder_files)))
        elif path.exists():
            files.append(str(path))
        else:
            raise ConfigError("no such file or folder", path=str(path), remedy="Check the path")
    if not files:
        raise ConfigError("there are no files", path=", ".join(map(str, given)), remedy="Check the path")
    return files


def refuse_endless(path: Path, *, pattern: str | None = None) -> None:
    """Refuse pipes, sockets and devices, as a path or in a folder: their bytes can be read only once, or never end.

    Args:
        pattern: in a folder, only files whose names match it count.

    Raises:
        ConfigError: naming the first, or what cannot be read.
    """
    try:
        special = next(_special(path, pattern), None)
    except OSError as error:
        # A link that leads to itself, a folder that may not be read.
        raise ConfigError(
            f"the captures cannot be listed: {error.strerror}",
            path=str(error.filename or path),
            remedy="See that it can be read, or leave it out of the captures' folder",
        ) from None
    if special is not None:
        mode = special.stat().st_mode
        kind = "a pipe" if stat.S_ISFIFO(mode) else "a socket" if stat.S_ISSOCK(mode) else "a device"
        raise ConfigError(
            f"{kind} is no capture file: its bytes cannot be read a second time",
            path=str(special),
            remedy="Write what it gives to a file, and leave it out of the captures' folder",
        )


def _special(path: Path, pattern: str | None) -> Iterator[Path]:
    """Yield what exists but is neither a file nor a folder."""
    if not path.is_dir():
        if path.exists() and not path.is_file():
            yield path
        return
    with os.scandir(path) as entries:
        for entry in entries:
            if entry.name.startswith(HIDDEN) or entry.is_file():  # hidden files are not read anyway
                continue
            here = Path(entry.path)
            if entry.is_dir():
                if not entry.is_symlink():  # as with rglob, links to folders are not followed
                    yield from _special(here, pattern)
            elif here.exists() and (pattern is None or fnmatch(entry.name, pattern)):
                yield here


def is_hidden(file: Path, root: Path) -> bool:
    """Return whether a file, or a folder that it is in below the root, is called as hidden ones are."""
    return any(part.startswith(HIDDEN) for part in file.relative_to(root).parts)


_GLOB_PARTS: Final = re.compile(r"\\(.)|\*\*|[*?{},]|\[[!^]?.[^]]*\]|.", re.DOTALL)
_OF_GLOB: Final = {"**": ".*", "*": "[^/]*", "?": "[^/]", "{": "(?:"}


def matches_glob(text: str, glob: str) -> bool:
    """Return whether a text matches a glob as Hadoop has it, with alternatives in braces; two stars match slashes."""
    expression, depth = "", 0
    for part in _GLOB_PARTS.finditer(glob):
        sign = part[0]
        if depth and sign in ",}":
            expression += "|" if sign == "," else ")"
        elif len(sign) > 2 and sign[0] == "[":
            expression += ("[^" if sign[1] in "!^" else "[") + sign[1:].lstrip("!^").replace("\\", "\\\\")
        else:
            expression += _OF_GLOB.get(sign) or re.escape(part[1] or sign)
        depth += (sign == "{") - (sign == "}" and depth > 0)
    return re.fullmatch(expression + ")" * depth, text, re.DOTALL) is not None


def escape_glob(text: str) -> str:
    """Escape a text so that a glob matches it literally."""
    return _GLOB.sub(r"\\\1", text)


def map_file(path: str) -> memoryview:
    """Memory-map a local file: its bytes are read once, straight from the page cache."""
    with Path(path).open("rb") as file:
        if os.fstat(file.fileno()).st_size == 0:  # an empty file cannot be mapped
            return memoryview(b"")
        return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))


@dataclass(frozen=True, slots=True)
class Hole:
    """Numbers that are left out between two files of a series.

    Attributes:
        missing: how many.
        example: the path that the first of them would have; ``…`` stands for the parts that are unknown.
        names: for each of them, up to 1,000, such an example, and a glob that finds the file if it exists after all.
    """

    before: str
    after: str
    missing: int
    example: str
    names: tuple[tuple[str, str], ...] = field(default=(), repr=False, compare=False)

    def describe(self) -> str:
        """Describe it, without the folders that all the names share."""
        paths = (self.before, self.after, self.example)
        shared = _shared_folder(paths)
        before, after, example = (path[shared:] for path in paths)
        count = "1 file is" if self.missing == 1 else f"{self.missing:,} files are"
        return f"between {before} and {after} {count} missing, such as {example}"


_MOST_NAMES: Final = 1_000  # each is looked for, as an empty file may not be listed

_FEWEST: Final = 3  # files that make a series

_LEAP: Final = 10  # where more numbers are left out for each file that is there, a numbering begins anew: no hole

_WAL_WIDTH: Final = 24  # digits: timeline, log and segment, eight each

_COMPRESSION = re.compile(r"\.(?:bz2|gz|lz4|zst|zstd)$", re.IGNORECASE)

_WORD = re.compile(r"[0-9A-Za-z]+")

_DECIMAL = re.compile(r"([A-Za-z]*)([0-9]+)")

_HEXADECIMAL = re.compile(r"[0-9A-F]{4,}|[0-9a-f]{4,}")


def missing_numbers(paths: Sequence[str]) -> list[Hole]:
    """Find the numbers that series of files leave out; the order of the paths does not matter.

    A *series* is at least three files whose paths are the same up to a number that no two of them share; what follows
    the number is free (an LSN, a suffix).  It has holes only if it is numbered one by one: at least half of the steps
    from one number to the next are 1.  Where a step leaves out more than ten numbers for each of the files, another
    series begins.  What counts as a number:

    - decimal digits, perhaps with letters before them, but none behind them, padded with zeros to one width or not;
    - hexadecimal digits of one width, four or more, and of one case, that cannot all be decimal;
    - the name of a WAL segment, 24 hexadecimal digits: behind the last segment of a log comes the first of the next.

    Dates and times before a number may differ, if the number goes on over them.  What could itself be part of a date or
    a time, seconds since 1970, or the first half of an LSN, is no number here, and neither is what several files share,
    such as a session's number before a running one.  A suffix of compression makes no other file.

    Files that were cleared away on purpose have to be among the paths, or they count as missing.  What `RecordedName`
    reads is left to `broken_chains`.
    """
    holes: dict[tuple[str, str], Hole] = {}
    words = _words([path for path in paths if RecordedName.parse(path) is None])
    taken: set[tuple[str, int]] = set()
    for reading in (_SEGMENTS, _HEXADECIMALS, _DECIMALS):  # the strictest first; what it has read the others leave
        for series, write in _series(reading, [word for word in words if (word.path, word.start) not in taken]):
            taken.update((number.word.path, number.word.start) for number in series)
            for earlier, later in pairwise(series):
                if later.value - earlier.value > 1:
                    holes.setdefault((earlier.word.path, later.word.path), _hole(earlier, later, write))
    return list(holes.values())


@dataclass(frozen=True, slots=True)
class _Word:
    """Letters and digits of a path that could be a number."""

    path: str
    start: int
    text: str


@dataclass(frozen=True, slots=True)
class _Number:
    """A word that was read as a number.

    Attributes:
        head: the path up to the digits.
        form: what the digits of a series have in common.
    """

    word: _Word
    head: str
    digits: str
    form: str
    value: int

    @property
    def tail(self) -> str:
        return self.word.path[len(self.head) + len(self.digits) :]


_Write: TypeAlias = Callable[[_Number, int], str]  # the digits of a value, written like those of another number


@dataclass(frozen=True, slots=True)
class _Reading:
    """A way to read numbers.

    Attributes:
        read: reads a word, if it can be.
        settle: returns the numbers of a series with their final values; None if they are no series.
        doubtful: returns whether they could be something else.
    """

    read: Callable[[_Word], _Number | None]
    settle: Callable[[list[_Number]], tuple[list[_Number], _Write] | None]
    doubtful: Callable[[Sequence[_Number]], bool]


def _words(paths: Sequence[str]) -> list[_Word]:
    stems: dict[str, str] = {}
    for path in natural_order(paths):
        stems.setdefault(_COMPRESSION.sub("", path), path)
    # Numbers in the folders that all paths share are the same for all, so they number nothing.
    shared = _shared_folder(stems)
    return [
        _Word(path, word.start(), word.group()) for stem, path in stems.items() for word in _WORD.finditer(stem, shared)
    ]


def _shared_folder(paths: Iterable[str]) -> int:
    """Return the length of the folders that paths have in common."""
    return os.path.commonprefix(list(paths)).rfind("/") + 1  # noqa: RUF071 - it is cut behind a slash


def _series(reading: _Reading, words: Iterable[_Word]) -> Iterator[tuple[list[_Number], _Write]]:
    """Yield the series that are numbered one by one, in the order of their numbers."""
    groups: dict[tuple[str, str], list[_Number]] = defaultdict(list)
    for word in words:
        number = reading.read(word)
        if number is not None:
            groups[number.head, number.form].append(number)
    for group in (*groups.values(), *_over_dates(groups)):
        # Several files of one number: it is a session's or a part's, and no running number.
        if len(group) < _FEWEST or len({number.value for number in group}) < len(group):
            continue
        settled = reading.settle(group)
        if settled is None:
            continue
        numbers, write = settled
        for series in _split(numbers):
            if _is_one_by_one(series) and not reading.doubtful(series):
                yield series, write


def _over_dates(groups: dict[tuple[str, str], list[_Number]]) -> Iterator[list[_Number]]:
    """Join the groups whose heads differ in dates and times alone."""
    alike: dict[tuple[str, str], list[list[_Number]]] = defaultdict(list)
    for (head, form), group in groups.items():
        alike[_without_dates(head), form].append(group)
    for joined in alike.values():  # 2026-01-31_7 and 2026-02-01_8 are one series
        if len(joined) > 1:
            yield [number for group in joined for number in group]


def _split(numbers: Sequence[_Number]) -> Iterator[list[_Number]]:
    """Cut where a numbering begins again."""
    heads = {number.head: natural_key(number.head) for number in numbers}
    in_order = sorted(numbers, key=lambda number: (heads[number.head], number.value))
    series = in_order[:1]
    for number in in_order[1:]:
        if not 0 < number.value - series[-1].value <= _LEAP * len(numbers):  # lower, or much higher
            yield series
            series = []
        series.append(number)
    yield series


def _is_one_by_one(series: Sequence[_Number]) -> bool:
    steps_of_one = sum(later.value - earlier.value == 1 for earlier, later in pairwise(series))
    return len(series) >= _FEWEST and steps_of_one >= len(series) - 1 - steps_of_one


def _hole(before: _Number, after: _Number, write: _Write) -> Hole:
    first, missing = before.value + 1, after.value - before.value - 1
    tail = before.tail if before.tail == after.tail else _UNKNOWN
    if before.head == after.head:
        head, glob = before.head, escape_glob(before.head)
    else:
        head = _without_dates(before.head)
        glob = escape_glob(head).replace(_UNKNOWN, "*")
    digits = [write(before, first + place) for place in range(min(missing, _MOST_NAMES))]
    names = tuple((f"{head}{number}{tail}", f"{glob}{number}*") for number in digits)
    return Hole(before.word.path, after.word.path, missing, names[0][0], names)


def _read_decimal(word: _Word) -> _Number | None:
    match = _DECIMAL.fullmatch(word.text)
    if match is None:
        return None
    head = word.path[: word.start + match.start(2)]
    return _Number(word, head, match[2], "", int(match[2]))


def _settle_decimals(numbers: list[_Number]) -> tuple[list[_Number], _Write] | None:
    width = min(len(number.digits) for number in numbers)
    if any(number.digits != str(number.value).zfill(width) for number in numbers):  # 7 and 007 are no one series
        return None
    return numbers, lambda like, value: str(value).zfill(len(like.digits))


def _read_hexadecimal(word: _Word) -> _Number | None:
    if len(word.text) == _WAL_WIDTH or not _HEXADECIMAL.fullmatch(word.text):
        return None
    return _Number(word, word.path[: word.start], word.text, f"{len(word.text)} digits", int(word.text, 16))


def _settle_hexadecimals(numbers: list[_Number]) -> tuple[list[_Number], _Write] | None:
    text = "".join(number.digits for number in numbers)
    if text != text.lower() and text != text.upper():  # cases are mixed: no hexadecimal digits
        return None
    letter = "X" if text == text.upper() else "x"
    return numbers, lambda like, value: format(value, f"0{len(like.digits)}{letter}")


def _could_be_decimal(numbers: Sequence[_Number]) -> bool:
    matches = [_DECIMAL.fullmatch(number.digits) for number in numbers]
    return len({None if match is None else match[1] for match in matches}) == 1 and matches[0] is not None


def _read_segment(word: _Word) -> _Number | None:
    if len(word.text) != _WAL_WIDTH or not _HEXADECIMAL.fullmatch(word.text):
        return None
    # The timeline, 8 digits, is no part of the number: the log and the segment in it are.
    digits = word.text[8:]
    return _Number(word, word.path[: word.start + 8], digits, "", int(digits, 16))


def _settle_segments(numbers: list[_Number]) -> tuple[list[_Number], _Write] | None:
    # A log has 4 GiB: 256 segments of 16 MB, fewer where they are larger.
    each = 1 << max(number.value & 0xFFFFFFFF for number in numbers).bit_length()
    letter = "x" if any(char.islower() for number in numbers for char in number.digits) else "X"

    def write(_: _Number, value: int) -> str:
        log, segment = divmod(value, each)
        return f"{log:08{letter}}{segment:08{letter}}"

    values = ((number.value >> 32) * each + (number.value & 0xFFFFFFFF) for number in numbers)
    return [replace(number, value=value) for number, value in zip(numbers, values, strict=True)], write


_UNKNOWN: Final = "…"

# A part of a date has one or two digits behind a separator, and two where there is none.
_SEPARATOR = r"(?:[-_./:, ]{1,3}(?:(?:date|dt|year|month|day|hour|hr|minute|min|second|sec|[ymdhst])[-_=]?)?|[ymdhst])"

_MONTH_NAME = (
    r"(?<![a-z])(?:jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?|sept?(?:ember)?"
    r"|oct(?:ober)?|nov(?:ember)?|dec(?:ember)?)"
)


def _part(two_digits: str, one_digit: str) -> str:
    return rf"(?:{_SEPARATOR}(?:{two_digits}|{one_digit}(?![0-9]))|{two_digits})"


_YEAR = r"(?:19[7-9]|20[0-5])[0-9]"

_TWO_DIGIT_MONTH = r"(?:0[1-9]|1[0-2])"

_TWO_DIGIT_DAY = r"(?:0[1-9]|[12][0-9]|3[01])"

_MONTH = rf"(?:{_part(_TWO_DIGIT_MONTH, '[1-9]')}|{_SEPARATOR}?{_MONTH_NAME})"

_DAY = _part(_TWO_DIGIT_DAY, "[1-9]")

_SIXTY = _part("(?:[0-5][0-9]|60)", "[0-9]")

_TIME = rf"{_part('(?:[01][0-9]|2[0-4])', '[0-9]')}(?:{_SIXTY}(?:{_SIXTY})?)?"

_WEEK = r"w[0-5][0-9](?:[-_.]?[1-7])?"  # of ISO 8601, perhaps with the day

_DATE = "|".join(
    (
        rf"(?<![0-9]){_YEAR}{_MONTH}(?:{_DAY}(?:{_TIME})?)?",
        rf"(?<![0-9]){_YEAR}[-_./]?(?:[0-3][0-9][0-9]|{_WEEK}|[qh][1-4])",  # day of the year, week, quarter
        rf"(?<![0-9])[2-5][0-9][-_.]?{_TWO_DIGIT_MONTH}[-_.]?{_TWO_DIGIT_DAY}(?:{_TIME})?",
        rf"(?<![0-9]){_TWO_DIGIT_DAY}[-_.]?{_TWO_DIGIT_DAY}[-_.]?{_YEAR}(?:{_TIME})?",  # or month and day
        rf"{_MONTH_NAME}[-_./ ]?(?:{_TWO_DIGIT_DAY}|[1-9])",
        rf"(?:(?<=/)|^|(?<=year=)){_YEAR}",  # a whole name, not the end of one: cap.2017 is numbered
    )
)

_DATES = re.compile(rf"(?:{_DATE})Z?(?![0-9])", re.IGNORECASE)

_ENDS_IN_DATE = re.compile(rf"(?:{_DATE})$", re.IGNORECASE)

_YEAR_FOLLOWS = re.compile(rf"[-_./](?:[0-9]{{1,2}}[-_./])?{_YEAR}(?![0-9])")

# Seconds since 1970, from 2001 to 2039; or milli-, micro- or nanoseconds.
_EPOCH = re.compile(r"(?:1[0-9]|2[01])[0-9]{8}(?:[0-9]{3}){0,3}")

_HALVES = re.compile(r"(?:[^0-9A-Za-z][0-9A-Fa-f]{1,8}(?![0-9A-Za-z]))*")  # what may follow the first half of an LSN


def _without_dates(text: str) -> str:
    return _DATES.sub(lambda date: re.sub("[0-9]+", _UNKNOWN, date[0]), text)


def _could_be_time(numbers: Sequence[_Number]) -> bool:
    return all(
        _EPOCH.fullmatch(number.digits)
        or _ENDS_IN_DATE.search(number.head + number.digits)
        or (len(number.digits) < 3 and number.value < 32 and _YEAR_FOLLOWS.match(number.tail))
        for number in numbers
    )


def _could_be_lsn(numbers: Sequence[_Number]) -> bool:
    """Return whether the numbers could be the first halves of LSNs, which are written plainly or with eight digits."""
    if any(number.digits[0] == "0" and len(number.digits) not in (1, 8) for number in numbers):
        return False
    seconds = set()
    for number in numbers:
        match = _HALVES.match(_without_dates(number.tail))
        halves = _WORD.findall(match[0] if match else "")
        # Before an even number of halves stands a number of its own: 17-0-16B3748, 17-0-16B3748-0-16C0000.
        if len(halves) % 2 == 0:
            return False
        seconds.add(halves[0])
    return len(seconds) > 1 and any(not half.isdigit() for half in seconds)


_SEGMENTS: Final = _Reading(_read_segment, _settle_segments, lambda numbers: False)

_HEXADECIMALS: Final = _Reading(
    _read_hexadecimal, _settle_hexadecimals, lambda numbers: _could_be_decimal(numbers) or _could_be_lsn(numbers)
)

_DECIMALS: Final = _Reading(
    _read_decimal, _settle_decimals, lambda numbers: _could_be_time(numbers) or _could_be_lsn(numbers)
)
