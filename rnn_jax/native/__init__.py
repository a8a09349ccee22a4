"""Recurrences in C++ for a CPU, an optional part: see library.py."""
