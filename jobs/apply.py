"""Entry point for spark-submit: the arguments are those of `walreplay apply`."""

import sys

from walreplay.cli import main

if __name__ == "__main__":
    sys.exit(main(["apply", *sys.argv[1:]]))
