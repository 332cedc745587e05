"""Whether a slot goes on where an archive ends, and whose the archive is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from zstandard import ZstdCompressor

from walreplay.errors import OrderError, TargetError
from walreplay.recorded_names import RecordedName
from walreplay.recording import stretch
from walreplay.recording.store import Store
from walreplay.recording.stretch import ArchiveClaim, RecordedArchive, SlotOrigin

_ORIGIN = SlotOrigin("7001", 1, "shop", "archive")
_WHOLE = ZstdCompressor(write_checksum=True).compress(b"content" * 100)


class _Memory(Store):
    """A store in memory."""

    def __init__(self) -> None:
        super().__init__("memory://place")
        self.files: dict[str, bytes] = {}

    def names(self, folder: str = "") -> list[str]:
        inside = f"{folder}/" if folder else ""
        return [
            name.removeprefix(inside) for name in self.files if name.startswith(inside) and (folder or "/" not in name)
        ]

    def read(self, name: str) -> bytes | None:
        return self.files.get(name)

    def _write(self, name: str, data: bytes) -> None:
        self.files[name] = data


def _claim(
    store: Store,
    confirmed: int,
    origin: SlotOrigin = _ORIGIN,
    *,
    switch: Callable[[int], int | None] = lambda _: None,
    new_session: bool = False,
) -> ArchiveClaim:
    archive = RecordedArchive(store)
    archive.check_origin(origin, switch, new_session=new_session)
    claim = archive.claim(origin, confirmed, new_session=new_session)
    claim.register()
    return claim


def test_a_folder_with_files_of_others_is_refused() -> None:
    store = _Memory()
    store.files = {"shop.orders.copy": b"1\n", ".orders.partial": b"", "_recorded/written": b""}
    with pytest.raises(OrderError, match=r"other files, such as shop\.orders\.copy"):
        RecordedArchive(store)
    del store.files["shop.orders.copy"]
    assert RecordedArchive(store).is_new


def _store(store: Store, claim: ArchiveClaim, lsn: int) -> None:
    name = RecordedName(claim.next_number, claim.end_lsn, lsn, claim.follows_gap)
    store.put(str(name), _WHOLE)
    claim.has_stored(name)


@pytest.fixture
def store() -> _Memory:
    """An archive from LSN 100 to 300."""
    store = _Memory()
    claim = _claim(store, 100)
    _store(store, claim, 200)
    _store(store, claim, 300)
    return store


@pytest.fixture
def restarted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Be another process from then on."""
    monkeypatch.setattr(stretch, "_PROCESS", "another")


def test_a_new_archive_begins_where_the_slot_does() -> None:
    store = _Memory()
    claim = _claim(store, 100)
    assert (claim.end_lsn, claim.next_number, claim.follows_gap) == (100, 1, False)
    assert sorted(store.files) == ["_recorded/00000001.json"]


@pytest.mark.parametrize("confirmed", [100, 250, 300])
def test_a_recorder_goes_on_at_the_end(store: _Memory, restarted: None, confirmed: int) -> None:
    claim = _claim(store, confirmed)
    assert (claim.end_lsn, claim.next_number, claim.follows_gap) == (300, 3, False)
    assert "_recorded/00000002.json" in store.files


def test_the_same_process_describes_itself_once(store: _Memory) -> None:
    assert _claim(store, 300).end_lsn == 300
    assert len(store.names("_recorded")) == 1


def test_a_slot_that_goes_on_later_is_refused_and_a_new_session_says_what_is_missing(
    store: _Memory, restarted: None
) -> None:
    with pytest.raises(OrderError, match=r"0/12C.*0/190.*missing"):
        _claim(store, 400)
    claim = _claim(store, 400, new_session=True)
    assert (claim.end_lsn, claim.follows_gap) == (400, True)
    _store(store, claim, 500)
    assert "00000003_gap_0-190_0-1F4.pgo.zst" in store.files
    assert not claim.follows_gap


def test_a_gap_is_said_also_where_the_recorder_died_before_its_first_file(
    store: _Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    _claim(store, 400, new_session=True)
    monkeypatch.setattr(stretch, "_PROCESS", "another")
    claim = _claim(store, 400)
    assert (claim.end_lsn, claim.next_number, claim.follows_gap) == (400, 3, True)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"system": "7002"}, r"shop of another server \(system 7001, and not 7002\), and this is shop"),
        ({"database": "other"}, "the archive is of the database shop, and this is other"),
        ({"slot": "second"}, "the slot archive .* records into this folder, and not the slot second"),
        ({"timeline": 2}, "history of its own"),
    ],
)
def test_an_archive_of_another_is_refused(store: _Memory, change: dict[str, str], problem: str) -> None:
    with pytest.raises(OrderError, match=problem):
        _claim(store, 300, replace(_ORIGIN, **change))


@pytest.mark.parametrize(("left", "is_taken"), [(300, True), (450, True), (299, False)])
def test_behind_a_failover_it_goes_on_if_the_server_has_all_that_the_archive_has(
    store: _Memory, left: int, is_taken: bool
) -> None:
    promoted = replace(_ORIGIN, timeline=2)
    if is_taken:
        assert _claim(store, 280, promoted, switch=lambda _: left).end_lsn == 300
        assert "_recorded/00000002.json" in store.files
    else:
        with pytest.raises(OrderError, match=r"0/12C on timeline 1.*since LSN 0/12B"):
            _claim(store, 280, promoted, switch=lambda _: left)


def test_a_recorder_learns_of_the_next_one(store: _Memory, monkeypatch: pytest.MonkeyPatch) -> None:
    first = _claim(store, 300)
    first.check()
    monkeypatch.setattr(stretch, "_PROCESS", "another")
    second = _claim(store, 300)
    second.check()
    with pytest.raises(OrderError, match="records into this folder now"):
        first.check()


def test_of_two_that_write_one_description_the_one_whose_is_gone_learns_it(store: _Memory) -> None:
    claim = _claim(store, 300)
    store.files["_recorded/00000001.json"] = store.files["_recorded/00000001.json"].replace(b"shop", b"else")
    with pytest.raises(OrderError, match="records into this folder now"):
        claim.check()


@pytest.mark.parametrize("content", [b"", _WHOLE[:-2], _WHOLE[:-1] + bytes([_WHOLE[-1] ^ 1])])
def test_a_last_file_that_is_not_whole_is_not_believed(store: _Memory, content: bytes) -> None:
    store.files["00000002_0-C8_0-12C.pgo.zst"] = content
    with pytest.raises(OrderError, match="last file is not whole"):
        _claim(store, 300)
    # The remedy: the server sends it again.
    del store.files["00000002_0-C8_0-12C.pgo.zst"]
    assert _claim(store, 200).end_lsn == 200


def test_two_last_files_of_one_number_are_refused(store: _Memory) -> None:
    store.files["00000002_0-C8_0-140.pgo.zst"] = _WHOLE
    with pytest.raises(OrderError, match="two recorders"):
        _claim(store, 300)


def test_files_without_a_description_and_one_that_is_damaged_are_refused(store: _Memory) -> None:
    described = store.files.pop("_recorded/00000001.json")
    with pytest.raises(OrderError, match=r"no _recorded/00000001\.json"):
        _claim(store, 300)
    store.files["_recorded/00000001.json"] = described[:20]
    with pytest.raises(TargetError, match="damaged"):
        _claim(store, 300)


def test_what_else_lies_in_the_folder_of_descriptions_is_none(store: _Memory) -> None:
    store.files["_recorded/.00000002.json.77"] = b"{"
    store.files["_recorded/written"] = b""
    assert _claim(store, 300).end_lsn == 300


@pytest.mark.parametrize(
    ("kept", "is_written"), [(None, True), (b"", True), (b"con", True), (b"content", True), (b"other", False)]
)
def test_a_file_is_never_overwritten_by_another(kept: bytes | None, is_written: bool) -> None:
    store = _Memory()
    if kept is not None:
        store.files["name"] = kept
    if is_written:
        store.put("name", b"content")
        assert store.files["name"] == b"content"
    else:
        with pytest.raises(OrderError, match="other bytes"):
            store.put("name", b"content")
        assert store.files["name"] == kept


def test_a_store_that_has_not_what_it_says_is_not_believed(monkeypatch: pytest.MonkeyPatch) -> None:
    store = _Memory()
    monkeypatch.setattr(store, "_write", lambda *_: None)
    with pytest.raises(OSError, match="does not have it"):
        store.put("name", b"content")


def test_a_file_that_somebody_has_stored_meanwhile_stops_the_recorder_before_its_first(store: _Memory) -> None:
    claim = _claim(store, 300)
    claim.check_next()
    store.files["00000003_0-12C_0-190.pgo.zst"] = _WHOLE
    with pytest.raises(OrderError, match="another recorder has stored it"):
        claim.check_next()
