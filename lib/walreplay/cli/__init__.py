"""The command line: ``walreplay apply | inspect | status``.

Exit codes: 0 done, 1 a failed run, 2 a usage or configuration error, 130 interrupted.  Results go to standard
output, progress and errors to standard error.

`commands` declares what can be given, `results` says what is printed, `program` runs it and tells errors.
"""

from walreplay.cli.program import explain, main

__all__ = ["explain", "main"]
