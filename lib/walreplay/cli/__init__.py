"""The command line: ``walreplay apply | backfill | rebuild | load | maintain | index | audit | inspect | status``.

`commands` declares the commands that write, `questions` those that ask, `options` what they share; `by_source` does
them for several sources.  `results` says what is printed, `program` runs a command and reports errors.  Results go to
standard output, progress and errors to standard error.  Exit codes: 0 done, 1 a failed run, 2 a usage or configuration
error, 3 an audit that has found something, 130 interrupted.

Entry points: `run` of an installed program, `main`.

Uses: archive, config, delta, job, ledger, protocol, session.
Used by: __main__.
"""

from walreplay.cli.program import explain, main, run

__all__ = ["explain", "main", "run"]
