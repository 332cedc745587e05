"""Pages: a report as one HTML file that needs nothing else, and has no script.

A page has what the terminal prints, by the same functions (`walreplay.cli.printing`), and pictures of the same report:
SVG that stands in the template, as a rectangle and a text are all that it takes.  So one library escapes whatever a
page holds, jinja2.  Of those for SVG, svg.py and leather escape nothing, drawsvg escapes texts and no attributes, and
pygal puts a script into each chart.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta, timezone
from typing import Any

import walreplay
from walreplay.console import Screen, age, aligned_cells, size
from walreplay.errors import visible
from walreplay.lsn import format_lsn


class Page(Screen):
    """Write a report to a page, in place of a terminal."""

    def __init__(self, title: str) -> None:
        self._title = title
        self._blocks: list[dict[str, Any]] = []

    def line(self, text: str = "", *, style: str = "") -> None:
        """Write a paragraph."""
        if text:
            self._blocks.append({"text": text, "style": style})

    def table(self, headers: Sequence[str], rows: Iterable[Sequence[Any]], *, title: str = "") -> None:
        """Write a table."""
        right, cells = aligned_cells(rows, len(headers))
        self._blocks.append({"title": title, "headers": headers, "right": right, "cells": cells})

    def pictures(self, report: Any) -> None:
        """Draw what pictures show of a report."""
        self._blocks.append({"kind": type(report).__name__, "report": report})

    def html(self) -> str:
        """Return the page."""
        from jinja2 import Environment, PackageLoader, StrictUndefined  # of the extra `html`

        environment = Environment(
            loader=PackageLoader("walreplay", "cli"),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
            finalize=_shown,
        )
        environment.filters |= {"age": age, "lsn": format_lsn, "size": size}
        environment.filters["seconds"] = lambda seconds: age(timedelta(seconds=seconds))
        made = f"walreplay {walreplay.__version__}, {datetime.now(timezone.utc):%Y-%m-%d %H:%M:%S} UTC"
        return environment.get_template("page.html").render(title=self._title, blocks=self._blocks, made=made)


def _shown(value: Any) -> Any:
    """Make a text visible; what is HTML already is of a subclass."""
    return visible(value) if type(value) is str else value
