"""`shadowsnap ui`: the timeline, its files and diffs on a terminal, with textual (extra `ui`)."""
