"""Keys that are linked by any of a run's files come to one bucket; all others stay in their own."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from walreplay.fold.net_changes import Routes, components

pairs = st.lists(st.tuples(st.integers(0, 20), st.integers(0, 20)), max_size=15)


def links(drawn: list[tuple[int, int]]) -> Routes:
    return Routes(np.array([one for one, _ in drawn], np.uint64), np.array([two for _, two in drawn], np.uint64))


def component(drawn: list[tuple[int, int]], key: int) -> set[int]:
    found, before = {key}, set[int]()
    while found != before:
        before = set(found)
        found |= {one for pair in drawn for one in pair if found & set(pair)}
    return found


@given(st.lists(pairs, max_size=3))
def test_linked_keys_have_one_place(drawn: list[list[tuple[int, int]]]) -> None:
    everything = [pair for part in drawn for pair in part]
    routes = components([links(part) for part in drawn])
    keys = np.arange(25, dtype=np.uint64)
    assert routes.of(keys).tolist() == [min(component(everything, key)) for key in range(25)]
    again = components([links([(two, one) for one, two in reversed(everything)])])
    assert again.of(keys).tolist() == routes.of(keys).tolist()
    parted = dict(routes.split(3))
    for key in range(25):
        own = parted.get(key % 3, components([]))
        assert own.of(keys[key : key + 1]).tolist() == routes.of(keys[key : key + 1]).tolist()


def test_without_links_nothing_is_routed() -> None:
    assert components([]).split(4) == []
