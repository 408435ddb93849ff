"""Started by scripts/bench; the program is the package beside this file."""

import sys

from benchmark.main import main

sys.exit(main(sys.argv[1:]))
