"""Adapters for Python agent frameworks."""
