"""Entry point for spark-submit: the arguments are those of `walreplay load`."""

import sys

from walreplay.cli import main

if __name__ == "__main__":
    sys.exit(main(["load", *sys.argv[1:]]))
