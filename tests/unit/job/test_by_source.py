"""Work on several sources: each is done, whatever comes of the others; and their ledgers are apart."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from walreplay.config import Configuration
from walreplay.delta.target import Target, encode_for_catalog, encode_name
from walreplay.errors import ConfigError, OrderError
from walreplay.job.source_check import check_apart
from walreplay.job.sources import Source, each_source

SHARED: Any = object()
"""A session that no other can be made of, as Spark Connect's."""


class Own:
    """What a session looks like of which others can be made."""

    _jsparkSession = None  # noqa: N815 (pyspark's name)


OWN: Any = Own()


class Told:
    def __init__(self) -> None:
        self.stages: list[tuple[str, int | None]] = []
        self.count = self.ends = 0

    def stage(self, name: str, total: int | None) -> None:
        self.stages.append((name, total))

    def advance(self, count: int = 1) -> None:
        self.count += count

    def done(self) -> None:
        self.ends += 1


def sources(*names: str) -> Configuration:
    return Configuration.from_mapping({"sources": {name: {"captures": f"/data/{name}"} for name in names}})


def test_sources_are_done_one_after_the_other_in_the_calling_thread() -> None:
    told, seen = Told(), list[tuple[str, str, str | None, bool]]()

    def work(source: Source) -> int:
        source.progress.stage("scan", 3)
        here = threading.current_thread() is threading.main_thread()
        seen.append((source.name, source.captures, source.settings.ledger_name, here))
        return len(seen)

    report = each_source(OWN, sources("a", "b"), work, progress=told)
    assert seen == [("a", "/data/a", "a", True), ("b", "/data/b", "b", True)]
    assert report.results == {"a": 1, "b": 2}
    assert told.stages == [("a: scan", 3), ("b: scan", 3)]
    assert told.ends == 1


@pytest.mark.parametrize("at_once", [1, 3])
def test_one_that_fails_does_not_stop_the_others(at_once: int) -> None:
    def work(source: Source) -> str:
        if source.name == "b":
            raise OrderError("a gap")
        if source.name == "c":
            raise ZeroDivisionError
        return source.name

    report = each_source(OWN, sources("a", "b", "c", "d"), work, at_once=at_once)
    assert report.results == {"a": "a", "d": "d"}
    assert [(one.source, type(one.error)) for one in report.failed] == [("b", OrderError), ("c", ZeroDivisionError)]


def test_so_many_are_done_at_once_where_sessions_can_be_made() -> None:
    met, told = threading.Barrier(2, timeout=20), Told()

    def meet(source: Source) -> int:
        source.progress.stage("scan", None)
        return met.wait()

    assert len(each_source(OWN, sources("a", "b"), meet, at_once=2, progress=told).results) == 2
    assert (told.stages, told.count) == ([("sources", 2)], 2)

    busy = threading.Lock()

    def alone(source: Source) -> None:
        assert busy.acquire(blocking=False)
        busy.release()

    assert not each_source(SHARED, sources("a", "b"), alone, at_once=2).failed


def test_when_it_is_interrupted_no_further_stage_begins() -> None:
    both, interrupted = threading.Barrier(2, timeout=20), threading.Event()
    seen: list[str] = []

    def work(source: Source) -> None:
        source.progress.stage("scan", None)
        both.wait()
        if source.name == "a":
            raise KeyboardInterrupt
        interrupted.wait(20)
        seen.append("it went on as far as the next stage")
        source.progress.stage("decode", None)
        seen.append("it went on")

    def until_it_is_told() -> None:
        # The call that was interrupted says so to the others before it waits for them.
        threading.Event().wait(0.5)
        interrupted.set()

    threading.Thread(target=until_it_is_told).start()
    with pytest.raises(KeyboardInterrupt):
        each_source(OWN, sources("a", "b"), work, at_once=2, progress=Told())
    assert seen == ["it went on as far as the next stage"]


def test_there_has_to_be_a_source_and_a_number_that_can_be() -> None:
    with pytest.raises(ConfigError, match="has no sources"):
        each_source(OWN, Configuration(), lambda source: None)
    with pytest.raises(ConfigError, match="no source 'c'"):
        each_source(OWN, sources("a"), lambda source: None, sources=["c"])
    for number in (0, 65):
        with pytest.raises(ConfigError, match="at once"):
            each_source(OWN, sources("a"), lambda source: None, at_once=number)


@pytest.mark.parametrize(
    ("eu", "us"),
    [
        ("/data", "/data/us"),
        ("/data/us/", "/data/us/../us/x"),
        ("s3://bucket", "s3a://bucket/us"),
        ("/d*", "/data/us"),
    ],
)
def test_captures_of_one_source_may_not_lie_in_anothers(eu: str, us: str) -> None:
    with pytest.raises(ConfigError, match="of the source us lie in those of eu"):
        check_apart({"us": us, "eu": eu})


def test_captures_beside_one_another_are_apart() -> None:
    check_apart({"eu": "/data/eu", "us": "/data/us", "old": "/data/eu_old"})


@pytest.mark.parametrize(
    ("eu", "us", "patterns"),
    [
        ("/data/x", "/data/x/", {}),
        ("/data/x", "file:///data/y/../x", {"us": "*.bin"}),
        ("/data/x", "/data/x", {"eu": "*.bin", "us": "*.bin"}),
        ("/data/x", "/data/x", {"eu": "*.bin", "us": "us_*.bin"}),
        ("s3://bucket/x", "s3a://bucket/x", {"eu": None, "us": None}),
        ("/data/*", "/data/x", {}),
        ("/data/*.bin", "/data/us_*.bin", {}),
    ],
)
def test_two_sources_may_not_have_the_same_files(eu: str, us: str, patterns: dict[str, str | None]) -> None:
    with pytest.raises(ConfigError, match=r"are those of \w+, too"):
        check_apart({"us": us, "eu": eu}, patterns)


def test_one_folder_may_have_the_files_of_two_sources_that_tell_them_apart() -> None:
    check_apart({"eu": "/data/x", "us": "/data/x"}, {"eu": "eu_*", "us": "us_*"})
    check_apart({"eu": "/data/eu_*.bin", "us": "/data/us_*.bin"})


def test_sources_that_cannot_be_told_apart_are_refused_before_any_work() -> None:
    config = Configuration.from_mapping({"sources": {"a": {"captures": "/data/x"}, "b": {"captures": "/data/x"}}})
    with pytest.raises(ConfigError, match="a source is a stream of its own"):
        each_source(OWN, config, lambda source: None)
    told = {name: {"captures": "/data/x", "file_pattern": f"{name}_*"} for name in ("a", "b")}
    assert not each_source(OWN, Configuration.from_mapping({"sources": told}), lambda source: None).failed


# Their ledgers.

_NAMES = ["eu", "EU2", "a.b", "a-b", "a_b", "sources", "state", "staging", "set_aside", "x_staging"]
_TABLES = [
    "state",
    "runs",
    "metrics",
    "files",
    "relations",
    "transactions",
    "messages",
    "staging",
    "staging_1",
    "set_aside_16384",
]


@pytest.mark.parametrize("place", ["/data/lake", "s3a://bucket/lake", "main", "main.lake"])
def test_each_source_has_a_ledger_of_its_own(place: str) -> None:
    target = Target.parse(place)
    ledgers = [target, *map(target.of_source, _NAMES)]
    names = [ledger.ledger(name).place for ledger in ledgers for name in _TABLES]
    assert len(set(names)) == len(names)
    # No table of the source's can have such a place, and that of a target of one source stays as it was.
    assert target.of_source(None) == target
    assert all(ledger.table("s", "t") == target.table("s", "t") for ledger in ledgers)
    for ledger in ledgers:
        for name in _TABLES:
            own = ledger.ledger(name)
            if own.path is not None:
                below = own.path.removeprefix(f"{place}/").split("/")
                assert below[0] == "_walreplay"
                assert encode_name(below[0]) != below[0]
            else:
                (first,) = [part for part in own.parts if part.startswith("_walreplay")]
                assert encode_for_catalog(first) != first
            assert target.absolute(target.relative(own)) == own


def test_a_sources_name_is_no_path() -> None:
    assert Target.parse("/data/lake").of_source("a/../b").ledger_folder == "_walreplay/sources/a%2F..%2Fb"
