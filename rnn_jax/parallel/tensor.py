"""Tensor parallelism: a layer is sharded by columns, the next one by rows.

    y = sum over devices of f(tp_copy(x) W_columns) W_rows

Each device has all of x and y, and some of the channels between them. `tp_copy`
sums the gradients of x over the devices, `tp_reduce` sums y: one all-reduce in
each direction for each pair of matrices. Source: Shoeybi et al., "Megatron-LM:
Training Multi-Billion Parameter Language Models Using Model Parallelism", 2019.
"""

import jax

from rnn_jax.parallel import axes

AXIS = 'tensor'


def tp_copy(x: jax.Array) -> jax.Array:
  """Returns x; its gradient is the sum of all devices' gradients."""
  return _tp_copy(x) if axes.size(AXIS) > 1 else x


def tp_reduce(x: jax.Array) -> jax.Array:
  """Returns the sum of all devices' x; its gradient is that of the sum."""
  return _tp_reduce(x) if axes.size(AXIS) > 1 else x


@jax.custom_vjp
def _tp_copy(x):
  return x


_tp_copy.defvjp(lambda x: (x, None), lambda _, dx: (jax.lax.psum(dx, AXIS),))


@jax.custom_vjp
def _tp_reduce(x):
  return jax.lax.psum(x, AXIS)


_tp_reduce.defvjp(lambda x: (_tp_reduce(x), None), lambda _, dx: (dx,))
