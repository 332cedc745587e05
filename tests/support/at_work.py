"""A server that works while a test does something with it."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from support.postgres import Server
from support.workload import run_workload


@contextmanager
def at_work(server: Server, seed: int) -> Iterator[None]:
    """Have connections change the tables while the block runs, and for a while behind it."""
    failures: list[BaseException] = []

    def work() -> None:
        try:
            run_workload(server, transactions=800, seed=seed, pause=lambda: None)
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        time.sleep(0.3)
        yield
    finally:
        thread.join()
    assert not failures, failures
