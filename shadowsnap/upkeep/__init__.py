"""The store over time: limits, reclaiming space, repairs, deleting for good, and imports from other tools."""
