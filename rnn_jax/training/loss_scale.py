"""Dynamic loss scale: keeps gradients within the range of float16.

    scaled objective = objective * scale / 2^ceil(log2 n)

n is the number of tokens of a batch, padding included. float16 overflows above
65,504 and is 0 below 6e-8, the range of many gradients of activations. The
scaled objective is differentiated, and the gradients of parameters, in float32,
are divided by the same factor before they are used. If a gradient isn't finite,
the step is skipped and the scale halved; after N finite steps in a row it
doubles. All factors are powers of two, so scaling doesn't round.

An objective is a sum over tokens, and is divided by its weight only after all
parts of a batch are added up. Without n the gradients of parameters that all
tokens share, such as biases, would be scaled sums over tokens. n is known in
advance; dividing by it gives the scale of a mean, as in the paper, whatever the
batch.

Source: Micikevicius et al., "Mixed Precision Training", 2018.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from rnn_jax import config as config_lib

MIN_SCALE = 1.0  # below it, a non-finite step isn't due to the scale
MAX_SCALE = 2.0**24  # the scale doubles up to this


class LossScale(NamedTuple):
  """The state of the loss scale between steps.

  Attributes:
    scale: float32 scalar, a power of two.
    good: int32 scalar, the number of finite steps since it changed.
  """

  scale: jax.Array
  good: jax.Array


def is_needed(train: config_lib.Train) -> bool:
  """Returns whether a run computes in float16."""
  return train.precision == 'float16'


def init(train: config_lib.Train) -> LossScale | None:
  """Returns the initial LossScale, or None where none is needed."""
  if not is_needed(train):
    return None
  return LossScale(jnp.float32(train.loss_scale), jnp.int32(0))


def factor(state: LossScale | None, tokens: int) -> jax.Array | float:
  """Returns what the objective of a batch is multiplied by.

  Args:
    state: a LossScale, or None.
    tokens: the number of them in the batch, padding included.

  Returns:
    A power of two; 1.0 without a LossScale.
  """
  if state is None:
    return 1.0
  return state.scale * 2.0 ** -(tokens - 1).bit_length()


def update(
  state: LossScale | None, finite: jax.Array, steps: int
) -> tuple[LossScale | None, jax.Array | bool]:
  """Returns the LossScale after a step, and whether it was lowered.

  Args:
    state: the LossScale that the step ran with, or None.
    finite: whether its loss and gradients were finite.
    steps: consecutive finite steps before the scale doubles.

  Returns:
    (state, lowered): `lowered` is whether the step was skipped and the scale
    halved. If it can't be halved further, the scale isn't the cause.
  """
  if state is None:
    return None, False
  good = jnp.where(finite, state.good + 1, 0)
  due = good >= steps
  risen = jnp.where(
    due & (state.scale < MAX_SCALE), 2 * state.scale, state.scale
  )
  fallen = jnp.maximum(state.scale / 2, MIN_SCALE)
  scale = jnp.where(finite, risen, fallen)
  return LossScale(scale, jnp.where(due, 0, good)), ~finite & (
    fallen < state.scale
  )


def metrics(state: LossScale | None) -> dict[str, jax.Array]:
  """Returns the metrics of a LossScale: {} without one."""
  return {} if state is None else {'loss_scale': state.scale}
