"""Labels renamed at random, in runs that end anywhere: all rows have the labels that the source has."""

import json

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from support.extent import examples
from walreplay.decode.announcements import Layouts
from walreplay.evolution.shapes import Evolution, Policy, SourceColumn
from walreplay.fold.change_log import Projection, project_columns
from walreplay.protocol import messages as m
from walreplay.table.versions import labelled
from walreplay.types import resolve
from walreplay.types.base import type_from_dict, type_to_dict
from walreplay.types.composite import with_elements

NAMES = {70: ("shop", "mood"), 71: ("shop", "_mood")}
TEXTS = ["a", "b", "so so", 'q"\\', "NULL", "{}", "f"]
TABLE = m.Relation(9, "shop", "t", "d", tuple(m.Column(name, oid, -1, False) for name, oid in (("m", 70), ("l", 71))))

ACTIONS = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(["row", "late"]), st.integers(0, 5), st.integers(0, 5)),
        st.tuples(st.just("rename"), st.integers(0, 5), st.integers(0, 6)),
        st.tuples(st.just("add"), st.integers(0, 6), st.just(0)),
        st.tuples(st.just("swap"), st.integers(0, 5), st.integers(0, 5)),
        st.tuples(st.just("run"), st.just(0), st.just(0)),
    ),
    max_size=30,
)


def array_of(text):
    return with_elements("{x,NULL,x}", ",", lambda _: text)


class Source:
    """An enum, its announcements, and the rows of a table, by their labels' numbers."""

    def __init__(self):
        self.labels, self.history = {1: "a", 2: "b"}, {1: ["a"], 2: ["b"]}
        self.layouts, self.lsn = Layouts("walreplay"), 0
        self.rows, self.new = [], []
        self.shape, self.columns = None, [pa.array([], pa.string())] * 2
        self.announce()

    def announce(self):
        self.lsn += 1
        values = {"walreplay": 1, "type": 70, "array": 71, "schema": "shop", "name": "mood"}
        values["labels"] = list(self.labels.items())
        self.layouts.take(m.Message(True, self.lsn, "walreplay", json.dumps(values).encode()))

    def rename(self, number, text):
        if text not in self.labels.values():
            self.labels[number] = text
            self.history[number].append(text)
            self.announce()

    def add(self, text):
        if text not in self.labels.values():
            number = len(self.labels) + 1
            self.labels[number], self.history[number] = text, [text]
            self.announce()

    def row(self, number, text):
        self.rows.append(number)
        self.new.append((self.layouts.annotated(TABLE), text))

    def late(self, number, at):
        """Send an old label, if nothing else ever had its text."""
        text = self.history[number][at % len(self.history[number])]
        others = [one for other, texts in self.history.items() if other != number for one in texts]
        if text not in others:
            self.row(number, text)

    def end_run(self):
        versions = []
        for relation, text in self.new:
            if not versions or versions[-1][0] != relation:
                versions.append((relation, []))
            versions[-1][1].append(text)
        evolution = Evolution(self.shape, Policy())
        for relation, _ in versions:
            kinds = [resolve(column.type_oid, -1, NAMES) for column in relation.columns]
            typed = [labelled(*pair, self.layouts, None) for pair in zip(relation.columns, kinds, strict=True)]
            evolution.take(
                [
                    SourceColumn(column.name, column.name, kind, sent=sent)
                    for column, (kind, sent) in zip(relation.columns, typed, strict=True)
                ]
            )
        if not versions:
            return
        parts = [self.columns] if self.shape is None else [self.projected(evolution.of_table(), self.columns)]
        for step, (_, texts) in enumerate(versions):
            sent = [pa.array(texts, pa.string()), pa.array(map(array_of, texts), pa.string())]
            parts.append(self.projected(evolution.of_version(step), sent))
        self.columns = [pa.concat_arrays(part) for part in zip(*parts, strict=True)]
        self.shape, self.new = evolution.shape, []
        # As the ledger keeps it, and the next run reads it.
        kinds = [column.type for column in self.shape.columns]
        assert [type_from_dict(json.loads(json.dumps(type_to_dict(kind)))) for kind in kinds] == kinds
        self.layouts = Layouts("walreplay", self.layouts.all())
        now = [self.labels[number] for number in self.rows]
        assert [column.to_pylist() for column in self.columns] == [now, [array_of(text) for text in now]]

    @staticmethod
    def projected(sources, columns):
        names = [column.name for column in TABLE.columns]
        projection = Projection.of(sources, names, names)
        found, rescued = project_columns(columns, pa.nulls(len(columns[0]), pa.string()), len(columns[0]), projection)
        assert rescued.null_count == len(rescued)
        return found


@settings(max_examples=examples(100), deadline=None)
@given(ACTIONS)
def test_all_rows_have_todays_labels(actions):
    source = Source()
    for what, one, other in actions:
        number = one % len(source.labels) + 1
        if what == "row":
            source.row(number, source.labels[number])
        elif what == "late":
            source.late(number, other)
        elif what == "rename":
            source.rename(number, TEXTS[other])
        elif what == "add":
            source.add(TEXTS[one])
        elif what == "swap":
            partner = other % len(source.labels) + 1
            texts = source.labels[number], source.labels[partner]
            if number != partner:
                for of, text in ((number, "passing"), (partner, texts[0]), (number, texts[1])):
                    source.rename(of, text)
        else:
            source.end_run()
    source.row(1, source.labels[1])
    source.end_run()
