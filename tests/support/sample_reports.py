"""Reports with all that pages show, made up; and the pictures of their pages for the docs, by Chromium.

Usage: python -m support.sample_reports FOLDER
"""

from __future__ import annotations

import random
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta, timezone
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from walreplay.archive.audit import AuditReport, Problem, TableAudit, UnbrokenFiles
from walreplay.archive.facts import FileSpan, Open, Overlap, Torn
from walreplay.cli.pages import Page
from walreplay.cli.printing import write_audit, write_status, write_verification
from walreplay.errors import OrderError
from walreplay.ledger.status import PendingTransaction, RunStatus, TableStatus, TargetStatus
from walreplay.listing import Hole
from walreplay.report import TableVerification, VerifyReport

NOON: Final = datetime(2026, 11, 20, 12, tzinfo=timezone.utc)
NAMES: Final = tuple(f"shop.{name}" for name in ("orders", "order items", "customers", "products", "prices", "returns"))
HOSTILE: Final = ("<script>alert(1)</script>", "s.\u202egnp.exe\x1b[2J\n", f"s.{'very_long_name_' * 20}", "\"'&amp;")

CHROMIUM: Final = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


def target_status(names: Sequence[str] = NAMES, runs: int = 20) -> TargetStatus:
    """Return the status of a target whose runs come every hour, and whose last table was never verified."""
    chance, lsn, listed = random.Random(45), 0x16_B374D848, list[RunStatus]()
    for number in range(1, runs + 1):
        lsn += chance.randint(1 << 22, 1 << 25)
        start, counts = (
            NOON + timedelta(hours=number),
            [chance.randint(most // 9, most) for most in (30, 5_000, 400_000)],
        )
        ends = {"started_at": start, "finished_at": start + timedelta(minutes=2), "applied_lsn": lsn}
        files, transactions, changes = counts
        measured: dict[str, Any] = {"lag_seconds": chance.uniform(90, 600), "lag_bytes": 4096, "warnings": number % 2}
        measured |= {"files": files, "transactions": transactions, "changes": changes, "tables": 4, "writer": "files"}
        listed.append(RunStatus(run=number, state="applied", **ends, **measured))
    tables = tuple(
        TableStatus(
            *(name, f"/data/mirror/{number}", listed[-1 - number].applied_lsn, NOON, timedelta(hours=5 + 19 * number)),
            *("the archive", number != 3, chance.randint(1_000, 90_000), (8 << 20) // (1 + number)),
        )
        for number, name in enumerate(names[:-1])
    )
    waiting = PendingTransaction(
        "prepared", 7, "gid", lsn + 4096, "part0059.bin", 9, NOON, timedelta(days=3), 2048, segments=2
    )
    never = TableStatus(names[-1], "/data/mirror/never", changes=10, bytes=9_000)
    return TargetStatus("/data/mirror", lsn, NOON, None, tuple(listed), (waiting,), (*tables, never))


def archive_audit(names: Sequence[str] = NAMES, files: int = 60) -> AuditReport:
    """Return the audit of an archive that lacks something at two places."""
    chance, lsn, spans = random.Random(45), 0x16_B374D848, list[FileSpan]()
    for number in range(files):
        end = lsn + chance.randint(1 << 18, 1 << 22)
        spans.append(FileSpan(f"part{number:04}.bin", lsn, end, int(number % 9 == 0)))
        lsn = end + (1 << 22 if number in (20, 40) else 1)
    coverage = [
        UnbrokenFiles(
            *(spans[first].file, spans[last].file, last - first + 1, 4_000),
            *(spans[first].first_lsn, spans[last].last_lsn, NOON, NOON + timedelta(hours=7)),
        )
        for first, last in ((0, 20), (21, 40), (41, files - 1))
    ]
    error = OrderError(
        "a transaction does not go on here", path="part0021.bin", offset=17, remedy="Bring what is missing"
    )
    counts = [[chance.randint(0, most) for most in (40_000, 20_000, 5_000)] for _ in names]
    return AuditReport(
        *("/data/captures", files, 3 << 30, files, 12_000, 12, 123_456, len(range(0, files, 9)), tuple(coverage)),
        *((Problem.of(error),), (Hole("part0040.bin", "part0041.bin", 1, "part0040b.bin"),)),
        overlaps=(Overlap("part0009.bin", 12, spans[8].first_lsn, spans[9].last_lsn),),
        torn=(Torn("part0008.bin", 99), Torn("part0035.bin", 7)),
        tables=tuple(
            TableAudit(16_400 + number, name, *counts[number], 0, "part0000.bin", "part0059.bin", "unknown", None)
            for number, name in enumerate(names)
        ),
        open=(Open("prepared", 7, "gid", spans[50].last_lsn, NOON, "part0050.bin", 9),),
        unfinished_bytes=77,
        copies_compared=True,
        values_counted=False,
        warnings=(),
        seconds=12.3,
        spans=tuple(spans),
    )


def verification(names: Sequence[str] = NAMES) -> VerifyReport:
    """Return a report that has a table of each result."""
    tables = [TableVerification(name, "x", "equal", rows=1000 * number) for number, name in enumerate(names)]
    tables[1] = TableVerification(
        names[1], "x", "different", "somebody else has changed it", 999, 2, 1, 30, {"note": 30}
    )
    tables[2] = TableVerification(names[2], "x", "not compared", "it was loaded from a database")
    tables[3] = TableVerification(names[3], "x", "left out", "the configuration leaves it out")
    places = "the archive", "/data/captures", "/data/mirror"
    return VerifyReport(
        "different", *places, 0x16_B374D848, NOON, None, tuple(tables), "/data/differences", (), seconds=9.1, stages={}
    )


PAGES: Final[dict[str, tuple[Callable[..., Any], Callable[..., None], str]]] = {
    "status": (target_status, write_status, "Status of a target"),
    "audit": (archive_audit, write_audit, "Audit of an archive"),
    "verify": (verification, write_verification, "Verification of a target"),
}


def page(name: str, *arguments: Any) -> str:
    """Return the page of a sample."""
    make, write, title = PAGES[name]
    made = Page(title)
    write(made, make(*arguments))
    return made.html()


def browse(place: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """Open a file in Chromium, without its window."""
    switches = ("--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--enable-logging=stderr")
    command = [str(CHROMIUM), *switches, *options, place.as_uri()]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=True)


if __name__ == "__main__":
    with TemporaryDirectory() as folder:
        for name, height in (("status", 760), ("audit", 560)):
            file = Path(folder) / f"{name}.html"
            file.write_text(page(name), encoding="utf-8")
            browse(file, f"--screenshot={Path(sys.argv[1]).absolute()}/page-{name}.png", f"--window-size=1000,{height}")
