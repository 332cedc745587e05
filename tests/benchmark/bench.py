"""Measure walreplay: ``make bench``, or ``make bench SECTIONS="decode apply"`` for some of it.

Figures are medians of runs that take turns with what they are compared to.  They also go to ``build/bench.json``,
section by section.  Wall clocks swing from run to run: compare by the ratios.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
from collections.abc import Callable
from pathlib import Path

# One core is measured: Arrow's own threads would help themselves to the others.
os.environ.setdefault("OMP_NUM_THREADS", "1")

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parent))

import pyarrow as pa
from measuring import Timing, shown
from rich.console import Console

Section = Callable[[Path, argparse.Namespace], list[list[Timing]]]


def _decode(folder: Path, arguments: argparse.Namespace) -> list[list[Timing]]:
    import decoding

    pa.set_cpu_count(1)
    pa.set_io_thread_count(1)
    return decoding.run(folder, arguments.megabytes, arguments.runs)


def _apply(folder: Path, arguments: argparse.Namespace) -> list[list[Timing]]:
    import applying

    return applying.run(folder, arguments.megabytes, arguments.runs, arguments.rows)


def _tables(folder: Path, arguments: argparse.Namespace) -> list[list[Timing]]:
    import scaling

    return scaling.run(folder, arguments.tables, arguments.files)


def _archive(folder: Path, arguments: argparse.Namespace) -> list[list[Timing]]:
    import archive

    return archive.run(folder, arguments.gigabytes, arguments.output.parent)


def _backfill(folder: Path, arguments: argparse.Namespace) -> list[list[Timing]]:
    import backfilling

    return backfilling.run(folder, max(arguments.gigabytes))


def _outputs(folder: Path, arguments: argparse.Namespace) -> list[list[Timing]]:
    import several_outputs

    return several_outputs.run(folder, arguments.megabytes, arguments.runs)


def _start(folder: Path, arguments: argparse.Namespace) -> list[list[Timing]]:
    import starting

    return starting.run(arguments.runs)


def _script(folder: Path, arguments: argparse.Namespace) -> list[list[Timing]]:
    import afternoon

    return afternoon.run(folder, arguments.megabytes, arguments.runs)


def _stores(folder: Path, arguments: argparse.Namespace) -> list[list[Timing]]:
    import far_stores

    return far_stores.run(folder, arguments.megabytes, arguments.runs)


def _fold(folder: Path, arguments: argparse.Namespace) -> list[list[Timing]]:
    import folding

    return folding.run(folder)


def _record(folder: Path, arguments: argparse.Namespace) -> list[list[Timing]]:
    import recorder

    return recorder.run(arguments.runs)


def _verify(folder: Path, arguments: argparse.Namespace) -> list[list[Timing]]:
    import verifying

    return [group for rows in arguments.compared for group in verifying.run(folder, rows, arguments.runs)]


SECTIONS: dict[str, tuple[str, Section]] = {
    "decode": ("Decode on one core, kernels warm", _decode),
    "apply": (
        "Spark on all cores, session up, against the transport of the bytes and the write of folded rows",
        _apply,
    ),
    "script": ("`apply` beside a script of an afternoon, session up", _script),
    "stores": ("`apply` in an object store that is 30 ms away, session up", _stores),
    "tables": ("Many small tables, many files, nothing new", _tables),
    "fold": ("The same rows again and again, 2 GB of heap", _fold),
    "archive": ("Archives of any size, 1 GB of heap", _archive),
    "backfill": ("An archive backfilled to its middle by time, 1 GB of heap", _backfill),
    "outputs": ("Mirror, history and change log, session up", _outputs),
    "verify": ("A loaded table held against its source, a process each, 1 GB of heap", _verify),
    "record": ("The recorder beside pg_recvlogical, 3,000,000 changes of PostgreSQL 18", _record),
    "start": ("A new worker process, until its first batch is decoded", _start),
}


def main() -> None:
    """Run the benchmarks that are asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "sections", nargs="*", metavar="SECTION", help=f"of {', '.join(SECTIONS)}; all, if none is named"
    )
    parser.add_argument("--megabytes", type=int, default=208, help="size of each capture")
    parser.add_argument("--runs", type=int, default=5, help="runs of which the median is taken")
    parser.add_argument("--rows", type=int, default=5_000_000, help="of the large table, of which a tenth is changed")
    parser.add_argument("--compared", type=int, nargs="+", default=[1_000_000], help="rows of tables that are verified")
    parser.add_argument("--files", type=int, default=10_000, help="how many files are archived")
    parser.add_argument("--tables", type=int, default=200, help="how many small tables")
    parser.add_argument(
        "--gigabytes",
        type=float,
        nargs="+",
        default=[0.1, 0.3, 1, 3, 10],
        help="of the archives whose time is compared",
    )
    parser.add_argument("--output", type=Path, default=Path("build/bench.json"))
    arguments = parser.parse_args()
    wanted = arguments.sections or list(SECTIONS)
    unknown = [name for name in wanted if name not in SECTIONS]
    if unknown:
        parser.error(f"there is no section {unknown[0]}; there are {', '.join(SECTIONS)}")
    output: Path = arguments.output.resolve()  # programs that run elsewhere are given paths, too
    output.parent.mkdir(parents=True, exist_ok=True)
    report = json.loads(output.read_text(encoding="utf-8")) if output.exists() else {}
    if not isinstance(report.get("sections"), dict):
        report = {"sections": {}}
    report |= {"python": platform.python_version(), "machine": platform.machine(), "cores": os.cpu_count()}
    console = Console(width=None if sys.stdout.isatty() else 120)
    for name in wanted:
        title, section = SECTIONS[name]
        groups = section(output.parent / "bench", arguments)
        for group in groups:
            console.print(shown(title, group))
        report["sections"][name] = [timing.to_dict() for group in groups for timing in group]
        output.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
