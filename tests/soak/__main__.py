"""Run legs for so many minutes: ``python -m soak MINUTES [SEED [LEG_MINUTES]]``.

The first leg has the seed, each further one the next number; without a seed it is drawn.  The exit code is 1 if
something was wrong, and then no further leg begins.  ``build/soak/<seed>.json`` has what has happened.
"""

from __future__ import annotations

import json
import random
import sys
import time
from collections import Counter
from pathlib import Path

from soak.leg import run_leg

_LEG_MINUTES = 6.0


def main(minutes: str, seed: str = "", leg_minutes: str = "") -> int:
    """Run legs; return the exit code."""
    first = int(seed) if seed else random.randrange(1_000_000)
    longest = 60 * float(leg_minutes or _LEG_MINUTES)
    begin, counts, seeds, wrong = time.monotonic(), Counter[str](), list[int](), None
    while wrong is None and (left := 60 * float(minutes) - (time.monotonic() - begin)) > 0:
        seeds.append(first + len(seeds))
        journal, wrong = run_leg(seeds[-1], min(longest, left))
        counts += journal.counts
    summary = {
        "minutes": round((time.monotonic() - begin) / 60, 1),
        "seeds": seeds,
        "differences": counts["differences"],
        "failure": wrong,
        "counts": dict(sorted(counts.items())),
    }
    place = Path("build", "soak", f"{first}.json")
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(json.dumps(summary, indent=2) + "\n", encoding="utf-8")
    print(json.dumps(summary, indent=2))
    return 0 if wrong is None else 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
