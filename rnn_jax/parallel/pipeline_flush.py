"""1F1B, the pipeline that runs each micro-batch backward as soon as it can.

A tick is one forward and one backward pass of a stage. Stage s of n runs micro-
batch m forward in tick m + s and backward in tick m + 2 (n - 1) - s. So the
last stage does both in the same tick, from the loss of only those rows:

    n - 1 ticks   only forward passes: the pipeline fills
    M     ticks   both
    n - 1 ticks   only backward passes: it drains

That takes as long as M + n - 1 forward and backward passes, as in GPipe. The
backward pass starts from the stage's inputs and recomputes the rest. A ring
buffer stores these inputs of the micro-batches in flight: 2 (n - 1 - s) + 1 of
them, 2 n - 1 on stage 0, whatever M is. Without lock-step n would be enough;
but then some stages would run forward while others run backward, and in one
program for all devices each tick would take as long as the longer of the two,
and a stage could contain no collectives.

Source: Narayanan et al., "Memory-Efficient Pipeline-Parallel DNN Training",
2021 (PipeDream-Flush). parallel/pipeline.py says what a stage is. The loss is

    loss(head, x_BxLxD, extra, key) -> (objective, sums)

of the rows of one micro-batch, a scalar and any pytree of arrays, all of which
add up over rows. It runs on the last stage only, so its collectives, if any,
must be reductions over other axes of the mesh, not `ppermute`.
"""

import functools
from typing import Any
from typing import NamedTuple

import jax
import jax.numpy as jnp

from rnn_jax.ops import devices
from rnn_jax.parallel import axes
from rnn_jax.parallel import pipeline

PyTree = Any


Value = tuple[jax.Array, tuple[PyTree, PyTree]]


@functools.partial(jax.custom_vjp, nondiff_argnums=(0, 1, 5))
def objective(
  stage: devices.Stage,
  loss: devices.Loss,
  params: PyTree,
  head: PyTree,
  inputs: devices.StageInputs,
  requested: int,
) -> Value:
  """Returns the objective, with gradients for autodiff.

  `jax.value_and_grad(..., has_aux=True)` of it runs `one_forward_one_backward`,
  which has the same arguments and errors; without a gradient there is no
  backward pass. `stage` and `loss` must not close over traced arrays. The
  cotangent of the last stage's objective counts for all stages; the sums and
  states have no gradients.

  Returns:
    (objective, (sums, state)) of all micro-batches of a device: the first two
    on the last stage, zeros on the others; the states of this stage's layers.
  """
  x, state = pipeline.gpipe(stage, params, inputs, requested)
  ticks = _Ticks(stage, loss, params, head, inputs, requested)
  like = jax.eval_shape(ticks.loss_of, 0, ticks.rows_of(x, 0, 0))

  def add(total, m):
    one = ticks.on_last_stage(
      lambda x: ticks.loss_of(m, x),
      lambda x: _zeros(like),
      ticks.rows_of(x, 0, m),
    )
    return jax.tree.map(jnp.add, total, one), None

  (value, sums), _ = jax.lax.scan(add, _zeros(like), jnp.arange(ticks.count))
  return value, (sums, state)


def _backward(stage, loss, requested, gradients, cotangents):
  del stage, loss, requested
  scale = cotangents[0]
  n, s = axes.size(pipeline.AXIS), axes.index(pipeline.AXIS)
  if n > 1:
    scale = jnp.where(s == n - 1, scale, 0)
    scale = jax.lax.psum(scale, pipeline.AXIS)
  params, head, x = jax.tree.map(
    lambda x: (scale * x.astype(scale.dtype)).astype(x.dtype), gradients
  )
  return params, head, devices.StageInputs(x, None, None, None)


def one_forward_one_backward(
  stage: devices.Stage,
  loss: devices.Loss,
  params: PyTree,
  head: PyTree,
  inputs: devices.StageInputs,
  requested: int,
) -> tuple[Value, tuple[PyTree, PyTree, jax.Array]]:
  """Runs all micro-batches through all stages and back.

  Args:
    stage: see parallel/pipeline.py.
    loss: see the module's docstring.
    params: of this stage's layers, floating point.
    head: what the loss has gradients for, floating point.
    inputs: of this device's rows.
    requested: M; 0: the number of stages.

  Returns:
    (what `objective` returns, its gradients): of `params`; of `head`, on the
    last stage; of `inputs.x_BxLxD`, on stage 0; zeros on the other stages.

  Raises:
    ValueError: M doesn't divide the rows.
  """
  ticks = _Ticks(stage, loss, params, head, inputs, requested)
  n, count = ticks.stages, ticks.count
  carry = ticks.init()
  carry = _scan(ticks.fill, carry, 0, n - 1)
  carry = _scan(ticks.both, carry, n - 1, count)
  carry = _scan(ticks.drain, carry, n - 1 + count, n - 1)
  value, sums = carry.total
  gradients = carry.d_params, carry.d_head, carry.d_inputs
  return (value, (sums, carry.state)), gradients


objective.defvjp(one_forward_one_backward, _backward)


def _scan(tick, carry, first, length):
  carry, _ = jax.lax.scan(
    lambda carry, t: (tick(carry, t), None), carry, first + jnp.arange(length)
  )
  return carry


class _Carry(NamedTuple):
  """What goes from tick to tick."""

  arrived: jax.Array  # from the stage before
  d_arrived: jax.Array  # from the stage after
  ring: jax.Array  # the stage's inputs, of the micro-batches in flight
  state: PyTree
  total: tuple[jax.Array, PyTree]  # (objective, sums)
  d_params: PyTree
  d_head: PyTree
  d_inputs: jax.Array


class _Ticks:
  """The three kinds of ticks."""

  def __init__(self, stage, loss, params, head, inputs, requested):
    self.stages = axes.size(pipeline.AXIS)
    self.index = axes.index(pipeline.AXIS)
    self.count = pipeline.micro_batches(inputs, requested)
    self._stage, self._loss = stage, loss
    self._params, self._head, self._inputs = params, head, inputs

  def init(self):
    """Returns the carry before the first tick."""
    x = self.rows_of(self._inputs.x_BxLxD, 0, 0)
    slots = min(self.count, 2 * self.stages - 1)
    total = jax.eval_shape(self.loss_of, 0, x)
    return _Carry(
      jnp.zeros_like(x),
      jnp.zeros_like(x),
      jnp.zeros((slots, *x.shape), x.dtype),
      self._inputs.state,
      *map(_zeros, (total, self._params, self._head, self._inputs.x_BxLxD)),
    )

  def fill(self, carry, t):
    """Runs a tick of only forward passes."""
    carry, y = self._forward(carry, t)
    return carry._replace(arrived=pipeline.send(y, 1))

  def both(self, carry, t):
    """Runs a tick of both passes, and the loss between them."""
    carry, y = self._forward(carry, t)
    m, _ = self._clip(pipeline.forward_at(t, self.index))
    total, d_head, dy = self.on_last_stage(
      functools.partial(self._add_loss, m),
      lambda *so_far: so_far[:3],
      *(carry.total, carry.d_head, carry.d_arrived, y),
    )
    carry = carry._replace(total=total, d_head=d_head, d_arrived=dy)
    carry = self.drain(carry, t)
    return carry._replace(arrived=pipeline.send(y, 1))

  def drain(self, carry, t):
    """Runs a tick of only backward passes."""
    m, active = self._clip(pipeline.backward_at(t, self.index, self.stages))
    x = carry.ring[m % carry.ring.shape[0]]
    _, pull = jax.vjp(lambda *at: self._apply(m, *at)[0], self._params, x)
    d_params, dx = pull(carry.d_arrived)
    d_params = jax.tree.map(
      lambda total, d: jnp.where(active, total + d, total),
      carry.d_params,
      d_params,
    )
    wanted = active & (self.index == 0)
    return carry._replace(
      d_params=d_params,
      d_inputs=self._put(carry.d_inputs, dx, 0, m, wanted),
      d_arrived=pipeline.send(dx, -1),
    )

  def _forward(self, carry, t):
    """Returns (carry, the stage's output)."""
    m, active = self._clip(pipeline.forward_at(t, self.index))
    x = self.rows_of(self._inputs.x_BxLxD, 0, m)
    x = jnp.where(self.index == 0, x, carry.arrived)
    y, state = self._apply(m, self._params, x)
    slot = m % carry.ring.shape[0]
    stored = jnp.where(active, x, carry.ring[slot])
    return carry._replace(
      ring=jax.lax.dynamic_update_index_in_dim(carry.ring, stored, slot, 0),
      state=self._put(carry.state, state, 1, m, active),
    ), y

  def _add_loss(self, m, total, d_head, dy, y):
    """Adds a micro-batch's loss; returns (total, d_head, dy)."""
    del dy
    differentiate = jax.value_and_grad(
      lambda head, y: self._loss(head, y, *self._extra_and_key(m)),
      (0, 1),
      has_aux=True,
    )
    more, (d_more, dy) = differentiate(self._head, y)
    return *jax.tree.map(jnp.add, (total, d_head), (more, d_more)), dy

  def loss_of(self, m, x):
    """Returns (objective, sums) of a micro-batch."""
    return self._loss(self._head, x, *self._extra_and_key(m))

  def _apply(self, m, params, x):
    state = self.rows_of(self._inputs.state, 1, m)
    return self._stage(params, x, state, *self._extra_and_key(m))

  def _extra_and_key(self, m):
    extra = self.rows_of(self._inputs.extra, 0, m)
    return extra, pipeline.fold(self._inputs.key, m)

  def on_last_stage(self, run, otherwise, *operands):
    """Runs one of two functions; a branch, so that only one costs time."""
    if self.stages == 1:
      return run(*operands)
    last = self.index == self.stages - 1
    return jax.lax.cond(last, run, otherwise, *operands)

  def _clip(self, m):
    """Returns (m clipped to [0, M), whether m is in it)."""
    return jnp.clip(m, 0, self.count - 1), (m >= 0) & (m < self.count)

  def rows_of(self, tree, axis, m):
    """Returns the rows of micro-batch m."""

    def one(x):
      rows = x.shape[axis] // self.count
      return jax.lax.dynamic_slice_in_dim(x, m * rows, rows, axis)

    return jax.tree.map(one, tree)

  def _put(self, tree, part, axis, m, wanted):
    """Returns `tree` with the rows of micro-batch m set, if `wanted`."""

    def one(x, new, old):
      new = jnp.where(wanted, new, old)
      start = m * new.shape[axis]
      return jax.lax.dynamic_update_slice_in_dim(x, new, start, axis)

    return jax.tree.map(one, tree, part, self.rows_of(tree, axis, m))


def _zeros(like):
  return jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), like)
