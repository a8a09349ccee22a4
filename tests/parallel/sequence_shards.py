"""Results of rows sharded over devices, oracles in float64, and one device."""

from unittest import mock

import jax
import numpy as np
import pytest
from jax.sharding import PartitionSpec

from rnn_jax import config as config_lib
from rnn_jax.cells import base
from rnn_jax.ops import attention
from rnn_jax.ops import causal_convolution
from rnn_jax.ops import devices as devices_lib
from rnn_jax.ops import gla
from rnn_jax.ops import positions
from rnn_jax.ops.gla import oracle as gla_oracle
from rnn_jax.parallel import many_devices
from rnn_jax.parallel import sequence
from rnn_jax.profiling import hlo
from rnn_jax.selfcheck import gla as selfcheck
from rnn_jax.system import target
from tests.ops import test_causal_convolution
from tests.ops.attention import test_attention

WHOLE, SHARDED = PartitionSpec(), PartitionSpec(None, 'sequence')

# devices, L, impl, chunk_length, read, decay, dtype
RECURRENCES = (
  (2, 34, 'chunked', 16, 'after', 'key', 'float32'),
  (4, 36, 'chunked', 4, 'before', 'head', 'float32'),
  (8, 8, 'auto', 64, 'before', 'key', 'float32'),  # a step for each device
  (3, 12, 'associative', 64, 'after', 'key', 'float32'),
  (8, 32, 'scan', 64, 'after', 'key', 'bfloat16'),
)
BLOCK = 4  # steps that are summarized at a time, of shards of 17, 9, 4 and 1
# devices, steps of a shard, window: of inputs, of keys
CONVOLUTIONS = ((2, 5, 4), (8, 1, 4), (4, 3, 1), (2, 2, 7))
# and the form in tests.ops.attention.test_attention
ATTENTIONS = ((2, 6, 4, 'blocked'), (4, 3, 30, 'blocked, top 2'))
COUNTS = ((8, 2, True), (4, 3, True), (2, 4, False))
# 8 devices have a step each
CELLS = {
  'simple_rnn': {
    'preset': 'simple',
    'heads': 2,
    'key_width': 3,
    'value_width': 4,
    'attention': 'general',
    'attention_window': 3,
  },
  'qrnn': {'taps': 3, 'pooling': 'ifo'},
}
LONGER = 'qrnn', 3  # steps of each device
LONG = 65_536


def row_of(run, devices):
  """Returns `run` as a program over devices, each with its shard of the row.

  (whole, sharded, starts, cotangents) -> the state of each device, y, and the
  gradients of `whole` and `sharded`, as the training step sums them.
  """

  def here(whole, sharded, starts, cotangents):
    d_state, d_y = cotangents
    # A fraction on each device, because gradients are summed over devices.
    d_state = jax.tree.map(lambda x: x / devices, d_state)
    (state, y), back = jax.vjp(lambda *x: run(*x, starts), whole, sharded)
    d_whole, d_sharded = back((d_state, y_like(d_y, y)))
    d_whole = jax.tree.map(lambda x: jax.lax.psum(x, 'sequence'), d_whole)
    return jax.tree.map(lambda x: x[None], state), y, d_whole, d_sharded

  mesh = jax.sharding.Mesh(np.array(jax.devices()[:devices]), ('sequence',))
  return jax.jit(
    jax.shard_map(
      devices_lib.use(many_devices.ManyDevices())(here),
      mesh=mesh,
      in_specs=(WHOLE, SHARDED, SHARDED, (WHOLE, SHARDED)),
      out_specs=(PartitionSpec('sequence'), SHARDED, WHOLE, SHARDED),
      check_vma=False,
    )
  )


def y_like(d_y, y):
  return d_y.astype(y.dtype)


def on_one(run):
  """Returns the same program on one device, for the whole row."""

  def here(whole, sharded, starts, cotangents):
    (state, y), back = jax.vjp(lambda *x: run(*x, starts), whole, sharded)
    d_state, d_y = cotangents
    d_whole, d_sharded = back((d_state, y_like(d_y, y)))
    return jax.tree.map(lambda x: x[None], state), y, d_whole, d_sharded

  return jax.jit(here)


def same_everywhere(states):
  """Returns the state of one device; those of all must be equal."""
  for leaf in jax.tree.leaves(states):
    np.testing.assert_array_equal(leaf, np.broadcast_to(leaf[:1], leaf.shape))
  return jax.tree.map(lambda x: x[0], states)


def drawn_starts(rows, length, steps):
  """Starts: none, at the first step, at an edge, around it, several."""
  starts = np.zeros((rows, length), np.int32)
  for row in range(rows):
    at = (), (0,), (steps,), (steps - 1, steps + 1), (1, 2 * steps, -1)
    starts[row, [t % length for t in at[row % len(at)]]] = 1
  return starts


def recurrence_errors(devices, length, impl, chunk_length, read, decay, dtype):
  inputs, starts, cotangents = selfcheck.draw(length, decay, dtype)
  more = drawn_starts(len(starts), length, length // devices)
  starts = np.where(np.arange(len(starts))[:, None] % 3 == 2, more, starts)
  cotangents = tuple(np.asarray(x) for x in cotangents)

  def run(state, sharded, starts):
    return sequence.recurrence(
      state,
      *sharded,
      starts_BxL=starts,
      impl=impl,
      chunk_length=chunk_length,
      read=read,
    )

  program = row_of(run, devices)
  given = inputs.state, tuple(inputs[1:]), starts, cotangents
  state, y, d_state, d_sharded = jax.device_get(program(*given))
  got = (same_everywhere(state), y), gla_oracle.Inputs(d_state, *d_sharded)
  return selfcheck.compare(got, (inputs, starts, cotangents), read)


def largest_error(got, want):
  """Returns the largest of all arrays, relative to their largest numbers."""
  errors = []
  for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
    size = max(abs(np.float64(b)).max(initial=0), 1e-30)
    errors.append(abs(np.float64(a) - b).max(initial=0) / size)
  return float(np.nan_to_num(max(errors), nan=np.inf))


def normal_like(tree, seed):
  rng = np.random.default_rng(seed)
  return jax.tree.map(
    lambda x: rng.normal(size=x.shape).astype(np.float32), tree
  )


def against_one(devices, sharded_run, one_run, given):
  """Returns the error of all results against one device, and y."""
  whole, sharded, starts = given
  out = jax.eval_shape(one_run, whole, sharded, starts)
  given = (*given, normal_like(out, 1))
  got = jax.device_get(row_of(sharded_run, devices)(*given))
  want = jax.device_get(on_one(one_run)(*given))
  state = same_everywhere(got[0])
  one_state = same_everywhere(want[0])
  return largest_error((state, got[1:]), (one_state, want[1:])), got[1]


def convolution_errors(devices, steps, taps):
  length = devices * steps
  state, x, kernel, _ = jax.device_get(
    test_causal_convolution.draw(length, taps)
  )
  rows = np.arange(5) % 3
  state, x = state[rows], x[rows]
  starts = drawn_starts(5, length, steps)
  # The state of a row is of one document: zeros, then its steps so far.
  state[1:3, : taps // 2] = 0

  def run(convolve):
    return lambda whole, x, starts: convolve(whole[0], x, whole[1], starts)

  error, y = against_one(
    devices,
    run(sequence.convolve),
    run(causal_convolution.convolve),
    ((state, kernel), x, starts),
  )
  want = test_causal_convolution.oracle(state, x, kernel, starts)[1]
  return error, largest_error(y, want)


def after_past(attend, cache, past, given):
  """Returns the cache after a past, and the past and the row in one."""
  cache, _ = jax.jit(attend)(cache, *past)
  return jax.device_get(cache), tuple(
    np.concatenate(pair, 1) for pair in zip(past, given, strict=True)
  )


def attention_errors(devices, steps, window, form):
  length, options = devices * steps, test_attention.FORMS[form]
  *past, begins = (x[[0, 1, 2, 0, 1]] for x in test_attention.draw(7))
  *qkv, _ = (x[[0, 1, 2, 0, 1]] for x in test_attention.draw(length, 1))
  starts = drawn_starts(5, length, steps)
  cache = jax.tree.map(
    lambda x: x[np.array([0, 1, 2, 0, 1])], test_attention.empty(window)
  )

  def by_starts(cache, *qkv_starts):
    *qkv, starts = qkv_starts
    return attention.attend(cache, *qkv, options, starts)

  cache, both = after_past(by_starts, cache, (*past, begins), (*qkv, starts))

  def run(attend):
    def values(cache, sharded, starts):
      result = attend(cache, *sharded, options, starts)
      # Gradients through a short window are those of a cell, see CELLS.
      return result if window > length else jax.lax.stop_gradient(result)

    return values

  error, y = against_one(
    devices,
    run(sequence.attend),
    run(attention.attend),
    (cache, tuple(qkv), starts),
  )
  want = test_attention.oracle(*both, window, top_k=options.top_k)[:, 7:]
  return error, largest_error(y, want)


def counts(devices, steps, has_starts):
  """Returns states and positions (of many devices, of one)."""
  state = np.array([4, 0, 9, 2, 5], np.int32)
  starts = drawn_starts(5, devices * steps, steps) if has_starts else None
  run = jax.shard_map(
    lambda state, starts: sequence.count(state, steps, starts),
    mesh=jax.sharding.Mesh(np.array(jax.devices()[:devices]), ('sequence',)),
    in_specs=(WHOLE, SHARDED),
    out_specs=(WHOLE, SHARDED),
    check_vma=False,
  )
  one = jax.jit(lambda *x: positions.count(x[0], devices * steps, x[1]))
  return jax.device_get((jax.jit(run)(state, starts), one(state, starts)))


def cell_of(name, settings, **plan):
  module = config_lib.load('cells', name, 'model.cell')
  return module.Cell(module.Config(**settings), 6, base.Plan(**plan))


def cell_errors(name, steps=1):
  cell, devices = cell_of(name, CELLS[name]), 8
  x = np.random.default_rng(0).normal(size=(5, devices * steps, 6))
  x = x.astype(np.float32)
  state = cell.init_state(5)
  params = jax.jit(cell.init)(jax.random.key(0), state, x)

  def run(whole, x, starts):
    return cell.apply(*whole, x, starts)

  starts = drawn_starts(5, devices * steps, steps)
  return against_one(devices, run, run, ((params, state), x, starts))[0]


def refusal():
  """Returns the error of a cell that steps through its row."""
  cell = cell_of('attention', {'window': 5}, impl='scan')
  x, state = np.zeros((1, 4, 6), np.float32), cell.init_state(1)
  params = jax.eval_shape(cell.init, jax.random.key(0), state, x)
  run = row_of(lambda whole, x, _: cell.apply(*whole, x), 2)
  with pytest.raises(NotImplementedError) as caught:
    jax.eval_shape(run, (params, state), x, np.zeros((1, 4)), (state, x))
  return str(caught.value)


def long_row(length):
  """Returns inputs of `row_of` for a long row with few heads and channels."""
  rng = np.random.default_rng(0)
  q, k, v = (
    rng.normal(size=(1, length, 1, 8)).astype(np.float32) for _ in range(3)
  )
  loga = -rng.exponential(0.1, size=q.shape).astype(np.float32)
  starts = (rng.random((1, length)) < 1e-4).astype(np.int32)
  state = rng.normal(size=(1, 1, 8, 8)).astype(np.float32)
  return state, (q, k, v, loga), starts, (state, v)


def run_recurrence(recurrence):
  return lambda state, sharded, starts: recurrence(
    state, *sharded, starts_BxL=starts
  )


def allocated_bytes(compiled):
  """Returns temporaries and outputs, whose memory holds temporaries first."""
  memory = target.memory(compiled)
  return memory.temporaries + memory.outputs


def communicated_bytes(compiled):
  """Returns the outputs of collectives, by the program's text."""
  operations = hlo.Program(compiled.as_text()).operations.values()
  kinds = ('collective-permute', 'all-reduce', 'all-gather', 'all-to-all')
  return sum(
    sum(size for _, size in operation.arrays)
    for operation in operations
    if operation.opcode.startswith(kinds)
  )


def measure_long_row():
  """Returns memory, errors and communicated bytes of 8 devices and of one."""
  given = long_row(LONG)
  one = on_one(run_recurrence(gla.recurrence)).lower(*given).compile()
  sharded = row_of(run_recurrence(sequence.recurrence), 8)
  shorter = sharded.lower(*long_row(LONG // 16)).compile()
  sharded = sharded.lower(*given).compile()
  got, want = jax.device_get((sharded(*given), one(*given)))
  state = same_everywhere(got[0])
  return {
    'allocated': [allocated_bytes(x) for x in (sharded, one)],
    'error': largest_error((state, got[1:]), (want[0][0], want[1:])),
    'communicated': [communicated_bytes(x) for x in (sharded, shorter)],
  }


def measure():
  """Returns all that the tests compare."""
  with mock.patch.object(sequence, 'BLOCK', BLOCK):
    recurrences = {x: recurrence_errors(*x) for x in RECURRENCES}
  return {
    'recurrence': recurrences,
    'convolve': {x: convolution_errors(*x) for x in CONVOLUTIONS},
    'attend': {x: attention_errors(*x) for x in ATTENTIONS},
    'count': {x: counts(*x) for x in COUNTS},
    'cells': {x: cell_errors(x) for x in CELLS},
    'longer': cell_errors(*LONGER),
    'refusal': refusal(),
    'long': measure_long_row(),
  }
