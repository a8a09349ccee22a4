"""Hides PyTorch, which `make test-peers` installs and users may not have."""

raise ImportError('tests start commands as where PyTorch is not installed')
