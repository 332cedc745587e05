"""The course of a leg."""

from __future__ import annotations

import random
import shutil
import tempfile
import threading
import time
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from soak.comparison import Comparison, Stop, published_tables
from soak.incidents import let_happen
from soak.journal import Journal
from soak.runs import Runs
from soak.stand import Draw, OracleFailed, Stand
from support.recording import Watcher
from support.truth import SourceTable
from walreplay.lsn import format_lsn

_STOPS_EVERY = (60.0, 150.0)


class Different(Exception):
    """Not all hold the same."""


class Leg:
    """All that happens by one seed.

    Args:
        seconds: so long incidents happen; the last comparison comes behind them.
        folder: where all is kept.
    """

    def __init__(self, seed: int, seconds: float, folder: Path) -> None:
        self._chance, self._seconds = random.Random(f"{seed}/course"), seconds
        self.journal = Journal(folder / "journal.log", seed)
        draw = Draw.of(seed)
        self.journal.note("leg", f"{draw} in {folder}")
        self._stand = Stand(draw, seed, folder, self.journal)
        self._runs = Runs(self._stand, random.Random(f"{seed}/runs"), self.journal)
        self._stops: list[Stop] = []
        self._at_rest = threading.Lock()  # held while a command runs

    def run(self) -> None:
        """Run it.

        Raises:
            Different: not all hold the same at some stop.
            CommandFailed: a command has failed.
        """
        with self._stand.running() as stand:
            first = published_tables(stand) if stand.copies else {}
            self._runs.load_first()
            watcher = Watcher(stand.server, self._files)
            with watcher.watching(), stand.traffic.at_work(), self._commands() as failures:
                self._course(failures, first)
            self.journal.count("looks at the slot", watcher.looks)
            if stand.proxy is not None:
                for fault, count in stand.proxy.faults.items():
                    self.journal.count(f"store: {fault}", count)

    def _files(self) -> list[str]:
        time.sleep(0.5)  # a look at a store takes the time of others
        return list(self._stand.archive.files())

    def _course(self, failures: list[BaseException], first: Mapping[str, SourceTable]) -> None:
        begin = time.monotonic()
        promotes_at = self._seconds * self._chance.uniform(0.3, 0.8) if self._stand.standby else None
        stops_at = self._chance.uniform(*_STOPS_EVERY)
        while (now := time.monotonic() - begin) < self._seconds:
            time.sleep(self._chance.random() * 4)
            self._check(failures)
            if promotes_at is not None and now > promotes_at and self._stand.slots_are_synced():
                self._stand.fail_over()
                self.journal.note("standby promoted")
                promotes_at = None
            elif now > stops_at:
                self._stop(first)
                stops_at = time.monotonic() - begin + self._chance.uniform(*_STOPS_EVERY)
            else:
                let_happen(self._stand, self._chance)
        if promotes_at is not None:
            self.journal.note("standby not promoted", "its slots were not there")
        self._check(failures)
        self._stop(first)

    def _check(self, failures: list[BaseException]) -> None:
        if failures:
            raise failures[0]
        self._stand.supervise()
        self._stand.traffic.check()

    def _stop(self, first: Mapping[str, SourceTable]) -> None:
        """Stop all at an LSN, and compare."""
        stand = self._stand
        with self._at_rest, stand.traffic.paused():
            stand.traffic.settle()
            stand.evolving.touch()
            stand.supervise()
            lsn = stand.server.lsn()
            stand.await_readers(lsn)
            self._runs.apply()
            self._stops.append(Stop(lsn, published_tables(stand)))
            comparison = Comparison(stand, self._runs.target, first, self._stops)
            differences = list(comparison.differences())
            self.journal.note("stop", f"at {format_lsn(lsn)}: {comparison.tables} tables, {len(differences)} differ")
            self.journal.count("tables compared", comparison.tables)
            self.journal.count("differences", len(differences))
            if differences:
                raise Different("\n".join(differences))
            if self._chance.random() < 0.4:
                self._runs.load_again()

    @contextmanager
    def _commands(self) -> Iterator[list[BaseException]]:
        """Run commands, one behind the other, until the block ends."""
        ends, failures = threading.Event(), list[BaseException]()

        def work() -> None:
            try:
                while not ends.is_set():
                    with self._at_rest:
                        if not ends.is_set():
                            self._runs.act()
                    ends.wait(5)
            except BaseException as error:
                failures.append(error)

        thread = threading.Thread(target=work)
        thread.start()
        try:
            yield failures
        finally:
            ends.set()
            thread.join()
        if failures:
            raise failures[0]


def run_leg(seed: int, seconds: float, folder: Path | None = None) -> tuple[Journal, str | None]:
    """Run a leg; return what has happened, and what was wrong.

    Where something was, the folder stays: the archive, the target, all logs.
    """
    place = Path(folder or tempfile.mkdtemp(prefix=f"soak-{seed}-"))
    leg = Leg(seed, seconds, place)
    try:
        leg.run()
    except OracleFailed as error:  # there is nothing to compare with, and nothing of ours is wrong
        leg.journal.note("subscriber failed", f"SEED={seed}\n{error}")
    except Exception as error:
        text = "".join(traceback.format_exception(error))
        leg.journal.note("FAILED", f"SEED={seed}, all is in {place}\n{text}")
        return leg.journal, text
    if folder is None:
        shutil.rmtree(place, ignore_errors=True)
    return leg.journal, None
