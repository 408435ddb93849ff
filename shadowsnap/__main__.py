"""Where the program starts: `shadowsnap`, `python -m shadowsnap`, and the launcher that agents run.

A hook goes its own way from here, because agents wait for it before every tool: the command line takes longer to
import than a hook needs.
"""

import sys


def main() -> int:
    words = sys.argv[1:]
    if words[:1] == ["hook"] and not {"-h", "--help"} & set(words):
        from shadowsnap.hook.client import main as hook

        return hook(words[1:])

    try:
        from shadowsnap.cli.main import main as command_line

        return command_line(words)
    except KeyboardInterrupt:  # while modules were imported: nothing was begun
        print("error: interrupted; nothing was left half done", file=sys.stderr)
        return 130


if __name__ == "__main__":
    raise SystemExit(main())
