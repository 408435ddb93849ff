"""Feeds mutated input to everything that the package parses by hand.

`targets` is the place to begin: each target writes an input where the package reads it, calls the reader and
checks what comes back. `seeds` makes valid inputs with git, `mutations` changes them, `worker` is the process
that runs a target within limits, and `main` starts workers, shrinks what failed and prints the summary.
`planted` has targets that fail on purpose, for the test of the fuzzer itself.
"""
