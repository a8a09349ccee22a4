"""Commands, one file each: `python -m launch.NAME`, or `rnn-jax NAME`.

This file makes the folder a package: one of the same name elsewhere on
Python's path, as in the user's own folder, can't take its place.
"""
