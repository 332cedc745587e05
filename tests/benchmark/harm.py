"""Measure what becomes of harmed captures: ``make harm``, or ``harm.py --each 400 --seed 1 [NAME …]``.

Writes the table in docs/notes/damage.md, and the captures that came out as they must not.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from pathlib import Path
from random import Random

sys.path.insert(0, str(Path(__file__).parents[1]))

from support.captures import cases
from support.harm import HARMS, NOT_TOLD, OUTCOMES, WAITING, WRONG, Harm, Whole


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", help="captures by the beginnings of their names; all, if none is given")
    parser.add_argument("--each", type=int, default=400, help="how many of each kind of harm, for each capture")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--keep", type=Path, help="a folder for what must not be")
    given = parser.parse_args()
    counts: dict[str, Counter[str]] = {}
    for case in cases():
        if given.names and not case.name.startswith(tuple(given.names)):
            continue
        whole, began = Whole.of(case), time.monotonic()
        own: Counter[str] = Counter()
        for number, harms in enumerate(HARMS):
            chance = Random(f"{given.seed} {case.name} {number}")
            for harm, _ in zip(harms(whole, chance), range(given.each), strict=False):
                outcome = whole.outcome(harm)
                counts.setdefault(harm.kind, Counter())[outcome] += 1
                own[outcome] += 1
                if outcome in (WAITING, NOT_TOLD, WRONG):
                    print(f"  {case.name}: {harm.kind} at {harm.at:,}: {outcome}", flush=True)
                    if given.keep is not None:
                        _keep(given.keep / f"{case.name}_{number}_{harm.at}", harm)
        print(f"{case.name}: {dict(own)}, {time.monotonic() - began:.0f} s", flush=True)
    print(f"\n| | {' | '.join(OUTCOMES)} |\n|{'---|' * (len(OUTCOMES) + 1)}")
    for kind, found in counts.items():
        print(f"| {kind} | {' | '.join(f'{found[outcome]:,}' for outcome in OUTCOMES)} |")
    return 1 if any(found[WRONG] or found[NOT_TOLD] for found in counts.values()) else 0


def _keep(folder: Path, harm: Harm) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in harm.files.items():
        (folder / name).write_bytes(content)


if __name__ == "__main__":
    sys.exit(main())
