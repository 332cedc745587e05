"""Columns renamed, swapped, dropped and added at random: what is hidden under one name is never seen under another."""

import json
from copy import deepcopy
from dataclasses import replace

from hypothesis import event, given, settings
from hypothesis import strategies as st

from support.extent import examples
from support.planned import TEXT, catalogue_of, configured, relation, run_plan
from walreplay.decode.announcements import Layouts
from walreplay.errors import ConfigError
from walreplay.protocol import messages as m

NAMES = ["a", "b", "c", "d"]
NUMBERS = st.integers(0, 3)

CHANGES = st.tuples(
    st.sampled_from(["rename", "swap", "drop", "add", "pass", "replace", "drop and rename", "row", "run"]),
    NUMBERS,
    NUMBERS,
)


class Source:
    """A table, its announcements, and all names that its columns have had."""

    def __init__(self, *, announces):
        self.announces = announces
        self.columns = {1: "id", **dict(enumerate(NAMES[:3], 2))}
        self.names = {number: [name] for number, name in self.columns.items()}
        self.bearers = {name: [number] for number, name in self.columns.items()}
        self.layouts, self.lsn, self.count, self.fresh = Layouts("walreplay" if announces else None), 0, 4, 0
        self.announce()

    def announce(self):
        self.lsn += 1
        columns = [{"n": number, "name": name, "type": TEXT} for number, name in self.columns.items()]
        values = {"walreplay": 1, "oid": 9, "natts": self.count, "columns": columns}
        self.layouts.take(m.Message(True, self.lsn, "walreplay", json.dumps(values).encode()))

    def call(self, number, name):
        self.columns[number] = name
        self.names.setdefault(number, []).append(name)
        self.bearers.setdefault(name, []).append(number)

    def add(self, name):
        self.count += 1
        self.call(self.count, name)

    def version(self):
        found = relation(" ".join(f"{name}{'*' if name == 'id' else ''}:{TEXT}" for name in self.columns.values()))
        return self.layouts.annotated(found)

    def free(self, at, taken):
        """Return a name that no column has, or had just before: one of before, or a new one."""
        free = [name for name in NAMES if name not in taken]
        if at < len(free):
            return free[at]
        self.fresh += 1
        return f"x{self.fresh}"

    def change(self, kind, one, other):
        """Change the table as one or two statements do between two rows."""
        numbers, before = [number for number in self.columns if number > 1], {*self.columns.values()}
        if kind == "add":
            self.add(self.free(one, before))
        elif numbers:
            first, second = numbers[one % len(numbers)], numbers[other % len(numbers)]
            name = self.columns[first]
            if kind in ("rename", "pass"):
                self.call(first, self.free(other, before))
                if kind == "pass":
                    self.announce()
                    self.add(name)
            elif kind == "swap" and first != second:
                names = self.columns[second], name
                self.call(first, names[0])
                self.call(second, names[1])
            elif kind in ("drop", "replace", "drop and rename"):
                del self.columns[first]
                if kind == "replace":
                    self.add(self.free(other, before))
                elif kind == "drop and rename" and first != second:
                    self.call(second, self.free(one, before))
        self.announce()


def may_be_seen(names, bearers, number, name, key, listed):
    if key == "include_columns":
        # A listed name is meant for what it is now, if no other column had it before.
        first = names[number][0]
        return first in listed or bearers[name][0] == number
    return listed.isdisjoint(names[number])


class Target:
    """The tables, run by run.

    Attributes:
        used: the versions of the next run's rows, with the source's columns then.
        named: all names of the columns, and all columns of the names, when the last of these came.
        written: the columns, with their names then, of which values were written as they are.
    """

    def __init__(self, source, key, listed):
        listed = listed | {"id"} if key == "include_columns" else listed
        outputs = ["mirror", "history", "changelog"]
        table = {key: sorted(listed)}
        self.settings = configured(column_mask_salt="s", outputs=outputs, announcements="walreplay", table=table)
        self.source, self.key, self.listed = source, key, listed
        self.entries, self.before, self.used, self.written = (), (), [], set()

    def row(self):
        version = self.source.version()
        # The names that a run has again are those that it had first: only a run's end tells them apart.
        if version in [one for one, _ in self.used[:-1]] and version != self.used[-1][0]:
            self.run()
        self.used.append((version, dict(self.source.columns)))
        self.named = deepcopy((self.source.names, self.source.bearers))

    def run(self):
        versions, layouts = [version for version, _ in self.used], self.source.layouts.all()
        catalogue = catalogue_of(versions, self.settings, self.entries, self.before, layouts)
        more = {"settings": self.settings, "entries": self.entries, "before": self.before, "layouts": layouts}
        run = run_plan(*versions, **more)
        event("applied, announced" if self.source.announces else "applied")
        if self.source.announces:
            # What earlier runs have written of columns that no table has any more is not there.
            held = {column.known_number for entry in run.entries for column in entry.shape.columns}
            self.written = {(number, name) for number, name in self.written if number in held}
        for version, columns in self.used:
            for assigned in catalogue.versions[version]:
                hidden = {n for n in range(len(columns)) if n not in assigned.selection.columns}
                hidden |= {*assigned.selection.masked}
                self.written |= {item for n, item in enumerate(columns.items()) if n not in hidden}
        leaks = [item for item in self.written if not may_be_seen(*self.named, *item, self.key, self.listed)]
        assert not leaks, (leaks, self.named)
        self.entries, self.before, self.used = run.entries, versions[-1:], []
        # From run to run.
        self.source.layouts = Layouts(self.source.layouts.prefix, layouts, self.before)


@settings(max_examples=examples(400))
@given(
    announces=st.booleans(),
    key=st.sampled_from(["exclude_columns", "column_mask_hash", "include_columns"]),
    listed=st.sets(st.sampled_from(NAMES), min_size=1, max_size=2),
    changes=st.lists(CHANGES, max_size=12),
)
def test_no_value_of_a_hidden_column_is_written_as_it_is_or_the_run_is_refused(announces, key, listed, changes):
    source = Source(announces=announces)
    target = Target(source, key, listed)
    target.row()
    try:
        for kind, one, other in [*changes, ("run", 0, 0)]:
            if kind == "run":
                target.run() if target.used else None
                continue
            if kind != "row":
                source.change(kind, one, other)
            # The next row shows a change.
            target.row()
    except ConfigError:
        event("refused, announced" if announces else "refused")


def test_what_is_announced_and_renamed_once_stops_no_run():
    source, entries, before = Source(announces=True), (), ()
    configuration = configured(table={"exclude_columns": ["a"]}, announcements="walreplay")
    for change in (None, ("rename", 0, 3), ("add", 3, 0), ("rename", 1, 3), ("drop", 0, 0)):
        if change:
            source.change(*change)
        version = source.version()
        run = run_plan(version, settings=configuration, entries=entries, before=before, layouts=source.layouts.all())
        assert 2 not in {column.number for column in run.entries[0].shape.columns}
        entries, before = run.entries, [replace(version)]
