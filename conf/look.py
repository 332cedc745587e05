"""Print the first rows of each Delta table of a target: what `make run` ends with.

Usage: python conf/look.py TARGET ROWS
"""

import sys
from pathlib import Path

import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder

from walreplay.console import Screen

WIDTH = 40


def main() -> None:
    """Print the tables in the order of their names."""
    target, rows = Path(sys.argv[1]), int(sys.argv[2])
    for log in sorted(target.glob("[!_]*/*/_delta_log")):
        # Not `to_pyarrow_dataset().head()`: what it reads ahead still runs when Python ends, which aborts the process.
        query = QueryBuilder().register("mirror", DeltaTable(log.parent))
        table = pa.table(query.execute(f"SELECT * FROM mirror LIMIT {rows}").read_all())
        columns = [[text_of(value) for value in column.to_pylist()] for column in table.columns]
        Screen().line()
        name = ".".join(log.parent.relative_to(target).parts)
        Screen().table(table.column_names, list(zip(*columns, strict=True)), title=name)


def text_of(value: object) -> str:
    """Return a value as a cell of the terminal; long ones are cut."""
    text = "NULL" if value is None else str(value)
    return text if len(text) <= WIDTH else f"{text[: WIDTH - 1]}…"


main()
