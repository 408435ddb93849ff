"""Adapters for Python agent frameworks, and a decorator for plain functions."""
