"""Front doors for agents: hooks and their installer, the /rollback line, a guard for plain functions."""
