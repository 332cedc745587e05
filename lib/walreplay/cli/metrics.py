"""Numbers of a target for Prometheus, in a file for the node exporter's textfile collector.

Moments are timestamps, from which queries compute ages: so these grow while nothing runs.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from walreplay.cli.printing import refuse_missing
from walreplay.cli.running import asked
from walreplay.errors import ConfigError, TargetError, visible

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

    from walreplay.ledger.status import TableStatus, TargetStatus


@dataclass(frozen=True, slots=True)
class Prometheus:
    """A file for Prometheus, and the target that it is about, as given."""

    place: str
    target: str

    @classmethod
    def of(cls, place: str | None, target: str) -> Prometheus | None:
        """Make one of what ``--metrics`` has; None if that is not for Prometheus.

        Raises:
            ConfigError: it cannot be written here.
        """
        if place is None or not place.endswith(".prom"):
            return None
        from walreplay.session.isolation import mounted_path

        refuse_missing("--metrics FILE.prom", "metrics", "prometheus_client")
        path = mounted_path(place)
        if path is None:
            raise ConfigError("--metrics FILE.prom is read on this machine", remedy="Give the path of a local file")
        return cls(str(path), target)

    def write(self, statuses: Mapping[str, TargetStatus | None], successes: Collection[str] = ()) -> None:
        """Replace the file, in one step.

        Args:
            statuses: by the sources' names, or by an empty one; None where nothing was applied yet.
            successes: the sources that were just applied; of others, the newest run's end counts.

        Raises:
            TargetError: it cannot be written.
        """
        from prometheus_client import CollectorRegistry, Gauge

        registry, now = CollectorRegistry(), time.time()

        def add(name: str, text: str, labels: Sequence[str], values: Mapping[tuple[str, ...], float | None]) -> None:
            gauge = Gauge(f"walreplay_{name}", text, ("target", *labels), registry=registry)
            for label_values, value in values.items():
                if value is not None:
                    gauge.labels(*map(visible, (self.target, *label_values))).set(value)

        applied = {source: status for source, status in statuses.items() if status is not None}
        ends = {source: _epoch(_of_run(status, "finished_at")) for source, status in applied.items()}
        ends |= dict.fromkeys(successes, now)
        success = "When the last apply ended well, also one that found nothing new"
        add("last_success_timestamp_seconds", success, ("source",), {(source,): end for source, end in ends.items()})
        for name, text, of_status in _OF_STATUS:
            add(name, text, ("source",), {(source,): of_status(status) for source, status in applied.items()})
        tables = [(source, table) for source, status in applied.items() for table in status.tables]
        for name, text, of_table in _OF_TABLE:
            add(name, text, ("source", "table"), {(source, table.name): of_table(table) for source, table in tables})
        _replace(self.place, registry)

    def write_applied(self, read: Callable[[Any], TargetStatus], source: str | None) -> None:
        """Replace the file after a run, by a status that is read with a session."""
        from walreplay.ledger.status import NothingApplied

        try:
            status = asked(read)
        except NothingApplied:
            status = None
        self.write({source or "": status}, [source or ""])


def write_gauges(place: str, labels: Mapping[str, str], values: Mapping[str, Any], texts: Mapping[str, str]) -> None:
    """Replace a file by a recorder's numbers, those that there are.

    Raises:
        TargetError: it cannot be written.
    """
    from prometheus_client import CollectorRegistry, Gauge

    registry = CollectorRegistry()
    for name, text in texts.items():
        if values[name] is not None:
            gauge = Gauge(f"walreplay_record_{name}", text, list(labels), registry=registry)
            gauge.labels(*map(visible, labels.values())).set(values[name])
    _replace(place, registry)


def _replace(place: str, registry: CollectorRegistry) -> None:
    from prometheus_client import write_to_textfile

    try:
        write_to_textfile(place, registry)
    except OSError as error:
        problem = f"the metrics cannot be written ({error.strerror})"
        remedy = "All else is done; see that the folder is there and may be written to"
        raise TargetError(problem, path=place, remedy=remedy) from error


def _of_run(status: TargetStatus, name: str) -> Any:
    """Return a value of the newest run that has ended; None if there is none."""
    runs = [run for run in status.runs if run.finished_at is not None]
    return getattr(runs[-1], name) if runs else None


def _epoch(moment: datetime | None) -> float | None:
    return None if moment is None else moment.timestamp()


_OF_STATUS: Final[tuple[tuple[str, str, Callable[[TargetStatus], float | None]], ...]] = (
    ("applied_lsn", "All that committed up to here is applied, in bytes of WAL", lambda status: status.applied_lsn),
    ("applied_commit_timestamp_seconds", "When that committed", lambda status: _epoch(status.applied_commit_ts)),
    ("lag_seconds", "From that commit to the newest run's end", lambda status: _of_run(status, "lag_seconds")),
    ("lag_bytes", "WAL from there to the furthest open transaction", lambda status: _of_run(status, "lag_bytes")),
    ("run_changes", "Row changes of the newest run", lambda status: _of_run(status, "changes")),
    ("run_warnings", "Warnings of the newest run", lambda status: _of_run(status, "warnings")),
    ("open_transactions", "Transactions that have not ended", lambda status: len(status.open_transactions)),
)
_OF_TABLE: Final[tuple[tuple[str, str, Callable[[TableStatus], float | None]], ...]] = (
    ("table_changes", "Row changes in the newest 20 runs", lambda table: table.changes),
    ("table_verified_timestamp_seconds", "When it was verified last", lambda table: _epoch(table.verified_at)),
    ("table_equal", "1 if it was equal then, else 0", lambda table: table.is_equal),
    ("table_held", "1 if an error of its own holds it, else 0", lambda table: table.held is not None),
)
