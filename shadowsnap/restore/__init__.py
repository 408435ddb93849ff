"""Restoring files: planning, applying, undoing, reverting."""
