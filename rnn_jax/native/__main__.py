"""Builds the C++ library ahead of its first use, if this machine can.

python -m rnn_jax.native
"""

from rnn_jax.native import library

print(library.describe())
