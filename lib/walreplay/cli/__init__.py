"""The command line: ``walreplay`` with a command, such as ``apply``, ``backfill``, ``audit`` or ``status``.

`commands` declares the commands, `options` what several of them take, and `running` what all of them do; `by_source`
does them for several sources. `printing` has what is printed, `pages` the same for browsers, `metrics` numbers for
Prometheus; `program` runs a command and reports errors.  Results go to standard output, progress and errors to standard
error.  Exit codes: 0 done, 1 a failed run, 2 a usage or configuration error, 3 an audit or a verify that has found
something, 130 interrupted.

Entry points: `run` of an installed program, `main`.

Uses: archive, config, job, ledger, loading, recording, session.
Used by: __main__.
"""

from walreplay.cli.program import explain, main, run

__all__ = ["explain", "main", "run"]
