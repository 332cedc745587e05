"""Time pieces of work side by side: in turn, several times, so that they meet the same machine."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from rich.table import Table

Work = Callable[[], object]


@dataclass
class Timing:
    """What some work took.

    Attributes:
        seconds: of each run; ``bytes`` are how many it worked on.
        ratio: how long it took for each second of what it is compared with, by the medians.
    """

    section: str
    name: str
    seconds: list[float]
    bytes: int = 0
    more: dict[str, Any] = field(default_factory=dict)
    against: str | None = None
    ratio: float | None = None

    @property
    def median(self) -> float:
        return statistics.median(self.seconds)

    @property
    def megabytes_per_second(self) -> float | None:
        return self.bytes / 1e6 / self.median if self.bytes else None

    def to_dict(self) -> dict[str, Any]:
        return {
            "section": self.section,
            "name": self.name,
            "seconds": [round(value, 4) for value in self.seconds],
            "median_s": round(self.median, 4),
            "bytes": self.bytes,
            "mb_per_s": None if self.megabytes_per_second is None else round(self.megabytes_per_second, 1),
            "against": self.against,
            "ratio": None if self.ratio is None else round(self.ratio, 3),
            **self.more,
        }


def in_turn(
    sides: Mapping[str, Work], runs: int, *, before: Mapping[str, Work] | None = None
) -> dict[str, list[float]]:
    """Return the seconds of each side's runs; the first run of each warms up and does not count.

    Args:
        before: what is done, untimed, in front of a side's run.
    """
    seconds: dict[str, list[float]] = {name: [] for name in sides}
    for number in range(runs + 1):
        for name, work in sides.items():
            prepare = (before or {}).get(name)
            if prepare is not None:
                prepare()
            began = time.perf_counter()
            work()
            if number:
                seconds[name].append(time.perf_counter() - began)
    return seconds


def compared(timings: list[Timing], floor: str) -> list[Timing]:
    """Set the ratio of each to the one of that name."""
    base = next(timing for timing in timings if timing.name == floor)
    for timing in timings:
        if timing is not base:
            timing.against, timing.ratio = floor, timing.median / base.median
    return timings


def shown(title: str, timings: list[Timing]) -> Table:
    """Return the table for people."""
    table = Table(title=title, title_justify="left")
    table.add_column("what", no_wrap=True)
    for header in ("median s", "min", "max", "MB/s", "ratio"):
        table.add_column(header, justify="right")
    table.add_column("to")
    for timing in timings:
        speed = timing.megabytes_per_second
        table.add_row(
            timing.name,
            f"{timing.median:.3f}",
            f"{min(timing.seconds):.3f}",
            f"{max(timing.seconds):.3f}",
            "" if speed is None else f"{speed:,.0f}",
            "" if timing.ratio is None else f"{timing.ratio:.2f}",
            timing.against or "",
        )
    return table
