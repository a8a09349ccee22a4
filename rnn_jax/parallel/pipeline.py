"""Pipelines over layers: each of n stages has R/n of them.

Stage s of the mesh's axis 'pipe' holds layers [s R/n, (s+1) R/n). A device's B
rows are split into M micro-batches of B/M adjacent rows, which follow each
other through the stages. `gpipe` (Huang et al., "GPipe: Efficient Training of
Giant Neural Networks using Pipeline Parallelism", 2019) runs all of them
forward, and autodiff mirrors that, here for n = 2 stages and M = 3:

    stage 0   F0  F1  F2  -   -   B2  B1  B0
    stage 1   -   F0  F1  F2  B2  B1  B0  -

1F1B (parallel/pipeline_flush.py) runs backward as soon as it can:

    stage 0   F0  F1  -   F2  B0  -   B1  B2
    stage 1   -   F0  B0  F1  B1  F2  B2  -

Both schedules leave (n - 1) / (M + n - 1) of the time unused. They differ in
how much of the forward pass they store: GPipe that of M micro-batches, 1F1B
that of the micro-batches in flight, whatever M is.

All functions run inside a `jax.shard_map` that is manual over 'pipe'; without
it there is one stage. A stage is

    stage(params, x_BxLxD, state, extra, key) -> (x_BxLxD, state)

for the rows of one micro-batch: `params` and `state` are stacked over the
stage's layers, rows are the second axis of `state` and the first of `extra`,
and each micro-batch has its own key. Stages run in lock-step: in a bubble they
run on zeros, or on outputs of a bubble, and the result and its gradients are
dropped, whatever they are. So a stage may contain collectives over the mesh's
other axes.
"""

import functools
from typing import Any

import jax
import jax.numpy as jnp

from rnn_jax.ops import devices
from rnn_jax.parallel import axes

AXIS = 'pipe'
SCHEDULES = ('gpipe', '1f1b')

PyTree = Any
Index = int | jax.Array  # of a tick, stage or micro-batch


def bubble_fraction(stages: int, micro_batches: int) -> float:
  """Returns the fraction of time that a stage idles, (n - 1) / (M + n - 1).

  It is the same for GPipe and 1F1B. But 1F1B saves memory, which allows a
  larger M, and so a smaller bubble.
  """
  return (stages - 1) / (micro_batches + stages - 1)


def forward_at(tick: Index, stage: Index) -> Index:
  """Returns the micro-batch whose forward pass a stage runs, if in [0, M)."""
  return tick - stage


def backward_at(tick: Index, stage: Index, stages: int) -> Index:
  """Returns that whose backward pass it runs in 1F1B, if in [0, M).

  The last stage runs both passes in the same tick, and each stage before it
  runs backward one tick later.
  """
  return tick - 2 * (stages - 1) + stage


def micro_batches(inputs: devices.StageInputs, requested: int) -> int:
  """Returns M: what is requested, or the number of stages if that is 0.

  Raises:
    ValueError: it doesn't divide the rows.
  """
  count = requested or axes.size(AXIS)
  rows = inputs.x_BxLxD.shape[0]
  if count < 1 or rows % count:
    raise ValueError(
      f'micro_batches={count}: a device has {rows} rows: give a number that '
      'divides them'
    )
  return count


def gpipe(
  stage: devices.Stage,
  params: PyTree,
  inputs: devices.StageInputs,
  requested: int = 0,
) -> tuple[jax.Array, PyTree]:
  """Runs all micro-batches through all stages.

  Args:
    stage: see the module's docstring.
    params: of this stage's layers.
    inputs: of this device's rows.
    requested: M; 0: the number of stages.

  Returns:
    (x_BxLxD, state): the output of the last layer on the last stage, zeros on
    the others; the new states of this stage's layers. Gradients reach `params`
    and `inputs.state` on each stage, and `inputs.x_BxLxD` on stage 0.

  Raises:
    ValueError: M doesn't divide the rows.
  """
  n, s = axes.size(AXIS), axes.index(AXIS)
  count = micro_batches(inputs, requested)

  def tick(arrived, now):
    m, x, state, extra = now
    read = params, jnp.where(s == 0, x, arrived), state
    active = (m >= 0) & (m < count)
    read = jax.tree.map(
      lambda x: _mask_gradients(active, x) if _has_gradients(x) else x, read
    )
    x, state = stage(*read, extra, fold(inputs.key, m))
    return send(x, 1), (x, state)

  to_ticks = functools.partial(_to_ticks, count)
  now = (
    forward_at(jnp.arange(count + n - 1), s),
    to_ticks(inputs.x_BxLxD, 0),
    to_ticks(inputs.state, 1),
    to_ticks(inputs.extra, 0),
  )
  zeros = jnp.zeros_like(now[1][0])
  _, (x, state) = jax.lax.scan(tick, zeros, now)
  x, state = _from_ticks(count, x, 0), _from_ticks(count, state, 1)
  return jnp.where(s == n - 1, x, jnp.zeros_like(x)), state


def fold(key: PyTree, number: Index) -> PyTree:
  """Returns the keys of a micro-batch."""
  return jax.tree.map(lambda key: jax.random.fold_in(key, number), key)


def send(x: jax.Array, direction: int) -> jax.Array:
  """Sends x to the next stage, or the previous one; returns what arrives.

  Args:
    x: of this stage.
    direction: 1 or -1.

  Returns:
    x of the neighbor that sends to this stage; zeros without one.
  """
  n = axes.size(AXIS)
  if n == 1:
    return x
  pairs = [(s, s + direction) for s in range(n) if 0 <= s + direction < n]
  return jax.lax.ppermute(x, AXIS, pairs)


def _has_gradients(x):
  return jnp.issubdtype(x.dtype, jnp.inexact)


@jax.custom_jvp
def _mask_gradients(active, x):
  """Returns x, whose gradients in a bubble are zero, never 0 times infinity.

  A select of x and x would do the same, but autodiff stores one for each tick.
  """
  del active
  return x


@_mask_gradients.defjvp
def _mask_gradients_jvp(primals, tangents):
  active, x = primals
  return x, jnp.where(active, tangents[1], jnp.zeros_like(tangents[1]))


def _to_ticks(count, tree, axis):
  """Returns the inputs of each tick: zeros, its M micro-batches, zeros."""
  n, s = axes.size(AXIS), axes.index(AXIS)

  def split(x):
    x = x.reshape(*x.shape[:axis], count, -1, *x.shape[axis + 1 :])
    x = jnp.moveaxis(x, axis, 0)
    if n == 1:
      return x
    x = jnp.pad(x, [(n - 1, n - 1)] + [(0, 0)] * (x.ndim - 1))
    return jax.lax.dynamic_slice_in_dim(x, n - 1 - s, count + n - 1, 0)

  return jax.tree.map(split, tree)


def _from_ticks(count, tree, axis):
  """Returns the rows, from the outputs of each tick."""

  def join(x):
    x = jax.lax.dynamic_slice_in_dim(x, axes.index(AXIS), count, 0)
    x = jnp.moveaxis(x, 0, axis)
    return x.reshape(*x.shape[:axis], -1, *x.shape[axis + 2 :])

  return jax.tree.map(join, tree)
