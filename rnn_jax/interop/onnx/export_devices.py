"""How a model runs while it is traced for ONNX.

Rows have any number of steps L, a symbolic dimension, and no document begins
within a row. Recurrences become operators of ONNX:

    gated, with a matrix state    LinearAttention, rule 'gated'
    the delta rule                LinearAttention, rule 'gated_delta'
    LSTM, GRU                     LSTM, GRU
    others                        Scan over the steps; none in a single step

An older opset has no LinearAttention: those are a Scan as well.
The numbers are those of the cell's step, which defines it.
"""

import contextlib
import itertools
from collections.abc import Callable
from collections.abc import Iterator
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from rnn_jax.cells import base
from rnn_jax.cells import gru
from rnn_jax.cells import latent_attention
from rnn_jax.cells import lstm
from rnn_jax.interop.onnx import graph
from rnn_jax.interop.onnx import operators
from rnn_jax.ops import attention
from rnn_jax.ops import delta
from rnn_jax.ops import devices
from rnn_jax.ops import gla
from rnn_jax.ops import linear_scan
from rnn_jax.ops import routed
from rnn_jax.ops.attention import ring as attention_ring

EXACT = attention.Options()
PLAN = base.Plan('scan')  # of a model that is traced
LINEAR = 27  # the first opset with LinearAttention
UNROLLED = 2  # steps of an associative scan, at most: a step and its state
PyTree = Any


@contextlib.contextmanager
def use(single: bool, opset: int) -> Iterator[None]:
  """What is traced inside is a program for ONNX, of single steps or of rows."""
  with devices.use(_Exporting(single, opset)), nn.intercept_methods(_run):
    yield


class _Exporting(devices.OneDevice):
  """The operations along time, for any L, and experts of any number of rows."""

  def __init__(self, single: bool, opset: int) -> None:
    self._single = single
    self._plain = None if opset >= LINEAR else 'step' if single else 'scan'

  def recurrence(
    self,
    state_BxHxKxP: jax.Array,
    q_BxLxGxK: jax.Array,
    k_BxLxGxK: jax.Array,
    v_BxLxHxP: jax.Array,
    loga_BxLxHxK: jax.Array,
    *,
    rate_BxLxH: jax.Array | None = None,
    skip_H: jax.Array | None = None,
    read: str = 'after',
    **options: Any,
  ) -> tuple[jax.Array, jax.Array]:
    _check_whole(options)
    channels = gla.of_heads(q_BxLxGxK, k_BxLxGxK, v_BxLxHxP, rate_BxLxH)
    inputs = state_BxHxKxP, *channels, loga_BxLxHxK
    run = operators.linear_attention
    if self._plain:
      state, y = gla.recurrence(*inputs, read=read, impl=self._plain)
    elif read == 'after':
      state, y = run(*inputs)
    else:
      state, y = gla.read_before(run, *inputs, None)
    return state, gla.with_skip(y, v_BxLxHxP, skip_H)

  def delta(
    self,
    state_BxHxKxP: jax.Array,
    q_BxLxHxK: jax.Array,
    k_BxLxHxK: jax.Array,
    v_BxLxHxP: jax.Array,
    loga_BxLxHxK: jax.Array,
    beta_BxLxH: jax.Array,
    **options: Any,
  ) -> tuple[jax.Array, jax.Array]:
    _check_whole(options)
    inputs = q_BxLxHxK, k_BxLxHxK, v_BxLxHxP, loga_BxLxHxK, beta_BxLxH
    if self._plain:
      return delta.recurrence(state_BxHxKxP, *inputs, impl=self._plain)
    return operators.linear_attention(state_BxHxKxP, *inputs)

  def linear_scan(
    self,
    state_BxS: jax.Array,
    f_BxLxS: jax.Array,
    u_BxLxS: jax.Array,
    **options: Any,
  ) -> tuple[jax.Array, jax.Array]:
    """LinearAttention with a head for each number is slower than a Scan."""
    _check_whole(options)
    impl = 'step' if self._single else 'scan'
    return linear_scan.recurrence(state_BxS, f_BxLxS, u_BxLxS, impl=impl)

  def attend(
    self,
    cache: attention_ring.Cache,
    q_BxLxHxK: jax.Array,
    k_BxLxGxK: jax.Array,
    v_BxLxGxP: jax.Array,
    options: attention.Options = EXACT,
    starts_BxL: jax.Array | None = None,
  ) -> tuple[attention_ring.Cache, jax.Array]:
    _check_whole({'starts_BxL': starts_BxL})
    one = q_BxLxHxK.shape[1] == 1
    run = attention.attend if one else attention.attend_at_once
    return run(cache, q_BxLxHxK, k_BxLxGxK, v_BxLxGxP, options)

  def associative_scan(
    self,
    compose: Callable[[PyTree, PyTree], PyTree],
    inputs: PyTree,
    reverse: bool = False,
    axis: int = 0,
  ) -> PyTree:
    """One step after the other: jax's rounds need a number of steps."""
    size = jax.tree.leaves(inputs)[0].shape[axis]
    if graph.is_static(size) and size <= UNROLLED:
      return _unrolled(compose, inputs, reverse, axis)

    def step(carry, x):
      ran, before = carry
      composed = compose(before, x)
      now = jax.tree.map(lambda a, b: jnp.where(ran, a, b), composed, x)
      return (jnp.array(True), now), now

    by_time = jax.tree.map(lambda x: jnp.moveaxis(x, axis, 0), inputs)
    zeros = jax.tree.map(lambda x: jnp.zeros_like(x[0]), by_time)
    first = jnp.array(False), zeros
    _, made = jax.lax.scan(step, first, by_time, reverse=reverse)
    return jax.tree.map(lambda x: jnp.moveaxis(x, 0, axis), made)

  def routed(
    self,
    function: routed.Function,
    params: PyTree,
    x_TxD: jax.Array,
    chosen_TxJ: jax.Array,
    gate_TxJ: jax.Array,
    shards: int = 1,
  ) -> jax.Array:
    """A step reads only the functions that it chooses; rows run all of them."""
    del shards
    if self._single:
      y_TxJxP = jax.vmap(
        jax.vmap(lambda own, x_D: function(own, x_D[None])[0], (0, None))
      )(jax.tree.map(lambda x: x[chosen_TxJ], params), x_TxD)
      return jnp.sum(gate_TxJ[..., None] * y_TxJxP, 1)
    y_TxP = 0.0
    for e in range(jax.tree.leaves(params)[0].shape[0]):
      gate_T = jnp.sum(jnp.where(chosen_TxJ == e, gate_TxJ, 0.0), 1)
      own = jax.tree.map(lambda x, e=e: x[e], params)
      y_TxP += gate_T[:, None] * function(own, x_TxD)
    return y_TxP


def _unrolled(compose, inputs, reverse, axis):
  count = jax.tree.leaves(inputs)[0].shape[axis]
  steps = [
    jax.tree.map(lambda x, n=n: jax.lax.index_in_dim(x, n, axis), inputs)
    for n in range(count)
  ]
  made = list(itertools.accumulate(steps[::-1] if reverse else steps, compose))
  made = made[::-1] if reverse else made
  return jax.tree.map(lambda *x: jnp.concatenate(x, axis), *made)


def _check_whole(options):
  assert options.get('starts_BxL') is None, 'a row is of one document'


def _run(method, args, kwargs, context):
  """Calls a method of a module, or what stands for it."""
  module, name = context.module, context.method_name
  if name == '__call__' and type(module) in _OPERATORS:
    return _OPERATORS[type(module)](module, *args)
  if name == 'recur' and isinstance(module, base.ParallelCell):
    return module.advance(*args, impl='scan', **kwargs)
  if name == 'recur' and isinstance(module, latent_attention.Cell):
    return module.advance(*args, **kwargs)
  return method(*args, **kwargs)


def _run_lstm(cell, state, x_BxLxD, starts_BxL=None):
  """ONNX has the gates in the order i, o, f, g, time first, and two biases."""
  _check_whole({'starts_BxL': starts_BxL})
  kernel, bias = _input_weights(cell)
  recurrent = _kernel(cell.recurrent)
  w, r, b = (_order(x, (0, 3, 1, 2)) for x in (kernel, recurrent, bias))
  h, _, c = _whole(
    'LSTM',
    x_BxLxD,
    (w.T, r.T, jnp.concatenate([b, jnp.zeros_like(b)])),
    (state.h_BxS, state.c_BxS),
  )
  return lstm.State(h[:, -1], c), cell.emit(h)


def _run_gru(cell, state, x_BxLxD, starts_BxL=None):
  """ONNX has the gates in the order z, r, n."""
  _check_whole({'starts_BxL': starts_BxL})
  after = cell.config.reset == 'after'
  kernel, bias = _input_weights(cell)
  if after:
    recurrent, b = _kernel(cell.recurrent), cell.candidate_bias
  else:
    parts = _kernel(cell.recurrent), _kernel(cell.recurrent_candidate)
    recurrent, b = jnp.concatenate(parts, -1), jnp.zeros(cell.state_width)
  w, r, bias = (_order(x, (1, 0, 2)) for x in (kernel, recurrent, bias))
  both = jnp.concatenate([bias, jnp.zeros_like(b), jnp.zeros_like(b), b])
  h, _ = _whole(
    'GRU',
    x_BxLxD,
    (w.T, r.T, both),
    (state.h_BxS,),
    linear_before_reset=int(after),
  )
  return gru.State(h[:, -1]), cell.emit(h)


def _whole(name, x_BxLxD, weights, state, **attributes):
  """Returns (h_BxLxS, the states after it) of an operator for whole rows."""
  B, L, _ = x_BxLxD.shape
  S = state[0].shape[-1]
  inputs = x_BxLxD.swapaxes(0, 1), *(x[None] for x in weights), None
  shapes = (L, 1, B, S), *[(1, B, S)] * len(state)
  h, *new = operators.operator(
    name,
    (*inputs, *(x[None] for x in state)),
    shapes,
    hidden_size=S,
    **attributes,
  )
  return h[:, 0].swapaxes(0, 1), *(x[0] for x in new)


def _kernel(dense):
  return dense.variables['params']['kernel']


def _input_weights(cell):
  params = cell.projection.variables['params']
  return params['kernel'], params['bias']


def _order(x, order):
  """Returns the parts of the last axis in another order."""
  parts = jnp.split(x, len(order), -1)
  return jnp.concatenate([parts[n] for n in order], -1)


_OPERATORS = {lstm.Cell: _run_lstm, gru.Cell: _run_gru}
