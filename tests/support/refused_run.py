"""Apply captures where the platform refuses settings: ``python -m support.refused_run CAPTURES TARGET STEP``.

With a STEP the run is stopped behind the first step whose name begins so, and finished by another one.  Then there has
to be nothing new.  It prints which settings were refused.
"""

from __future__ import annotations

import sys

import walreplay
from support.refusing_platform import refusing
from support.stopped_run import StoppedError, stopping
from walreplay.session.session import build_session


def main(captures: str, target: str, step: str) -> None:
    """Apply."""
    spark = build_session()
    with refusing() as refused, stopping() as stop:
        if step:
            stop(step)
            try:
                walreplay.apply(spark, captures=captures, target=target)
            except StoppedError:
                pass
            else:
                raise AssertionError(f"there is no step {step}")
        walreplay.apply(spark, captures=captures, target=target)
        assert walreplay.apply(spark, captures=captures, target=target).status == "nothing new"
    print("refused:", *sorted(set(refused)))


if __name__ == "__main__":
    main(*sys.argv[1:])
