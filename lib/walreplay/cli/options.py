"""Options of several commands, as annotated types: so each has one meaning and one help text in all of them."""

from __future__ import annotations

from typing import Annotated

import typer

from walreplay.names import Output

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
Config = Annotated[str | None, typer.Option("--config", help="Configuration (YAML).", metavar="FILE")]
Index = Annotated[
    str | None,
    typer.Option(
        "--index",
        help="The index's place; else the configuration's, or the captures' folder, where `audit` writes nothing.",
        metavar="URI|TABLE",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Report = Annotated[
    str | None,
    typer.Option("--report", help="Write the result as JSON to this file, too (a path or URI).", metavar="FILE"),
]
Html = Annotated[
    str | None,
    typer.Option("--html", help="Write the result to this file as a page with pictures, too.", metavar="FILE"),
]
Metrics = Annotated[
    str | None,
    typer.Option(
        "--metrics",
        help="Add a JSON line for each run and table; a URI is a folder. FILE.prom: Prometheus' text, anew each time.",
        metavar="FILE",
    ),
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Show no progress.")]
Target = Annotated[
    str,
    typer.Option("--target", help="Folder of the Delta tables, or catalog[.schema].", metavar="URI|CATALOG[.SCHEMA]"),
]
AllowGaps = Annotated[
    bool, typer.Option("--allow-gaps", help="Continue where something is missing; incomplete transactions are named.")
]
Cleared = Annotated[bool, typer.Option("--cleared", help="Take the oldest files, if they are gone, out of the index.")]
AcceptChangedTables = Annotated[
    bool, typer.Option("--accept-changed-tables", help="Continue from tables that somebody else has changed.")
]
Outputs = Annotated[
    list[str] | None,
    typer.Option("--output", help=f"{', '.join(Output)}; else all that the configuration wants.", metavar="NAME"),
]
Strict = Annotated[bool, typer.Option("--strict", help="Exit code 1 if a table is held.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Say what would be done, and write nothing.")]
FromPlace = Annotated[
    str | None,
    typer.Option("--from", help="Folder of what COPY has written, or jdbc:postgresql://host/db.", metavar="URI"),
]
FromQuery = Annotated[
    str | None,
    typer.Option("--from-query", help="Or a query for Spark, such as SELECT * FROM t, for --table.", metavar="SQL"),
]
AtLsn = Annotated[
    str | None, typer.Option("--at-lsn", help="The last commit LSN that is among the rows.", metavar="X/X")
]
ConsistentPoint = Annotated[
    str | None, typer.Option("--consistent-point", help="Or the LSN that a slot's snapshot came with.", metavar="X/X")
]
Describe = Annotated[
    str | None, typer.Option("--describe", help="What describe.sql says of the tables.", metavar="FILE")
]
OfTable = Annotated[str | None, typer.Option("--table", help="All rows are of this table.", metavar="SCHEMA.TABLE")]
Publication = Annotated[
    str | None, typer.Option("--publication", help="Of a database: whose tables are read.", metavar="NAME")
]
Snapshot = Annotated[
    str | None, typer.Option("--snapshot", help="Of a database: an exported snapshot.", metavar="NAME")
]
CapturesPlace = Annotated[
    str | None, typer.Option("--captures", help="Where the captures lie or will lie, for a new target.", metavar="URI")
]
Replace = Annotated[
    bool,
    typer.Option(
        "--replace",
        help="Make tables anew that are there; an interrupted load is given up. Without rows: only give it up.",
    ),
]
CopyOptions = Annotated[
    str | None,
    typer.Option(
        "--copy-options",
        help="COPY's own, if they are not its defaults: \"format csv, header, null 'x'\".",
        metavar="OPTIONS",
    ),
]
