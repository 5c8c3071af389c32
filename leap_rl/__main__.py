"""``python -m leap_rl`` does what ``leap-rl`` does."""

from __future__ import annotations

import sys

from leap_rl.cli import main

if __name__ == "__main__":
    sys.exit(main())
