"""Names pass from table to table as committed rows use them: whatever becomes of these rows, and wherever runs end."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from support.passing_names import NAMES, Mirror, Server, Step, expected, grouped, pieces_of
from walreplay.config import Settings

names = st.sampled_from(NAMES)
writes = st.tuples(st.just("write"), names, st.sampled_from(["insert", "update", "delete"]))
steps: st.SearchStrategy[Step] = st.one_of(
    writes,
    writes,
    writes,
    st.tuples(st.just("truncate"), names),
    st.tuples(st.just("rename"), names, names),
    st.tuples(st.just("swap"), names, names),
    st.tuples(st.just("rotate")),
    st.tuples(st.just("create"), names),
    st.tuples(st.just("drop"), names),
    st.tuples(st.just("alter"), names),
    st.tuples(st.just("savepoint")),
    st.tuples(st.just("undo")),
)
transactions = st.tuples(
    st.sampled_from(["ordinary", "ordinary", "far", "streamed", "prepared"]),
    st.integers(0, 4).map(bool),
    st.lists(steps, min_size=1, max_size=9),
)
histories = st.lists(transactions, min_size=1, max_size=8)
configurations = st.sampled_from(
    [
        {},
        {},
        {"skipped_operations": ["u", "d"]},
        {"skipped_operations": ["t"]},
        {"origin_exclude_list": ["far"]},
        {"table_exclude_list": "n[.]grey"},
        {"origin_exclude_list": ["far"], "skipped_operations": ["c"]},
    ]
)

_SWAP = ("swap", "red", "green")
_BOTH = [("write", "red", "insert"), ("write", "green", "insert")]
_ROTATED = [("ordinary", True, [("rotate",), *_BOTH, ("write", "blue", "update")])] * 2


def _check(
    history: Sequence[tuple[str, bool, list[Step]]],
    config: dict[str, Any],
    ends: Sequence[int],
    back: Sequence[int],
) -> None:
    server, settings = Server(), Settings.from_mapping(config)
    for how, commits, steps in history:
        server.play(how, commits, steps)
    pieces = pieces_of(server, back)
    right = expected(server.txns, settings)
    for way in ([], range(len(pieces)), ends):
        mirror = Mirror(settings)
        for files in grouped(pieces, way):
            mirror.run(files)
        assert mirror.places == right, list(way)


@given(histories, configurations, st.lists(st.integers(1, 20), max_size=3))
@example([("ordinary", True, _BOTH), *_ROTATED, ("ordinary", True, [("truncate", "red")])], {}, [])
@example([("ordinary", True, [*_BOTH, _SWAP, *_BOTH, _SWAP, *_BOTH, ("truncate", "red")])], {}, [])
@example([("ordinary", True, _BOTH), ("far", True, [_SWAP, *_BOTH])], {"origin_exclude_list": ["far"]}, [])
@example([("ordinary", True, _BOTH), ("streamed", True, [("savepoint",), _SWAP, *_BOTH, ("undo",)])], {}, [])
@example([("ordinary", True, _BOTH), ("prepared", False, [_SWAP, *_BOTH])], {}, [])
@example([("streamed", True, [*_BOTH, ("savepoint",), _SWAP, *_BOTH, ("undo",), *_BOTH[::-1]])], {}, [])
def test_whoever_was_used_last_under_a_name_has_it_wherever_runs_end(
    history: list[tuple[str, bool, list[Step]]], config: dict[str, Any], ends: list[int]
) -> None:
    _check(history, config, ends, [])


@given(histories, configurations, st.lists(st.integers(0, 4), min_size=1, max_size=4), st.lists(st.integers(1, 20)))
def test_transactions_that_come_again_do_not_pass_names_back(
    history: list[tuple[str, bool, list[Step]]], config: dict[str, Any], back: list[int], ends: list[int]
) -> None:
    _check(history, config, ends, back)
