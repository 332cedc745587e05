"""Entry point for spark-submit: the arguments are those of `walreplay rebuild`."""

import sys

from walreplay.cli import main

if __name__ == "__main__":
    sys.exit(main(["rebuild", *sys.argv[1:]]))
