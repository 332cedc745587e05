"""``python -m wal2delta``."""

import sys

from wal2delta.cli import main

sys.exit(main())
