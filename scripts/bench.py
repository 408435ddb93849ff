"""Started by scripts/bench; the program is the package beside this file."""

import signal
import sys

from benchmark import main, upkeep

signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the scratch directory goes
arguments = sys.argv[1:]
sys.exit(upkeep.main(arguments[1:]) if arguments[:1] == ["upkeep"] else main.main(arguments))
