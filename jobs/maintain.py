"""Entry point for spark-submit: the arguments are those of `walreplay maintain`."""

import sys

from walreplay.cli import main

if __name__ == "__main__":
    sys.exit(main(["maintain", *sys.argv[1:]]))
