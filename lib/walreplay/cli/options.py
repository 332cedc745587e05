"""Options that several commands have."""

from __future__ import annotations

from typing import Annotated, Final

import typer

TRACEBACK_VARIABLE: Final = "WALREPLAY_TRACEBACK"
LOG_VARIABLE: Final = "WALREPLAY_LOG"

Captures = Annotated[
    str | None,
    typer.Option("--captures", help="Folder of the capture files, if the configuration has no sources.", metavar="URI"),
]
Sources = Annotated[
    list[str] | None,
    typer.Option(
        "--source", help="Only this source of the configuration; several by several --source.", metavar="NAME"
    ),
]
AtOnce = Annotated[int, typer.Option("--at-once", help="So many sources at the same time.", metavar="N", min=1)]
Config = Annotated[str | None, typer.Option("--config", help="Configuration (YAML).", metavar="FILE")]
Index = Annotated[
    str | None,
    typer.Option(
        "--index",
        help="The index's place; without it `index` uses _walreplay_index in the captures' folder, and `audit` none.",
        metavar="URI|TABLE",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Report = Annotated[
    str | None,
    typer.Option("--report", help="Write the result as JSON to this file, too (a path or URI).", metavar="FILE"),
]
Metrics = Annotated[
    str | None,
    typer.Option("--metrics", help="Add a JSON line for each run and table; a URI is a folder.", metavar="FILE"),
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Show no progress.")]
Target = Annotated[
    str,
    typer.Option("--target", help="Folder of the Delta tables, or catalog[.schema].", metavar="URI|CATALOG[.SCHEMA]"),
]
Traceback = Annotated[
    bool, typer.Option("--traceback", help=f"Show the Python traceback of an error (or set {TRACEBACK_VARIABLE}=1).")
]
AllowGaps = Annotated[
    bool, typer.Option("--allow-gaps", help="Continue where something is missing; incomplete transactions are named.")
]
AcceptChangedTables = Annotated[
    bool, typer.Option("--accept-changed-tables", help="Continue from tables that somebody else has changed.")
]
Outputs = Annotated[
    list[str] | None,
    typer.Option(
        "--output", help="mirror, history or changelog; else all that the configuration wants.", metavar="NAME"
    ),
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Say what would be done, and write nothing.")]
Show = Annotated[int, typer.Option("--show", help="Print the first rows of each table.", metavar="ROWS", min=0)]
