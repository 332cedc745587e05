from __future__ import annotations

import functools
import hashlib
import http.server
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.pages import ROOT
from walreplay.errors import ConfigError
from walreplay.session import session as delta_jars

_SPARK = "io/delta/delta-spark_4.2_2.13/4.4.0/delta-spark_4.2_2.13-4.4.0.jar"
_STORAGE = "io/delta/delta-storage/4.4.0/delta-storage-4.4.0.jar"


class Told:
    def __init__(self) -> None:
        self.stages: list[str] = []

    def stage(self, name: str, total: int | None) -> None:
        self.stages.append(name)

    def advance(self, count: int = 1) -> None: ...

    def done(self) -> None:
        self.stages.append("done")


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None: ...


class Repository:
    """A Maven repository, and what was asked of it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.asked: list[str] = []
        repository = self

        class Handler(_Quiet):
            def do_GET(self) -> None:
                repository.asked.append(self.path)
                super().do_GET()

        self.server = http.server.ThreadingHTTPServer(
            ("127.0.0.1", 0), functools.partial(Handler, directory=str(folder))
        )
        self.url = f"http://127.0.0.1:{self.server.server_port}/"

    def put(self, path: str, data: bytes) -> str:
        (self.folder / path).parent.mkdir(parents=True, exist_ok=True)
        (self.folder / path).write_bytes(data)
        return hashlib.sha256(data).hexdigest()


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Repository]:
    """Put a repository with two JARs in the place of Maven Central, and an empty cache in that of the user's."""
    folder = tmp_path / "maven"
    folder.mkdir()
    made = Repository(folder)
    known = {path: made.put(path, path.encode()) for path in (_SPARK, _STORAGE)}
    monkeypatch.setattr(delta_jars, "known_jars", lambda: known)
    monkeypatch.setenv("MAVEN_REPOSITORY", made.url)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    install(monkeypatch, "4.2.0", "4.4.0")
    thread = threading.Thread(target=made.server.serve_forever)
    thread.start()
    yield made
    made.server.shutdown()
    thread.join()
    made.server.server_close()


def install(monkeypatch: pytest.MonkeyPatch, spark: str, delta: str) -> None:
    monkeypatch.setattr(delta_jars.pyspark, "__version__", spark)
    monkeypatch.setattr(delta_jars.importlib.metadata, "version", lambda name: delta)


def test_jars_are_fetched_once_with_one_line_and_need_no_network_after_that(
    repository: Repository, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    told = Told()
    jars = delta_jars.delta_jars(told)
    folder = tmp_path / "cache" / "walreplay" / "jars"
    assert jars == [folder / Path(_SPARK).name, folder / Path(_STORAGE).name]
    assert [jar.read_bytes().decode() for jar in jars] == [_SPARK, _STORAGE]
    assert told.stages == [f"fetch Delta 4.4.0 for Spark 4.2 into {folder}", "done"]
    assert sorted(repository.asked) == [f"/{_SPARK}", f"/{_STORAGE}"]
    assert sorted(path.name for path in folder.iterdir()) == [Path(_SPARK).name, Path(_STORAGE).name]
    monkeypatch.setenv("MAVEN_REPOSITORY", "http://127.0.0.1:9/")
    told = Told()
    assert delta_jars.delta_jars(told) == jars
    assert told.stages == []


def test_a_jar_that_is_not_the_known_one_is_not_kept(repository: Repository, tmp_path: Path) -> None:
    repository.put(_STORAGE, b"another one")
    with pytest.raises(ConfigError, match="its SHA-256 is another one than it should be") as caught:
        delta_jars.delta_jars()
    assert caught.value.path == f"{repository.url}{_STORAGE}"
    assert [path.name for path in (tmp_path / "cache" / "walreplay" / "jars").iterdir()] == [Path(_SPARK).name]
    # The remedy: what was put there by hand is taken.
    (tmp_path / "cache" / "walreplay" / "jars" / Path(_STORAGE).name).write_bytes(b"by hand")
    assert delta_jars.delta_jars()[1].read_bytes() == b"by hand"


def test_what_the_repository_answers_is_said(repository: Repository) -> None:
    (repository.folder / _SPARK).unlink()
    with pytest.raises(ConfigError, match=r"cannot be fetched: the answer was 404.*Name a mirror"):
        delta_jars.delta_jars()
    # It is not asked again for what it does not have.
    assert repository.asked == [f"/{_SPARK}"]


def test_a_network_that_is_down_is_said_in_one_line(repository: Repository, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MAVEN_REPOSITORY", "http://127.0.0.1:9")
    with pytest.raises(ConfigError, match="Connection refused") as caught:
        delta_jars.delta_jars()
    assert "\n" not in str(caught.value)


def test_a_cache_that_cannot_be_written_is_said(repository: Repository, tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("a file", encoding="utf-8")
    with pytest.raises(ConfigError, match=r"cannot be kept: .*Name another folder by XDG_CACHE_HOME"):
        delta_jars.delta_jars()


@pytest.mark.parametrize(
    ("spark", "delta", "remedy"),
    [
        ("4.2.0", "4.4.1", "pip install 'delta-spark==4.4.0'"),
        ("4.2.0", "4.0.1", "pip install 'delta-spark==4.4.0'"),
        ("4.1.4", "4.4.1", "pip install 'delta-spark==4.4.0'"),
        ("4.3.0", "4.4.0", "pip install 'pyspark==4.2.*' 'delta-spark==4.4.0'"),
    ],
)
def test_a_pair_that_nobody_knows_is_told_with_one_that_fits(
    monkeypatch: pytest.MonkeyPatch, spark: str, delta: str, remedy: str
) -> None:
    install(monkeypatch, spark, delta)
    with pytest.raises(ConfigError, match=f"delta-spark {delta} with pyspark {spark}") as caught:
        delta_jars.delta_jars()
    assert caught.value.remedy is not None
    assert remedy in caught.value.remedy
    # The remedy: this pair is known.
    words = remedy.replace("'", "").split()[2:]
    versions = dict(word.split("==") for word in words)
    pair = delta_jars.Pair(delta_jars.minor(versions.get("pyspark", spark)), versions["delta-spark"])
    assert set(pair.paths) <= delta_jars.known_jars().keys()


@pytest.mark.parametrize("delta", ["4.0.0", "4.0.1"])
def test_delta_4_0_has_one_jar_for_every_spark(delta: str) -> None:
    pair = delta_jars.Pair("4.0", delta)
    assert pair.paths[0] == f"io/delta/delta-spark_2.13/{delta}/delta-spark_2.13-{delta}.jar"
    assert set(pair.paths) <= delta_jars.known_jars().keys()


def test_the_environment_of_make_has_jars_that_are_known() -> None:
    lines = (ROOT / "conf" / "jars.lock").read_text(encoding="utf-8").splitlines()
    locked = [tuple(line.split()) for line in lines if line and not line.startswith("#")]
    known = {(digest, path) for path, digest in delta_jars.known_jars().items()}
    deltas = {(digest, path) for digest, path in locked if path.startswith("io/delta/")}
    assert len(deltas) == 2
    assert deltas <= known
