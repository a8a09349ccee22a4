"""Shampoo: a preconditioner for each axis of a tensor.

For a tensor g of k axes, and axis i of n_i numbers:

    H_i = eps I + sum_t g_t^(i) g_t^(i)T        g^(i) of n_i rows: axis i ahead
    u_t = g_t x_1 H_1^(-1/2k) ... x_k H_k^(-1/2k)
    m_t = u_t |a_t| / |u_t| + b1 m_{t-1}
    p_t = p_{t-1} - rate (m_t + weight_decay p_{t-1})

x_i multiplies along axis i. a_t is the step of Adam without momentum, from
`b2` and eps: it lends u_t its length, tensor by tensor. Where
`optimizer.grafting` is 'none', u_t keeps its own. Of an axis longer than
`optimizer.longest_side`, as a vocabulary's, H_i is kept as its diagonal. Of a
stack, each layer has its own. Roots are taken anew every
`optimizer.roots_every` steps, by eigenvalues; those below 1e-6 of the largest
are lost in float32 and count as that much.
Source: Gupta et al., "Shampoo: Preconditioned Stochastic Tensor Optimization",
2018; momentum and diagonals as there. Grafting: Anil et al., "Scalable Second
Order Optimization for Deep Learning", 2020.
"""

import dataclasses
import functools
import typing
from collections.abc import Collection
from typing import ClassVar

import jax
import jax.numpy as jnp
import optax

from rnn_jax import config as config_lib
from rnn_jax import errors
from rnn_jax.training import optimizer
from rnn_jax.training.optimizers import base

LEAST = 1e-6  # of the largest eigenvalue: what float32 can tell from 0
TINY = 1e-30  # beside the length of a direction of zeros


@dataclasses.dataclass(frozen=True)
class Config(base.Adam):
  """Options of the optimizer, section `optimizer` of the config."""

  # Longer axes have a diagonal.
  longest_side: int = config_lib.option(1024, least=1)
  roots_every: int = config_lib.option(10, least=1)  # steps between roots
  # Whose steps' length it takes.
  grafting: str = config_lib.option('adam', choices=('adam', 'none'))

  whole_matrices: ClassVar[bool] = True  # for their roots

  def check(self, config: config_lib.Config) -> None:
    """Checks that roots exist.

    Raises:
      InputError: names the key, the value and the remedy.
    """
    if not self.eps:
      errors.refuse(
        'optimizer.eps',
        self.eps,
        f'optimizer.name={self.name!r} takes roots of sums that begin with '
        'it: give a number above 0',
      )


class State(typing.NamedTuple):
  """What is kept of each parameter, and the number of steps.

  `sums` and `roots` have for each parameter a tuple over its axes (without that
  of layers): H_i and its inverse root, n_i x n_i, or n_i for diagonals.
  """

  count: jax.Array
  sums: typing.Any
  roots: typing.Any


def make(
  config: config_lib.Config, rate: optax.Schedule, stacked: Collection[str]
) -> optax.GradientTransformation:
  """The gradient transformation of a Config; `rate` by step."""
  options = config.optimizer
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
    optimizer.decayed(config),
    optimizer.scaled(config, rate),
  )


def graft(directions, sizes, stacked):
  """Updates of one transformation with the lengths of another's.

  Args:
    directions: optax.GradientTransformation.
    sizes: the other one.
    stacked: names of the parameters of which each layer has its own length.

  Returns:
    optax.GradientTransformation whose state is the two's.
  """

  def init(params):
    return directions.init(params), sizes.init(params)

  def update(updates, state, params=None):
    along, first = directions.update(updates, state[0], params)
    like, second = sizes.update(updates, state[1], params)
    return _each(stacked, _resized, along, like), (first, second)

  return optax.GradientTransformation(init, update)


def _resized(x, like):
  norm = jnp.linalg.norm
  return x * (norm(like.ravel()) / (norm(x.ravel()) + TINY))


def scale_by_shampoo(options, stacked):
  """The preconditioned gradients, see the module's docstring.

  Args:
    options: config.Optimizer.
    stacked: names of the parameters whose first axis counts layers.

  Returns:
    optax.GradientTransformation with a `State`.
  """

  each = functools.partial(_each, stacked)

  def init(params):
    begin = functools.partial(_begin, options=options)
    sums = each(begin, params)
    roots = jax.tree.map(jnp.zeros_like, sums)  # until the first step
    return State(jnp.zeros((), jnp.int32), sums, roots)

  def update(updates, state, params=None):
    del params
    sums = each(_add, updates, state.sums)
    roots = jax.lax.cond(
      state.count % options.roots_every == 0,
      lambda: each(_roots, updates, sums, over=_in_turn),
      lambda: state.roots,
    )
    updates = each(_precondition, updates, roots)
    count = optax.safe_increment(state.count)
    return updates, State(count, sums, roots)

  return optax.GradientTransformation(init, update)


def _each(stacked, function, tree, *rest, over=jax.vmap):
  """`function` of each parameter, of each layer of a stack."""

  def apply(path, x, *others):
    one = optimizer.name(path) in stacked
    return (over(function) if one else function)(x, *others)

  return jax.tree.map_with_path(apply, tree, *rest)


def _in_turn(function):
  """`jax.vmap` of a function, but one after the other.

  On a CPU, LAPACK takes several matrices to the pool of threads that it runs
  in, and can wait there for ever.
  """
  return lambda *inputs: jax.lax.map(lambda one: function(*one), inputs)


def _begin(x, options):
  """eps I for each axis of a parameter; of a long one its diagonal."""
  return tuple(
    options.eps * (jnp.ones(n) if n > options.longest_side else jnp.eye(n))
    for n in x.shape
  )


def _add(gradient, sums):
  added = []
  for axis, held in enumerate(sums):
    rows = jnp.moveaxis(gradient, axis, 0).reshape(gradient.shape[axis], -1)
    more = rows @ rows.T if held.ndim == 2 else jnp.sum(rows**2, 1)
    added.append(held + more)
  return tuple(added)


def _roots(gradient, sums):
  """The inverse 2k-th root of each axis' sum."""
  power = -0.5 / max(gradient.ndim, 1)
  return tuple(_power(held, power) for held in sums)


def _power(held, power):
  if held.ndim == 1:
    return held**power
  values, vectors = jnp.linalg.eigh(held)
  values = jnp.maximum(values, LEAST * values[-1:])
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
