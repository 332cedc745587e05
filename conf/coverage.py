"""Print how much of each module the tests reach, of what ``make coverage`` has measured.

Usage: python conf/coverage.py build/coverage.json [PERCENT]

Modules that are reached to less than so many per cent (90) are listed, with the lines that no test runs; ``12->15``
is a branch that none takes.  Bodies of kernels are not counted: no line of what is compiled is run by Python.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator
from itertools import groupby
from pathlib import Path
from typing import Any

from walreplay.console import Screen

ENOUGH = 90.0
MOST_SHOWN = 60


def main() -> None:
    """Print the table and the sum."""
    measured = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    enough = float(sys.argv[2]) if len(sys.argv) > 2 else ENOUGH
    output = Screen()
    low = sorted(_below(measured["files"], enough), key=lambda row: float(row[1]))
    if low:
        output.table(("module", "%", "lines", "branches", "not reached"), low)
        output.line()
    totals = measured["totals"]
    output.line(
        f"{totals['percent_covered']:.1f} % of {totals['num_statements']:,} lines and "
        f"{totals['num_branches']:,} branches; "
        f"{len(low)} of {len(measured['files'])} modules below {enough:g} %"
    )


def _below(files: dict[str, Any], enough: float) -> Iterator[tuple[str, str, int, int, str]]:
    for path, file in files.items():
        summary = file["summary"]
        if summary["percent_covered"] < enough:
            missing = ", ".join([*_spans(file["missing_lines"]), *_branches(file)])
            shown = missing if len(missing) <= MOST_SHOWN else f"{missing[:MOST_SHOWN]}…"
            name = path.partition("lib/")[2] or path
            percent = f"{summary['percent_covered']:.0f}"
            yield name, percent, summary["missing_lines"], summary["missing_branches"], shown


def _branches(file: dict[str, Any]) -> list[str]:
    """Give the branches that are not taken, of lines that are run."""
    missing = set(file["missing_lines"])
    return [f"{a}->{b}" for a, b in file["missing_branches"] if a not in missing and b not in missing]


def _spans(lines: Iterable[int]) -> list[str]:
    """Write lines that follow each other as one."""
    runs = (list(run) for _, run in groupby(enumerate(lines), lambda pair: pair[1] - pair[0]))
    return [str(run[0][1]) if len(run) == 1 else f"{run[0][1]}-{run[-1][1]}" for run in runs]


if __name__ == "__main__":
    main()
