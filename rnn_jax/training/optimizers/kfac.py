"""K-FAC: gradients of kernels times the inverse of their Fisher matrix.

For a kernel that a Dense multiplies by, with A and G of the batch as in
`ops/kronecker.py`, divided by the weight of its rows:

    A_t = c A_{t-1} + (1 - c) A,  G_t likewise,  c = min(1 - 1/t, b2), t = 1 ..
    m_t = b1 m_{t-1} + (1 - b1) g_t
    u_t = (A_t + pi sqrt(l) I)^-1 m_t (G_t + sqrt(l)/pi I)^-1
    p_t = p_{t-1} - rate (.5 u_t / rms(u_t) + weight_decay p_{t-1})

with a and g the means of the eigenvalues of A_t and G_t, pi = sqrt(a / g), and
l = `optimizer.damping` a g. Each layer of a stack has its own. Inverses are
taken anew every `optimizer.roots_every` steps. A side longer than
`optimizer.longest_side` has the diagonal of its factor. All else, biases too,
goes by Adam.

As published are the factors, their moving averages and the damping. Not so are
l, which is relative to a layer's curvature where the source adapts one number
to the whole model's; the momentum, which is of gradients; and the length of a
step, which the source takes from a quadratic model of the loss. Here its root
mean square is between that of AdamW's first updates, 1, and of its later ones,
about .2, so that one rate serves all parameters.
Source: Martens and Grosse, "Optimizing Neural Networks with Kronecker-factored
Approximate Curvature", 2015.
"""

import dataclasses
from collections.abc import Collection
from typing import Any
from typing import ClassVar
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax

from rnn_jax import config as config_lib
from rnn_jax import errors
from rnn_jax.ops import kronecker
from rnn_jax.training import optimizer
from rnn_jax.training.optimizers import base

FACTORED = True  # its updates read the factors of kernels
RMS = 0.5  # of a step, times the rate; AdamW's are from 1 to .2
TINY = 1e-30  # beside the mean square of a direction of zeros


@dataclasses.dataclass(frozen=True)
class Config(base.Adam):
  """Options of the optimizer, section `optimizer` of the config."""

  # Longer axes have a diagonal.
  longest_side: int = config_lib.option(1024, least=1)
  roots_every: int = config_lib.option(10, least=1)  # steps between inverses
  # Beside the mean curvature of a layer; float32 loses less than that.
  damping: float = config_lib.option(1e-2, least=1e-5)

  whole_matrices: ClassVar[bool] = True  # for their inverses

  def check(self, config: config_lib.Config) -> None:
    """Checks that the factors are of whole kernels, and summed exactly.

    Raises:
      InputError: names the key, the value and the remedy.
    """
    mesh = config.mesh
    if any('data' in rule.partition('=')[2].split('+') for rule in mesh.rules):
      errors.refuse(
        'mesh.rules',
        mesh.rules,
        f'optimizer.name={self.name!r} has factors of whole kernels: cut no '
        "axis over 'data', or take another optimizer",
      )
    if mesh.compression:
      errors.refuse(
        'mesh.compression',
        mesh.compression,
        f'optimizer.name={self.name!r} adds up its factors over devices as '
        "they are, which are more numbers than the gradients: give ''",
      )


class State(NamedTuple):
  """What is kept of each kernel, and the number of steps.

  `factors` and `inverses` have a dense.Factors in the place of each kernel.
  """

  count: jax.Array
  momentum: Any
  factors: Any
  inverses: Any


def make(
  config: config_lib.Config,
  rate: optax.Schedule,
  stacked: Collection[str],
  factors: Any = None,
) -> optax.GradientTransformation:
  """The gradient transformation of a Config; `rate` by step.

  Its updates take the argument `factors`, the batch's. `factors` here are like
  them: see `models/dense.py`. Kernels without go by Adam.
  """
  del stacked  # a Dense's kernel has two axes and that of layers
  options, like = config.optimizer, factors or {}
  kinds = {
    'kernels': scale_by_kfac(options, like),
    'others': optax.scale_by_adam(options.b1, options.b2, options.eps),
  }

  def kind(path, x):
    del x
    return 'others' if _at(like, path) is None else 'kernels'

  return optax.chain(
    optax.partition(kinds, lambda tree: jax.tree.map_with_path(kind, tree)),
    optimizer.decayed(config),
    optimizer.scaled(config, rate),
  )


def scale_by_kfac(options, like):
  """The directions of kernels, see the module's docstring.

  Args:
    options: config.Optimizer.
    like: factors of these kernels, or their shapes.

  Returns:
    optax.GradientTransformationExtraArgs with a `State`; its update takes the
    batch's `factors`.
  """

  def init(params):
    factors = jax.tree.map(jnp.zeros_like, _picked(like, params))
    momentum = jax.tree.map(jnp.zeros_like, params)
    inverses = jax.tree.map(jnp.zeros_like, factors)  # until the first step
    return State(jnp.zeros((), jnp.int32), momentum, factors, inverses)

  def update(updates, state, params=None, *, factors):
    del params
    count = optax.safe_increment(state.count)
    kept = jnp.minimum(1 - 1 / count, options.b2)
    found = _picked(factors, updates)
    averages = optax.tree.update_moment(found, state.factors, kept, 1)
    inverses = jax.lax.cond(
      state.count % options.roots_every == 0,
      lambda: _inverted(updates, averages, options.damping),
      lambda: state.inverses,
    )
    momentum = optax.tree.update_moment(updates, state.momentum, options.b1, 1)
    directions = jax.tree.map(_direction, momentum, inverses)
    return directions, State(count, momentum, averages, inverses)

  return optax.GradientTransformationExtraArgs(init, update)


def _inverted(kernels, factors, damping):
  def both(pair):
    return jax.tree.map(lambda x: kronecker.inverse(x, damping), pair)

  def each(kernel, pair):
    # One after the other: on a CPU, LAPACK takes several matrices to the pool
    # of threads from which all virtual devices wait for it.
    return jax.lax.map(both, pair) if kernel.ndim > 2 else both(pair)

  return jax.tree.map(each, kernels, factors)


def _direction(momentum, inverses):
  """Preconditioned, of a length as AdamW's."""
  stacked = momentum.ndim > 2
  run = kronecker.precondition
  found = (jax.vmap(run) if stacked else run)(momentum, *inverses)
  square = jnp.mean(jnp.square(found), (-2, -1), keepdims=True)
  return RMS * found * jax.lax.rsqrt(square + TINY)


def _picked(factors, kernels):
  """The factors in the places of a tree's kernels."""
  return jax.tree.map_with_path(lambda path, _: _at(factors, path), kernels)


def _at(factors, path):
  """The Factors at the place of a parameter, or None."""
  for key in path:
    if key.key not in factors:
      return None
    factors = factors[key.key]
  return factors
