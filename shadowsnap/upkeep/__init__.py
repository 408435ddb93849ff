"""The store over time: limits, reclaiming space, healing, older layouts."""
