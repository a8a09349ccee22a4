"""Imported once, for processes of launchers that fork from it.

They differ from one that a user starts in this only: no import takes time.
"""

import gc
import warnings

import rnn_jax.parallel.hosts
import rnn_jax.training.evaluate
import rnn_jax.training.loop
import rnn_jax.training.plots  # noqa: F401
import tests.support.jobs  # noqa: F401

# The one thread beside Python's own is NumPy's, which forks well.
warnings.filterwarnings('ignore', r'.*\bfork\b')
gc.freeze()
