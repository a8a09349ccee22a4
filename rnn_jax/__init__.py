"""rnn_jax: train and serve recurrent sequence models in JAX."""

__version__ = '0.2.0'
