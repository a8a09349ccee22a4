"""Paths of the readings to come, drawn step by step.

    y_{t+1} ~ p(. | state_t)        state_{t+1} = step(state_t, y_{t+1})

A drawn reading is read as an observed one is ("ancestral sampling"; Salinas et
al., "DeepAR: Probabilistic forecasting with autoregressive recurrent networks",
2020). So paths have the dependence of readings on each other, which quantiles
of single readings lack, and a path may be longer than the horizon of training.
Path n of a series, which has one target, is a function of the seed, the series'
name and n.
"""

import functools
import zlib
from typing import Any
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from rnn_jax.inference import series_rows
from rnn_jax.inference import series_steps
from rnn_jax.models import series as series_lib

PyTree = Any
MAX_PATHS = 10_000  # of a series
MAX_HORIZON = 10_000
LOW = 2**32 - 1  # the bits of a key's seed


class Ahead(NamedTuple):
  """What L steps read besides the drawn readings.

  Attributes:
    calendar_LxF: the calendar of the reading after each step.
    known_LxHxK: what is known of the readings after it.
    inputs_LxC: the covariates of the step.
    categories_S: of the series.
  """

  calendar_LxF: Any
  known_LxHxK: Any
  inputs_LxC: Any
  categories_S: Any


def draw(
  reader: series_rows.Reader,
  carry: series_steps.Carry,
  ahead: Ahead,
  keys: tuple[int, str, int],
) -> np.ndarray:
  """Returns the paths of a series, PxL, scaled, float32.

  Args:
    reader: of the forecaster.
    carry: of the series so far, a row.
    ahead: of L steps. The first one reads nothing: it is the last one of the
      series so far.
    keys: the seed, the series' name, and P, how many paths are drawn.
  """
  seed, name, count = keys
  device = jax.tree.leaves(reader.params)[0].device
  given = (
    np.uint32([seed & LOW, seed >> 32, zlib.crc32(name.encode())]),
    reader.take(carry, np.zeros(count, int)),
    ahead,
  )
  made_LxP = _draw(reader.model, reader.params, *jax.device_put(given, device))
  return jax.device_get(made_LxP).T


@functools.partial(jax.jit, static_argnums=0)
def _draw(
  model: series_lib.Forecaster,
  params: PyTree,
  words_3: jax.Array,
  carry: series_steps.Carry,
  ahead: Ahead,
) -> jax.Array:
  """Returns the paths, LxP."""
  head = model.bind({}).numbers
  P, steps = len(carry.x_BxD), jnp.arange(len(ahead.calendar_LxF))
  keys_P = jax.vmap(functools.partial(jax.random.fold_in, _key(words_3)))(
    jnp.arange(P)
  )

  def rows(x):
    return jnp.broadcast_to(x[None], (P, *x.shape))

  def advance(before, inputs):
    (carry, y_P), (n, calendar_F, inputs_C, known_HxK) = before, inputs
    covariates = None
    if model.reads_covariates:
      covariates = series_steps.Covariates(
        rows(known_HxK), rows(inputs_C)[None], rows(ahead.categories_S)
      )
    given = series_steps.Given(
      y_P[None, :, None],
      rows(calendar_F)[None],
      jnp.full(P, n > 0, jnp.int32),
      covariates,
    )
    carry = series_steps.step(model, params, carry, given, 0)
    made = series_steps.ahead(model, params, carry, given)
    keys = jax.vmap(lambda key: jax.random.fold_in(key, n))(keys_P)
    y_P = jax.vmap(head.draw)(keys, *(x[..., 0] for x in made))
    return (carry, y_P), y_P

  inputs = steps, ahead.calendar_LxF, ahead.inputs_LxC, ahead.known_LxHxK
  _, paths_LxP = jax.lax.scan(advance, (carry, jnp.zeros(P)), inputs)
  return paths_LxP


def _key(words_3):
  low, high, name = words_3
  key = jax.random.fold_in(jax.random.key(low), high)
  return jax.random.fold_in(key, name)
