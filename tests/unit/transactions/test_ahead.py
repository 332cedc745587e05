"""What holds of files that were decoded with their scan, and what is left of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate

import pytest

from support.runs import Files, Planned, cut, plan_run, plan_runs
from walreplay.changes import decode_plan
from walreplay.errors import ValueFormatError
from walreplay.protocol import messages as m
from walreplay.protocol.framing import Framing
from walreplay.protocol.writer import frame
from walreplay.transactions import ahead
from walreplay.transactions.ahead import MOST_CARRIED
from walreplay.transactions.plan import Plan
from walreplay.transactions.schedule import sequence_of

MOOD = 16_385
TABLE = m.Relation(9, "shop", "t", "d", (m.Column("id", 23, -1, True),))
OTHER = m.Relation(10, "shop", "u", "d", (m.Column("id", 23, -1, True),))
WIDE = replace(TABLE, columns=(*TABLE.columns, m.Column("note", 25, -1, False)))
MOODY = m.Relation(11, "shop", "m", "d", (m.Column("id", 23, -1, True), m.Column("mood", MOOD, -1, False)))


def insert(oid: int, *values: str) -> m.Insert:
    return m.Insert(oid, m.TupleData(tuple(m.Cell("t", value.encode()) for value in values)))


def transaction(lsn: int, *changes: m.AnyMessage) -> list[m.AnyMessage]:
    return [m.Begin(lsn, lsn, lsn), *changes, m.Commit(0, lsn, lsn + 8, lsn)]


def files_of(*contents: Sequence[m.AnyMessage]) -> Files:
    return {f"part{number}": frame(messages, Framing.RAW) for number, messages in enumerate(contents)}


def planned(files: Files) -> Planned:
    found = plan_run(files, None)
    assert found is not None
    return found


def values(plan: Plan, files: Files) -> dict[str, list[list[object]]]:
    found: dict[str, list[list[object]]] = {}
    for batch in decode_plan(plan, files.__getitem__):
        rows = batch.data.to_pylist()
        found.setdefault(batch.relation.qualified_name, []).extend(list(row.values()) for row in rows)
    return found


def held(files: Files) -> list[str]:
    """Give the files whose rows hold; see that all are decoded to what the plan says."""
    run = planned(files)
    assert values(run.ahead, files) == values(run.plan, files)
    return sorted(run.held)


FIRST = transaction(100, TABLE, insert(9, "1"))


def test_files_of_whole_transactions_are_read_once() -> None:
    files = files_of(FIRST, transaction(200, insert(9, "2")), transaction(300, insert(9, "3")))
    run = planned(files)
    assert run.held == {"part0", "part1", "part2"}
    steps = {file.path: file.steps for file in run.ahead.files}
    assert [[step.sequence for step in steps[path]] for path in files] == [[sequence_of(n)] for n in range(3)]
    # Nothing is left: no step brings bytes.
    assert all(step.seam is None for found in steps.values() for step in found)


def test_of_files_that_are_cut_within_a_transaction_only_their_ends_are_left() -> None:
    data = frame(
        [*FIRST, *transaction(200, insert(9, "2"), insert(9, "3")), *transaction(300, insert(9, "4"))], Framing.RAW
    )
    # Between two messages: behind the second transaction's Begin, and behind its first insert.
    lengths = list(accumulate(len(frame([one], Framing.RAW)) for one in (*FIRST, *transaction(200, insert(9, "2")))))
    for place in (lengths[4], lengths[5], lengths[4] + 3):
        files = cut(data, [place])
        run = planned(files)
        assert run.held == set(files)
        left = {file.path: [step for step in file.steps if step.seam is not None] for file in run.ahead.files}
        (head,) = left["part0001"]
        assert head.sequence == sequence_of(1) - 1
        # In the first file the second transaction's Begin, and what follows, is left.
        (tail,) = left["part0000"]
        assert (tail.sequence, tail.seam_path, tail.seam_offset) == (sequence_of(0) + 1, "part0000", lengths[3])
        assert held(files) == sorted(files)


@pytest.mark.parametrize(
    ("second", "third"),
    [
        (transaction(200, WIDE, insert(9, "2", "x")), transaction(300, insert(9, "3", "y"))),
        (transaction(200, OTHER, insert(10, "2")), transaction(300, insert(10, "3"))),
        (transaction(200, m.Message(True, 150, "p", b"x", None), insert(9, "2")), transaction(300, insert(9, "3"))),
    ],
    ids=["another version", "an unknown relation", "a logical message"],
)
def test_a_file_that_brings_something_new_is_planned_first(
    second: list[m.AnyMessage], third: list[m.AnyMessage]
) -> None:
    files = files_of(FIRST, second, third, transaction(400, TABLE, insert(9, "4")))
    found = held(files)
    assert "part0" in found
    assert "part1" not in found
    assert ("part2" in found) == (m.Message in map(type, second))


def test_rows_do_not_hold_where_the_relation_had_changed_in_between() -> None:
    # The third file alone does not show it: its rows have as many values as before.
    renamed = replace(TABLE, columns=(m.Column("number", 23, -1, True),))
    files = files_of(FIRST, transaction(200, renamed, insert(9, "2")), transaction(300, insert(9, "3")))
    assert held(files) == ["part0"]


def test_nothing_holds_in_front_of_a_truncate() -> None:
    files = files_of(FIRST, transaction(200, insert(9, "2")), transaction(300, m.Truncate((9,), 0), insert(9, "3")))
    run = planned(files)
    assert run.held == frozenset()
    assert values(run.ahead, files) == values(run.plan, files)


def test_nothing_holds_where_transactions_come_again() -> None:
    again = transaction(200, TABLE, insert(9, "2"))
    files = files_of(FIRST, again, [*again, *transaction(300, insert(9, "3"))])
    run = planned(files)
    assert run.held == frozenset()
    assert values(run.ahead, files) == values(run.plan, files)


@pytest.mark.parametrize("known", [True, False])
def test_types_have_to_be_those_that_were_guessed(known: bool) -> None:
    mood = m.Type(MOOD, "shop", "mood", None)
    first = transaction(100, mood, MOODY, insert(11, "1", "sad"))
    again = [m.Type(MOOD, "shop", "mood" if known else "feeling", None)]
    second = transaction(200, *again, MOODY, insert(11, "2", "glad"))
    files = files_of(first, second, transaction(300, insert(11, "3", "x")))
    assert held(files) == (["part0", "part1", "part2"] if known else ["part0"])


def test_a_file_whose_ends_are_long_is_planned_first() -> None:
    long = [insert(9, str(number)) for number in range(MOST_CARRIED // 10)]
    begin, *rows, commit = transaction(200, *long)
    files = files_of([*FIRST, begin, *rows], [commit, *transaction(300, insert(9, "3"))])
    assert held(files) == ["part1"]


def test_an_error_in_what_is_carried_is_told_where_it_stands() -> None:
    bad = insert(9, "x")
    data = frame([*FIRST, *transaction(200, insert(9, "2"), bad), *transaction(300, insert(9, "4"))], Framing.RAW)
    at = data.index(frame([bad], Framing.RAW))
    for place in range(len(frame(FIRST, Framing.RAW)) + 1, at):
        files = cut(data, [place])
        run = planned(files)
        found = []
        for plan in (run.plan, run.ahead):
            with pytest.raises(ValueFormatError) as caught:
                values(plan, files)
            found.append((caught.value.path, caught.value.offset))
        assert found[0] == found[1]
        assert found[0][0] == "part0001"


def test_of_many_files_not_everything_is_carried(monkeypatch: pytest.MonkeyPatch) -> None:
    contents = [FIRST]
    for number in range(2, 6):
        contents[-1] = [*contents[-1], m.Begin(100 * number, 1, number)]
        contents.append([insert(9, str(number)), m.Commit(0, 100 * number, 100 * number + 8, 1)])
        contents[-1] += transaction(100 * number + 50, insert(9, f"{number}0"))
    files = files_of(*contents)
    assert len(held(files)) == len(files)
    monkeypatch.setattr(ahead, "MOST_CARRIED_IN_ALL", 200)
    assert 0 < len(held(files)) < len(files)


def test_a_later_run_guesses_from_where_the_last_one_ended() -> None:
    data = frame([*FIRST, *transaction(200, insert(9, "2")), *transaction(300, insert(9, "3"))], Framing.RAW)
    sizes = list(accumulate(len(frame(part, Framing.RAW)) for part in (FIRST, transaction(200, insert(9, "2")))))
    files = cut(data, sizes)
    first = dict(list(files.items())[:1])
    runs = list(plan_runs([first, files]))
    assert [run.held for _, run in runs] == [{"part0000"}, {"part0001", "part0002"}]
    for there, run in runs:
        assert values(run.ahead, there) == values(run.plan, there)
