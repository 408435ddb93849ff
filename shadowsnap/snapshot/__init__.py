"""Taking a snapshot: scan the project, capture its files, compare states, and decide what a tool call may
change."""
