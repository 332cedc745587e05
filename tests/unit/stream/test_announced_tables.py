"""Announcements in the stream: the plan and the tasks take them alike, wherever files, runs and sessions end."""

import json
from dataclasses import replace

import pytest

from support.framings import frame, transaction
from support.wire import encode
from walreplay.decode.decoder import Decoder
from walreplay.decode.files import ScanTask, scan_file
from walreplay.ledger.state import from_json, to_json
from walreplay.protocol import messages as m
from walreplay.protocol.framing import Framing
from walreplay.stream.plan import Plan, Resume
from walreplay.stream.planned import PlannedBytes
from walreplay.stream.stitch import Stitch

PREFIX = "walreplay"
TABLE = m.Relation(9, "shop", "t", "d", (m.Column("id", 23, -1, True), m.Column("note", 25, -1, False)))


def row(text, xid=None):
    return m.Insert(9, m.TupleData((m.Cell("t", b"1"), m.Cell("t", text))), xid)


def said(lsn, note, *, xid=None, of=()):
    """Announce that the column ``note`` has a number."""
    columns = [{"n": 1, "name": "id", "type": 23}, {"n": note, "name": "note", "type": 25, "missing": f"old {note}"}]
    values = {"walreplay": 1, "oid": 9, "natts": note, "xids": list(of), "columns": columns}
    return m.Message(True, lsn, PREFIX, json.dumps(values).encode(), xid)


def runs(*archives, seen=lambda column: column.number):
    """Apply archives, a run each; give the text of each row with the number that its column has.

    Args:
        archives: the new bytes of each run, as a list of files.
        seen: gives something else of the column.
    """
    found, resume, number, known = [], None, 0, {}
    for contents in archives:
        stitch = Stitch(resume, announcements=PREFIX)
        for at, content in enumerate(contents):
            path = f"{number:03}"
            number += 1
            known[path] = content
            if at == 0 and resume is not None and not resume.done:
                old = known[resume.path]
                stitch.add_exact(scan_file(resume.path, old, ScanTask(place=resume.place, start=resume.offset)))
            if resume is None and at == 0:
                stitch.add_exact(scan_file(path, content, ScanTask(Framing.RAW, first=True)))
                continue
            stitch.add_exact(scan_file(path, content, stitch.next_scan()))
        plan = from_json(Plan, to_json(stitch.plan()))
        assert plan.announcements == PREFIX
        decoder = Decoder(Framing.RAW, announcements=plan.announcements)
        steps = sorted(((step, file) for file in plan.files for step in file.steps), key=lambda pair: pair[0].sequence)
        rows = []
        for step, file in steps:
            planned = PlannedBytes(file.path, memoryview(known[file.path]))
            rows += planned.decode(decoder, step, plan.versions, plan.type_versions, plan.layouts)
            rows += decoder.rest()
        for batch in rows:
            # What the tasks have is what was planned.
            assert batch.relation in plan.relations
            texts = batch.data.column(batch.data.num_columns - 1).to_pylist()
            found += [(text, seen(batch.relation.columns[1])) for text in texts]
        resume = from_json(Resume, to_json(plan.resume))
    return found


MOOD = m.Type(70, "shop", "mood")
MOODS = replace(TABLE, columns=(TABLE.columns[0], m.Column("note", 70, -1, False)))


def labels(lsn, text, *, xid=None, of=()):
    """Announce an enum, whose label 1 has a text."""
    values = {"walreplay": 1, "type": 70, "array": 71, "schema": "shop", "name": "mood", "xids": list(of)}
    return m.Message(True, lsn, PREFIX, json.dumps({**values, "labels": [[1, text], [2, "b"]]}).encode(), xid)


def number_of(column):
    return column.number


def label_of(column):
    """Return what was told of the label."""
    return "".join(dict(column.labels).get(1, "a"))


def raw(*parts):
    return frame([message for part in parts for message in part], Framing.RAW)


def change(kind, **inside):
    """Return a row, an announcement, and a row that it holds for; nothing is sent in front of that of a new label."""
    xid = inside.get("xid")
    if kind is label_of:
        return [row(b"b", xid), labels(190, "x", **inside), row(b"c", xid)]
    return [row(b"b", xid), said(190, 3, **inside), replace(TABLE, xid=xid), row(b"c", xid)]


FIRST = transaction(100, said(90, 2), TABLE, row(b"a"))
CHANGE = transaction(200, *change(number_of))
LAST = transaction(300, row(b"d"))
EXPECTED = [("a", 2), ("b", 2), ("c", 3), ("d", 3)]

KINDS = {
    number_of: ([TABLE], FIRST, (2, 3)),
    label_of: ([MOOD, MOODS], transaction(100, labels(90, "a"), MOOD, MOODS, row(b"a")), ("a", "ax")),
}
"""What announces the table, a first transaction, and what its rows and later ones have."""

of_all_kinds = pytest.mark.parametrize("kind", KINDS, ids=["numbers of columns", "labels of enums"])


def check(kind, data, expected, start):
    """Apply bytes at once, and in two files and two runs that end anywhere behind a place."""
    assert runs([data], seen=kind) == expected
    for cut in range(start, len(data), 9):
        assert runs([data[:cut], data[cut:]], seen=kind) == expected, cut
        assert runs([data[:cut]], [data[cut:]], seen=kind) == expected, cut


@of_all_kinds
def test_rows_have_what_was_announced_before_them_wherever_files_and_runs_end(kind):
    _, first, (old, new) = KINDS[kind]
    data = raw(first, transaction(200, *change(kind)), LAST)
    check(kind, data, [("a", old), ("b", old), ("c", new), ("d", new)], len(encode(m.Begin(100, 100, 7))) + 2)


def test_a_copy_that_comes_again_changes_nothing():
    # From the first transaction on, and from the last one alone.
    again = transaction(400, TABLE, row(b"e"))
    assert runs([raw(FIRST, CHANGE, LAST), raw(FIRST, CHANGE, LAST, transaction(400, row(b"e")))]) == [
        *EXPECTED,
        ("e", 3),
    ]
    assert runs([raw(FIRST, CHANGE, LAST), raw(FIRST), raw(again)])[-1] == ("e", 3)
    assert runs([raw(FIRST, CHANGE, LAST)], [raw(FIRST)], [raw(again)])[-1] == ("e", 3)


@pytest.mark.parametrize("ways", [1, 2])
def test_a_transaction_that_is_cut_off_has_announced_nothing_until_it_comes_again(ways):
    cut = raw(CHANGE)[: -len(encode(m.Commit(0, 200, 208, 200)))]
    again = raw(transaction(200, TABLE, row(b"b"), said(190, 3), TABLE, row(b"c")), LAST)
    files = [raw(FIRST), cut, again]
    assert runs(*([files] if ways == 1 else [files[:2], files[2:]])) == EXPECTED


@of_all_kinds
def test_a_streamed_transaction_announces_for_itself_until_it_commits(kind):
    table, first, (old, new) = KINDS[kind]
    inside = [replace(message, xid=8) for message in table]
    streamed = [m.StreamStart(8, True), *inside, *change(kind, xid=8, of=[8]), m.StreamStop()]
    between = transaction(195, row(b"x"))
    end = [m.StreamCommit(8, 0, 200, 208, 200)]
    # A column's number comes with the relation.
    last = transaction(300, *(table if kind is number_of else []), row(b"d"))
    expected = [("a", old), ("x", old), ("b", old), ("c", new), ("d", new)]
    check(kind, raw(first, streamed, between, end, last), expected, len(raw(first)) + 2)
    undone = raw(first, streamed, [m.StreamAbort(8, 8)], last)
    assert runs([undone], seen=kind) == [("a", old), ("d", old)]


def test_labels_that_were_renamed_meanwhile_hold_behind_a_streamed_transaction():
    table, first, _ = KINDS[label_of]
    inside = [replace(message, xid=8) for message in table]
    streamed = [m.StreamStart(8, True), *inside, row(b"b", 8), row(b"c", 8), m.StreamStop()]
    rename, end = transaction(195, labels(190, "x")), [m.StreamCommit(8, 0, 200, 208, 200)]
    bare = [message for message in first if message not in table and not isinstance(message, m.Insert)]
    assert runs([raw(bare, streamed, rename, end, LAST)], seen=label_of)[-1] == ("d", "ax")


def test_what_a_rolled_back_subtransaction_announced_is_forgotten():
    streamed = [
        m.StreamStart(8, True),
        replace(TABLE, xid=8),
        row(b"b", 8),
        said(190, 3, xid=8, of=[9]),
        replace(TABLE, xid=9),
        row(b"gone", 9),
        m.StreamStop(),
        m.StreamAbort(8, 9),
        m.StreamStart(8, False),
        replace(TABLE, xid=8),
        row(b"c", 8),
        m.StreamStop(),
        m.StreamCommit(8, 0, 200, 208, 200),
    ]
    assert runs([raw(FIRST, streamed, transaction(300, TABLE, row(b"d")))]) == [
        ("a", 2),
        ("b", 2),
        ("c", 2),
        ("d", 2),
    ]


@of_all_kinds
def test_a_prepared_transaction_announces_for_itself_until_it_commits(kind):
    _, first, (old, new) = KINDS[kind]
    prepared = [m.BeginPrepare(200, 208, 200, 8, "g"), *change(kind), m.Prepare(0, 200, 208, 200, 8, "g")]
    # Nothing announces the table again: what the transaction has said is in force.
    data = raw(first, prepared, [m.CommitPrepared(0, 260, 268, 260, 8, "g")], LAST)
    check(kind, data, [("a", old), ("b", old), ("c", new), ("d", new)], len(raw(first)) + 1)
    again = transaction(300, *([TABLE] if kind is number_of else []), row(b"d"))
    undone = raw(first, prepared, [m.RollbackPrepared(0, 208, 268, 200, 260, 8, "g")], again)
    assert runs([undone], seen=kind) == [("a", old), ("d", old)]


def test_without_a_prefix_nothing_is_read():
    stitch = Stitch(None)
    stitch.add_exact(scan_file("0", raw(FIRST, CHANGE, LAST), ScanTask(first=True)))
    plan = stitch.plan()
    assert [column.number for version in plan.versions for column in version.columns] == [0, 0] * len(plan.versions)
    assert not plan.layouts
    assert not plan.resume.layouts


def partition(lsn, oid, **changes):
    """Announce a table that may be a partition."""
    columns = [{"n": 1, "name": "id", "type": 23}, {"n": 2, "name": "note", "type": 25}]
    values = {"walreplay": 1, "oid": oid, "natts": 2, "schema": "shop", "table": f"p{oid}", "columns": columns}
    return m.Message(True, lsn, PREFIX, json.dumps({**values, **changes}).encode())


ATTACHED = {"parent": 9, "is_partition": True, "attached": True}


@pytest.mark.parametrize(
    ("announced", "expected"),
    [
        ([ATTACHED], "attached, shop.p20 (LSN 0/65)"),
        ([{}, ATTACHED], "attached, shop.p20 (LSN 0/66)"),
        # What was one before, or has no rows, or inherits columns only.
        ([{**ATTACHED, "attached": False}, ATTACHED], None),
        ([{**ATTACHED, "empty": True}], None),
        ([{**ATTACHED, "is_partition": False}], None),
        ([{**ATTACHED, "attached": False}, {}], "detached, shop.p20 (LSN 0/66)"),
        ([{**ATTACHED, "attached": False}, {"empty": True}], None),
        ([{**ATTACHED, "attached": False}, {"dropped": True, "columns": None}], "dropped, shop.p20 (LSN 0/66)"),
        ([{"dropped": True, "columns": None}], None),
        # Below another partition.
        ([{**ATTACHED, "parent": 21}], "attached, shop.p20 (LSN 0/65)"),
        # Of a root that is not published.
        ([{**ATTACHED, "parent": 30}], None),
    ],
)
def test_of_what_becomes_of_partitions_is_told(announced, expected):
    below = partition(91, 21, parent=9, is_partition=True)
    first = transaction(100, partition(90, 9), below, TABLE, row(b"a"))
    second = transaction(200, *(partition(101 + n, 20, **values) for n, values in enumerate(announced)))
    stitch = Stitch(None, announcements=PREFIX)
    # A copy that comes again tells nothing; nor does a transaction that is not whole.
    open_ = transaction(300, partition(290, 22, **ATTACHED))[:-1]
    stitch.add_exact(scan_file("0", raw(first, second, first, second, open_), ScanTask(Framing.RAW, first=True)))
    told = [text for text in stitch.plan().warnings if "partition" in text]
    assert [text.partition("): ")[0] + ")" for text in told] == (
        [] if expected is None else [f"shop.t: a partition was {expected}"]
    )


def test_of_a_root_that_is_dropped_with_its_partitions_nothing_is_told():
    first = transaction(100, partition(90, 9), TABLE, row(b"a"))
    attached = transaction(200, *(partition(101 + n, 20 + n, **ATTACHED) for n in range(6)))
    stitch = Stitch(None, announcements=PREFIX)
    stitch.add_exact(scan_file("0", raw(first, attached), ScanTask(Framing.RAW, first=True)))
    (told,) = stitch.plan().warnings
    assert "shop.p23 (LSN 0/68) and 2 more: the rows" in told
    gone = transaction(300, *(partition(201 + oid, oid, dropped=True, columns=None) for oid in (*range(20, 26), 9)))
    stitch = Stitch(None, announcements=PREFIX)
    stitch.add_exact(scan_file("0", raw(first, attached, gone), ScanTask(Framing.RAW, first=True)))
    assert not stitch.plan().warnings


@pytest.mark.parametrize(("prefix", "expected"), [(PREFIX, 0), (None, 1), ("other", 1)])
def test_announcements_that_are_not_asked_for_are_told(prefix, expected):
    content = transaction(100, said(90, 2), said(91, 2), TABLE, row(b"a"), m.Message(True, 92, "mine", b"{}"))
    stitch = Stitch(None, announcements=prefix)
    stitch.add_exact(scan_file("0", raw(content), ScanTask(Framing.RAW, first=True)))
    warnings = stitch.plan().warnings
    assert len(warnings) == expected
    assert all(repr(PREFIX) in text and "`announcements`" in text for text in warnings)
