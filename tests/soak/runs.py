"""walreplay's commands on the archive, one at a time: some are killed in the middle, some are paused."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from soak.journal import Journal
from soak.stand import Stand
from support.base_copies import snapshot
from support.command import program_environment
from support.killed_run import run_until_killed
from support.truth import mirror_tables

_PATIENCE: Final = 900.0
_ALL_OUTPUTS: Final = "outputs: [mirror, history, changelog]\non_drop_column: drop\nannouncements: walreplay\n"


class CommandFailed(Exception):
    """A command has ended as it must not."""


class Runs:
    """Commands on a stand's archive and a target.

    Attributes:
        target: the folder of the tables.
    """

    def __init__(self, stand: Stand, chance: random.Random, journal: Journal) -> None:
        self._stand, self._chance, self._journal = stand, chance, journal
        self._folder, self.target = stand.folder, stand.folder / "mirror"
        self._config = stand.folder / "config.yaml"
        self._config.write_text(_ALL_OUTPUTS, encoding="utf-8")
        self._number = 0

    def load_first(self) -> None:
        """Load the rows that the recorder has copied, if it has."""
        copies = self._stand.copies
        if copies is not None:
            point = Path(f"{copies}.lsn").read_text().strip()
            given = ["--from", str(copies), "--describe", f"{copies}.jsonl", "--consistent-point", point]
            self.run("load", *given)

    def load_again(self) -> None:
        """Load a table again as it is now; nobody is at work."""
        server = self._stand.server
        self._number += 1
        folder = self._folder / f"again{self._number}"
        with snapshot(server, "again") as held:
            described = held.copy(folder, schemas=("live", "big"))
            point = held.lsn
        copies = sorted(folder.glob("*.copy"))
        chosen = self._chance.choice(copies)
        for copy in copies:
            if copy != chosen:
                copy.unlink()
        name = chosen.name.removesuffix(".copy")
        self._journal.note("table loaded again", name)
        given = ["--from", str(folder), "--describe", str(described), "--consistent-point", point]
        self.run("load", *given, "--replace")

    def apply(self) -> None:
        """Apply all that the archive has."""
        report = self._folder / "report.json"
        self.run("apply", "--strict", "--report", str(report))
        counts = json.loads(report.read_text(encoding="utf-8"))
        self._journal.count("transactions applied", counts.get("transactions", 0))

    def act(self) -> None:
        """Run something: mostly `apply`, which may be killed or paused."""
        self._stand.archive.pull()
        if not self._stand.archive.files():
            return
        kind = self._chance.choices(
            ("apply", "killed", "paused", "maintain", "verify", "rebuild", "audit"), (50, 20, 8, 6, 6, 6, 4)
        )[0]
        if not mirror_tables(self.target):
            kind = "apply"
        match kind:
            case "killed":
                self._kill()
            case "paused":
                self.run("apply", "--strict", pause=(self._chance.uniform(3, 15), self._chance.uniform(1, 8)))
            case "maintain":
                self.run("maintain")
            case "verify":
                self._upkeep("verify", [])
            case "rebuild":
                self._upkeep("rebuild", self._chosen())
            case "audit":
                self.run("audit")
            case _:
                self.apply()

    def _chosen(self) -> list[str]:
        """Draw a table, and perhaps an output."""
        names = [name for name in mirror_tables(self.target) if "__" not in name and name.startswith(("live.", "big."))]
        name = self._chance.choice(names)
        output = self._chance.choice(([], ["--output", "mirror"], ["--output", "history"], ["--output", "changelog"]))
        return ["--table", name.replace(" ", r"\s"), *output]

    def _upkeep(self, command: str, given: Sequence[str]) -> None:
        self.apply()
        self.run(command, *given)

    def _kill(self) -> None:
        command = self._chance.choice((["apply"], ["apply"], ["apply"], ["maintain"], ["rebuild", *self._chosen()]))
        later = self._chance.choice((0.0, self._chance.random()))
        captures = None if command[0] == "maintain" else self._stand.archive.folder
        count = self._chance.randrange(1, 14)
        try:
            steps = run_until_killed(
                captures,
                self.target,
                "",
                count,
                scratch=self._scratch(),
                later=later,
                config=self._config,
                command=command,
            )
            self._journal.note("run killed", f"{command[0]} after {steps[-1:]}")
        except AssertionError as error:
            if "ended by itself with 0" not in str(error):
                raise CommandFailed(f"{command} that was to be killed: {error}") from None
            self._journal.note("run ended before its kill", command[0])

    def _scratch(self) -> Path:
        scratch = self._folder / "scratch"
        scratch.mkdir(exist_ok=True)
        return scratch

    def run(self, command: str, *given: str, pause: tuple[float, float] | None = None) -> None:
        """Run a command to its end, which has to be a good one.

        Args:
            pause: it is stopped after so many seconds, for so many.
        """
        words = [command, *given, "--quiet"]
        if command != "maintain":
            words += ["--captures", str(self._stand.archive.folder)]
        if command != "audit":
            words += ["--target", str(self.target), "--config", str(self._config)]
        log = self._folder / "runs.log"
        with log.open("ab") as output:
            output.write(f"\n$ {' '.join(words)}\n".encode())
            output.flush()
            begin = output.tell()
            process = subprocess.Popen(
                [sys.executable, "-m", "walreplay", *words],
                env=program_environment(self._scratch()),
                cwd=self._scratch(),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        timers = []
        if pause is not None:
            begins, lasts = pause
            timers = [threading.Timer(begins, _signal, [process.pid, signal.SIGSTOP])]
            timers += [threading.Timer(begins + lasts, _signal, [process.pid, signal.SIGCONT])]
            for timer in timers:
                timer.start()
        try:
            code = process.wait(_PATIENCE)
        finally:
            for timer in timers:
                timer.cancel()
            _signal(process.pid, signal.SIGKILL)
        self._journal.note(f"{command}{' (paused)' if pause else ''}", f"exit code {code}")
        if code != 0:
            with log.open("rb") as output:
                output.seek(begin)
                raise CommandFailed(f"{' '.join(words)}: exit code {code}\n{output.read().decode()[-4000:]}")


def _signal(group: int, number: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        os.killpg(group, number)
