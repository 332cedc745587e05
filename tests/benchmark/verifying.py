"""What it costs to compare a loaded table with its source, beside the load, and beside a full outer join by hand.

A real PostgreSQL has the rows; base.sh copies them, and a tenth of them is changed behind that.
"""

from __future__ import annotations

import json
import shutil
import sys
import time
from pathlib import Path
from typing import Any, Final

sys.path.insert(0, str(Path(__file__).parents[1]))

from archive import HEAP, in_process
from measuring import Timing, compared
from recorded import ORDERS

from support.base_copies import copied_by_script
from support.postgres import running_server

_WARM: Final = 50_000
_STEPS: Final = (
    "load and apply",
    "verify with the source's rows",
    "verify with the archive",
    "a full outer join by hand",
)
_ROWS: Final = """
    INSERT INTO shop.orders SELECT
        n, 1 + n::bigint * 7919 % 1000000, (ARRAY['new', 'paid', 'shipped'])[1 + n % 3], moment,
        CASE WHEN n % 10 < 7 THEN moment + interval '1 day' END, moment::date + 14, 'EUR', net, round(net * 0.19, 2),
        net + round(net * 0.19, 2), 1 + n % 30, random() * 80, n % 5 = 0, gen_random_uuid(),
        (ARRAY['web', 'app', 'shop'])[1 + n % 3], 'alpha größe 北京 ' || md5(n::text),
        format('%s delta street, %s', n % 300, n), jsonb_build_object('ref', n, 'tags', jsonb_build_array('e', n % 8)),
        moment::timestamp, 1
    FROM generate_series(1, {}) n,
        LATERAL (SELECT round((random() * 30000 + n % 2)::numeric, 2)) AS price (net),
        LATERAL (SELECT '2026-01-01'::timestamptz + n % 9000 * interval '47 min') AS time (moment)
"""
_CONFIG: Final = {"source": "bench"}


def run(folder: Path, rows: int, runs: int) -> list[list[Timing]]:
    """Measure tables of so many rows, each step in a process of its own; the heap is a gigabyte."""
    _make(folder / f"orders-{_WARM}", _WARM)
    source = _make(folder / f"orders-{rows}", rows)
    size = sum(path.stat().st_size for path in source.glob("base/*"))
    # The first step makes the target that the others look at.
    places = [str(folder / f"orders-{_WARM}"), str(source), str(folder / "mirror")]
    timings = [Timing("verify", f"{rows:,} rows: {step}", [], size) for step in _STEPS]
    for _ in range(runs):
        for step, timing in enumerate(timings):
            report = in_process([__file__, str(step), *places], HEAP)
            timing.seconds.append(report.pop("seconds"))
            timing.more = {key: max(value, timing.more.get(key, 0)) for key, value in report.items()}
    return [compared(timings, timings[0].name)]


def _make(folder: Path, rows: int) -> Path:
    """Make copies of a table of so many rows, and captures of what was changed behind them, if there are none."""
    if folder.exists():
        return folder
    made = folder.with_suffix(".part")
    shutil.rmtree(made, ignore_errors=True)
    (made / "captures").mkdir(parents=True)
    with running_server(settings={"fsync": "off", "max_wal_size": "8GB"}) as server:
        server.execute(
            *ORDERS[:2], "SELECT setseed(0)", _ROWS.format(rows), "CREATE PUBLICATION everything FOR ALL TABLES"
        )
        with server.recording(made / "captures" / "0.bin"):
            copied_by_script(server, made, "everything")
            changed = "UPDATE shop.orders SET status = 'shipped', version = version + 1 WHERE id % 100 = {}"
            server.execute(*(changed.format(number) for number in range(10)))
    made.rename(folder)
    return folder


def _take(step: int, warm: str, source: str, target: str) -> dict[str, Any]:
    """Take a step in this process, after it was taken with few rows."""
    from walreplay.session.session import build_session

    spark = build_session("walreplay bench")
    if step:
        _load(spark, Path(warm), f"{target}-warm")
    steps = (_load, _by_source, _by_archive, _joined)
    steps[step](spark, Path(warm), f"{target}-warm")
    began = time.perf_counter()
    stages = steps[step](spark, Path(source), target)
    return {"seconds": time.perf_counter() - began, **stages}


def _load(spark: Any, source: Path, target: str) -> dict[str, float]:
    from walreplay import apply, load

    shutil.rmtree(target, ignore_errors=True)
    point = (source / "base.lsn").read_text().strip()
    base = source / "base"
    reports = [
        load(spark, base, target, consistent_point=point, describe=source / "base.jsonl", config=_CONFIG),
        apply(spark, source / "captures", target, _CONFIG),
    ]
    return {name: report.seconds for name, report in zip(("load_s", "apply_s"), reports, strict=True)}


def _by_source(spark: Any, source: Path, target: str) -> dict[str, float]:
    from walreplay import verify

    report = verify(spark, target, source / "captures", source=source / "base", config=_CONFIG)
    assert report.result == "equal", report
    return dict(report.stages)


def _by_archive(spark: Any, source: Path, target: str) -> dict[str, float]:
    from walreplay import verify

    report = verify(spark, target, source / "captures", config=_CONFIG)
    assert report.result == "equal", report
    return dict(report.stages)


def _joined(spark: Any, _: Path, target: str) -> dict[str, float]:
    """Compare two equal tables of the same size as somebody would who has both as DataFrames."""
    from pyspark.sql import functions as f

    path = f"{target}/shop/orders"
    left, right = (spark.read.format("delta").load(path) for _ in range(2))
    names = [name for name in left.columns if name != "id"]
    joined = left.alias("a").join(right.alias("b"), f.expr("a.id <=> b.id"), "full_outer")
    differs = f.expr(" OR ".join(f"NOT (a.`{name}` <=> b.`{name}`)" for name in names))
    assert joined.where(differs).count() == 0
    return {}


if __name__ == "__main__":
    print(json.dumps(_take(int(sys.argv[1]), *sys.argv[2:])))
