"""Shampoo: a preconditioner for each axis of a tensor.

For a tensor g of k axes, and axis i of n_i numbers:

    H_i <- d H_i + g_t^(i) g_t^(i)T             g^(i): n_i rows, axis i first
    u_t = g_t x_1 H_1^(-1/2k) ... x_k H_k^(-1/2k)
    m_t = u_t |a_t| / |u_t| + b1 m_{t-1}
    p_t = p_{t-1} - rate (m_t + weight_decay p_{t-1})

x_i multiplies along axis i. H_i is eps I at first, and d is
`optimizer.sum_decay`: 1, H_i a sum, as published; below 1 it forgets. a_t is
the step of Adam without momentum, from `b2` and eps: u_t is scaled to its norm,
tensor by tensor, unless `optimizer.grafting` is 'none'. For an axis longer than
`optimizer.longest_side`, such as a vocabulary, only the diagonal of H_i is
kept. Each layer of stacked parameters has its own H_i. Roots are recomputed
every `optimizer.roots_every` steps from eigenvalues, which are clipped below to
1e-6 of the largest, the accuracy of float32.
Source: Gupta et al., "Shampoo: Preconditioned Stochastic Tensor Optimization",
2018; momentum and diagonals as there. Grafting: Anil et al., "Scalable Second
Order Optimization for Deep Learning", 2020.
"""

import dataclasses
import functools
from collections.abc import Collection
from typing import Any
from typing import ClassVar
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax

from rnn_jax import config as config_lib
from rnn_jax.training import optimizer
from rnn_jax.training.optimizers import base

PyTree = Any
MIN_RATIO = (
  1e-6  # of the largest eigenvalue, which float32 distinguishes from 0
)
TINY = 1e-30  # keeps a direction of zeros from a division by 0


@dataclasses.dataclass(frozen=True)
class Config(base.Adam):
  """Options of the optimizer, section `optimizer` of the config."""

  # Of longer axes only the diagonal is kept.
  longest_side: int = config_lib.option(1024, minimum=1)
  roots_every: int = config_lib.option(10, minimum=1)  # steps between roots
  # Of H_i, per step; 1: sums of all gradients.
  sum_decay: float = config_lib.option(1.0, above=0, maximum=1)
  # Whose step norms are used.
  grafting: str = config_lib.option('adam', choices=('adam', 'none'))

  whole_matrices: ClassVar[bool] = True  # for their roots


class State(NamedTuple):
  """The number of steps, and the preconditioners of each parameter.

  `sums` and `roots` have for each parameter a tuple over its axes (without the
  axis of layers): H_i and its inverse root, n_i x n_i, or n_i for diagonals.
  """

  count: jax.Array  # type: ignore[assignment]  # as optax names it
  sums: PyTree
  roots: PyTree


def make(
  options: Config, rate: optax.Schedule, stacked: Collection[str]
) -> optax.GradientTransformation:
  """Returns the gradient transformation; `rate` is by step."""
  directions = scale_by_shampoo(options, stacked)
  if options.grafting == 'adam':
    sizes = optax.scale_by_rms(
      options.b2, options.eps, eps_in_sqrt=False, bias_correction=True
    )
    directions = graft(directions, sizes, stacked)
  momentum = optax.trace(options.b1) if options.b1 else optax.identity()
  return optax.chain(
    directions,
    momentum,
    optimizer.decayed(options),
    optimizer.scaled(options, rate),
  )


def graft(
  directions: optax.GradientTransformation,
  sizes: optax.GradientTransformation,
  stacked: Collection[str],
) -> optax.GradientTransformation:
  """Returns updates with the directions of one and the norms of another.

  Args:
    directions: the transformation whose updates are scaled.
    sizes: the transformation whose updates have the norms.
    stacked: names of the parameters whose layers have separate norms.

  Returns:
    A transformation; its state is (state of directions, state of sizes).
  """

  def init(params):
    return directions.init(params), sizes.init(params)

  def update(updates, state, params=None):
    direction, first = directions.update(updates, state[0], params)
    size, second = sizes.update(updates, state[1], params)
    return _each(stacked, _resized, direction, size), (first, second)

  return optax.GradientTransformation(init, update)


def _resized(x, like):
  norm = jnp.linalg.norm
  return x * (norm(like.ravel()) / (norm(x.ravel()) + TINY))


def scale_by_shampoo(
  options: config_lib.Optimizer, stacked: Collection[str]
) -> optax.GradientTransformation:
  """Returns the preconditioner of gradients, see the module's docstring.

  Args:
    options: section `optimizer` of the config.
    stacked: names of the parameters whose first axis counts layers.

  Returns:
    A transformation with a `State`.
  """
  each = functools.partial(_each, stacked)

  def init(params):
    sums = each(functools.partial(_init_sums, options=options), params)
    roots = jax.tree.map(jnp.zeros_like, sums)  # until the first step
    return State(jnp.zeros((), jnp.int32), sums, roots)

  def update(updates, state, params=None):
    del params
    add = functools.partial(_add, decay=options.sum_decay)
    sums = each(add, updates, state.sums)
    roots = jax.lax.cond(
      state.count % options.roots_every == 0,
      lambda: each(_roots, updates, sums, over=_sequentially),
      lambda: state.roots,
    )
    updates = each(_precondition, updates, roots)
    count = optax.safe_increment(state.count)
    return updates, State(count, sums, roots)

  return optax.GradientTransformation(init, update)


def _each(stacked, function, tree, *rest, over=jax.vmap):
  """Applies `function` to each parameter, and to each layer of stacked ones."""

  def apply(path, x, *others):
    is_stacked = optimizer.parameter_name(path) in stacked
    return (over(function) if is_stacked else function)(x, *others)

  return jax.tree.map_with_path(apply, tree, *rest)


def _sequentially(function):
  """Returns what `jax.vmap` would, but computes one matrix after another.

  On a CPU, LAPACK sends a batch of matrices to the thread pool that it runs in,
  and can deadlock.
  """
  return lambda *inputs: jax.lax.map(lambda x: function(*x), inputs)


def _init_sums(x, options):
  """Returns eps I for each axis of a parameter; for a long one its diagonal."""
  return tuple(
    options.eps * (jnp.ones(n) if n > options.longest_side else jnp.eye(n))
    for n in x.shape
  )


def _add(gradient, sums, decay):
  new = []
  for axis, old in enumerate(sums):
    rows = jnp.moveaxis(gradient, axis, 0).reshape(gradient.shape[axis], -1)
    product = rows @ rows.T if old.ndim == 2 else jnp.sum(rows**2, 1)
    new.append(decay * old + product)
  return tuple(new)


def _roots(gradient, sums):
  """Returns the inverse 2k-th root of each axis's sum."""
  power = -0.5 / max(gradient.ndim, 1)
  return tuple(_power(x, power) for x in sums)


def _power(matrix, power):
  if matrix.ndim == 1:
    return matrix**power
  values, vectors = jnp.linalg.eigh(matrix)
  values = jnp.maximum(values, MIN_RATIO * values[-1:])
  return (vectors * values[None] ** power) @ vectors.T


def _precondition(gradient, roots):
  for axis, root in enumerate(roots):
    front = jnp.moveaxis(gradient, axis, -1)
    if root.ndim == 2:
      front = front @ root
    else:
      front = front * jnp.expand_dims(root, range(front.ndim - 1))
    gradient = jnp.moveaxis(front, -1, axis)
  return gradient
