"""Entry point for spark-submit: the arguments are those of `walreplay audit`."""

import sys

from walreplay.cli import main

if __name__ == "__main__":
    sys.exit(main(["audit", *sys.argv[1:]]))
