"""An exponential moving average (EMA) of the parameters over the steps.

    z_t = z_{t-1} + u_t, u_t the optimizer's update of z_{t-1}
    x_t = d_t x_{t-1} + (1 - d_t) z_t
    d_t = min(ema_decay, t / (t + 9)), t = 1, 2, ...

The parameters of the train state are x, which evaluations, checkpoints and
generation read. z is in the optimizer's state; gradients are taken there. d_t
rises to its value, or x would be near the initial parameters for long.
Sources: Polyak and Juditsky, "Acceleration of Stochastic Approximation by
Averaging", 1992; Szegedy et al., "Rethinking the Inception Architecture", 2016.
"""

from typing import Any
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax

from rnn_jax.parallel import placement

PyTree = Any


class State(NamedTuple):
  """The state of `average`."""

  inner: optax.OptState  # of the optimizer
  z: PyTree
  steps: jax.Array  # so far


def average(
  transform: optax.GradientTransformationExtraArgs, ema_decay: float
) -> optax.GradientTransformationExtraArgs:
  """Returns an optimizer whose parameters are the average of another's.

  Args:
    transform: the other one.
    ema_decay: from 0 to 1.
  """

  def init(params):
    # A copy: a step donates both, and no buffer can be donated twice.
    z = jax.tree.map(jnp.copy, params)
    return State(transform.init(params), z, jnp.zeros((), jnp.int32))

  def update(gradients, state, params, **extra):
    updates, inner = transform.update(gradients, state.inner, state.z, **extra)
    z = optax.apply_updates(state.z, updates)
    steps = state.steps + 1
    share = 1.0 - jnp.minimum(ema_decay, steps / (steps + 9.0))
    moved = jax.tree.map(lambda z, x: share * (z - x), z, params)
    return moved, State(inner, z, steps)

  return optax.GradientTransformationExtraArgs(init, update)


def find(state: optax.OptState, kind: type) -> Any:
  """Returns the only part of an optimizer's state that is of this kind."""
  leaves = jax.tree.leaves(state, is_leaf=lambda x: isinstance(x, kind))
  (found,) = (leaf for leaf in leaves if isinstance(leaf, kind))
  return found


def completed(z: PyTree, params: PyTree) -> PyTree:
  """Returns z of a state, on the device and with the frozen parameters."""
  return jax.tree.map(
    lambda z, x: x if isinstance(z, optax.MaskedNode) else z,
    jax.tree.map(placement.to_device, z),
    params,
    is_leaf=lambda z: isinstance(z, optax.MaskedNode),
  )
