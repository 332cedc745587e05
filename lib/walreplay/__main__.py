"""``python -m walreplay``."""

import sys

from walreplay.cli import main

sys.exit(main())
