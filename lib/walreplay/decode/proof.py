"""What proves a capture's bytes: the SHA-256 of the file as stored, as `sha256sum` prints it.

MB a second of one core with SHA instructions: CRC-32 6,500, SHA-1 2,080, SHA-256 1,970, blake2b 1,330, SHA-512 900, MD5
840, blake2s 710.  CRC-32 is free, but anybody can make other bytes with the same one; SHA-1 is broken, and no quicker.
A scan hops from message to message (2,200 to 5,900 MB/s): beside it no checksum of every byte is cheap.  Of a run, 8 s
of a core for each GB, SHA-256 is 6 %; decoding does not take it again, and without an index nobody does.  Of 200 MB
in 8 files a scan alone takes 1.4 times as long, and `apply` 1.16 times: 1.1 s without an index, and 0.18 s more.
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha256

from walreplay.errors import CaptureError


@dataclass(frozen=True, slots=True)
class Proof:
    """The checksum of the first ``length`` bytes of a file; a file may grow behind them."""

    length: int
    checksum: str

    @classmethod
    def of(cls, content: bytes | memoryview) -> Proof:
        """Return the proof of a file as it is."""
        return cls(len(content), sha256(content).hexdigest())

    def begins(self, content: bytes | memoryview) -> bool:
        """Return whether a file begins with the bytes that are proved."""
        return self.compared(content[: self.length])[0]

    def compared(self, content: bytes | memoryview) -> tuple[bool, str]:
        """Return whether a file begins with the bytes that are proved, and the checksum of the whole file."""
        digest = sha256(content[: self.length])
        is_same = len(content) >= self.length and digest.hexdigest() == self.checksum
        digest.update(content[self.length :])
        return is_same, digest.hexdigest()


NOTHING = Proof.of(b"")
"""Of a file that the index does not have: every file begins so."""

ACCEPT = "or, if the archive is right as it is, have the index take it so: walreplay index --allow-gaps"


def other_bytes(path: str) -> CaptureError:
    """Make the error for a file that does not have the bytes that its index knows."""
    return CaptureError(
        "the file's bytes are not those that were indexed",
        path=path,
        remedy="Restore the file; or, if it is right as it is, give it another time (touch), and have the index take "
        "it so: walreplay index --allow-gaps",
    )
