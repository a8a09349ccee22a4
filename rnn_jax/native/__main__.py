"""Builds the C++ library ahead of its first use, if it can be built here.

python -m rnn_jax.native
"""

from rnn_jax.native import library

print(library.describe())
