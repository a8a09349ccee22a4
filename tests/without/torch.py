"""Stands before PyTorch, which tests have and users need not have."""

raise ImportError('tests start commands as where PyTorch is not installed')
