"""What a model of labelled series makes of each: its outputs, step by step.

Series are right-aligned in a batch, so that the last step has the outputs of a
whole one. A series' numbers don't depend on those beside it: batches are those
of inference/classify.py.
"""

import functools
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from rnn_jax import errors
from rnn_jax.data.series import labelled
from rnn_jax.data.series import labelled_examples as examples
from rnn_jax.data.text import tokenizer as tokenizer_lib
from rnn_jax.inference import classify
from rnn_jax.models import packed_weights
from rnn_jax.models import series_labels

PyTree = Any


def read(
  series: Sequence[labelled.Series],
  scales: tokenizer_lib.Tokenizer,
  data: Any,
) -> list[np.ndarray]:
  """Returns what the steps of each series read, LxW.

  Args:
    series: of the run's channels.
    scales: of the run, a tokenizer.Scales.
    data: section `data` of the config.

  Raises:
    InputError: a series isn't one, or has other channels.
  """
  rows = []
  for each in series:
    if not isinstance(each, labelled.Series):
      raise errors.InputError(
        f'{type(each).__name__} is not a series: this model reads tables'
      )
    channels = each.values_LxC.shape[1]
    if channels != len(data.channels):
      raise errors.InputError(
        f'series {each.name!r} has {channels} channels, and the run reads '
        f'{len(data.channels)}: {data.channels!r:.200}: give these'
      )
    scaled_LxC = examples.scaled(each.values_LxC, scales, data)
    rows.append(examples.windows(scaled_LxC, data.window))
  return rows


def outputs(
  model: series_labels.Labeller, params: PyTree, rows: Sequence[np.ndarray]
) -> list[np.ndarray]:
  """Returns the outputs of each series, LxO, float32; arguments as `_run`."""
  return _run(model, params, rows, '__call__')


def features(
  model: series_labels.Labeller, params: PyTree, rows: Sequence[np.ndarray]
) -> list[np.ndarray]:
  """Returns what the head reads, LxD, float32; arguments as `_run`."""
  return _run(model, params, rows, 'pooled')


def last(of_steps: Sequence[np.ndarray], width: int) -> np.ndarray:
  """Returns the last step of each of N series, NxO; `width` is O."""
  if not of_steps:
    return np.zeros((0, width), np.float32)
  return np.stack([each[-1] for each in of_steps])


def _run(model, params, rows, method):
  """Runs a method of the model.

  Args:
    model: the model.
    params: its parameters, which may be packed.
    rows: what the steps of each series read, LxW.
    method: its name.
  """
  params = jax.device_put(params, jax.local_devices()[0])
  made: list[Any] = [None] * len(rows)
  for batch in classify.batches(rows):
    padded = jax.device_put(_pad(batch.texts, batch.length))
    result = jax.device_get(_program(model, method, params, *padded))
    for n, row in zip(batch.numbers, result, strict=False):
      made[n] = row[-len(rows[n]) :]
  return made


def _pad(rows, length):
  """Returns (readings_BxLxW, starts_BxL) of right-aligned series."""
  shape = len(rows), length
  readings = np.full((*shape, rows[0].shape[1]), np.nan, np.float32)
  starts = np.zeros(shape, np.int32)
  for n, row in enumerate(rows):
    readings[n, length - len(row) :] = row
    starts[n, : length - len(row) + 1] = 1
  return readings, starts


@functools.partial(jax.jit, static_argnums=(0, 1))
def _program(model, method, params, readings_BxLxW, starts_BxL):
  state = model.apply({}, readings_BxLxW.shape[0], method='init_state')
  variables = {'params': packed_weights.unpack(params)}
  _, out = model.apply(
    variables, state, readings_BxLxW, starts_BxL, method=method
  )
  return out.astype(jnp.float32)
