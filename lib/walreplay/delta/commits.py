"""Decide from a table's commits whether it still has the rows that the ledger's last run left in it.

A commit of a run says in the table's history which run made it (`CommitId`).  The other commits are judged by their
operation: one that keeps the rows (OPTIMIZE, VACUUM, properties) does not matter; a RESTORE makes the table what it was
at that version; anything else is a change by somebody else.

The table features come last: what a table requires of its readers, each with the property that switches it on.
Every reader of Delta can read a table without features, and a reader refuses a table with one that it does not know.
So each is switched on only when something needs it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

# Operations that keep a table's rows.  Changed columns are noticed elsewhere.
_KEEP_ROWS: Final = frozenset(
    {
        "ADD COLUMN",
        "ADD COLUMNS",
        "ADD CONSTRAINT",
        "ANALYZE",
        "CHANGE COLUMN",
        "CHANGE COLUMNS",
        "CLUSTER BY",
        "COMPUTE STATS",
        "DOMAIN METADATA CLEANUP",
        "DROP CONSTRAINT",
        "DROP FEATURE",
        "Deletion Vector Tombstones",
        "Empty Commit",
        "OPTIMIZE",
        "OPTIMIZE CHECKPOINT",
        "RENAME COLUMN",
        "REORG",
        "ROW TRACKING BACKFILL",
        "ROW TRACKING UNBACKFILL",
        "SET TBLPROPERTIES",
        "UNSET TBLPROPERTIES",
        "UPDATE FIELD METADATA",
        "UPDATE TABLE METADATA",
        "UPGRADE PROTOCOL",
        "VACUUM END",
        "VACUUM START",
    }
)

_RESTORE: Final = "RESTORE"
_DROPS: Final = "DROP COLUMNS"  # this statement has no condition that could hold a mark

_STATEMENT_MARK: Final = re.compile(r"walreplay:((?:[0-9a-f]{2})+)")


def in_statement(mark: str) -> str:
    """Write a commit's mark as a text that a statement can hold, and its history shows as it is (`CommitId.logged`)."""
    return f"walreplay:{mark.encode().hex()}"


@dataclass(frozen=True, slots=True)
class RunId:
    """Identifies what a run applies, and so its commits.

    A number is not enough, because a ledger that was restored from a backup gives out the same numbers again.

    Attributes:
        id: of the plan, unique.
        upto: the commit LSN that the plan reaches.
        applied: the number of transactions from the target's beginning up to there.
    """

    id: str
    upto: int
    applied: int


@dataclass(frozen=True, slots=True)
class CommitId:
    """Identifies a commit that must be made exactly once.

    Attributes:
        application: the ledger's own id; Delta skips a second commit with the same application and number.
        number: made of the run's number and its step's; later commits have higher ones.
        run: the run that it belongs to; None for a commit of no run.
        oid: the relation whose rows the table has; None for the ledger's own tables.
        counts: numbers for the report that Delta's history does not have otherwise, so that a run which finishes a
            killed one can report them, too; None if they are not known before the commit.
        source: of a table that several sources write to, the one whose ledger this is.
        form: of what is written, and how; see `walreplay.table.table_run.Merge.form`.
    """

    application: str
    number: int
    run: RunId | None = None
    oid: int | None = None
    counts: Mapping[str, int] | None = field(default=None, compare=False)
    source: str | None = field(default=None, compare=False)
    form: str | None = field(default=None, compare=False)

    @property
    def mark(self) -> str:
        """The text that identifies the commit in the table's history."""
        mark: dict[str, Any] = {"walreplay": self.application, "number": self.number}
        if self.run is not None:
            mark |= {"run": self.run.id, "upto": self.run.upto, "applied": self.run.applied}
        counts = None if self.counts is None else dict(self.counts)
        optional = {"oid": self.oid, "source": self.source, "form": self.form, "counts": counts}
        return json.dumps(mark | {name: value for name, value in optional.items() if value is not None})

    @classmethod
    def of_mark(cls, text: str | None) -> CommitId | None:
        """Read what `mark` wrote; None for any other text."""
        try:
            mark = json.loads(text or "")
            run = RunId(str(mark["run"]), int(mark["upto"]), int(mark["applied"])) if "run" in mark else None
            oid = int(mark["oid"]) if "oid" in mark else None
            counts = {str(k): int(v) for k, v in mark["counts"].items()} if "counts" in mark else None
            source = str(mark["source"]) if "source" in mark else None
            form = str(mark["form"]) if "form" in mark else None
            return cls(str(mark["walreplay"]), int(mark["number"]), run, oid, counts, source, form)
        except (ValueError, TypeError, KeyError, AttributeError):  # anybody may write any user metadata
            return None

    @classmethod
    def logged(cls, user_metadata: str | None, parameters: Mapping[str, Any]) -> CommitId | None:
        """Read a commit's id from its user's metadata, or from what the statement's own text says; None for no id.

        Some platforms refuse the setting that gives a statement's commit its user's metadata.

        Args:
            parameters: of the operation, as the history or the log has them.
        """
        commit_id = cls.of_mark(user_metadata)
        for text in parameters.values() if commit_id is None else ():
            if match := _STATEMENT_MARK.search(str(text)):
                return cls.of_mark(bytes.fromhex(match[1]).decode(errors="replace"))
        return commit_id

    @property
    def options(self) -> dict[str, str]:
        """The options that make a DataFrame's write this commit."""
        return {"txnAppId": self.application, "txnVersion": str(self.number), "userMetadata": self.mark}


@dataclass(frozen=True, slots=True)
class LoggedCommit:
    """A commit as a table's history or log lists it.

    Attributes:
        parameters: of the operation.
        id: None if it has none.
        time: when it was made, in milliseconds since 1970-01-01 UTC; 0 if that is not known.
    """

    version: int
    operation: str
    parameters: Mapping[str, Any] = field(default_factory=dict)
    id: CommitId | None = None
    time: int = 0
    metrics: Mapping[str, str] = field(default_factory=dict)

    def count(self, *names: str) -> int:
        """Return the first of some counts that the metrics have; 0 if they have none of them."""
        return next((int(self.metrics[name]) for name in names if name in self.metrics), 0)

    @property
    def restored(self) -> int | None:
        """The version that a RESTORE went back to; None for all other commits."""
        version = str(self.parameters.get("version"))
        # A RESTORE by time names no version.
        return int(version) if self.operation == _RESTORE and version.isdecimal() else None

    @property
    def keeps_rows(self) -> bool:
        """Return whether the table has the rows that it had."""
        return self.operation in _KEEP_ROWS


@dataclass(frozen=True, slots=True)
class Standing:
    """A table compared with the ledger.

    Attributes:
        latest: the table's newest version.
        left: a version that has the right rows.
        changed: the first commit by somebody else that changed the rows; None if there is none.
        ahead: commits with the ledger's id that the ledger does not have: it is older than the table.
        steps: the numbers of the commits that the interrupted run has made.
        passed: the first change by somebody else in front of these: from before the run, and known to it, or from
            between its check and its commit.
        highest: the highest number of the ledger's commits since the version that the ledger knows, undone or not.
    """

    latest: int
    left: int
    changed: LoggedCommit | None = None
    ahead: tuple[CommitId, ...] = ()
    steps: frozenset[int] = frozenset()
    passed: LoggedCommit | None = None
    highest: int = 0

    @property
    def is_sound(self) -> bool:
        """The table has the right rows."""
        return self.changed is None and not self.ahead


def _with_marks(commits: Iterable[LoggedCommit]) -> Iterator[tuple[LoggedCommit, CommitId | None]]:
    """Yield commits, each with its id; None for a commit without one.

    A statement that drops columns has no condition that could hold its mark: the commit in front of it has the id
    (`walreplay.delta.statements.say_in_front`).
    """
    in_front: CommitId | None = None
    for commit in commits:
        commit_id = commit.id
        # Number 0: the commit belongs to a run, and is none of its steps.
        if commit_id is None and commit.operation == _DROPS and in_front is not None and in_front.number == 0:
            commit_id = in_front
        yield commit, commit_id
        in_front = commit_id


def others_change(
    commits: Iterable[LoggedCommit], *, ledger: str, is_siblings: Callable[[CommitId], bool] | None = None
) -> LoggedCommit | None:
    """Return the first commit by somebody else that has changed a table's rows, or None; for arguments see `follow`."""
    for commit, commit_id in _with_marks(commits):
        is_ours = commit_id is not None and commit_id.application == ledger
        is_known = is_ours or bool(commit_id and is_siblings and is_siblings(commit_id))
        if not is_known and not commit.keeps_rows:
            return commit
    return None


def follow(
    commits: Iterable[LoggedCommit],
    *,
    ledger: str,
    left: int,
    run: str | None = None,
    is_siblings: Callable[[CommitId], bool] | None = None,
) -> Standing:
    """Follow a table's commits from the version in which the ledger's last run left it.

    Args:
        commits: the commits after that version, in their order.
        ledger: the ledger's id.
        left: that version; -1 for a table that the ledger does not know.
        run: the id of an interrupted run that continues now.  Commits before its first one need no check, because it
            has checked them when it began.
        is_siblings: says whether a commit that is not the ledger's was made by that of another source that shares the
            table: it leaves the rows of this one as they are; None if none does.
    """
    standing = Standing(left, left)
    standings = {left: standing}
    restored_standing: Standing | None = None
    highest = 0
    for commit, commit_id in _with_marks(commits):
        version, is_siblings_commit = commit.version, False
        if commit_id is not None and commit_id.application != ledger:
            is_undisturbed = standing.changed is None and commit.restored is None
            is_siblings_commit = is_undisturbed and is_siblings is not None and is_siblings(commit_id)
            commit_id = None
        highest = max(highest, 0 if commit_id is None else commit_id.number)
        restored_standing = None if commit.restored is None else standings.get(commit.restored)
        if restored_standing is not None:
            standing = restored_standing  # also undoes what others have changed
        elif commit_id is not None and commit_id.run is not None and commit_id.run.id == run:
            passed = standing.passed or standing.changed
            standing = Standing(version, version, steps=standing.steps | {commit_id.number}, passed=passed)
        elif commit_id is not None:
            standing = replace(standing, ahead=(*standing.ahead, commit_id))  # the ledger was set back
        elif is_siblings_commit and standing.is_sound:
            # To set the table back to an earlier version would take the other source's rows away.
            standing = replace(standing, left=version)
        elif not is_siblings_commit and not commit.keeps_rows:
            standing = replace(standing, changed=standing.changed or commit)
        standing = replace(standing, latest=version)
        standings[version] = standing
    # Of the sound versions, the one that has most of the interrupted run's commits.
    sound_standings = [other for other in standings.values() if other.is_sound]
    best = max(sound_standings, key=lambda other: len(other.steps))
    # Of those that differ only by other sources' rows, the newest.
    best = max((other for other in sound_standings if other.steps == best.steps), key=lambda other: other.left)
    if restored_standing is not None and standing.is_sound and standing.steps < best.steps:
        # A RESTORE has undone some of the run's commits, but Delta would still skip these as already made.
        standing = replace(standing, changed=commit)
    return replace(standing, left=best.left, highest=highest)


_VACUUM: Final = "VACUUM START"
_RETENTIONS: Final = ("specifiedRetentionMillis", "defaultRetentionMillis")
_SLACK: Final = 60_000  # milliseconds: VACUUM reads the clock before it commits

LOOK_BACK: Final = 3
"""So many commits that keep rows may stand between a run's commit and the version that it has noted."""


def proven(
    commits: Sequence[LoggedCommit], version: int, ledger: str, run: str | None, oid: int
) -> tuple[int | None, str]:
    """Return the version of a table that has the rows which a run has left; None, and the reason, if there is none.

    Only a commit's mark proves it: a table that was removed, copied or made anew has other commits by the same numbers.

    Args:
        commits: from a little before the version (`LOOK_BACK`) up to the newest one, in their order.
        version: as the run has noted it; ``run`` is the id of its plan.
        oid: the relation whose rows the table has.
    """
    earlier = (commit for commit in reversed(commits) if commit.version <= version)
    # A commit without a mark may have kept the rows of the one in front of it.
    marked = next((commit for commit in earlier if commit.id is not None or not commit.keeps_rows), None)
    mark = None if marked is None else marked.id
    has_version = any(commit.version == version for commit in commits)
    made_by = None if mark is None or mark.run is None else (mark.application, mark.run.id, mark.oid)
    if not has_version or made_by is None or made_by != (ledger, run, oid):
        return None, (
            f"the table has no version {version} of that run any more: it was replaced, copied or made anew since, or "
            "its log was cleaned up"
        )
    later = [commit for commit in commits if commit.version > version]
    vacuums = [commit for commit in later if commit.operation == _VACUUM]
    # The version itself, then later ones with the same rows: the first whose files VACUUM has kept.
    for count, commit in enumerate((None, *later)):
        if commit is not None and not commit.keeps_rows:  # all later versions have other rows
            break
        rest = later[count:]
        following = next((other for other in rest if not other.operation.startswith("VACUUM")), None)
        if following is None or all(_keeps_files_since(following, vacuum) for vacuum in vacuums if vacuum in rest):
            return version if commit is None else commit.version, ""
    return None, f"VACUUM has removed files of version {version}"


def _keeps_files_since(commit: LoggedCommit, vacuum: LoggedCommit) -> bool:
    """Return whether VACUUM has kept the files that a commit, or a later one, has removed from the table."""
    # Milliseconds; a retention that the statement itself named counts more.
    kept = next((int(vacuum.parameters[name]) for name in _RETENTIONS if name in vacuum.parameters), 0)
    return vacuum.time < commit.time or commit.time > vacuum.time - kept + _SLACK


COLUMN_MAPPING: Final = {"delta.columnMapping.mode": "name"}
"""Columns can be renamed and dropped, and have any name, because files use names of their own."""

TYPE_WIDENING: Final = {"delta.enableTypeWidening": "true"}

TIMESTAMP_NTZ: Final = {"delta.feature.timestampNtz": "supported"}

DELETION_VECTORS: Final = {"delta.enableDeletionVectors": "true"}
"""A MERGE can mark rows as deleted instead of rewriting their files."""

FEATURE: Final = "delta.feature."
"""The beginning of a property that switches a feature on.  It is kept in the table's protocol, not as a property."""

_READER: Final = "delta.minReaderVersion"

_LISTS: Final = 3  # from this reader version on, a protocol lists its features

# Characters that Delta refuses in a column's name without column mapping.
_NOT_IN_PARQUET: Final = re.compile(r"[ ,;{}()\n\t=]")


def needed_by(fields: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """Return the properties that some columns, as Delta's log declares them, require."""
    properties: dict[str, str] = {}
    for column in fields:
        if _NOT_IN_PARQUET.search(column["name"]):
            properties |= COLUMN_MAPPING
        if _has_local_times(column["type"]):
            properties |= TIMESTAMP_NTZ
    return properties


def _has_local_times(kind: Any) -> bool:
    if isinstance(kind, str):
        return kind == "timestamp_ntz"
    parts = [field["type"] for field in kind.get("fields", ())]
    return any(map(_has_local_times, [*parts, kind.get("elementType", "")]))


def missing(needed: Mapping[str, str], current: Mapping[str, str]) -> dict[str, str]:
    """Return the wanted properties that a table lacks, and those that have to be set with them.

    Column mapping alone is declared by a reader version, not by a list of features.  delta-rs does not check that
    version, and silently reads renamed columns as NULL; DuckDB's reader takes the table for damaged.  So column mapping
    is switched on together with ``timestampNtz``, which brings the list.

    Args:
        current: the table's properties, and its protocol's versions and features, as SHOW TBLPROPERTIES gives them;
            empty for a new table.
    """
    lacking = {name: value for name, value in needed.items() if current.get(name, "").lower() != value.lower()}
    has_feature_list = int(current.get(_READER, 1)) >= _LISTS or bool(
        lacking.keys() & {*TYPE_WIDENING, *TIMESTAMP_NTZ, *DELETION_VECTORS}
    )
    return lacking if has_feature_list or not lacking.keys() & COLUMN_MAPPING.keys() else lacking | TIMESTAMP_NTZ


def with_needed(properties: Mapping[str, str], fields: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """Return a new table's properties, with those that its columns require (`needed_by`)."""
    return missing({**properties, **needed_by(fields)}, {})
