"""What rows cut over devices give, beside oracles in float64 and one device."""

import jax
import numpy as np
import pytest
from jax.sharding import PartitionSpec

from rnn_jax import config as config_lib
from rnn_jax import selfcheck
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
from rnn_jax.training.memory import program as program_memory
from tests.ops import test_causal_convolution
from tests.ops.attention import test_attention

WHOLE, CUT = PartitionSpec(), PartitionSpec(None, 'sequence')

# devices, L, impl, chunk_length, read, decay, dtype
RECURRENCES = (
  (2, 34, 'chunked', 16, 'after', 'key', 'float32'),
  (4, 36, 'chunked', 4, 'before', 'head', 'float32'),
  (8, 40, 'scan', 64, 'after', 'head', 'float32'),
  (8, 8, 'auto', 64, 'before', 'key', 'float32'),  # a step for each device
  (3, 12, 'associative', 64, 'after', 'key', 'float32'),
  (8, 32, 'scan', 64, 'after', 'key', 'bfloat16'),
)
PIECES = (4, 44, 'scan', 64, 'before', 'key', 'float32')  # 11 steps in 3
# devices, stretch, window: of inputs, of keys
CONVOLUTIONS = ((2, 5, 4), (8, 1, 4), (4, 3, 1), (2, 2, 7))
# and the form of tests.ops.attention.test_attention
ATTENTIONS = ((2, 6, 4, 'blocked'), (4, 3, 30, 'blocked, top 2'))
COUNTS = ((8, 2, True), (4, 3, True), (2, 4, False))
# 8 devices have a step each
CELLS = {
  'simple_rnn': {
    'heads': 2,
    'key_width': 3,
    'value_width': 4,
    'attention': 'general',
    'attention_window': 3,
  },
  'attention': {'heads': 2, 'head_width': 4, 'window': 5},
  'qrnn': {'taps': 3, 'pooling': 'ifo'},
}
LONGER = 'qrnn', 3  # steps of each device
LONG = 65_536


def row_of(run, devices):
  """`run` as a program over devices, each with its stretch of the row.

  (whole, cut, starts, cotangents) -> the state that each device has, y, and
  the gradients of `whole` and `cut`, as the training step adds them up.
  """

  def here(whole, cut, starts, cotangents):
    d_state, d_y = cotangents
    # A share on each: what counts is the sum of all that devices make of it.
    d_state = jax.tree.map(lambda x: x / devices, d_state)
    (state, y), back = jax.vjp(lambda *x: run(*x, starts), whole, cut)
    d_whole, d_cut = back((d_state, y_like(d_y, y)))
    d_whole = jax.tree.map(lambda x: jax.lax.psum(x, 'sequence'), d_whole)
    return jax.tree.map(lambda x: x[None], state), y, d_whole, d_cut

  mesh = jax.sharding.Mesh(np.array(jax.devices()[:devices]), ('sequence',))
  return jax.jit(
    jax.shard_map(
      devices_lib.use(many_devices.ManyDevices())(here),
      mesh=mesh,
      in_specs=(WHOLE, CUT, CUT, (WHOLE, CUT)),
      out_specs=(PartitionSpec('sequence'), CUT, WHOLE, CUT),
      check_vma=False,
    )
  )


def y_like(d_y, y):
  return d_y.astype(y.dtype)


def on_one(run):
  """The same of a row that is whole."""

  def here(whole, cut, starts, cotangents):
    (state, y), back = jax.vjp(lambda *x: run(*x, starts), whole, cut)
    d_state, d_y = cotangents
    d_whole, d_cut = back((d_state, y_like(d_y, y)))
    return jax.tree.map(lambda x: x[None], state), y, d_whole, d_cut

  return jax.jit(here)


def same_everywhere(states):
  """What each device has, once; they must not differ."""
  for leaf in jax.tree.leaves(states):
    np.testing.assert_array_equal(leaf, np.broadcast_to(leaf[:1], leaf.shape))
  return jax.tree.map(lambda x: x[0], states)


def drawn_starts(rows, length, stretch):
  """Rows without, with the first step, an edge, its neighbours, several."""
  starts = np.zeros((rows, length), np.int32)
  for row in range(rows):
    at = (), (0,), (stretch,), (stretch - 1, stretch + 1), (1, 2 * stretch, -1)
    starts[row, [t % length for t in at[row % len(at)]]] = 1
  return starts


def recurrence_errors(devices, length, impl, chunk_length, read, decay, dtype):
  inputs, starts, cotangents = selfcheck.draw(length, decay, dtype)
  more = drawn_starts(len(starts), length, length // devices)
  starts = np.where(np.arange(len(starts))[:, None] % 3 == 2, more, starts)
  cotangents = tuple(np.asarray(x) for x in cotangents)

  def run(state, cut, starts):
    return sequence.recurrence(
      state,
      *cut,
      starts_BxL=starts,
      impl=impl,
      chunk_length=chunk_length,
      read=read,
    )

  program = row_of(run, devices)
  given = inputs.state, tuple(inputs[1:]), starts, cotangents
  state, y, d_state, d_cut = jax.device_get(program(*given))
  got = (same_everywhere(state), y), gla_oracle.Inputs(d_state, *d_cut)
  return selfcheck.compare(got, (inputs, starts, cotangents), read)


def largest_error(got, want):
  """Of all arrays, in parts of the largest number of each."""
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


def against_one(devices, cut_run, one_run, given):
  """Errors of all results against those of one device, and y."""
  whole, cut, starts = given
  out = jax.eval_shape(one_run, whole, cut, starts)
  given = (*given, normal_like(out, 1))
  got = jax.device_get(row_of(cut_run, devices)(*given))
  want = jax.device_get(on_one(one_run)(*given))
  state = same_everywhere(got[0])
  one_state = same_everywhere(want[0])
  return largest_error((state, got[1:]), (one_state, want[1:])), got[1]


def convolution_errors(devices, stretch, taps):
  length = devices * stretch
  state, x, kernel, _ = jax.device_get(
    test_causal_convolution.draw(length, taps)
  )
  rows = np.arange(5) % 3
  state, x = state[rows], x[rows]
  starts = drawn_starts(5, length, stretch)
  # The state of a row is of one document: zeros, then what there is of it.
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


def behind(attend, cache, past, given):
  """The cache behind a past, the row, and both in one."""
  cache, _ = attend(cache, *past)
  return jax.device_get(cache), tuple(
    np.concatenate(pair, 1) for pair in zip(past, given, strict=True)
  )


def attention_errors(devices, stretch, window, form):
  length, options = devices * stretch, test_attention.FORMS[form]
  *past, begins = (x[[0, 1, 2, 0, 1]] for x in test_attention.draw(7))
  *qkv, _ = (x[[0, 1, 2, 0, 1]] for x in test_attention.draw(length, 1))
  starts = drawn_starts(5, length, stretch)
  cache = jax.tree.map(
    lambda x: x[np.array([0, 1, 2, 0, 1])], test_attention.empty(window)
  )

  def by_starts(cache, *qkv_starts):
    *qkv, starts = qkv_starts
    return attention.attend(cache, *qkv, options, starts)

  cache, both = behind(by_starts, cache, (*past, begins), (*qkv, starts))

  def run(attend):
    return lambda cache, cut, starts: attend(cache, *cut, options, starts)

  error, y = against_one(
    devices,
    run(sequence.attend),
    run(attention.attend),
    (cache, tuple(qkv), starts),
  )
  want = test_attention.oracle(*both, window, top_k=options.top_k)[:, 7:]
  return error, largest_error(y, want)


def counts(devices, stretch, told):
  """(from devices, from one): states and positions."""
  state = np.array([4, 0, 9, 2, 5], np.int32)
  starts = drawn_starts(5, devices * stretch, stretch) if told else None
  run = jax.shard_map(
    lambda state, starts: sequence.count(state, stretch, starts),
    mesh=jax.sharding.Mesh(np.array(jax.devices()[:devices]), ('sequence',)),
    in_specs=(WHOLE, CUT),
    out_specs=(WHOLE, CUT),
    check_vma=False,
  )
  one = positions.count(state, devices * stretch, starts)
  return jax.device_get((jax.jit(run)(state, starts), one))


def cell_of(name, **plan):
  module = config_lib.load('cells', name, 'model.cell')
  return module.Cell(module.Config(**CELLS[name]), 6, base.Plan(**plan))


def cell_errors(name, stretch=1):
  cell, devices = cell_of(name), 8
  x = np.random.default_rng(0).normal(size=(5, devices * stretch, 6))
  x = x.astype(np.float32)
  state = cell.init_state(5)
  params = jax.jit(cell.init)(jax.random.key(0), state, x)

  def run(whole, x, starts):
    return cell.apply(*whole, x, starts)

  starts = drawn_starts(5, devices * stretch, stretch)
  return against_one(devices, run, run, ((params, state), x, starts))[0]


def refusal():
  """What a cell says that would step through its row."""
  cell = cell_of('attention', impl='scan')
  x, state = np.zeros((1, 4, 6), np.float32), cell.init_state(1)
  params = jax.eval_shape(cell.init, jax.random.key(0), state, x)
  run = row_of(lambda whole, x, _: cell.apply(*whole, x), 2)
  with pytest.raises(NotImplementedError) as told:
    jax.eval_shape(run, (params, state), x, np.zeros((1, 4)), (state, x))
  return str(told.value)


def long_row(length):
  """The inputs of `row_of` for a long row, small in all else."""
  rng = np.random.default_rng(0)
  q, k, v = (
    rng.normal(size=(1, length, 1, 8)).astype(np.float32) for _ in range(3)
  )
  loga = -rng.exponential(0.1, size=q.shape).astype(np.float32)
  starts = (rng.random((1, length)) < 1e-4).astype(np.int32)
  state = rng.normal(size=(1, 1, 8, 8)).astype(np.float32)
  return state, (q, k, v, loga), starts, (state, v)


def run_recurrence(recurrence):
  return lambda state, cut, starts: recurrence(state, *cut, starts_BxL=starts)


def made_bytes(compiled):
  """All that a program makes: room for outputs holds temporaries before."""
  memory = program_memory.of(compiled)
  return memory.temporaries + memory.outputs


def moved_bytes(compiled):
  """What collectives make, by the program's text."""
  operations = hlo.Program(compiled.as_text()).operations.values()
  kinds = ('collective-permute', 'all-reduce', 'all-gather', 'all-to-all')
  return sum(
    sum(size for _, size in operation.arrays)
    for operation in operations
    if operation.opcode.startswith(kinds)
  )


def long_row_findings():
  """Memory, errors and bytes moved of 8 devices beside one."""
  given = long_row(LONG)
  one = on_one(run_recurrence(gla.recurrence)).lower(*given).compile()
  cut = row_of(run_recurrence(sequence.recurrence), 8)
  shorter = cut.lower(*long_row(LONG // 16)).compile()
  cut = cut.lower(*given).compile()
  got, want = jax.device_get((cut(*given), one(*given)))
  state = same_everywhere(got[0])
  return {
    'made': [made_bytes(x) for x in (cut, one)],
    'error': largest_error((state, got[1:]), (want[0][0], want[1:])),
    'moved': [moved_bytes(x) for x in (cut, shorter)],
  }


def in_pieces(run, length):
  """`run` with pieces of so many steps."""
  usual, sequence.PIECE = sequence.PIECE, length
  found = run()
  sequence.PIECE = usual
  return found


def measure():
  """All that needs devices, for the tests to judge, but the long row."""
  recurrences = {x: recurrence_errors(*x) for x in RECURRENCES}
  recurrences[PIECES] = in_pieces(lambda: recurrence_errors(*PIECES), 4)
  return {
    'recurrence': recurrences,
    'convolve': {x: convolution_errors(*x) for x in CONVOLUTIONS},
    'attend': {x: attention_errors(*x) for x in ATTENTIONS},
    'count': {x: counts(*x) for x in COUNTS},
    'cells': {x: cell_errors(x) for x in CELLS},
    'longer': cell_errors(*LONGER),
    'refusal': refusal(),
  }
