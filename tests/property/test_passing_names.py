"""Names pass from table to table as committed rows use them: whatever becomes of these rows, and wherever runs end."""

from __future__ import annotations

from typing import Any, Final

from hypothesis import assume, example, given, note
from hypothesis import strategies as st

from support.passing_names import Load, Mirror, expected
from support.simulator import LEAST_BYTES, Drawn, captures, play
from support.simulator_server import NAMING, ORIGINS
from walreplay.config import Settings
from walreplay.errors import ConfigError

configurations = st.sampled_from(
    [
        {},
        {},
        {"skipped_operations": ["u", "d"]},
        {"skipped_operations": ["t"]},
        {"origin_exclude_list": [ORIGINS[0]]},
        {"table_exclude_list": "public[.]grey"},
        {"origin_exclude_list": [ORIGINS[0]], "skipped_operations": ["c"]},
    ]
)

_NUMBERS: Final = {op.__name__.removeprefix("_"): number for number, op in enumerate(NAMING)}


def step(what: str, table: int = 0, how: int = 0, *, far: bool = False) -> bytes:
    """Return a step of the server's; ``far``: a transaction that it begins is another server's."""
    return bytes([_NUMBERS[what], 0, table, how, 0, 0, int(far), 0])


def drawn(*steps: bytes, streams: bool = False, prepares: bool = False, origins: bool = False) -> Drawn:
    """Return the numbers of a capture: of these steps in one session, in a version that streams, or has two phases."""
    options = bytes([3, int(streams), int(prepares), 0, 0, 3, 0, 2 * streams + origins])
    return Drawn(options, steps)


def suited(drawn: Drawn) -> Drawn:
    """Have many tables and few backends, so that names pass, and no session that ends inside a message.

    Of such a message nothing may be told until more is there.
    """
    options = bytearray(drawn.options)
    options[5], options[6] = 3 + options[5] // 4 % 2 * 4, options[6] & ~16
    steps = tuple(bytes([*step[:7], step[7] // 3 * 3]) for step in drawn.steps)
    return Drawn(bytes(options), steps, drawn.cuts, drawn.runs)


_COMMIT, _SWAP = step("commit"), step("swap")
_BOTH = step("insert", 0), step("insert", 1)
_ROTATED = step("swap", how=1), *_BOTH, step("update", 2), _COMMIT
_UNDONE = step("savepoint"), _SWAP, *_BOTH, step("rollback_to")
_FAR = step("insert", 0, far=True), _SWAP, *_BOTH, _COMMIT


@given(captures, configurations, st.booleans())
@example(drawn(*_BOTH, _COMMIT, *_ROTATED, *_ROTATED, step("truncate"), _COMMIT), {}, True)
@example(drawn(*_BOTH, _SWAP, *_BOTH, _SWAP, *_BOTH, step("truncate"), _COMMIT), {}, True)
@example(drawn(*_BOTH, _COMMIT, _SWAP, _BOTH[0], _COMMIT), {}, True)
@example(drawn(*_BOTH, _COMMIT, *_FAR, origins=True), {"origin_exclude_list": [ORIGINS[0]]}, True)
@example(drawn(*_BOTH, _COMMIT, *_UNDONE, _COMMIT, streams=True), {}, True)
@example(drawn(*_BOTH, _COMMIT, _SWAP, *_BOTH, step("prepare"), step("decide", 0, 2), prepares=True), {}, True)
@example(drawn(*_BOTH, *_UNDONE, *_BOTH[::-1], _COMMIT, streams=True), {}, True)
def test_whoever_was_used_last_under_a_name_has_it_wherever_runs_end(
    drawn: Drawn, config: dict[str, Any], guessing: bool
) -> None:
    capture, settings = play(suited(drawn), NAMING), Settings.from_mapping(config)
    size = len(capture.data)
    assume(size >= LEAST_BYTES)
    note(capture.listing())
    ends = {mark.end for session in capture.sessions for mark in session.marks if mark.what == "commit"}
    for way in ([], capture.sizes, sorted(ends)):
        mirror = Mirror(settings)
        for end in [*(end for end in way if LEAST_BYTES <= end < size), size]:
            try:
                mirror.run(capture.files(end), guessing=guessing)
            except ConfigError as error:
                # Back from a name that is left out, a table lacks what has changed meanwhile.
                leaves_out = config.keys() & {"table_exclude_list", "table_include_list"}
                if not leaves_out or "lacks what has changed while it was switched off" not in error.problem:
                    raise
                break
            assert mirror.places == expected(capture.expected(end).transactions, settings), (list(way), end)


@given(captures, st.integers(0, 50), st.lists(st.integers(0, 3), min_size=8, max_size=8).filter(any))
def test_a_load_gives_its_tables_the_names_of_its_time(drawn: Drawn, committed: int, chosen: list[int]) -> None:
    capture, settings = play(suited(drawn), NAMING), Settings()
    size = len(capture.data)
    assume(size >= LEAST_BYTES)
    note(capture.listing())
    transactions = capture.expected(size).transactions
    assume(transactions)
    committed = committed % len(transactions) + 1
    names = dict[int, str]()
    for (name, oid), how in zip(
        sorted(expected(transactions[:committed], settings).shown.items()), chosen, strict=False
    ):
        # It is loaded; or a new one that has its name then; or it, by a name that no row has used.
        names |= [{}, {oid: name}, {oid + 50_000: name}, {oid: f"{name}_then"}][how]
    load = Load(transactions[committed - 1].commit_lsn, names)
    assume(names)
    note(f"{load}")
    mirror = Mirror(settings, load)
    mirror.run(capture.files(size), guessing=True)
    assert mirror.places == expected(transactions, settings, load)
