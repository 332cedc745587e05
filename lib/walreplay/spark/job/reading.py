"""Which files a run has to read: those that are new, or have grown, since the last run."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from walreplay.errors import OrderError
from walreplay.listing import sort_key
from walreplay.numbering import missing_numbers
from walreplay.protocol.framing import Framing
from walreplay.settings import Settings
from walreplay.spark.captures.files import (
    CaptureFile,
    confirm_holes,
    name_in,
    root_of,
)
from walreplay.spark.delta import statements as delta
from walreplay.spark.delta.storage import ledger_errors
from walreplay.spark.delta.target import TableName
from walreplay.spark.ledger.state import Seen, State
from walreplay.transactions.plan import Resume

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True, slots=True)
class Reading:
    """What a run has to read.

    Attributes:
        first: the offset to begin at in the first file, if it is known.
        resume: where the last run ended.
        has_rest: more files follow, which are left to later runs.
    """

    files: tuple[CaptureFile, ...]
    first: int
    resume: Resume | None
    has_rest: bool = False

    @property
    def size(self) -> int:
        """Bytes of the files."""
        return sum(file.length for file in self.files)

    def at_most(self, size: int) -> Reading:
        """Leave to later runs what is beyond so many bytes; the first file is always read."""
        sums = accumulate(file.length for file in self.files)
        count = max(1, sum(total <= size for total in sums))
        return self if count == len(self.files) else replace(self, files=self.files[:count], has_rest=True)


@dataclass
class NewFiles:
    """Compare a listing of the captures with the place in the ledger where the last run ended.

    Attributes:
        captures: where the files lie.
        files: the ledger's table of the files that were read.
        holes: files before which another one is missing, according to the numbers in the names, with the description.
    """

    own: SparkSession
    captures: str
    settings: Settings
    files: TableName
    holes: dict[str, str] = field(default_factory=dict)

    def what_is_new(self, files: Sequence[CaptureFile], state: State | None) -> Reading | None:
        """Give what has to be read; None if nothing has come since the last run."""
        resume = self._resume(files, state)
        if resume is None or state is None:
            self._check_holes(files, files, None)
            return Reading(tuple(files), 0, None)
        last = self._key_of(resume.last_path, files)
        earlier = [file for file in files if self._key(file) <= last]
        later = [file for file in files if self._key(file) > last]
        self._check_earlier(earlier, state, resume)
        self._check_holes(files, later, resume)
        lengths = {file.path: file.length for file in earlier}
        grown = lengths.get(resume.last_path, resume.last_length) != resume.last_length
        if not (later or grown or resume.has_more):
            return None
        anew = self._in_named_framing(resume)
        if anew is not None:
            return Reading(tuple(later), 0, anew) if later else None
        at = self._key_of(resume.path, files)
        again = [file for file in earlier if self._key(file) >= at]
        if resume.done and lengths.get(resume.path, resume.length) == resume.length:
            # The whole file was read; what is known of its end is enough.
            again = [file for file in again if file.path != resume.path]
        elif resume.path not in lengths:
            raise OrderError(
                "the file is gone, and its end was not applied yet",
                path=resume.path,
                offset=resume.offset,
                remedy="Bring it back to where it was",
            )
        elif lengths[resume.path] < resume.length:
            raise OrderError(
                f"the file had {resume.length:,} bytes and has {lengths[resume.path]:,} now",
                path=resume.path,
                remedy="Captures must not change but by growing; restore the file, or apply to a new target",
            )
        to_read = (*again, *later)
        first = resume.offset if again and again[0].path == resume.path else 0
        return Reading(to_read, first, resume)

    def _in_named_framing(self, resume: Resume) -> Resume | None:
        """Begin a session in the framing that the configuration names, if the files before were in another one."""
        name = self.settings.captures.framing
        return None if name in ("auto", resume.place.framing.value) else resume.in_session_of(Framing(name))

    def _resume(self, files: Sequence[CaptureFile], state: State | None) -> Resume | None:
        """Give where the last run ended, with the files' present paths."""
        if state is None or state.resume is None:
            return None
        before, here = root_of(state.captures), root_of(self.captures)
        present = {name_in(here, file.path): file.path for file in files}

        def moved(path: str) -> str:
            return present.get(name_in(before, path), path)

        resume = state.resume
        paths = {segment.path for item in resume.deferred for segment in item.segments}
        paths |= {segment.seam_path for item in resume.deferred for segment in item.segments}
        deferred = tuple(item.moved({path: moved(path) for path in paths}) for item in resume.deferred)
        return replace(resume, path=moved(resume.path), last_path=moved(resume.last_path), deferred=deferred)

    def _key(self, file: CaptureFile) -> tuple[Any, ...]:
        return sort_key(self.settings.captures.order, file.path, file.modified)

    def _key_of(self, path: str, files: Sequence[CaptureFile]) -> tuple[Any, ...]:
        """Give a file's place in the order; the file itself may be gone."""
        for file in files:
            if file.path == path:
                return self._key(file)
        if self.settings.captures.order == "modified":
            raise OrderError(
                "the file is gone, and only its time says which files come after it",
                path=path,
                remedy="Bring it back, or order the captures by their names (captures: order)",
            )
        return sort_key(self.settings.captures.order, path, 0)

    def seen(self, files: Sequence[CaptureFile], last: str) -> Seen:
        """Sum up a listing, up to the last file that was read."""
        count = next(number for number, file in enumerate(files, 1) if file.path == last)
        return self._seen(files[:count])

    def _seen(self, files: Sequence[CaptureFile]) -> Seen:
        """Sum up a listing: name and length of each file, without the length of the newest, which may grow."""
        root = root_of(self.captures)
        names = [name_in(root, file.path) for file in files]
        lengths = [file.length for file in files[:-1]] + [0] * bool(files)
        parts = zip(names, lengths, strict=True)
        return Seen(len(files), sum(zlib.crc32(f"{name}\0{length}".encode()) for name, length in parts))

    def _check_earlier(self, earlier: Sequence[CaptureFile], state: State, resume: Resume) -> None:
        """Refuse new files that sort before what was applied, and applied files that have changed."""
        if self._seen(earlier) == state.seen:
            return
        before, here = root_of(state.captures), root_of(self.captures)
        files = self.files
        with ledger_errors(files.text):
            recorded = delta.read(self.own, files).where(f"run <= {state.run}")
            rows = recorded.select("run", "path", "length").collect()
        known: dict[str, int] = {}
        for row in sorted(rows, key=lambda row: row.run):
            known.update({name_in(root, row.path): row.length for root in (before, here)})
        late = [file.path for file in earlier if name_in(here, file.path) not in known]
        if late:
            raise OrderError(
                f"the file sorts before {resume.last_path}, which is applied already"
                + (f" (as do {len(late) - 1} more)" if len(late) > 1 else ""),
                path=late[0],
                remedy="Name files so that they sort by time; a file that came late can be applied to a new target "
                "together with all others",
            )
        for file in earlier:
            length = known[name_in(here, file.path)]
            if file.path != resume.last_path and file.length != length:
                raise OrderError(
                    f"the file had {length:,} bytes when it was read and has {file.length:,} now, "
                    "though newer files have been read since",
                    path=file.path,
                    remedy="Only the newest file may grow; restore the file, or apply to a new target",
                )

    def _check_holes(self, files: Sequence[CaptureFile], new: Sequence[CaptureFile], resume: Resume | None) -> None:
        """Note new files before which another one is missing, according to the numbers in the names."""
        before = [resume.last_path] if resume is not None else []
        paths = list(dict.fromkeys([*before, *(file.path for file in files)]))
        wanted = {file.path for file in new}
        holes = [hole for hole in missing_numbers(paths) if hole.after in wanted]
        if resume is not None and len(files) > len(new):
            # Files that were applied may have been deleted.
            there = {file.path for file in files} - wanted
            holes = [hole for hole in holes if hole.before in wanted or hole.before in there]
        for hole in confirm_holes(self.own, holes):
            self.holes[hole.after] = hole.describe()
