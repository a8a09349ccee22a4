"""What cuDNN's LSTM is asked for, and unsupported inputs; no GPU runs here.

jax.experimental.rnn has a reference that reads the same packed weights. It
takes the kernels' place: what is made of its results must equal the scan.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import rnn

from rnn_jax import config as config_lib
from rnn_jax import errors
from rnn_jax.cells import base
from rnn_jax.cells import lstm
from rnn_jax.ops import cudnn_lstm
from rnn_jax.ops import precision
from rnn_jax.system import target
from tests.support import close
from tests.support import draws

B, L, D, S = 2, 7, 5, 3
CLOSE = 2e-6  # of the largest number of each array


@pytest.fixture(name='asked')
def _asked(monkeypatch):
  """The formats that the kernels were asked for."""
  asked = []

  def reference(sizes, x, h, c, weights, lengths):
    unpacked = rnn.unpack_lstm_weights(weights, *sizes)
    return rnn.lstm_ref(x, h, c, *unpacked, lengths, *sizes[:3], 0.0, False)

  def forward(x, h, c, weights, lengths, *options):
    *sizes, dropout, backward, how = options
    assert (sizes, dropout, backward) == ([D, S, 1], 0.0, False)
    asked.append(how)
    out = reference((*sizes, False), x, h, c, weights, lengths)
    return out, (x, h, c, weights, lengths, out[0], jnp.ones(9))

  def backward(D, S, layers, dropout, both, how, residuals, d):
    *arrays, lengths, y, reserved = residuals
    assert reserved.shape == (9,) and y.shape == (B, L, S)
    asked.append(how)
    run = functools.partial(reference, (D, S, layers, both))
    return *jax.vjp(lambda *x: run(*x, lengths), *arrays)[1](d), None

  monkeypatch.setattr(target, 'platform', lambda: 'gpu')
  monkeypatch.setattr(
    rnn.gpu_rnn,
    'compute_rnn_workspace_reserve_space_sizes',
    None,
    raising=False,
  )
  monkeypatch.setattr(rnn, 'lstm_fwd', forward)
  monkeypatch.setattr(rnn, 'lstm_bwd', backward)
  return asked


STARTS = {
  'none': None,
  'first': np.eye(1, B * L, dtype=np.int32).reshape(B, L),
  'within': np.eye(1, B * L, L + 4, dtype=np.int32).reshape(B, L),
}


def program(impl, starts, policy='float32'):
  """A function to (state, y) and all gradients, and its arguments."""
  cell = lstm.Cell(
    lstm.Config(state_width=S), D, base.Plan(impl), precision.policy(policy)
  )
  state = lstm.State(*draws.normal(2, B, S, seed=1))
  x = draws.normal(B, L, D)
  variables = draws.parameters(cell.init, state, x)

  def run(*inputs):
    out, back = jax.vjp(lambda *x: cell.apply(*x, starts), *inputs)
    return out, back(jax.tree.map(jnp.cos, out))

  return run, variables, state, x


def both_ways(impl, starts):
  run, *inputs = program(impl, starts)
  return jax.jit(run)(*inputs)


@functools.cache
def scanned():
  """A compiled function of `starts`: what `program` returns of a scan."""

  @jax.jit
  def run(starts):
    run, *inputs = program('scan', starts)
    return run(*inputs)

  return run


@pytest.mark.slow
@pytest.mark.parametrize('starts', STARTS)
def test_numbers_and_gradients_are_the_scan_s(asked, starts):
  got = both_ways('cudnn', STARTS[starts])
  none = np.zeros((B, L), np.int32)
  want = scanned()(none if starts == 'none' else STARTS[starts])
  assert jax.tree.structure(got) == jax.tree.structure(want)
  close.check(got, want, CLOSE)
  assert {x.dtype for x in jax.tree.leaves(got)} == {np.dtype('float32')}
  assert {*asked} == {jax.lax.Precision.HIGHEST}


@pytest.mark.slow
def test_the_rows_decide_which_of_the_two_runs(asked, monkeypatch):
  def nothing(operands, starts, h, c, x, weights):
    del operands, starts, x, weights
    return 0 * h, 0 * c, jnp.zeros((B, L, S))

  monkeypatch.setattr(cudnn_lstm, '_by_steps', nothing)
  for name, steps in (('none', False), ('first', False), ('within', True)):
    run, *inputs = program('cudnn', STARTS[name])
    state, _ = jax.jit(lambda *x, run=run: run(*x)[0])(*inputs)
    assert state.h_BxS.any() != steps


def test_tf32_is_asked_for_by_name(asked):
  jax.eval_shape(*program('cudnn', None, 'tf32'))  # a CPU has no TF32
  assert {*asked} == {jax.lax.Precision.HIGH}


def test_a_single_step_is_the_step(asked):
  cell = lstm.Cell(lstm.Config(), D, base.Plan('cudnn'))
  x = draws.normal(B, 1, D)
  variables = draws.parameters(cell.init, cell.init_state(B), x)
  programs = {
    str(
      jax.make_jaxpr(cell.clone(plan=base.Plan(impl)).apply)(
        variables, cell.init_state(B), x
      )
    )
    for impl in ('cudnn', 'scan')
  }
  assert len(programs) == 1 and not asked


@pytest.mark.cuda
@pytest.mark.parametrize('resets', (False, True))
def test_an_h100_s_compiler_takes_both_calls(resets, monkeypatch):
  # cuDNN says how much memory it needs only where there is a GPU.
  monkeypatch.setattr(
    rnn.gpu_rnn,
    'compute_rnn_workspace_reserve_space_sizes',
    lambda *sizes: (1024, 2048),
  )
  monkeypatch.setattr(cudnn_lstm, 'lacking', lambda operands: '')
  with target.using('h100'):
    mesh = jax.sharding.Mesh(np.array(target.devices(1)), ('data',))
    whole = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec())
    starts = jnp.zeros((B, L), jnp.int32) if resets else None
    run, *inputs = program('cudnn', starts)
    arrays = jax.tree.map(
      lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=whole), inputs
    )
    text = target.compiled(jax.jit(run).trace(*arrays)).as_text()
  for call in ('cudnn_rnn_ffi', 'cudnn_rnn_bwd_ffi'):
    assert text.count(f'"{call}"') == 1


def test_it_is_refused_where_it_cannot_run(monkeypatch):
  remedy = ": use 'auto' or 'scan'"
  with pytest.raises(NotImplementedError, match=f'NVIDIA GPU, not cpu{remedy}'):
    both_ways('cudnn', None)
  monkeypatch.setattr(target, 'platform', lambda: 'gpu')
  assert cudnn_lstm.lacking('bfloat16').endswith(remedy)
  monkeypatch.setattr(
    rnn.gpu_rnn, 'compute_rnn_workspace_reserve_space_sizes', None, False
  )
  assert cudnn_lstm.lacking() == ''
  assert 'not bfloat16' in cudnn_lstm.lacking('bfloat16')
  monkeypatch.setattr(target, '_used', target.GPUS['h100'])
  assert 'a target is none' in cudnn_lstm.lacking()


@pytest.mark.parametrize(
  ('layout', 'train', 'message'),
  (
    ('packed', {}, "data.layout='packed', and cuDNN keeps .*: use 'buckets'"),
    ('stream', {}, "data.layout='stream'"),
    (
      'buckets',
      {'precision': 'bfloat16'},
      "train.precision='bfloat16'.*'tf32'",
    ),
    ('buckets', {'quantized': 'int8'}, "train.quantized='int8': give one of"),
  ),
)
def test_a_config_that_it_cannot_run_is_refused(layout, train, message):
  config = config_lib.default('lstm', layout=layout)
  config.recurrence.impl = 'cudnn'
  config.train.update(train)
  with pytest.raises(errors.InputError, match=message):
    config_lib.parse(config)


def test_a_config_that_it_can_run_is_taken():
  config = config_lib.default('lstm')
  config.recurrence.impl = 'cudnn'
  config.train.precision = 'tf32'
  assert config_lib.parse(config).recurrence.impl == 'cudnn'
