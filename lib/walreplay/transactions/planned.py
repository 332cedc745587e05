"""The bytes that a plan reads, and their decode step by step."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from walreplay.decode.change_batch import ChangeBatch
from walreplay.decode.decoder import Decoder
from walreplay.decode.scan import fingerprint
from walreplay.errors import OrderError, WalReplayError
from walreplay.protocol.compression import plain
from walreplay.protocol.messages import Relation, Type
from walreplay.transactions.plan import FilePlan, Step


class PlannedBytes:
    """A file that a plan reads: the bytes that were planned, decompressed.

    Args:
        data: its bytes, decompressed; none where the steps bring their own (``Step.seam``).
    """

    def __init__(self, path: str, data: memoryview | None) -> None:
        self.path = path
        self._data = memoryview(b"") if data is None else data

    @classmethod
    def of(cls, file: FilePlan, content: bytes | memoryview) -> PlannedBytes:
        """Open a file.

        Args:
            content: its bytes as stored.

        Raises:
            OrderError: the file is not the one that was planned.
        """
        if len(content) < file.length or fingerprint(content, file.length) != file.fingerprint:
            raise OrderError(
                "the file has changed since it was scanned",
                path=file.path,
                remedy="Captures must not change but by growing; restore the file, or apply to a new target",
            )
        try:
            return cls(file.path, plain(memoryview(content)[: file.length]).data)
        except WalReplayError as error:
            error.at(path=file.path)
            raise

    def decode(
        self, decoder: Decoder, step: Step, versions: Sequence[Relation], types: Sequence[Type]
    ) -> Iterator[ChangeBatch]:
        """Decode one step of the plan; the decoder keeps what does not fill a batch."""
        data = self._data if step.seam is None else memoryview(step.seam)
        relations = [versions[number] for number in step.relations]
        known = [types[number] for number in step.types]
        try:
            yield from decoder.decode(
                data,
                step.start,
                step.stop,
                place=step.place,
                relations={relation.oid: relation for relation in relations},
                types={type_.oid: type_ for type_ in known},
                fate=step.fate,
                path=self.path,
                base=step.seam_base or 0,
                before=(step.seam_path, step.seam_offset),
            )
        except WalReplayError as error:
            if step.seam is not None and error.path is None and error.offset is not None:
                here = -1 if step.seam_base is None else error.offset + step.seam_base
                if here >= 0:
                    error.offset = here
                else:
                    error.offset += step.seam_offset
                    error.at(path=step.seam_path)
            error.at(path=self.path)
            raise


__all__ = ["PlannedBytes"]
