"""Imports point one way, and the core loads where there is no Spark."""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import walreplay
from support.architecture import circle, climbs, imports, long_modules, wrong_neighbours
from support.command import run_without

PACKAGE = Path(walreplay.__file__).parent
JOBS = Path(__file__).parents[2] / "jobs"

LAYERS = (
    ("errors",),
    ("progress",),
    ("lsn",),
    ("recorded_names",),
    ("report", "listing", "scripts"),
    ("recording",),
    ("protocol",),
    ("types",),
    ("names", "task_settings"),
    ("config",),
    ("decode",),
    ("stream",),
    ("changes", "loading", "session"),
    ("evolution",),
    ("fold",),
    ("delta",),
    ("spark",),
    ("table",),
    ("writing",),
    ("ledger",),
    ("archive",),
    ("job",),
    ("console",),
    ("cli", "kernel_build"),
    ("__main__",),
)
"""From the bottom up: a module imports from its own package and from layers below."""

FLOORS = {
    "decode": (
        ("announcements", "compile", "partitions", "proof"),
        ("kernels",),
        ("placing",),
        ("change_batch", "columns", "walk"),
        ("gathered", "masking", "summary", "walk_state"),
        ("stream",),
        ("decoder", "scan"),
        ("sessions",),
        ("files",),
        ("onepass",),
    ),
}
"""The same inside of a room that is too large to be understood at once."""

WITH_SPARK = {"session", "delta", "spark", "table", "writing", "ledger", "archive", "job"}

MOST_LINES = 900

RANK = {name: rank for rank, layer in enumerate(LAYERS) for name in layer}

MODULES = sorted(path for path in PACKAGE.rglob("*.py") if path != PACKAGE / "__init__.py")


def room(path: Path) -> str:
    """Name the module or package directly under walreplay that a file belongs to."""
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def test_every_module_has_its_layer():
    assert {room(path) for path in MODULES} <= set(RANK)


@pytest.mark.parametrize("inner", FLOORS, ids=str)
def test_every_part_of_a_room_has_its_floor(inner):
    there = {path.name.removesuffix(".py") for path in (PACKAGE / inner).iterdir() if (path / "__init__.py").exists()}
    there |= {path.stem for path in (PACKAGE / inner).glob("*.py")} - {"__init__"}
    assert there == {name for floor in FLOORS[inner] for name in floor}


@pytest.mark.parametrize("inner", ["", *FLOORS], ids=str)
def test_imports_point_one_way(inner):
    found = climbs(PACKAGE, inner, FLOORS.get(inner, LAYERS))
    assert not found, "imports that do not point to a lower floor:\n" + "\n".join(found)


def test_no_modules_import_each_other():
    found = circle(PACKAGE)
    assert not found, "modules that import each other: " + " -> ".join(found)


def test_modules_are_short():
    found = long_modules(PACKAGE, MOST_LINES)
    assert not found, f"modules of more than {MOST_LINES} lines: {found}"


def test_every_room_names_its_neighbours():
    wrong = wrong_neighbours(PACKAGE)
    assert not wrong, "\n\n".join(wrong)


@pytest.fixture
def house(tmp_path):
    """A package of two floors, as it should be."""
    package = tmp_path / "house"
    cellar = '"""Keep wine.\n\nUses: nothing.\nUsed by: roof.\n"""\n'
    roof = '"""Keep rain out.\n\nUses: cellar.\nUsed by: nothing.\n"""\nfrom house.cellar import wine\n'
    for room, text in (("cellar", cellar), ("roof", roof)):
        (package / room).mkdir(parents=True)
        (package / room / "__init__.py").write_text(text)
    (package / "__init__.py").write_text("")
    (package / "cellar" / "wine.py").write_text("red = 1\n")
    (package / "cellar" / "shelf.py").write_text("from house.cellar.wine import red\n")
    return package


def faults(package):
    floors = (("cellar",), ("roof",), ("bell",))
    return climbs(package, "", floors), circle(package), long_modules(package, 7), wrong_neighbours(package)


def test_a_house_that_is_as_it_should_be_has_no_faults(house):
    assert faults(house) == ([], [], {}, [])


@pytest.mark.parametrize("text", ["import house.roof\n", "def f():\n    from house.roof import wine\n"])
def test_an_import_that_goes_up_is_found(house, text):
    (house / "cellar" / "wine.py").write_text(text)
    assert faults(house)[0] == ["house.cellar.wine -> house.roof"]


def test_a_circle_is_found(house):
    (house / "cellar" / "wine.py").write_text("if 0:\n    from house.cellar.shelf import red\n")
    assert set(faults(house)[1]) == {"house.cellar.wine", "house.cellar.shelf"}


def test_a_module_that_has_grown_is_found(house):
    (house / "cellar" / "wine.py").write_text("\n" * 8)
    assert faults(house)[2] == {"house.cellar.wine": 8}


@pytest.mark.parametrize("said", ["nothing", "cellar, roof", "wine"])
def test_a_neighbour_that_is_not_named_or_is_none_is_found(house, said):
    page = house / "roof" / "__init__.py"
    page.write_text(page.read_text().replace("Uses: cellar", f"Uses: {said}"))
    assert faults(house)[3] == ["in the docstring of house.roof put:\nUses: cellar.\nUsed by: nothing."]


def test_rooms_inside_of_rooms_and_single_modules_are_neighbours(house):
    shelf = house / "cellar" / "shelf"
    (house / "cellar" / "shelf.py").unlink()
    shelf.mkdir()
    (shelf / "__init__.py").write_text("from house.cellar.wine import red\n")
    (house / "bell.py").write_text("import house.cellar.shelf\n")
    (house / "roof" / "__init__.py").write_text("import house.bell, house.cellar.shelf\n")
    assert faults(house)[3] == [
        "in the docstring of house.cellar put:\nUses: nothing.\nUsed by: bell, roof.",
        "in the docstring of house.cellar.shelf put:\nUses: cellar.\nUsed by: bell, roof.",
        "in the docstring of house.roof put:\nUses: cellar.\nUsed by: nothing.",
    ]


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_spark_is_imported_in_its_rooms_alone(path):
    foreign = {name.split(".")[0] for name in imports(path)} & {"pyspark", "delta", "py4j"}
    assert not foreign or room(path) in WITH_SPARK


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_deltas_private_classes_are_called_nowhere(path):
    # The catalog's class is a setting that Delta's own documentation names.
    text = path.read_text(encoding="utf-8").replace("org.apache.spark.sql.delta.catalog.DeltaCatalog", "")
    assert not any(name in text for name in ("spark.sql.delta", "sql.classic", "SQLMetrics", "OptimisticTransaction"))


def test_the_protocol_needs_nothing_but_the_standard_library():
    allowed = {*sys.stdlib_module_names, "walreplay"}
    for path in MODULES:
        if room(path) == "protocol":
            assert {name.split(".")[0] for name in imports(path)} <= allowed, path.name
    done = run_without("numpy pyarrow numba lz4 zstandard", "import walreplay.protocol.reader")
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    "program",
    [
        "import walreplay",
        "from walreplay import ChangeBatch, RunReport, Settings, WalReplayError, read_changes",
        "from walreplay.cli import main; assert main(['--version']) == 0",
    ],
)
def test_the_core_loads_without_spark(program):
    done = run_without("pyspark delta py4j", program)
    assert done.returncode == 0, done.stderr


def test_workers_load_what_tasks_need_alone():
    """A new worker waits for its imports before its first task."""
    driver = "pydantic yaml typer rich walreplay.config walreplay.spark.staging walreplay.stream.stitch"
    done = run_without(driver, "import walreplay.spark.workers.write")
    assert done.returncode == 0, done.stderr


def test_executors_need_no_package_of_the_drivers():
    workers = sorted((PACKAGE / "spark" / "workers").glob("*.py"))
    program = "; ".join(f"import walreplay.spark.workers.{path.stem}" for path in workers if path.stem[0] != "_")
    done = run_without("pydantic yaml typer rich delta walreplay.config", program)
    assert done.returncode == 0, done.stderr


def test_importing_the_package_loads_nothing_else():
    done = run_without("numpy pyarrow numba pydantic yaml typer rich", "import walreplay; assert walreplay.__version__")
    assert done.returncode == 0, done.stderr


def test_the_public_names_are_listed_and_others_are_not_there():
    assert set(walreplay.__all__) <= set(dir(walreplay))
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = walreplay.nothing


CONSOLE = PACKAGE / "console.py"

WRITES = {
    **dict.fromkeys(("print", "input", "help", "breakpoint"), "built in"),
    **dict.fromkeys(("sys.stdout", "sys.stderr", "sys.__stdout__", "sys.__stderr__", "sys.displayhook"), "a stream"),
    **dict.fromkeys(("os.write", "os.dup2", "os.writev", "os.fdopen", "os.system", "pprint.pprint"), "writes"),
    **{
        f"traceback.{name}": "prints"
        for name in ("print_exc", "print_exception", "print_last", "print_stack", "print_tb")
    },
    **{f"typer.{name}": "prints" for name in ("echo", "secho", "prompt", "confirm", "progressbar", "echo_via_pager")},
    **{
        f"logging.{name}": "has a stream" for name in ("basicConfig", "StreamHandler", "lastResort", "warning", "error")
    },
    **dict.fromkeys(("warnings.warn", "warnings.showwarning", "sys.exit"), "prints"),
}
"""What writes to a terminal, or prints what it is given."""

MAY_EXIT = "sys.exit(main("
"""With a number alone: a text would be printed."""


def writes(source: str) -> Iterator[str]:
    """Name what in a module writes to a terminal, however it was imported."""
    tree = ast.parse(source)
    names = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                whole, first = alias.name, alias.name.split(".")[0]
                names[alias.asname or first] = whole if alias.asname else first
            yield from (alias.name for alias in node.names if alias.name.split(".")[0] in ("rich", "click", "curses"))
        elif isinstance(node, ast.ImportFrom):
            names |= {alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names}
            if (node.module or "").split(".")[0] in ("rich", "click", "curses"):
                yield str(node.module)
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    allowed = {id(node.func) for node in calls if ast.unparse(node).startswith(MAY_EXIT)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            found = names.get(node.id, node.id)
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            found = f"{names.get(node.value.id, node.value.id)}.{node.attr}"
        else:
            continue
        if found in WRITES and id(node) not in allowed:
            yield found


@pytest.mark.parametrize(
    "path",
    [path for path in (*MODULES, *sorted(JOBS.glob("*.py"))) if path != CONSOLE],
    ids=lambda path: path.name,
)
def test_nothing_but_the_console_writes_to_a_terminal(path):
    """What is printed has to be escaped, and only one place has to see to it."""
    assert not list(writes(path.read_text(encoding="utf-8")))


@pytest.mark.parametrize(
    "source",
    [
        "print('x')",
        "import sys\nsys.stderr.write('x')",
        "from sys import stderr as e\ne.write('x')",
        "import sys as s\nstream = s.stdout",
        "from rich.console import Console",
        "import rich",
        "import traceback\ntraceback.print_exc()",
        "from traceback import print_exc\nprint_exc()",
        "import typer\ntyper.echo('x')",
        "import logging\nlogging.basicConfig()",
        "import warnings\nwarnings.warn('x')",
        "import sys\nsys.exit('x')",
        "import os\nos.write(2, b'x')",
    ],
)
def test_whoever_writes_to_a_terminal_is_found(source):
    assert list(writes(source))
