"""1F1B, the pipeline that turns each micro-batch around when it arrives.

A tick is one forward and one backward pass of a stage. Stage s of n runs micro-
batch m forward in tick m + s and back in tick m + 2 (n - 1) - s, so the last
one does both in the same tick, from the loss of those rows alone:

    n - 1 ticks   forward passes alone: the pipeline fills
    M     ticks   both
    n - 1 ticks   backward passes alone: it drains

which is the time of M + n - 1 passes forward and back, as in GPipe. The
backward pass starts from what entered the stage and computes the rest again. A
ring holds these inputs of the micro-batches under way: 2 (n - 1 - s) + 1 of
them, 2 n - 1 on stage 0, whatever M is. Where stages need not move in lock-
step, n are enough; but they would alternate, some forward while others go
back, and a program that all devices share would make each wait for the longer
of the two in every tick, and could have no collectives in a stage.

Source: Narayanan et al., "Memory-Efficient Pipeline-Parallel DNN Training",
2021 (PipeDream-Flush). See `parallel/pipeline.py` for what a stage is. The loss
is

    loss(head, x_BxLxD, extra, key) -> (objective, sums)

of the rows of one micro-batch, a scalar and any pytree of arrays, all of which
add up over rows. It runs on the last stage alone, so its collectives, if any,
are reductions over other axes of the mesh, and no `ppermute`.
"""

import functools
from collections.abc import Callable
from typing import Any
from typing import NamedTuple

import jax
import jax.numpy as jnp

from rnn_jax.ops import devices
from rnn_jax.parallel import axes
from rnn_jax.parallel import pipeline


class Gradients(NamedTuple):
  """Of the objective."""

  params: Any  # of this stage's layers
  head: Any  # on the last stage; zeros on the others
  x_BxLxD: Any  # on stage 0; zeros on the others


class Result(NamedTuple):
  """What a device has of all its micro-batches."""

  objective: jax.Array  # on the last stage; 0 on the others
  sums: Any  # likewise
  state: Any  # of this stage's layers
  gradients: Gradients


@functools.partial(jax.custom_vjp, nondiff_argnums=(0, 1, 5))
def objective(
  stage: Callable,
  loss: Callable,
  params: Any,
  head: Any,
  inputs: devices.StageInputs,
  options: pipeline.Options,
) -> tuple[jax.Array, tuple[Any, Any]]:
  """The objective as a function that autodiff knows the gradients of.

  `jax.value_and_grad(..., has_aux=True)` of it runs `one_forward_one_backward`,
  which takes and raises the same; without a gradient there is no backward pass.
  Neither function may close over traced arrays. What comes back along with the
  last stage's objective counts for all stages; the sums and states have no
  gradients.

  Returns:
    (objective, (sums, state)), see Result.
  """
  x, state = pipeline.gpipe(stage, params, inputs, options)
  passes = _Passes(stage, loss, params, head, inputs, options)
  like = jax.eval_shape(passes.loss_of, 0, passes.cut(x, 0, 0))

  def add(total, m):
    found = passes.on_the_last(
      lambda x: passes.loss_of(m, x),
      lambda x: _zeros(like),
      passes.cut(x, 0, m),
    )
    return jax.tree.map(jnp.add, total, found), None

  (value, sums), _ = jax.lax.scan(add, _zeros(like), jnp.arange(passes.count))
  return value, (sums, state)


def _forward(stage, loss, params, head, inputs, options):
  found = one_forward_one_backward(stage, loss, params, head, inputs, options)
  return (found.objective, (found.sums, found.state)), found.gradients


def _backward(stage, loss, options, gradients, cotangents):
  del stage, loss, options
  scale = cotangents[0]
  n, s = axes.size(pipeline.AXIS), axes.index(pipeline.AXIS)
  if n > 1:
    scale = jnp.where(s == n - 1, scale, 0)
    scale = jax.lax.psum(scale, pipeline.AXIS)
  params, head, x = jax.tree.map(
    lambda x: (scale * x.astype(scale.dtype)).astype(x.dtype), gradients
  )
  return params, head, devices.StageInputs(x, None, None, None)


objective.defvjp(_forward, _backward)


def one_forward_one_backward(
  stage: Callable,
  loss: Callable,
  params: Any,
  head: Any,
  inputs: devices.StageInputs,
  options: pipeline.Options,
) -> Result:
  """Runs all micro-batches through all stages and back.

  Args:
    stage: see `parallel/pipeline.py`.
    loss: see the module's docstring.
    params: of this stage's layers, floating point.
    head: what the loss has gradients for, floating point.
    inputs: of this device's rows.
    options: M.

  Returns:
    The Result.

  Raises:
    ValueError: M does not divide the rows.
  """
  passes = _Passes(stage, loss, params, head, inputs, options)
  n, count = passes.stages, passes.count
  carry = passes.begin()
  for first, length, tick in (
    (0, n - 1, passes.fill),
    (n - 1, count, passes.both),
    (n - 1 + count, n - 1, passes.drain),
  ):
    ticks = first + jnp.arange(length)
    carry, _ = jax.lax.scan(lambda c, t, f=tick: (f(c, t), None), carry, ticks)
  gradients = Gradients(carry.d_params, carry.d_head, carry.d_inputs)
  return Result(*carry.found, carry.state, gradients)


class _Carry(NamedTuple):
  """What goes from tick to tick."""

  arrived: Any  # from the stage before
  d_arrived: Any  # from the stage behind
  ring: Any  # what entered the stage, of the micro-batches under way
  state: Any
  found: Any  # (objective, sums)
  d_params: Any
  d_head: Any
  d_inputs: Any


class _Passes:
  """The parts of a tick, and what they share."""

  def __init__(self, stage, loss, params, head, inputs, options):
    self.stages = axes.size(pipeline.AXIS)
    self.index = axes.index(pipeline.AXIS)
    self.count = pipeline.micro_batches(inputs, options)
    self._stage, self._loss = stage, loss
    self._params, self._head, self._inputs = params, head, inputs

  def begin(self):
    """Before the first tick."""
    x = self.cut(self._inputs.x_BxLxD, 0, 0)
    slots = min(self.count, 2 * self.stages - 1)
    found = jax.eval_shape(self.loss_of, 0, x)
    return _Carry(
      jnp.zeros_like(x),
      jnp.zeros_like(x),
      jnp.zeros((slots, *x.shape), x.dtype),
      self._inputs.state,
      *map(_zeros, (found, self._params, self._head, self._inputs.x_BxLxD)),
    )

  def fill(self, carry, t):
    """A tick of forward passes alone."""
    carry, y = self._forward(carry, t)
    return carry._replace(arrived=pipeline.send(y, 1))

  def both(self, carry, t):
    """A tick of both, and the loss between them."""
    carry, y = self._forward(carry, t)
    m, _ = self._clip(pipeline.forward_at(t, self.index))
    found, d_head, dy = self.on_the_last(
      functools.partial(self._slopes, m),
      lambda *so_far: so_far[:3],
      *(carry.found, carry.d_head, carry.d_arrived, y),
    )
    carry = carry._replace(found=found, d_head=d_head, d_arrived=dy)
    carry = self.drain(carry, t)
    return carry._replace(arrived=pipeline.send(y, 1))

  def drain(self, carry, t):
    """A tick of backward passes alone."""
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
    """Returns (carry, what the stage returns)."""
    m, active = self._clip(pipeline.forward_at(t, self.index))
    x = self.cut(self._inputs.x_BxLxD, 0, m)
    x = jnp.where(self.index == 0, x, carry.arrived)
    y, state = self._apply(m, self._params, x)
    slot = m % carry.ring.shape[0]
    kept = jnp.where(active, x, carry.ring[slot])
    return carry._replace(
      ring=jax.lax.dynamic_update_index_in_dim(carry.ring, kept, slot, 0),
      state=self._put(carry.state, state, 1, m, active),
    ), y

  def _slopes(self, m, found, d_head, dy, y):
    """Of the loss; returns (sums so far, d_head so far, dy)."""
    del dy
    differentiate = jax.value_and_grad(
      lambda head, y: self._loss(head, y, *self._aside(m)), (0, 1), has_aux=True
    )
    more, (d_more, dy) = differentiate(self._head, y)
    return *jax.tree.map(jnp.add, (found, d_head), (more, d_more)), dy

  def loss_of(self, m, x):
    """Returns (objective, sums) of a micro-batch."""
    return self._loss(self._head, x, *self._aside(m))

  def _apply(self, m, params, x):
    state = self.cut(self._inputs.state, 1, m)
    return self._stage(params, x, state, *self._aside(m))

  def _aside(self, m):
    extra = self.cut(self._inputs.extra, 0, m)
    return extra, pipeline.fold(self._inputs.key, m)

  def on_the_last(self, run, otherwise, *operands):
    """Runs one of two functions; a branch, so that it costs one alone."""
    if self.stages == 1:
      return run(*operands)
    last = self.index == self.stages - 1
    return jax.lax.cond(last, run, otherwise, *operands)

  def _clip(self, m):
    """Returns (a micro-batch that there is, whether that is number m)."""
    return jnp.clip(m, 0, self.count - 1), (m >= 0) & (m < self.count)

  def cut(self, tree, axis, m):
    """Returns the rows of micro-batch m."""

    def one(x):
      rows = x.shape[axis] // self.count
      return jax.lax.dynamic_slice_in_dim(x, m * rows, rows, axis)

    return jax.tree.map(one, tree)

  def _put(self, tree, part, axis, m, wanted):
    """Writes the rows of micro-batch m, where that is wanted."""

    def one(x, new, old):
      new = jnp.where(wanted, new, old)
      start = m * new.shape[axis]
      return jax.lax.dynamic_update_slice_in_dim(x, new, start, axis)

    return jax.tree.map(one, tree, part, self.cut(tree, axis, m))


def _zeros(like):
  return jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), like)
