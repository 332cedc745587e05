"""An oid that is used again and again: whose rows are whose does not depend on where runs end."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from support.planned import relation, run_plan
from walreplay.protocol import messages as m
from walreplay.table.registry import MirrorEntry

steps = st.lists(st.sampled_from(["use", "rename", "rename", "add", "rename and add", "reuse", "drop"]), max_size=8)


def _played(steps: list[str]) -> tuple[list[m.Relation], int]:
    """Return the versions that are used, and how many tables they are."""
    tables, columns, name, formers = 1, ["id*", "a1", "a2"], "n0", 0
    used = []
    for number, step in enumerate(["use", *steps], 1):
        if step in ("reuse", "drop"):
            tables, columns = tables + 1, [f"id{number}*", f"b{number}", f"c{number}"]
            formers += step == "drop"
        if "add" in step:
            columns = [*columns, f"x{number}"]
        if step not in ("use", "add"):
            name = f"n{number}"
        used.append(replace(relation(" ".join(columns), name=name), formers=formers))
    return used, tables


@given(steps, st.lists(st.booleans(), min_size=9, max_size=9))
def test_each_table_of_an_oid_keeps_its_rows_wherever_runs_end(steps: list[str], ends: list[bool]) -> None:
    used, tables = _played(steps)
    at_once = run_plan(*used).entries
    entries: tuple[MirrorEntry, ...] = ()
    before: list[m.Relation] = []
    run: list[m.Relation] = []
    for version, ends_here in zip(used, [*ends[: len(used) - 1], True], strict=True):
        run.append(version)
        if ends_here:
            entries = run_plan(*run, entries=entries, before=before).entries
            before, run = run[-1:], []
    places = [{entry.oid: (entry.name, entry.table.text) for entry in found} for found in (at_once, entries)]
    assert places[0] == places[1]
    assert len(places[0]) == tables
    assert not any(entry.set_aside for entry in at_once)
