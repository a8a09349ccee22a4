"""K-FAC: gradients of kernels times the inverse of their Fisher matrix.

For the kernel of a Dense, with A and G of the batch as in `ops/kronecker.py`,
divided by the weight of its rows:

    A_t = c A_{t-1} + (1 - c) A,  G_t likewise,  c = min(1 - 1/t, b2), t = 1 ..
    m_t = b1 m_{t-1} + (1 - b1) g_t
    u_t = (A_t + pi sqrt(l) I)^-1 m_t (G_t + sqrt(l)/pi I)^-1
    p_t = p_{t-1} - rate (.5 u_t / rms(u_t) + weight_decay p_{t-1})

with a and g the means of the eigenvalues of A_t and G_t, pi = sqrt(a / g), and
l = `optimizer.damping` a g. Each layer of stacked kernels has its own factors.
Inverses are recomputed every `optimizer.roots_every` steps. For a side longer
than `optimizer.longest_side` only the diagonal of the factor is kept. All other
parameters, biases too, are updated by Adam.

The factors, their moving averages and the form of the damping are as published.
Three things differ: l is relative to a layer's curvature (the source adapts one
number to the whole model's); the momentum is of gradients; and the length of a
step, which the source takes from a quadratic model of the loss, is fixed. Its
root mean square is between that of AdamW's first updates, 1, and its later
ones, about .2, so that one rate serves all parameters.
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

PyTree = Any
FACTORED = True  # its updates take the factors of kernels
RMS = 0.5  # of a step, times the rate; AdamW's are from 1 to .2
TINY = 1e-30  # keeps a direction of zeros from a division by 0


@dataclasses.dataclass(frozen=True)
class Config(base.Adam):
  """Options of the optimizer, section `optimizer` of the config."""

  # Of longer axes only the diagonal is kept.
  longest_side: int = config_lib.option(1024, minimum=1)
  roots_every: int = config_lib.option(10, minimum=1)  # steps between inverses
  # Relative to the mean curvature of a layer; float32 loses smaller numbers.
  damping: float = config_lib.option(1e-2, minimum=1e-5)

  whole_matrices: ClassVar[bool] = True  # for their inverses
  # Its factors, more numbers than the gradients, are summed without; adapters
  # have none.
  excludes: ClassVar[tuple[str, ...]] = ('mesh.compression', 'adapters.rank')

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
        f'optimizer.name={self.name!r} has factors of whole kernels: shard no '
        "axis over 'data', or use another optimizer",
      )


class State(NamedTuple):
  """The number of steps, and the moving averages of each kernel.

  `factors` and `inverses` have a dense.Factors in the place of each kernel.
  """

  count: jax.Array  # type: ignore[assignment]  # as optax names it
  momentum: PyTree
  factors: PyTree
  inverses: PyTree


def make(
  options: Config,
  rate: optax.Schedule,
  stacked: Collection[str],
  factors: PyTree = None,
) -> optax.GradientTransformation:
  """Returns the gradient transformation.

  Args:
    options: section `optimizer` of the config.
    rate: the learning rate by step.
    stacked: unused.
    factors: shapes of the batch's Factors (`models/dense.py`), which updates
      take as an argument of this name. Kernels without them are Adam's.
  """
  del stacked  # a Dense kernel with a third axis is stacked
  like = factors or {}
  kinds = {
    'kernels': scale_by_kfac(options, like),
    'others': optax.scale_by_adam(options.b1, options.b2, options.eps),
  }

  def kind(path, x):
    del x
    return 'others' if _at(like, path) is None else 'kernels'

  return optax.chain(
    optax.partition(kinds, lambda tree: jax.tree.map_with_path(kind, tree)),
    optimizer.decayed(options),
    optimizer.scaled(options, rate),
  )


def scale_by_kfac(
  options: config_lib.Optimizer, like: PyTree
) -> optax.GradientTransformationExtraArgs:
  """Returns the preconditioner of kernels, see the module's docstring.

  Args:
    options: section `optimizer` of the config.
    like: factors of these kernels, or their shapes.

  Returns:
    A transformation with a `State`; its update takes the batch's `factors`.
  """

  def init(params):
    factors = jax.tree.map(jnp.zeros_like, _select(like, params))
    momentum = jax.tree.map(jnp.zeros_like, params)
    inverses = jax.tree.map(jnp.zeros_like, factors)  # until the first step
    return State(jnp.zeros((), jnp.int32), momentum, factors, inverses)

  def update(updates, state, params=None, *, factors):
    del params
    count = optax.safe_increment(state.count)
    decay = jnp.minimum(1 - 1 / count, options.b2)
    factors = _select(factors, updates)
    averages = optax.tree.update_moment(factors, state.factors, decay, 1)
    inverses = jax.lax.cond(
      state.count % options.roots_every == 0,
      lambda: _invert(updates, averages, options.damping),
      lambda: state.inverses,
    )
    momentum = optax.tree.update_moment(updates, state.momentum, options.b1, 1)
    directions = jax.tree.map(_direction, momentum, inverses)
    return directions, State(count, momentum, averages, inverses)

  return optax.GradientTransformationExtraArgs(init, update)


def _invert(kernels, factors, damping):
  def invert_pair(pair):
    return jax.tree.map(lambda x: kronecker.inverse(x, damping), pair)

  def invert(kernel, pair):
    # One layer after another: on a CPU, LAPACK sends a batch of matrices to the
    # thread pool that virtual devices wait in.
    return (
      jax.lax.map(invert_pair, pair) if kernel.ndim > 2 else invert_pair(pair)
    )

  return jax.tree.map(invert, kernels, factors)


def _direction(momentum, inverses):
  """Returns the preconditioned momentum with a root mean square of RMS."""
  run = kronecker.precondition
  run = jax.vmap(run) if momentum.ndim > 2 else run
  direction = run(momentum, *inverses)
  square = jnp.mean(jnp.square(direction), (-2, -1), keepdims=True)
  return RMS * direction * jax.lax.rsqrt(square + TINY)


def _select(factors, kernels):
  """Returns the factors in the places of a tree's kernels."""
  return jax.tree.map_with_path(lambda path, _: _at(factors, path), kernels)


def _at(factors, path):
  """Returns the Factors at the path of a parameter, or None."""
  for key in path:
    if key.key not in factors:
      return None
    factors = factors[key.key]
  return factors
