"""What a command prints: for people or as JSON, and the same JSON in a file if one is wanted."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from walreplay.console import Output


@dataclass(frozen=True, slots=True)
class Printing:
    """How a command's result is printed.

    Attributes:
        as_json: for programs.
        report: a file that gets it as JSON, whatever is printed: a path, or a URI of a file system that Spark has.
            Under spark-submit and in jobs, what Spark says stands between the lines of standard output.
    """

    as_json: bool = False
    report: str | None = None

    def show(self, values: Mapping[str, Any], write: Callable[[Output], None]) -> None:
        """Print a result.

        Args:
            values: the result for programs.
            write: writes it for people.

        Raises:
            TargetError: the file cannot be written; the result is printed by then.
        """
        output = Output()
        if self.as_json:
            output.json(values, indent=2)
        else:
            write(output)
        if self.report is not None:
            from walreplay.spark.session.text_files import write_text

            write_text(self.report, json.dumps(values, indent=2) + "\n")


__all__ = ["Printing"]
