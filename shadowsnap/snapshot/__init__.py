"""A project's files: scanning, capturing, comparing and restoring them."""
