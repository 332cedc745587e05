"""What a target of the fuzzer is, and how long an input may take."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

CORPUS: Final = Path(__file__).with_name("corpus")

SECONDS: Final = 0.5
SECONDS_A_BYTE: Final = 200e-6
"""What an input may take of the CPU: more than any reader needs that does work by the byte, under instrumentation."""

_TRIES: Final = 3


@dataclass(frozen=True)
class Target:
    """A reader, and what makes inputs of it.

    Attributes:
        name: of its folders of inputs.
        read: takes an input, and raises what is wrong; errors of walreplay's own are caught in it.
        seeds: the inputs to begin with.
        words: what stands in such bytes, for the fuzzer to put in.
        longest: how many bytes an input has at most.
    """

    name: str
    read: Callable[[bytes], None]
    seeds: Callable[[], Iterable[bytes]]
    words: tuple[bytes, ...] = ()
    longest: int = 1024

    def run(self, data: bytes) -> None:
        """Read an input.

        Raises:
            AssertionError: it took too long, each of several times: what is loaded late is no fault.
        """
        bound = SECONDS + SECONDS_A_BYTE * len(data)
        for _ in range(_TRIES):
            began = time.process_time()
            self.read(data)
            spent = time.process_time() - began
            if spent <= bound:
                return
        raise AssertionError(f"{len(data)} bytes take {spent:.1f} s of CPU, and may take {bound:.1f}")

    def inputs(self) -> list[bytes]:
        """Return the kept inputs."""
        return [path.read_bytes() for path in sorted((CORPUS / self.name).glob("*"))]
