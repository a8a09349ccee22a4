"""How operations of jax become nodes, one file a kind; see translation.py."""
