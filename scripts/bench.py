"""Started by scripts/bench; the program is the package beside this file."""

import signal
import sys

from benchmark import first, growth, hook, log, main, plot, scan, upkeep

signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the scratch directory goes
others = {
    "first": first.main, "growth": growth.main, "hook": hook.main, "log": log.main, "plot": plot.main,
    "scan": scan.main, "upkeep": upkeep.main,
}  # fmt: skip
arguments = sys.argv[1:]
if arguments[:1] == ["remote"]:
    from benchmark import remote  # needs packages that nothing else does

    others["remote"] = remote.main
other = others.get(arguments[0]) if arguments else None
sys.exit(other(arguments[1:]) if other else main.main(arguments))
