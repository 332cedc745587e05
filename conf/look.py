"""Print the first rows of each Delta table of a target: what `make run` ends with.

Usage: python conf/look.py TARGET ROWS
"""

import sys
from pathlib import Path

from deltalake import DeltaTable

from walreplay.console import Screen

WIDTH = 40


def main() -> None:
    """Print the tables in the order of their names."""
    target, rows = Path(sys.argv[1]), int(sys.argv[2])
    for log in sorted(target.glob("[!_]*/*/_delta_log")):
        table = DeltaTable(log.parent).to_pyarrow_dataset().head(rows)
        columns = [[text_of(value) for value in column.to_pylist()] for column in table.columns]
        Screen().line()
        name = ".".join(log.parent.relative_to(target).parts)
        Screen().table(table.column_names, list(zip(*columns, strict=True)), title=name)


def text_of(value: object) -> str:
    """Return a value as a cell of the terminal; long ones are cut."""
    text = "NULL" if value is None else str(value)
    return text if len(text) <= WIDTH else f"{text[: WIDTH - 1]}…"


main()
