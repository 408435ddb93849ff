"""`python -m shadowsnap` is the command line."""

from shadowsnap.cli.main import main

if __name__ == "__main__":
    raise SystemExit(main())
