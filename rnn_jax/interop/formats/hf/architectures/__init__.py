"""A file for each architecture; table.py says what it has."""
