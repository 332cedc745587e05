"""Entry point for spark-submit: the arguments are those of `walreplay verify`."""

import sys

from walreplay.cli import main

if __name__ == "__main__":
    sys.exit(main(["verify", *sys.argv[1:]]))
