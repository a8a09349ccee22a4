"""Settings of all tests."""

import os

import hypothesis
import jax
from absl import flags

jax.config.update('jax_numpy_rank_promotion', 'raise')

# A failure in CI must fail again here: the examples follow from the test.
hypothesis.settings.register_profile(
  'quick',
  max_examples=20,
  deadline=None,
  derandomize='CI' in os.environ,
)
hypothesis.settings.load_profile('quick')

# Grain's worker processes read absl flags, which pytest never parses.
flags.FLAGS.mark_as_parsed()
