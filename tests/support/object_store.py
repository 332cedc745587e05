"""An S3 server for tests: real requests over HTTP, each counted, and each late by as much as a far store's would be.

``python -m support.object_store PORT DELAY LOG FAULTS`` serves until it is ended: DELAY in seconds is put in front of
every request, LOG gets a line (method, path) for each, and of FAULTS requests one is refused by a 503 and one is cut
off.  The bucket ``closed`` is closed to everybody, and nobody may list what is in ``unlisted``.  `object_store` starts
it.
"""

from __future__ import annotations

import itertools
import os
import re
import socket
import subprocess
import sys
import time
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

_PATIENCE: Final = 60.0

_CLIENT: Final = "2.35.4"
_PACKAGES: Final = ",".join(
    [
        "org.apache.hadoop:hadoop-aws:3.5.0",
        *(
            f"software.amazon.awssdk:{name}:{_CLIENT}"
            for name in ("s3", "s3-transfer-manager", "sts", "apache-client", "netty-nio-client")
        ),
    ]
)
_BUNDLE: Final = (
    "software.amazon.awssdk:bundle,org.apache.hadoop:hadoop-client-api,org.apache.hadoop:hadoop-client-runtime"
)
_NOT_WANTED: Final = f"{_BUNDLE},org.wildfly.openssl:wildfly-openssl,org.slf4j:slf4j-api"
"""The parts of Amazon's client that are used have 18 MB in place of the bundle's 600."""

HADOOP: Final = f"--packages {_PACKAGES} --exclude-packages {_NOT_WANTED}"
"""Arguments of spark-submit with which Spark knows ``s3a://``."""

KEYS: Final = {"access": "testing", "secret": "testing"}


@dataclass(frozen=True)
class ObjectStore:
    """A server that is running.

    Attributes:
        endpoint: its address (``http://…``).
        log: where it writes its requests.
    """

    endpoint: str
    log: Path

    def settings(self) -> dict[str, str]:
        """Return what Spark has to know of it; ``hadoop-aws`` has to be there."""
        return {
            "spark.hadoop.fs.s3a.endpoint": self.endpoint,
            "spark.hadoop.fs.s3a.endpoint.region": "us-east-1",
            "spark.hadoop.fs.s3a.access.key": KEYS["access"],
            "spark.hadoop.fs.s3a.secret.key": KEYS["secret"],
            "spark.hadoop.fs.s3a.path.style.access": "true",
            "spark.hadoop.fs.s3a.connection.ssl.enabled": "false",
            "spark.hadoop.fs.s3a.aws.credentials.provider": ("org.apache.hadoop.fs.s3a.SimpleAWSCredentialsProvider"),
        }

    def delta_options(self) -> dict[str, str]:
        """Return what delta-rs has to know of it."""
        keys = {"access_key_id": KEYS["access"], "secret_access_key": KEYS["secret"], "region": "us-east-1"}
        return {**keys, "endpoint_url": self.endpoint, "allow_http": "true", "aws_s3_allow_unsafe_rename": "true"}

    def make_bucket(self, name: str) -> None:
        """Make a bucket."""
        self._put(name, b"")

    def put(self, bucket: str, key: str, data: bytes) -> None:
        """Store an object."""
        self._put(f"{bucket}/{key}", data)

    def get(self, bucket: str, key: str) -> bytes:
        """Return an object's bytes."""
        # Whose key it is does not matter, but there has to be one.
        request = urllib.request.Request(f"{self.endpoint}/{bucket}/{key}", headers={"Authorization": "AWS any:one"})
        with urllib.request.urlopen(request, timeout=_PATIENCE) as answer:
            read: bytes = answer.read()
        return read

    def _put(self, path: str, data: bytes) -> None:
        kind = {"Content-Type": "application/octet-stream"}
        request = urllib.request.Request(f"{self.endpoint}/{path}", data, kind, method="PUT")
        with urllib.request.urlopen(request, timeout=_PATIENCE) as answer:
            answer.read()

    def deny_from(self, pattern: str | None) -> None:
        """Take no credentials any more once there is a request that a pattern finds (`requests`); None for never."""
        path = _denials(self.log)
        if pattern is None:
            path.unlink(missing_ok=True)
        else:
            path.write_text(pattern, encoding="utf-8")

    def requests(self) -> list[str]:
        """Return all requests so far: method and path."""
        return self.log.read_text(encoding="utf-8").splitlines()

    @contextmanager
    def counted(self) -> Iterator[Counter[str]]:
        """Count the requests made inside, by method and by what they were for."""
        before, counts = len(self.requests()), Counter[str]()
        yield counts
        counts.update(self.requests()[before:])


def _denials(log: Path) -> Path:
    return log.with_suffix(".denials")


def kinds_of(requests: Counter[str]) -> Counter[str]:
    """Put requests together that differ by names and numbers alone."""
    kinds = Counter[str]()
    for text, count in requests.items():
        kinds[re.sub(r"[0-9a-f]{8}-[0-9a-f-]{27}|\d{6,}", "#", text)] += count
    return kinds


@contextmanager
def object_store(scratch: Path, delay: float = 0.0, *, faults: int = 0) -> Iterator[ObjectStore]:
    """Serve an S3 of its own, in another process.

    Args:
        delay: seconds in front of every request.
        faults: of so many requests one is refused by a 503, and one is cut off; 0 for none.
    """
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    log = scratch / "requests.log"
    log.touch()
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}
    command = [sys.executable, "-m", "support.object_store", str(port), str(delay), str(log), str(faults)]
    with Path(scratch, "object-store.err").open("wb") as errors:
        process = subprocess.Popen(command, env=environment, stdout=errors, stderr=errors)
    store = ObjectStore(f"http://127.0.0.1:{port}", log)
    try:
        _await(store, process)
        yield store
    finally:
        process.kill()
        process.wait()


def _await(store: ObjectStore, process: subprocess.Popen[bytes]) -> None:
    ends = time.monotonic() + _PATIENCE
    while time.monotonic() < ends:
        assert process.poll() is None, "the server has ended"
        try:
            with urllib.request.urlopen(f"{store.endpoint}/moto-api/") as answer:
                answer.read()
                return
        except OSError:
            time.sleep(0.1)
    raise TimeoutError("the server does not answer")


def main(port: str, delay: str, log: str, faults: str) -> None:
    """Serve."""
    from moto.server import DomainDispatcherApplication, create_backend_app
    from werkzeug.serving import run_simple

    serve = DomainDispatcherApplication(create_backend_app)
    numbers, every = itertools.count(1), int(faults)
    denials, denied = _denials(Path(log)), set[str]()

    def is_denied(request: str) -> bool:
        """Return whether the credentials have expired."""
        if not denials.exists():
            return False
        pattern = denials.read_text(encoding="utf-8")
        if pattern not in denied and re.search(pattern, request):
            denied.add(pattern)
        return pattern in denied

    with Path(log).open("a", encoding="utf-8", buffering=1) as lines:

        def late(environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
            query = environ.get("QUERY_STRING", "")
            request = f"{environ['REQUEST_METHOD']} {environ['PATH_INFO']}{'?' if query else ''}{query}"
            lines.write(f"{request}\n")
            time.sleep(float(delay))
            fault = next(numbers) % every if every and not environ["PATH_INFO"].startswith("/moto-api") else None
            if fault == 0:
                environ["werkzeug.socket"].shutdown(socket.SHUT_RDWR)
                return []
            if fault == every // 2:
                return _error(start, "503 Slow Down", "SlowDown")
            is_unlisted = environ["PATH_INFO"].strip("/") == "unlisted" and environ["REQUEST_METHOD"] == "GET"
            if environ["PATH_INFO"].startswith("/closed") or is_unlisted or is_denied(request):
                return _error(start, "403 Forbidden", "AccessDenied")
            return serve(environ, start)

        run_simple("127.0.0.1", int(port), late, threaded=True)


def _error(start: Callable[..., Any], status: str, code: str) -> list[bytes]:
    start(status, [("Content-Type", "application/xml")])
    return [f"<Error><Code>{code}</Code><Message>{code}</Message></Error>".encode()]


if __name__ == "__main__":
    main(*sys.argv[1:])
