"""The evidence for every speed claim: the same work done by shadowsnap, by git and by cp, side by side."""
