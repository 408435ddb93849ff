"""Starts the fuzzer: see scripts/fuzz."""

import sys

from fuzzing.main import main

if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
