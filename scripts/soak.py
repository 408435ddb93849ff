"""Starts the soak: see scripts/soak."""

import sys

from soaking.main import main

if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
