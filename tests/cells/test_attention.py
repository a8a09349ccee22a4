"""Options of the attention cell; test_contract tests the rest."""

import functools

import jax
import numpy as np
import pytest

from rnn_jax import config as config_lib
from rnn_jax import errors
from rnn_jax.cells import attention
from rnn_jax.cells import base
from tests.support import draws

CUDNN = "recurrence.impl='cudnn'"


def changed(**values):
  """The default config with `section__key=value`."""
  raw = config_lib.default('attention')
  given = {name.replace('__', '.'): values[name] for name in values}
  config_lib.override(raw, given)
  return raw


def refusal(**values):
  with pytest.raises(errors.InputError) as caught:
    config_lib.parse(changed(**values))
  return str(caught.value)


@pytest.mark.parametrize(
  ('key', 'value', 'remedy'),
  (
    ('heads', 0, 'give 1 or more'),
    ('window', -1, 'give 0 or more'),
    (
      'window',
      257,
      'above data.length=256: give 0 for all of a row',
    ),
    ('rotary', 1.0, 'give a number above 1, or 0 for no positions'),
    ('head_width', 5, 'rotary positions need an even number'),
    ('rotary_width', 5, 'rotary positions need an even number'),
    ('rotary_width', 34, 'give up to cell.head_width=32'),
    ('kv_heads', 3, 'it must divide cell.heads=4'),
  ),
)
def test_a_value_out_of_range_is_refused(key, value, remedy):
  error = refusal(**{f'cell__{key}': value})
  assert error == f'cell.{key}={value!r}: {remedy}'


def test_options_that_contradict_each_other_are_refused():
  for scaling in (
    (0.5,),
    (8.0, 1.0),
    (8.0, 4.0, 1.0, 9.0),
    (8.0, 1.0, 4.0, 9.0, 0.0),
  ):
    assert 'give (), (factor,)' in refusal(cell__rotary_scaling=scaling)
  assert refusal(cell__qk_norm=True, cell__norm_epsilon=0.0) == (
    'cell.norm_epsilon=0.0: give a number above 0 as float32'
  )
  values = {'cell__projection_bias': False, 'cell__output_bias': False}
  assert refusal(cell__biases=True, **values) == (
    'cell.biases=True: neither cell.projection_bias nor cell.output_bias has '
    'one: give False'
  )
  assert refusal(cell__kv_heads=2, mesh__tensor=4) == (
    'cell.kv_heads=2: mesh.tensor=4 must divide it'
  )


@pytest.mark.parametrize('impl', ('associative', 'chunked', 'pallas'))
def test_an_unsupported_impl_is_refused(impl):
  assert refusal(recurrence__impl=impl) == (
    f"recurrence.impl={impl!r}: model.cell='attention' has "
    "('auto', 'scan', 'exact', 'blocked', 'cudnn')"
  )


@pytest.mark.parametrize(
  ('values', 'message'),
  (
    (
      {},
      f"{CUDNN}: train.precision='float32' stores float32: give 'bfloat16'",
    ),
    (
      {'train__precision': 'bfloat16', 'cell__top_k': 8},
      f"cell.top_k=8: {CUDNN} has no top_k: use 'blocked' or 'exact'",
    ),
    (
      {'train__precision': 'bfloat16', 'cell__head_width': 12},
      f'cell.head_width=12: {CUDNN} needs a multiple of 8, 256 at most',
    ),
  ),
)
def test_unsupported_cudnn_options_are_refused(values, message):
  assert refusal(recurrence__impl='cudnn', **values) == message
  config_lib.parse(
    changed(recurrence__impl='cudnn', train__precision='bfloat16')
  )


def test_a_window_of_0_is_the_length_of_a_row():
  parsed = config_lib.parse(changed(data__length=96))
  assert parsed.cell.window == 96
  assert config_lib.parse(config_lib.to_dict(parsed)) == parsed


def test_a_carried_state_may_reach_beyond_its_row():
  values = {'cell__window': 300, 'data__layout': 'stream'}
  parsed = config_lib.parse(changed(**values, data__carry_state=True))
  assert parsed.cell.window == 300
  assert 'above data.length=256' in refusal(**values)


def test_the_parameters_are_those_of_the_classical_layer():
  def count(**options):
    config = attention.Config(heads=2, head_width=4, window=4, **options)
    cell = attention.Cell(config, 8)
    x = np.zeros((1, 3, 8), np.float32)
    made = jax.eval_shape(cell.init, jax.random.key(0), cell.init_state(1), x)
    return sum(leaf.size for leaf in jax.tree.leaves(made))

  assert count() == 4 * 8**2
  assert count(biases=True) == 4 * 8**2 + 4 * 8
  assert count(biases=True, projection_bias=False) == 4 * 8**2 + 8
  assert count(biases=True, output_bias=False) == 4 * 8**2 + 3 * 8
  assert count(kv_heads=1) == 3 * 8**2
  assert count(qk_norm=True) == 4 * 8**2 + 2 * 4
  assert count(output_gate=True) == 5 * 8**2


@pytest.mark.parametrize('sees', base.SIGHTS)
def test_shared_keys_are_those_of_each_head_that_shares_them(sees):
  x = draws.normal(2, 5, 8)

  def run(kernel, **options):
    options |= {'heads': 4, 'head_width': 2, 'window': 3, 'sees': sees}
    cell = attention.Cell(attention.Config(**options), 8)
    state = cell.init_state(2)
    drawn = draws.parameters(cell.init, state, x)['params']
    kernel = drawn['projection']['kernel'] if kernel is None else kernel
    params = drawn | {'projection': {'kernel': kernel}}
    return kernel, jax.jit(cell.apply)({'params': params}, state, x)[1]

  kernel, got = run(None, kv_heads=2)
  groups = np.asarray(kernel).reshape(8, 2, 4, 2)  # of q, q, k, v
  heads = groups[:, :, [0, 2, 3, 1, 2, 3]].reshape(8, -1)
  _, want = run(heads)
  np.testing.assert_allclose(got, want, rtol=0, atol=1e-6)


@pytest.mark.parametrize('sees', base.SIGHTS)
def test_a_gate_of_x_multiplies_what_heads_read(sees):
  x = draws.normal(2, 5, 8)

  def run(params, **options):
    options |= {'heads': 2, 'head_width': 4, 'window': 3, 'sees': sees}
    cell = attention.Cell(attention.Config(**options), 8)
    state = cell.init_state(2)
    if params is None:
      params = draws.parameters(cell.init, state, x)['params']
    return params, jax.jit(cell.apply)({'params': params}, state, x)[1]

  params, got = run(None, output_gate=True)
  output = np.float64(params['output']['kernel'])
  heads = np.asarray(params['projection']['kernel']).reshape(8, 2, 4, 4)
  kernel = heads[:, :, [0, 2, 3]].reshape(8, -1)  # of q, its gate, k and v
  _, y = run(
    {'projection': {'kernel': kernel}, 'output': {'kernel': np.eye(8)}}
  )
  gate = np.float64(x) @ heads[:, :, 1].reshape(8, -1)
  want = np.float64(y) / (1 + np.exp(-gate)) @ output
  np.testing.assert_allclose(got, want, rtol=0, atol=1e-6)


@pytest.mark.parametrize('impl', ('exact', 'blocked'))
def test_the_plan_s_implementation_is_the_one_that_runs(impl):
  config = attention.Config(heads=1, head_width=4, window=16)
  cell = attention.Cell(config, 8, base.Plan(impl, chunk_length=4))
  x, state = np.zeros((1, 16, 8), np.float32), cell.init_state(1)
  variables = jax.eval_shape(cell.init, jax.random.key(0), state, x)
  jaxpr = str(jax.make_jaxpr(cell.apply)(variables, state, x))
  assert ('f32[1,1,16,16]' in jaxpr) == (impl == 'exact')  # all scores


def test_only_the_highest_scores_count():
  x = draws.normal(2, 6, 8)

  def run(length, **options):
    config = attention.Config(heads=1, head_width=8, window=6, **options)
    cell = attention.Cell(config, 8)
    state = cell.init_state(2)
    variables = draws.parameters(cell.init, state, x)
    step, ys = jax.jit(functools.partial(cell.apply, variables)), []
    for begin in range(0, 6, length):
      state, y = step(state, x[:, begin : begin + length])
      ys.append(y)
    return np.concatenate(ys, 1), cell.bind(variables)

  whole, bound = run(6, top_k=1, rotary=0.0)
  q, k, v = (np.asarray(part)[:, :, 0] for part in bound.project(x)[:3])
  scores = np.where(np.tril(np.ones((6, 6))), q @ k.swapaxes(1, 2), -np.inf)
  want = bound.emit(np.take_along_axis(v, scores.argmax(-1)[..., None], 1))
  np.testing.assert_allclose(whole, want, rtol=0, atol=1e-6)
  np.testing.assert_allclose(
    run(1, top_k=1, rotary=0.0)[0], want, rtol=0, atol=1e-6
  )
