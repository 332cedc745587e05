from pathlib import Path

import pytest

from support.type_table import BEGIN, END, delta_name, describe, documented_types, main, renewed
from walreplay.types import resolve
from walreplay.types.builtin import BUILTIN_TYPES

PAGE = Path(__file__).parents[3] / "docs" / "types.md"


def test_the_documentation_says_what_the_registry_does():
    page = PAGE.read_text(encoding="utf-8")
    assert page == renewed(page), "run PYTHONPATH=tests python -m support.type_table docs/types.md"


def test_every_built_in_type_is_in_the_table_once():
    assert sorted(documented_types()) == sorted(built.name for built in BUILTIN_TYPES.values() if not built.element)


def test_the_types_of_one_row_become_the_same():
    by_title = {row.postgres: row.delta for row in describe()}
    for oid, builtin in BUILTIN_TYPES.items():
        if builtin.element or builtin.name == "numeric":
            continue
        found = [delta for title, delta in by_title.items() if builtin.sql_name in title.split(", ")]
        assert found == [delta_name(resolve(oid, -1, {}).arrow)], builtin.sql_name


def test_a_page_is_written_anew_between_its_marks_alone(tmp_path):
    page = tmp_path / "types.md"
    page.write_text(f"# é before\n{BEGIN}\nold\n{END}\nafter\n", encoding="utf-8")
    main([str(page)])
    text = page.read_text(encoding="utf-8")
    assert text.startswith(f"# é before\n{BEGIN}\n| PostgreSQL |")
    assert text.endswith(f"|\n{END}\nafter\n")
    assert "old" not in text


@pytest.mark.parametrize("page", ["", BEGIN, END, END + BEGIN, BEGIN + END + END])
def test_a_page_without_the_marks_is_refused(page):
    with pytest.raises(ValueError, match="marks"):
        renewed(page)
