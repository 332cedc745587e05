"""Entry point for spark-submit: the arguments are those of `walreplay backfill`."""

import sys

from walreplay.cli import main

if __name__ == "__main__":
    sys.exit(main(["backfill", *sys.argv[1:]]))
