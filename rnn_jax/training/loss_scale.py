"""Dynamic loss scale: keeps gradients within what float16 can hold.

    scaled objective = objective * scale / 2^ceil(log2 n)

n is the tokens that a batch has room for. float16 ends at 65,504 and is 0 below
6e-8, where many gradients of activations lie. The scaled objective is what is
differentiated; the gradients of parameters, in float32, are divided by the same
factor before anything looks at them. If one is not finite, the step is skipped
and the scale halved; after N good steps without a break it doubles. All factors
are powers of two, so that scaling rounds nothing.

An objective is a sum over tokens, divided by its weight once all parts of a
batch are added up. Differentiated as it is, a token's gradients would begin at
scale times those of its own loss, and those of what all tokens share, such as
biases, at scale times the sum. n is known beforehand: with it the scale is that
of a mean, as in the paper, whatever the batch.

Source: Micikevicius et al., "Mixed Precision Training", 2018.
"""

from typing import Any
from typing import NamedTuple

import jax.numpy as jnp

LEAST = 1.0  # from here on, a non-finite step is no matter of the scale
MOST = 2.0**24  # where doubling ends


class LossScale(NamedTuple):
  """What one step hands to the next."""

  scale: Any  # float32, a power of two
  good: Any  # int32: finite steps since it changed


def init(train):
  """The LossScale that a Train config begins with; None if it needs none."""
  if train.precision != 'float16':
    return None
  return LossScale(jnp.float32(train.loss_scale), jnp.int32(0))


def factor(state, tokens):
  """What the objective of a batch is multiplied by.

  Args:
    state: a LossScale, or None.
    tokens: that the batch has room for, padding included.

  Returns:
    A power of two; 1.0 without a LossScale.
  """
  if state is None:
    return 1.0
  return state.scale * 2.0 ** -(tokens - 1).bit_length()


def update(state, finite, steps):
  """What follows from a step.

  Args:
    state: the LossScale that it ran with, or None.
    finite: whether its loss and gradients were finite.
    steps: good ones without a break before the scale doubles.

  Returns:
    (state, lowered): `lowered` says that the scale was too large, as far as
    one can tell: the step was skipped, and the scale could fall.
  """
  if state is None:
    return None, False
  good = jnp.where(finite, state.good + 1, 0)
  due = good >= steps
  risen = jnp.where(due & (state.scale < MOST), 2 * state.scale, state.scale)
  fallen = jnp.maximum(state.scale / 2, LEAST)
  scale = jnp.where(finite, risen, fallen)
  return LossScale(scale, jnp.where(due, 0, good)), ~finite & (
    fallen < state.scale
  )


def metrics(state):
  """What a row of metrics says of it: nothing without a LossScale."""
  return {} if state is None else {'loss_scale': state.scale}
