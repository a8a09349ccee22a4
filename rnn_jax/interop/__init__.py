"""Models in and out: other programs' files, and files for other programs."""
