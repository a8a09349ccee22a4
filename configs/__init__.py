"""Configs, one file each: `--config=NAME`."""
