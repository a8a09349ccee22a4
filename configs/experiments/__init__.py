"""Grids of experiments, one file each: `--grid=NAME`."""
