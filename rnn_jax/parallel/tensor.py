"""A layer whose columns, then rows, are shared among devices.

    y = sum over devices of f(enter(x) W_columns) W_rows

Every device has the whole of x and y, and a share of the channels between them.
`enter` is where gradients of x are added up, `leave` where y is: one sum in
each direction for each pair of matrices. Source: Shoeybi et al., "Megatron-LM:
Training Multi-Billion Parameter Language Models Using Model Parallelism", 2019.
"""

import jax

from rnn_jax.parallel import axes

AXIS = 'tensor'


def enter(x: jax.Array) -> jax.Array:
  """Returns x; its gradient is the sum of all devices' gradients."""
  return _enter(x) if axes.size(AXIS) > 1 else x


def leave(x: jax.Array) -> jax.Array:
  """Returns the sum of all devices' x; its gradient is that of the sum."""
  return _leave(x) if axes.size(AXIS) > 1 else x


@jax.custom_vjp
def _enter(x):
  return x


_enter.defvjp(lambda x: (x, None), lambda _, dx: (jax.lax.psum(dx, AXIS),))


@jax.custom_vjp
def _leave(x):
  return jax.lax.psum(x, AXIS)


_leave.defvjp(lambda x: (_leave(x), None), lambda _, dx: (dx,))
