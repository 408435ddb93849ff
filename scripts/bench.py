"""Started by scripts/bench; the program is the package beside this file."""

import sys

from benchmark import main, upkeep

arguments = sys.argv[1:]
sys.exit(upkeep.main(arguments[1:]) if arguments[:1] == ["upkeep"] else main.main(arguments))
