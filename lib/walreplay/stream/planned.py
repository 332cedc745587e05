"""Without Spark: plan the files of one stream (`plan_files`), and decode what a plan applies, step by step."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from functools import partial
from typing import Final, TypeAlias

from walreplay.decode.announcements import Layout
from walreplay.decode.change_batch import ChangeBatch, WalkedBytes
from walreplay.decode.decoder import TILE_BYTES, Decoder, Recorded, StretchVersions
from walreplay.decode.files import scan_file
from walreplay.decode.proof import other_bytes
from walreplay.decode.scan import fingerprint
from walreplay.decode.sessions.parting import told_for_paths
from walreplay.errors import FramingChange, NotACapture, OrderError, WalReplayError
from walreplay.listing import map_file
from walreplay.protocol.framing import Framing
from walreplay.protocol.messages import Relation, Type
from walreplay.protocol.opening import open_file
from walreplay.stream.duplicates import check_copies
from walreplay.stream.plan import FilePlan, Plan, Step
from walreplay.stream.stitch import Stitch
from walreplay.types.text import UTF8

Read: TypeAlias = Callable[[str], "bytes | memoryview"]

_FILES_OPEN: Final = 8  # So many files stay open, because the steps may go back and forth between files


def decode_plan(
    plan: Plan, read: Read, *, tile_bytes: int | None = None, codec: str = UTF8, skipped: Collection[str] = ()
) -> Iterator[ChangeBatch]:
    """Decode what a plan applies, in commit order within each relation.

    Args:
        read: gives a file's bytes as stored.
        tile_bytes: as `walreplay.read_changes` takes it.
        codec: the encoding of text and names, with which the files were planned.
        skipped: paths of files that are skipped.

    Raises:
        CaptureError: the bytes cannot be decoded; it names file and offset.
        OrderError: a file is not the one that was planned, or copies of a transaction differ.
    """
    decoder = partial(Decoder, plan.resume.place.framing, tile_bytes=tile_bytes or TILE_BYTES, codec=codec)
    if plan.resent:
        check_copies(plan.decided, plan.after_lsn, _recorded(plan, read, decoder(recording=True)))
    applied = decoder()
    for file, step in _steps(plan, read, skipped):
        yield from file.decode(applied, step, plan.versions, plan.type_versions)
    yield from applied.rest()


def _recorded(plan: Plan, read: Read, decoder: Decoder) -> Iterator[Recorded]:
    """Decode a plan only to record its transactions."""
    for file, step in _steps(plan, read):
        for _ in file.decode(decoder, step, plan.versions, plan.type_versions):
            pass
        yield from decoder.take_recorded()[0]
    for _ in decoder.rest():
        pass


def _steps(plan: Plan, read: Read, skipped: Collection[str] = ()) -> Iterator[tuple[PlannedBytes, Step]]:
    """Yield a plan's steps in their order, each with its file."""
    opened: dict[str, PlannedBytes] = {}
    planned = ((step, file) for file in plan.files if file.path not in skipped for step in file.steps)
    for step, file in sorted(planned, key=lambda pair: pair[0].sequence):
        if file.path not in opened:
            if len(opened) >= _FILES_OPEN:
                opened.pop(next(iter(opened)))  # the oldest: most steps go forward through the files
            opened[file.path] = PlannedBytes.of(file, read(file.path))
        yield opened[file.path], step


class PlannedBytes:
    """The planned bytes of a file, decompressed."""

    def __init__(self, path: str, data: memoryview) -> None:
        self.path = path
        self._data = data

    @classmethod
    def of(cls, file: FilePlan, content: bytes | memoryview) -> PlannedBytes:
        """Open a file.

        Raises:
            CaptureError: the file is not the one that was planned, or not the one that was indexed.
        """
        if len(content) < file.length or fingerprint(content, file.length) != file.fingerprint:
            raise OrderError(
                "the file has changed since it was scanned",
                path=file.path,
                remedy="Captures must not change but by growing; restore the file, or apply to a new target",
            )
        if file.proof is not None and not file.proof.begins(content):
            raise other_bytes(file.path)
        try:
            return cls(file.path, open_file(memoryview(content)[: file.length]).data)
        except WalReplayError as error:
            error.at(path=file.path)
            raise

    def decode(
        self,
        decoder: Decoder,
        step: Step,
        versions: Sequence[Relation],
        types: Sequence[Type],
        layouts: Sequence[Layout] = (),
    ) -> Iterator[ChangeBatch]:
        """Decode one step of the plan; yield full batches.  The decoder keeps the rows that do not fill a batch."""
        seam = step.seam
        data = self._data if seam is None else memoryview(seam.data)
        source = WalkedBytes(self.path) if seam is None else WalkedBytes(self.path, seam.base, (seam.path, seam.offset))
        in_force = StretchVersions(
            {versions[number].oid: versions[number] for number in step.relations},
            {types[number].oid: types[number] for number in step.types},
            [layouts[number] for number in step.layouts],
        )
        try:
            yield from decoder.decode(
                data, step.start, step.stop, place=step.place, versions=in_force, commit=step.commit, source=source
            )
        except WalReplayError as error:
            if seam is not None and error.path is None and error.offset is not None:
                here = -1 if seam.base is None else error.offset + seam.base  # below 0: in an earlier file
                if here >= 0:
                    error.offset = here
                else:
                    error.offset += seam.offset
                    error.at(path=seam.path)
            error.at(path=self.path)
            raise


def plan_files(
    files: Sequence[str], framing: Framing | None = None, *, codec: str = UTF8, read: Read = map_file
) -> Plan:
    """Plan files: scan one after the other, each from the place where the one before ends.

    Args:
        files: their paths, in stream order.
        framing: the stream's; None to recognise it.
        read: gives a file's bytes as stored.

    Raises:
        CaptureError: the bytes are no sound stream; it names file and offset.
    """
    stitch = Stitch(None)
    for path in files:
        content = read(path)
        try:
            scan = scan_file(path, content, stitch.next_scan(framing, codec))
        except (NotACapture, FramingChange) as error:  # each caller has its own name for the option
            raise told_for_paths(error, "`framing`") from None
        stitch.add_exact(scan)
    return stitch.plan()
