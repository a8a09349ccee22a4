"""Parts as a user keeps them outside of the package: a file each."""
