"""Entry point for spark-submit: the arguments are those of `walreplay index`."""

import sys

from walreplay.cli import main

if __name__ == "__main__":
    sys.exit(main(["index", *sys.argv[1:]]))
