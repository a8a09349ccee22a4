"""Recurrences in C++ for a CPU, optional: see library.py."""
