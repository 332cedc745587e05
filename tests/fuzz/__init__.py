"""Readers of bytes from outside, under a fuzzer that is guided by coverage: ``make fuzz`` (`run`).

Each module has one `target.Target`: it takes any bytes, the first of which chooses options, and fails where a reader
raises what is no error of walreplay's own, takes too long, or reads otherwise than its reference does.  ``corpus``
keeps inputs that reach different lines; ``tests/unit/test_fuzz_corpus.py`` gives each of them to its target.  What a
target has failed at becomes a test of its own, by a name that says what was wrong.
"""
