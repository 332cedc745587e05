"""SECURITY.md names tests and files that are there, and what it says of code that is run is so."""

from __future__ import annotations

import ast
import re
import tempfile
from pathlib import Path

import pytest

import walreplay
from support.object_store import object_store
from support.pages import ROOT
from walreplay.decode.compile.shared_library import cache_folders
from walreplay.errors import ConfigError, OrderError
from walreplay.recording.server import Stream
from walreplay.recording.store import store_at

PAGE = ROOT / "SECURITY.md"
PACKAGE = Path(walreplay.__file__).parent


def named(text: str) -> tuple[set[str], set[str]]:
    """Return the tests and the files that a page names in its code and links."""
    words = {*re.findall(r"`([^`\s]+)`", text), *re.findall(r"\]\(([^)#\s]+)", text)}
    tests = {word for word in words if word.startswith("test_")}
    files = {word for word in words - tests if re.fullmatch(r"(?:lib|tests|conf|docs|jobs|LICENSES)/[\w./-]+", word)}
    return tests, files


def defined() -> set[str]:
    """Return the names of all tests."""
    return {
        node.name
        for path in (ROOT / "tests").rglob("test_*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
    }


def test_every_test_and_file_that_it_names_is_there() -> None:
    tests, files = named(PAGE.read_text(encoding="utf-8"))
    assert len(tests) > 20
    assert sorted(tests - defined()) == []
    assert len(files) > 3
    assert sorted(file for file in files if not (ROOT / file).exists()) == []


def test_names_of_tests_and_files_are_told_from_other_code() -> None:
    text = "`test_a` [b](docs/b.md#c) `make d` `conf/e.lock`, `test_f`, `captures/*`"
    assert named(text) == ({"test_a", "test_f"}, {"docs/b.md", "conf/e.lock"})


def test_it_is_short() -> None:
    assert len(PAGE.read_text(encoding="utf-8").split()) <= 950


def calls(tree: ast.Module) -> set[str]:
    """Return what a module calls, as it is written."""
    return {ast.unparse(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}


RUNS_CODE = {"eval", "exec", "compile", "__import__", "os.system", "os.popen", "yaml.load", "marshal.loads"}


def test_only_what_workers_return_is_unpickled() -> None:
    unpickles, runs_code = set(), set()
    for path in PACKAGE.rglob("*.py"):
        called, name = calls(ast.parse(path.read_text(encoding="utf-8"))), path.relative_to(PACKAGE).as_posix()
        if {call for call in called if re.search(r"\b(?:pickle|cloudpickle|joblib)\.loads?$|\.read_pickle$", call)}:
            unpickles.add(name)
        if called & RUNS_CODE:
            runs_code.add(name)
    # What a scan's task has returned to the driver: Spark pickles results itself, and trusts its workers as far.
    assert unpickles == {"spark/captures.py"}
    # Names of parameters, when the kernels are compiled ahead.
    assert runs_code == {"kernel_build.py"}


def test_a_folder_of_compiled_code_that_others_can_write_to_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    (shared,) = {*cache_folders()} - {folder for folder in cache_folders() if not folder.is_relative_to(tmp_path)}
    assert shared.stat().st_mode & 0o777 == 0o700
    for mode in (0o770, 0o702):
        shared.chmod(mode)
        assert shared not in cache_folders()
    shared.rmdir()
    shared.symlink_to(tmp_path)
    assert shared not in cache_folders()


@pytest.mark.parametrize(
    "dsn", ["host=db password='hunter2", "postgresql://u:hunter2@[::1", "u:hunter2 x", "passwort=hunter2"]
)
def test_a_connection_string_that_libpq_does_not_take_is_not_shown(dsn: str) -> None:
    pytest.importorskip("psycopg")
    with pytest.raises(ConfigError, match="--dsn cannot be read") as caught:
        Stream(dsn, lambda: False)
    assert "hunter2" not in f"{caught.value}{caught.value.__cause__}"


_KEYS = "a-key:hunter2"


def test_keys_in_the_address_of_an_archive_are_not_shown() -> None:
    store = store_at(f"s3://{_KEYS}@bucket/captures?region=us-east-1&endpoint_override=127.0.0.1:1&scheme=http")
    assert store.shown == "s3://bucket/captures"
    for wrong in (f"nothing://{_KEYS}@bucket/captures", f"s3://{_KEYS}@bucket/captures?nothing=1"):
        with pytest.raises(ConfigError) as caught:
            store_at(wrong)
        assert "hunter2" not in str(caught.value)


def test_a_recorder_reads_lists_and_writes_and_deletes_nothing(tmp_path: Path) -> None:
    with object_store(tmp_path) as server:
        server.make_bucket("archive")
        address = server.endpoint.removeprefix("http://")
        store = store_at(f"s3://{_KEYS}@archive/captures?region=us-east-1&scheme=http&endpoint_override={address}")
        with server.counted() as requests:
            store.put("1", b"x")
            store.put("1", b"x")
            with pytest.raises(OrderError, match="other bytes") as caught:
                store.put("1", b"y")
            assert store.names() == ["1"]
        assert "hunter2" not in str(caught.value)
        assert server.get("archive", "captures/1") == b"x"
    assert {"PUT"} < {request.partition(" ")[0] for request in requests} <= {"GET", "HEAD", "POST", "PUT"}
    # Of the bucket itself nothing but its list is asked for.
    of_bucket = {request.partition("?")[2] for request in requests if "/archive/" not in request}
    assert of_bucket
    assert all("list-type=2" in parameters for parameters in of_bucket)
