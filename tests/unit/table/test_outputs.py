"""An output of a relation is planned like a relation of its own."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from support.pages import ROOT
from support.planned import Used, catalogue_of, configured, relation, run_plan
from walreplay.config.selection import metadata_of
from walreplay.errors import ConfigError
from walreplay.evolution.comments import metadata_comments, table_comment
from walreplay.fold.events import Mode
from walreplay.ledger.state import from_json, to_json
from walreplay.names import Output, RowKind, output_of, source_oid
from walreplay.table.placement import BEGINS, GOES_ON
from walreplay.table.registry import OFF, MirrorEntry
from walreplay.table.table_run import own_columns, table_schema

BOTH = ["mirror", "changelog"]
LOG = Output.CHANGELOG.oid_of(9)


def entries_of(*relations, **values):
    return run_plan(*relations, settings=configured(**values)).entries


def test_an_oid_tells_its_source_and_its_output():
    assert [Output.MIRROR.oid_of(9), source_oid(LOG), output_of(LOG)] == [9, 9, Output.CHANGELOG]
    assert LOG < 1 << 63
    assert [output_of(output.oid_of((1 << 32) - 1)) for output in Output] == list(Output)


def test_each_output_has_a_table_a_name_and_an_entry_of_its_own():
    plan = run_plan(relation("id* note", "f"), settings=configured(outputs=BOTH, table={"keys": ["id"]}))
    found = {table.oid: table for table in plan.tables}
    assert found.keys() == {9, LOG}
    assert [found[oid].name for oid in (9, LOG)] == ["s.t", "s.t (changelog)"]
    assert [found[oid].table.path for oid in (9, LOG)] == ["/mirror/s/t", "/mirror/s/t__changes"]
    assert [found[oid].epochs[-1].identity.mode for oid in (9, LOG)] == [Mode.KEYED, Mode.APPEND]
    assert plan.changes == 1
    assert {from_json(MirrorEntry, to_json(entry)) for entry in plan.entries} == set(plan.entries)


def test_what_tells_rows_apart_may_change_as_it_likes_in_a_change_log():
    used = [relation("id* note"), relation("id* note", "f"), relation("id note", "n"), relation("id note*", "i")]
    plan = run_plan(*used, settings=configured(outputs=BOTH))
    mirror, log = sorted(plan.tables, key=lambda table: table.oid)
    assert len(mirror.epochs) > 1
    assert len(log.epochs) == 1


def test_a_truncate_empties_the_mirror_alone():
    plan = run_plan(relation("id*"), settings=configured(outputs=BOTH), truncated=[9])
    assert {table.oid: table.truncated for table in plan.tables} == {9: True, LOG: False}


def test_both_tables_of_a_renamed_relation_move():
    before = entries_of(relation("id*"), outputs=BOTH)
    plan = run_plan(relation("id*", name="u"), settings=configured(outputs=BOTH), entries=before)
    moved = {(move.source.path, move.destination.path) for move in plan.placement.moves}
    assert moved == {("/mirror/s/t", "/mirror/s/u"), ("/mirror/s/t__changes", "/mirror/s/u__changes")}


def test_both_tables_of_a_relation_that_is_made_anew_are_set_aside():
    before = entries_of(relation("id*"), outputs=BOTH)
    plan = run_plan(relation("id*", oid=10), settings=configured(outputs=BOTH), entries=before)
    assert {entry.oid for entry in plan.entries if entry.set_aside} == {9, LOG}
    kept = configured(outputs=BOTH, on_recreate="keep")
    plan = run_plan(relation("id*", oid=10), settings=kept, entries=before)
    assert {entry.oid for entry in plan.entries} == {10, Output.CHANGELOG.oid_of(10)}


@pytest.mark.parametrize("outputs", [BOTH, ["changelog"]], ids=str)
def test_a_table_that_would_take_the_place_of_a_change_log_is_named(outputs):
    used = [relation("id*"), relation("id*", oid=10, name="t__changes")]
    settings = configured(outputs=outputs, table_include_list=[".*"])
    if outputs == BOTH:
        with pytest.raises(ConfigError, match=r"s\.t \(changelog\) and s\.t__changes have the same destination"):
            run_plan(*used, settings=settings)
    else:
        assert len(run_plan(*used, settings=settings).tables) == 2


def test_what_is_switched_on_later_says_that_it_begins():
    before = entries_of(relation("id*"))
    plan = run_plan(relation("id*"), settings=configured(outputs=BOTH), entries=before)
    assert {table.oid: BEGINS in table.notes for table in plan.tables} == {9: False, LOG: True}


def test_what_has_missed_changes_says_so_when_it_goes_on_and_only_then():
    both, alone = configured(outputs=BOTH), configured()
    entries = entries_of(relation("id*"), outputs=BOTH)
    idle = run_plan(relation("id*", oid=11, name="other"), settings=alone, entries=entries).entries
    assert not any(entry.paused for entry in idle)
    off = run_plan(relation("id*"), settings=alone, entries=idle)
    (mirror,) = off.tables
    assert any("changelog is switched off" in note for note in mirror.notes)
    assert {entry.oid: entry.paused for entry in off.entries if entry.oid in (9, LOG)} == {9: "", LOG: OFF}
    on = run_plan(relation("id*"), settings=both, entries=off.entries)
    assert {table.oid: GOES_ON in table.notes for table in on.tables} == {9: False, LOG: True}
    assert not any(entry.paused for entry in on.entries)
    again = run_plan(relation("id*"), settings=both, entries=on.entries)
    assert not any(GOES_ON in table.notes for table in again.tables)


@pytest.mark.parametrize(("paused", "meanwhile"), [("mirror", "changelog"), ("history", "mirror")])
def test_a_mirror_or_a_history_that_has_missed_changes_is_refused(paused, meanwhile):
    both = [paused, meanwhile]
    off = run_plan(
        relation("id*"), settings=configured(outputs=[meanwhile]), entries=entries_of(relation("id*"), outputs=both)
    )
    with pytest.raises(ConfigError, match=f"the {paused} is switched on again, but lacks what has changed"):
        run_plan(relation("id*"), settings=configured(outputs=both), entries=off.entries)


def test_a_version_without_columns_has_no_change_log_and_that_is_said():
    catalogue = catalogue_of([relation("")], configured(outputs=BOTH))
    (versions,) = catalogue.versions.values()
    assert [version.output for version in versions] == [Output.MIRROR]
    assert any("no columns" in text for text in catalogue.warnings)


def test_names_of_a_change_log_keep_its_own_columns_free_and_the_mirrors_stay():
    given = relation("id* __op __commit_lsn")
    (versions,) = catalogue_of([given], configured(outputs=BOTH)).versions.values()
    assert {version.output: version.names for version in versions} == {
        Output.MIRROR: ("id", "__op", "__commit_lsn__2"),
        Output.CHANGELOG: ("id", "__op__2", "__commit_lsn__2"),
    }


def test_a_change_log_has_the_commit_even_where_mirrors_leave_it_out():
    settings = configured(outputs=BOTH, commit_lsn_column=None, commit_ts_column=None)
    (versions,) = catalogue_of([relation("id*")], settings).versions.values()
    metadata = {version.output: version.selection.metadata for version in versions}
    assert metadata[Output.MIRROR].commit_lsn is None
    assert (metadata[Output.CHANGELOG].commit_lsn, metadata[Output.CHANGELOG].commit_ts) == (
        "__commit_lsn",
        "__commit_ts",
    )


def test_rows_are_counted_once_whatever_tables_they_go_to():
    used = [Used(relation("id*"), rows=3), Used(relation("id*", oid=10, name="u"), rows=2)]
    assert run_plan(*used, settings=configured(outputs=BOTH)).changes == 5
    assert run_plan(*used, settings=configured(outputs=["changelog"])).changes == 5


@pytest.mark.parametrize("output", Output)
def test_every_output_is_complete(output):
    settings = configured(outputs=[output.value])
    ((version,),) = catalogue_of([relation("id* note")], settings).versions.values()
    metadata = version.selection.metadata
    assert version.output is output_of(version.oid) is output
    plan = run_plan(relation("id* note"), settings=settings)
    (table,), (entry,) = plan.tables, plan.entries
    assert entry.source_name == "s.t"
    assert table.table.path == "/mirror/s/" + output.table.replace("{table}", "t")
    # Each of its own columns is made, and has a comment.
    shape = table.epochs[-1].shape
    assert sorted(table_schema(shape, metadata).names) == sorted(["id", "note", *metadata.names])
    own = own_columns(metadata, shape)
    assert metadata_comments(output.rows).keys() >= {source for _, source in (*own.first, *own.last)}
    assert output.comment in table_comment(relation("id"), output)


@pytest.mark.parametrize("output", Output)
def test_what_an_output_that_is_not_whole_has_is_as_it_was_sent(output):
    told = relation("id* note")
    given = replace(told, columns=(told.columns[0], replace(told.columns[1], missing="x", rewritten=9)))
    ((version,),) = catalogue_of([given], configured(outputs=[output.value])).versions.values()
    assert [(one.missing, one.rewritten) for one in version.columns] == [
        (None, 0),
        ("x", 9) if output.is_whole else (None, 0),
    ]


@pytest.mark.parametrize("output", Output)
def test_only_mirrors_can_do_without_commits_or_say_who_wrote_a_row_last(output):
    is_mirror = output.rows is RowKind.CURRENT
    without = metadata_of(configured(commit_lsn_column=None, commit_ts_column=None), output)
    assert any("lsn" in name for name in without.names) is not is_mirror
    is_alike = metadata_comments(output.rows)["lsn"] == metadata_comments(RowKind.CURRENT)["lsn"]
    assert is_alike or output.rows is RowKind.CHANGE


def test_each_kind_of_row_has_columns_of_its_own():
    assert len({metadata_of(configured(), output).names for output in Output}) == len(RowKind)


def test_what_tells_outputs_apart_is_of_one_alone():
    for name in ("number", "label", "comment", "table"):
        assert len({getattr(output, name) for output in Output}) == len(Output)
    assert {output.rows for output in Output} == set(RowKind)


@pytest.mark.parametrize("output", Output)
def test_every_output_is_documented(output):
    pages = [page.read_text(encoding="utf-8") for page in (ROOT / "docs").glob("*.md")]
    assert any(re.search(rf"outputs: .*\b{output.value}\b", page) for page in pages)
