"""`--html FILE`: a report as a page: whole, safe with any name, and readable in a browser."""

from __future__ import annotations

import html
import json
import re
import sys
import types
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

import walreplay
from support.sample_reports import CHROMIUM, HOSTILE, NAMES, PAGES, browse, page, target_status
from walreplay.cli import main
from walreplay.cli.pages import Page
from walreplay.console import Screen
from walreplay.errors import visible
from walreplay.report import SourceReport, SourcesReport

ALL_NAMES = (*HOSTILE, *NAMES)


class Read(HTMLParser):
    """What a page has: its tags, and the texts of its cells and pictures."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags, self.texts, self._inner = set[str](), set[str](), ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert not any(name.startswith("on") or name in ("src", "href") for name, _ in attrs)
        self.tags.add(tag)
        self._inner = tag

    def handle_data(self, data: str) -> None:
        self.texts |= {data} if self._inner in ("td", "text", "title") else set()


@pytest.mark.parametrize("name", PAGES)
def test_names_are_texts_on_a_page_that_needs_nothing_else(name: str) -> None:
    text = page(name, ALL_NAMES)
    read = Read(text)
    assert read.tags >= {"table", "svg", "title"}
    assert not read.tags & {"script", "link", "img", "iframe", "object"}
    assert "default-src 'none'" in text
    assert not re.search(r"url\(|@import|https?:", text)
    for table in ALL_NAMES:
        assert visible(table) in read.texts
    assert all(char.isprintable() or char == "\n" for char in text)


@pytest.mark.parametrize("name", PAGES)
def test_the_terminal_prints_what_the_page_has(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    make, write, _ = PAGES[name]
    write(Screen(), make())
    printed = capsys.readouterr().out
    assert [text for text in Read(page(name)).texts if text in NAMES] != []
    assert all(table in printed for table in NAMES)
    assert "svg" not in printed


def test_an_archive_of_many_files_has_a_small_page() -> None:
    assert len(page("audit", NAMES, 20_000)) < 500_000


NOTHING = {
    "status": {"runs": (), "tables": (), "open_transactions": (), "applied_lsn": None},
    "audit": {"spans": (), "coverage": (), "tables": (), "problems": (), "holes": (), "torn": (), "open": ()},
    "verify": {"tables": ()},
}


@pytest.mark.parametrize("name", PAGES)
def test_what_has_nothing_has_a_page(name: str) -> None:
    make, write, title = PAGES[name]
    empty = Page(title)
    write(empty, replace(make(), **NOTHING[name]))
    assert f"<h1>{title}</h1>" in empty.html()
    assert "<svg" not in empty.html()


MEASURE = """<!DOCTYPE html><title></title>
<iframe style="width:{width}px;height:900px" srcdoc="{page}"></iframe>
<script>
onload = () => {{
  const page = document.querySelector("iframe").contentDocument, root = page.documentElement;
  const view = page.defaultView, scrolls = box => view.getComputedStyle(box).overflowX == "auto";
  const boxes = [...page.querySelectorAll(".box")].filter(box => box.scrollWidth > box.clientWidth);
  document.title = JSON.stringify({{
    over: root.scrollWidth - root.clientWidth, width: root.clientWidth, scripts: page.scripts.length,
    scrolled: boxes.filter(scrolls).length,
    cut: [...page.querySelectorAll("svg")].filter(svg => svg.getBoundingClientRect().right > root.clientWidth).length,
    text: page.body.innerText, paper: view.getComputedStyle(page.body).backgroundColor}});
}}
</script>"""


def measured(folder: Path, text: str, width: int, *options: str) -> dict[str, Any]:
    """Open a page in a browser as wide as a phone, say; nothing may be said in its console."""
    file = folder / "measure.html"
    file.write_text(MEASURE.format(width=width, page=html.escape(text)), encoding="utf-8")
    shown = browse(file, "--dump-dom", *options)
    assert "CONSOLE" not in shown.stderr
    title = re.search(r"<title>(.*?)</title>", shown.stdout, re.DOTALL)
    assert title is not None
    found: dict[str, Any] = json.loads(html.unescape(title[1]))
    return found


@pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium")
@pytest.mark.parametrize("name", PAGES)
def test_a_browser_shows_a_page_that_fits_its_window(name: str, tmp_path: Path) -> None:
    text = page(name, ALL_NAMES)
    phone = measured(tmp_path, text, 390)
    assert (phone["width"], phone["over"], phone["cut"], phone["scripts"]) == (390, 0, 0, 0)
    assert phone["scrolled"] > 0  # a wide table, in its own box
    assert "<script>alert(1)</script>" in phone["text"]
    dark = measured(tmp_path, text, 1200, "--blink-settings=preferredColorScheme=0")
    assert (dark["over"], dark["cut"]) == (0, 0)
    assert dark["paper"] != phone["paper"]
    broken = measured(tmp_path, text.replace(".box {", ".none {"), 390)
    assert broken["over"] > 0  # what is measured is seen


@pytest.fixture
def session(monkeypatch: pytest.MonkeyPatch) -> None:
    module = types.ModuleType("walreplay.session.session")
    module.build_session = lambda progress: "spark"  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "walreplay.session.session", module)
    for name, (make, _, _) in PAGES.items():
        monkeypatch.setitem(vars(walreplay), name, lambda *_, make=make, **__: make())


@pytest.mark.parametrize(("name", "code"), [("status", 0), ("audit", 3), ("verify", 3)])
def test_a_command_writes_its_page_and_prints_the_same_as_without(
    session: None, name: str, code: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = [name, *{"audit": ["--captures", "in"]}.get(name, ["--target", "out"])]
    assert main(command) == code
    printed = capsys.readouterr().out
    place = tmp_path / "made for it" / "page.html"
    assert main([*command, "--html", str(place)]) == code
    assert capsys.readouterr().out == printed
    assert without_time(place.read_text(encoding="utf-8")) == without_time(page(name))


def test_each_source_has_its_pictures_behind_its_name(
    session: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    reports = [SourceReport(name, result, None, 1.0) for name, result in (("<a>", target_status()), ("b", None))]
    monkeypatch.setitem(vars(walreplay), "sources_status", lambda *_, **__: SourcesReport(tuple(reports)))
    given = ["--target", "out", "--source", "a", "--source", "b", "--html", str(tmp_path / "page.html")]
    assert main(["status", *given]) == 0
    text = (tmp_path / "page.html").read_text(encoding="utf-8")
    places = [text.index(part) for part in ("<h2>source &lt;a&gt;</h2>", "<svg", "<h2>source b</h2>", "nothing was")]
    assert places == sorted(places)


def without_time(text: str) -> str:
    return re.sub(r"<footer>.*</footer>", "", text)


def test_without_its_packages_a_page_is_refused_before_anything_is_done(
    session: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("walreplay.cli.printing.find_spec", lambda _: None)
    assert main(["status", "--target", "out", "--html", str(tmp_path / "a.html")]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert "--html needs jinja2, which is not installed" in printed.err
    assert "pip install 'walreplay[html]'" in printed.err
