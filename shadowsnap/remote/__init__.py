"""Lanes: the timeline of a project, carried to storage that already exists and back."""
