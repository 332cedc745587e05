"""Entry point for spark-submit: the arguments are those of `wal2delta apply`."""

import sys

from wal2delta.cli import main

if __name__ == "__main__":
    sys.exit(main(["apply", *sys.argv[1:]]))
