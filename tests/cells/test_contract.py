"""What each cell promises, for every file of rnn_jax/cells.

A new cell is tested here with its default options, at the least width that its
`check` accepts; a row in VARIANTS adds others, a row in IMPLS the
implementations that it has besides the scan of its steps and what 'auto'
chooses.
"""

import dataclasses
import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rnn_jax import cells
from rnn_jax import config as config_lib
from rnn_jax import errors
from rnn_jax.cells import base
from rnn_jax.ops import precision
from rnn_jax.parallel import fsdp
from tests.cells import equations
from tests.cells.equations import common
from tests.support import close
from tests.support import draws

NAMES = config_lib.names('cells')
EQUATIONS = equations.EQUATIONS
SMALL = {'heads': 2, 'key_width': 3, 'value_width': 4}
VARIANTS = {
  'simple_rnn': (
    {**SMALL, 'convolution': 3},
    {
      **SMALL,
      'preset': 'modified',
      'decay': 'head',
      'fused': False,
      'attention': 'general',
      'attention_window': 4,
    },
    {**SMALL, 'preset': 'coupled', 'convolution': 3},
  ),
  'attention': (
    {'heads': 2, 'head_width': 4, 'window': 3, 'biases': True},
    {'heads': 4, 'kv_heads': 2, 'head_width': 4, 'window': 30}
    | {'rotary_width': 2, 'qk_norm': True, 'norm_plus_one': True}
    | {'output_gate': True, 'score_scale': 0.3},
  ),
  'latent_attention': (
    {'heads': 2, 'key_width': 3, 'shared_width': 2, 'value_width': 4}
    | {'kv_rank': 5, 'query_rank': 4, 'window': 3, 'biases': True},
  ),
  'gru': ({'state_width': 4}, {'reset': 'before'}),
  'lstm': ({'state_width': 4},),
  'min_lstm': ({'state_width': 4},),
  'slstm': (
    {'state_width': 8, 'heads': 2},
    {'state_width': 6, 'heads': 1, 'norm': 'none'}
    | {'forget_gate': 'exponential'},
  ),
  'qrnn': ({'state_width': 4, 'taps': 3},),
  'rhn': ({'state_width': 4, 'depth': 2},),
  'bdh': ({'heads': 2, 'neurons': 16, 'rotary': 100.0},),
  'gla': (
    {**SMALL, 'rank': 2},
    {**SMALL, 'rank': 2, 'shared_gate': True, 'norm_scale': True}
    | {'temperature': 8.0},
  ),
  'hgrn2': ({**SMALL, 'lower_bound': 0.1},),
  'mamba2': (
    {**SMALL, 'heads': 4, 'groups': 2, 'convolution': 3, 'norm_scale': True},
  ),
  'log_linear_mamba2': (
    {**SMALL, 'heads': 4, 'groups': 2, 'levels': 3, 'norm': 'none'},
  ),
  'mamba3': (
    {**SMALL, 'heads': 4, 'groups': 2, 'output_norm': True}
    | {'norm_scale': True},
    {**SMALL, 'heads': 4, 'groups': 2, 'mimo_rank': 3, 'output_norm': True}
    | {'norm_scale': True},
  ),
  'mamba2_attention': (
    {
      'mamba2': {**SMALL, 'heads': 4, 'groups': 2, 'norm': 'none'}
      | {'multipliers': (0.5, 2.0, 1.5, 0.7, 1.2)},
      'attention': {'heads': 2, 'head_width': 4, 'window': 30},
      'mamba2_multiplier': 0.7,
      'attention_multiplier': 1.5,
    },
  ),
  'mamba': (
    {'inner_width': 4, 'key_width': 3, 'rank': 2, 'convolution': 3}
    | {'selection_norm': True},
    {'key_width': 2, 'convolution_bias': False},
  ),
  'retnet': ({**SMALL, 'key_width': 4},),
  'short_convolution': (
    {'convolution': 3, 'biases': True},
    {'convolution': 2, 'inner_width': 4},
  ),
  'mlstm': (
    SMALL,
    {**SMALL, 'gate_cap': 2.0, 'normalizer_epsilon': 0.1}
    | {'norm': 'layer', 'norm_scale': True},
  ),
  'rg_lru': (
    {'heads': 2, 'head_width': 3, 'convolution': 3},
    {'heads': 2, 'head_width': 3, 'whole_start': True},
  ),
  'deltanet': ({**SMALL, 'convolution': 0, 'max_beta': 2.0},),
  'gated_deltanet': (
    {**SMALL, 'convolution': 3, 'norm_scale': True},
    {**SMALL, 'value_heads': 4},
  ),
  'deltaproduct': ({**SMALL, 'householders': 3},),
  'gated_deltaproduct': ({**SMALL, 'value_heads': 4, 'convolution': 3},),
  'log_linear_gated_deltanet': ({**SMALL, 'value_heads': 4, 'levels': 3},),
  'kda': ({**SMALL, 'rank': 2},),
  'gated_deltanet2': ({**SMALL, 'rank': 2, 'max_beta': 2.0},),
  'rwkv7': (
    {**SMALL, 'rank': 2},
    {**SMALL, 'rank': 2, 'rate_rank': 1, 'gate_rank': 3, 'shared_gate': True},
  ),
}
# Options that are compared with the equation only, over whole rows.
OTHERS = {
  'simple_rnn': (
    {**SMALL, 'preset': 'simple', 'attention': 'dot'},
    {**SMALL, 'decay': 'head', 'convolution': 0},
    {**SMALL, 'preset': 'coupled', 'heads': 4, 'groups': 2},
  ),
  'attention': (
    {'heads': 4, 'kv_heads': 2, 'head_width': 4, 'output_gate': True}
    | {'window': 3, 'top_k': 1, 'rotary': 0.0},
    {'heads': 4, 'kv_heads': 2, 'head_width': 2, 'output_gate': True}
    | {'sees': 'row'},
  ),
  'latent_attention': (
    {'heads': 2, 'key_width': 3, 'shared_width': 4, 'value_width': 4}
    | {'kv_rank': 5, 'window': 30, 'rotary': 100.0},
  ),
  'qrnn': ({'pooling': 'f'}, {'pooling': 'ifo', 'taps': 1}),
  'mamba2': ({**SMALL, 'norm': 'before', 'norm_scale': True, 'min_step': 0.8},),
  'log_linear_mamba2': ({**SMALL, 'levels': 1},),
  'mamba3': (
    {**SMALL, 'key_width': 5, 'angles': 2},
    {**SMALL, 'mimo_rank': 2},
  ),
  'rhn': ({'depth': 3},),
  'lstm': ({},),
  'bdh': (
    {'heads': 2, 'neurons': 16, 'sees': 'row'},
    {'heads': 2, 'neurons': 16, 'sees': 'row', 'weights': 'softmax'},
  ),
  'deltanet': ({**SMALL, 'convolution': 3},),
  'kda': (
    {**SMALL, 'rank': 2, 'shared_gate': True, 'output_gate_bias': False},
  ),
}
IMPLS = {
  'simple_rnn-0': ('chunked',),
  'simple_rnn-2': ('chunked',),
  'attention-1': ('blocked',),  # 'auto' is 'exact' for rows this short
  'qrnn-0': ('chunked',),
  'bdh-0': ('chunked',),
  'mamba-0': ('chunked',),
  'mamba3-0': ('chunked',),
  'mamba3-1': ('chunked', 'associative'),
  'log_linear_mamba2-0': ('chunked',),
  'log_linear_gated_deltanet-0': ('chunked',),
  'rg_lru-0': ('chunked',),
  'kda-0': ('chunked',),
  'gated_deltaproduct-0': ('chunked',),
  'gated_deltanet2-0': ('chunked',),
  'rwkv7-0': ('chunked',),
}
CASES = {
  f'{name}-{n}': (name, options)
  for name in NAMES
  for n, options in enumerate(VARIANTS.get(name, ({},)))
}
REACH = {
  'attention-0': 3,
  'latent_attention-0': 3,
  'short_convolution-0': 2,
  'short_convolution-1': 1,
}  # steps before its own that a step sees; else all
SILENT = {'bdh-0'}  # the first step of a document sees nothing, and says so
SOME = ('lstm-0', 'gla-0', 'kda-0', 'attention-0', 'mamba-0')
# Those whose code has another row.
LATER = {
  *('attention-0', 'deltanet-0', 'deltaproduct-0'),
  *('gated_deltanet-0', 'gated_deltanet-1'),
  *('gla-1', 'gru-1', 'hgrn2-0', 'latent_attention-0', 'mamba-1', 'mamba2-0'),
  *('log_linear_gated_deltanet-0', 'min_lstm-0', 'mlstm-1', 'retnet-0'),
  *('rg_lru-1', 'rwkv7-1'),
  *('simple_rnn-1', 'simple_rnn-2', 'slstm-1'),
}


def marks_of(case):
  return pytest.mark.slow if case in LATER else ()


def each(names):
  """A parameter `case` for each case of these cells."""
  return pytest.mark.parametrize(
    'case',
    [
      pytest.param(case, marks=marks_of(case))
      for case, (name, _) in CASES.items()
      if name in names
    ],
  )


ALL = each(NAMES)
OTHER_POLICIES = 'bfloat16_operands', 'float16'
WIDTHS = (6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256)
B, L = 2, 10
HALF = L // 2  # where a document begins, within a chunk of 4
CLOSE = 1e-5  # measured: 2.4e-6, of the largest number of each array
EQUAL = 2e-6  # to float64 equations; measured: 6e-7


@dataclasses.dataclass(frozen=True)
class Example:
  """A cell with parameters, a state that is not zero, inputs and starts."""

  cell: base.Cell
  variables: dict
  state: object
  x: np.ndarray
  starts: np.ndarray
  # A compiled function of (state, x, starts, gradients of the results) of one
  # step or more. It returns (state, y), gradients of parameters, state and x,
  # and the gates of a single step.
  both_ways: Callable

  def run(self, state, x, starts):
    """Returns the state and y."""
    return self.both_ways(state, x, starts, (self.state, 0 * x))[0]


def settled(name, options):
  """The options and D of a cell in the narrowest model that may have it."""
  for D in WIDTHS:
    raw = config_lib.default(name)
    raw.model.width = D
    raw.cell.update(options)
    try:
      return config_lib.parse(raw).cell, D
    except errors.InputError as error:
      refusal = error
  raise refusal


@functools.cache
def example(case):
  name, options = CASES[case]
  module = config_lib.load('cells', name, 'model.cell')
  options, D = settled(name, options)
  # Chunks of 4 compile faster than the usual 64.
  plan = base.Plan(chunk_length=4)
  cell = module.Cell(options, D, plan)
  before, x = np.asarray(draws.normal(2, B, L, D))
  state = draws.computed(lambda: cell.init_state(B))
  variables = draws.parameters(cell.init, state, x[:, :1])
  starts = np.zeros((B, L), np.int32)
  starts[0, 0] = starts[1, HALF] = 1

  @jax.jit
  def both_ways(state, x, starts, slopes):
    out, back = jax.vjp(lambda *x: cell.apply(*x, starts), variables, state, x)
    gates = None
    if x.shape[1] == 1:
      constants = jax.tree.map(jnp.asarray, variables)  # as vmap needs them
      u = cell.apply(constants, x, method='project')
      u = jax.tree.map(lambda u: u[:, 0], u)
      gates = cell.apply(constants, state, u, method='gates')
    return out, back(slopes), gates

  given = Example(cell, variables, state, x, starts, both_ways)
  state = given.state
  for t in range(HALF):
    state, _ = given.run(state, before[:, t : t + 1], 0 * starts[:, :1])
  return dataclasses.replace(given, state=state)


@functools.cache
def whole_row(case):
  """What `both_ways` returns for all steps at once, as 'auto' runs them."""
  given = example(case)
  inputs = given.state, given.x, given.starts
  out, *_ = given.both_ways(*inputs, (given.state, 0 * given.x))
  return given.both_ways(*inputs, jax.tree.map(np.cos, out))[:2]


@functools.cache
def both_ways(case, **plan):
  """The state and y, and the gradients of parameters, state and x."""
  given = example(case)
  cell = given.cell.clone(plan=base.Plan(**plan))

  @jax.jit
  def run(starts, *inputs):
    out, back = jax.vjp(lambda *x: cell.apply(*x, starts), *inputs)
    return out, back(jax.tree.map(jnp.cos, out))

  return run(given.starts, given.variables, given.state, given.x)


@functools.cache
def stepped(case):
  """What `both_ways` returns, step by step."""
  given, state = example(case), example(case).state
  nows = [slice(t, t + 1) for t in range(L)]
  states, y = [], []
  for now in nows:
    states.append(state)
    state, y_now = given.run(state, given.x[:, now], given.starts[:, now])
    y.append(y_now)
  of_state, of_x = jax.tree.map(np.cos, state), []
  of_variables = jax.tree.map(np.zeros_like, given.variables)
  for before, now, y_now in reversed([*zip(states, nows, y, strict=True)]):
    inputs = before, given.x[:, now], given.starts[:, now]
    _, (own, of_state, d_x), _ = given.both_ways(
      *inputs, (of_state, np.cos(y_now))
    )
    of_variables = jax.tree.map(np.add, of_variables, own)
    of_x.insert(0, d_x)
  out = state, np.concatenate(y, 1)
  return out, (of_variables, of_state, np.concatenate(of_x, 1))


def assert_close(got, want):
  assert jax.tree.structure(got) == jax.tree.structure(want)
  close.check(got, want, CLOSE, floor=1)


@ALL
def test_parameters_and_state_have_logical_axes(case):
  given = example(case)
  module = config_lib.load('cells', CASES[case][0], 'model.cell')
  fsdp.logical_axes(given.variables['params'], module.LOGICAL_AXES)
  axes = given.cell.state_axes()
  jax.tree.map(
    lambda axes, x: axes.split('x')[: x.ndim].index('B'),
    axes,
    given.state,
  )


def by_hand(name, config, params, x):
  """(y, the gates of each row) from a state of zeros, in float64."""
  params = jax.tree.map(np.float64, params)
  rows = [EQUATIONS[name](params, row, config) for row in np.float64(x)]
  h, gates = zip(*rows, strict=True)
  y = np.stack(h)
  return common.dense(params['output'], y) if 'output' in params else y, gates


@each(EQUATIONS)
def test_steps_and_gates_equal_the_equation(case):
  given, name = example(case), CASES[case][0]
  state, none = given.cell.init_state(B), 0 * given.starts[:, :1]
  slopes, steps = (given.state, 0 * given.x[:, :1]), []
  for t in range(L):
    now = given.x[:, t : t + 1]
    (state, y), _, gates = given.both_ways(state, now, none, slopes)
    steps.append((y[:, 0], gates))
  params = given.variables['params']
  want, rows = by_hand(name, given.cell.config, params, given.x)
  got, gates = jax.tree.map(lambda *steps: np.stack(steps, 1), *steps)
  close.check(got, want, EQUAL)
  if gates is None:
    assert rows == (None,) * B
    return
  assert gates.values.keys() == rows[0].keys()
  for gate, values in gates.values.items():
    np.testing.assert_allclose(values, [row[gate] for row in rows], atol=EQUAL)
  np.testing.assert_allclose(
    np.exp(gates.loga), gates.values['keep'], atol=EQUAL
  )


@pytest.mark.slow
@pytest.mark.parametrize(
  ('name', 'options'),
  [(name, options) for name, rows in OTHERS.items() for options in rows],
  ids=lambda value: value if isinstance(value, str) else '',
)
def test_other_options_equal_the_equation(name, options):
  module, D = config_lib.load('cells', name, 'model.cell'), 8
  cell = module.Cell(module.Config(**options), D, base.Plan(chunk_length=4))
  x, state = draws.normal(B, L, D), cell.init_state(B)
  variables = draws.parameters(cell.init, state, x[:, :1])
  _, y = jax.jit(cell.apply)(variables, state, x)
  want, _ = by_hand(name, cell.config, variables['params'], x)
  close.check(y, want, EQUAL)


@each(equations.SIZES)
def test_it_has_as_many_parameters_as_documented(case):
  given = example(case)
  sizes = [leaf.size for leaf in jax.tree.leaves(given.variables)]
  size = equations.SIZES[CASES[case][0]]
  assert sum(sizes) == size(given.cell.width, given.cell.config)


@ALL
def test_a_row_initializes_what_a_step_does(case):
  given = example(case)
  init = functools.partial(given.cell.init, jax.random.key(0))
  made = jax.eval_shape(init, given.state, given.x)
  assert jax.tree.map(jnp.shape, made) == jax.tree.map(
    jnp.shape, given.variables
  )


@ALL
def test_gates_at_their_ends_stay_finite(case):
  """Inputs so large that gates are 0 or 1 to the last bit."""
  given = example(case)
  slopes = jax.tree.map(np.ones_like, given.state), np.ones_like(given.x)
  results = given.both_ways(given.state, 1e4 * given.x, given.starts, slopes)
  for leaf in jax.tree.leaves(results):
    assert np.isfinite(leaf).all()


def by_steps(case, state, x, starts):
  steps = []
  for t in range(x.shape[1]):
    now = slice(t, t + 1)
    state, y = example(case).run(state, x[:, now], starts[:, now])
    steps.append(y)
  return state, np.concatenate(steps, 1)


@ALL
def test_a_sequence_from_a_state_equals_its_steps(case):
  given, none = example(case), 0 * example(case).starts
  for starts in given.starts, none:
    whole = given.run(given.state, given.x, starts)
    assert_close(by_steps(case, given.state, given.x, starts), whole)


@ALL
def test_documents_in_one_row_equal_separate_documents(case):
  given = example(case)
  (_, packed), _ = whole_row(case)
  none, fresh = 0 * given.starts, given.cell.init_state(B)
  _, whole = given.run(fresh, given.x, none)
  _, second = by_steps(case, fresh, given.x[:, HALF:], none[:, HALF:])
  assert_close((packed[0], packed[1, HALF:]), (whole[0], second[1]))


@ALL
def test_a_step_depends_only_on_its_own_document_s_past(case):
  given = example(case)
  slopes = np.zeros((B, L, *given.x.shape))
  still = jax.tree.map(np.zeros_like, given.state)
  for b, t in np.ndindex(B, L):  # of the sum of each step's y
    one = np.zeros_like(given.x)
    one[b, t] = 1
    inputs = given.state, given.x, given.starts
    slopes[b, t] = given.both_ways(*inputs, (still, one))[1][2]
  past = np.tril(np.ones((L, L)))
  past -= np.tril(past, -REACH.get(case, L) - 1)
  past[0, 0] = case not in SILENT
  assert np.array_equal(slopes[0, :, 0].any(-1), past)
  past[HALF:, :HALF] = 0
  past[[0, HALF], [0, HALF]] = [1, case not in SILENT]
  assert np.array_equal(slopes[1, :, 1].any(-1), past)
  assert not slopes[0, :, 1].any() and not slopes[1, :, 0].any()


SHARDED = (
  *('attention-1', 'gated_deltanet-1', 'mamba2_attention-0', 'mamba3-0'),
  'mamba3-1',
  *('gated_deltaproduct-0', 'log_linear_mamba2-0'),
)


@pytest.mark.slow
@pytest.mark.parametrize('case', (*SHARDED, 'short_convolution-1'))
def test_outputs_of_shards_of_heads_sum_to_the_whole(case):
  given, none = example(case), 0 * example(case).starts
  params = given.variables['params']
  module = config_lib.load('cells', CASES[case][0], 'model.cell')
  axes = fsdp.logical_axes(params, module.LOGICAL_AXES)
  cell = given.cell.clone(config=given.cell.config.of_shard(2))
  run, y = jax.jit(cell.apply), 0.0
  for n in range(2):
    own = jax.tree.map(
      lambda x, axes, n=n: (
        jnp.split(x, 2, axes.split('x').index('H'))[n] if 'H' in axes else x
      ),
      params,
      axes,
    )
    y += run({'params': own}, cell.init_state(B), given.x, none)[1]
  _, whole = given.run(given.cell.init_state(B), given.x, none)
  assert_close(y, whole)


@pytest.mark.slow
@ALL
def test_auto_has_the_gradients_of_the_steps(case):
  assert_close(whole_row(case), stepped(case))
  _, (_, of_state, _) = stepped(case)
  for leaf in jax.tree.leaves(of_state):
    assert not np.asarray(leaf)[0].any()  # its first step begins a document


# The gradients of each are those of its op, which tests/ops checks.
@pytest.mark.slow
@pytest.mark.parametrize('case', IMPLS)
def test_every_impl_equals_the_steps(case):
  given = example(case)
  inputs = given.variables, given.state, given.x, given.starts
  for impl in IMPLS[case]:
    cell = given.cell.clone(plan=base.Plan(impl, 4))
    assert_close(jax.jit(cell.apply)(*inputs), stepped(case)[0])


class ScannedError(Exception):
  """Its arguments are those of `base.scan_steps`."""


@ALL
def test_the_scan_is_one_of_the_cell_s_steps(case, monkeypatch):
  def scan_steps(cell, *inputs):
    raise ScannedError(cell.step.__func__, *inputs)

  given = example(case)
  cell = given.cell.clone(plan=base.Plan('scan'))
  inputs = given.variables, given.x
  u = jax.eval_shape(functools.partial(cell.apply, method='project'), *inputs)
  monkeypatch.setattr(base, 'scan_steps', scan_steps)
  with pytest.raises(ScannedError) as caught:
    jax.eval_shape(cell.apply, *inputs[:1], given.state, given.x, given.starts)
  step, *scanned = caught.value.args
  assert step is type(cell).step
  assert jax.tree.map(jnp.shape, scanned) == jax.tree.map(
    jnp.shape, [given.state, u, given.starts]
  )


# Both schedules with one product a step (lstm, gru-0), and with several.
@pytest.mark.native
@pytest.mark.parametrize(
  ('case', 'schedule'),
  (
    ('lstm-0', 'uniform'),
    ('gru-0', 'binomial'),
    ('gru-1', 'uniform'),
    ('rhn-0', 'binomial'),
    ('slstm-0', 'uniform'),
  ),
)
def test_remat_of_native_steps_changes_no_gradient(case, schedule):
  plan = {'remat_every': 4, 'remat_schedule': schedule, 'remat_kept': 2}
  got = both_ways(case, impl='native', **plan)
  assert_close(got, stepped(case))


@pytest.mark.native
@pytest.mark.parametrize(
  ('name', 'options'),
  (('lstm', {}), ('gru', {'reset': 'before'}), ('rhn', {}), ('slstm', {})),
)
def test_native_is_refused_by_name_and_skipped_by_auto(name, options):
  message = 'multiplies in float32, not bfloat16'
  module = config_lib.load('cells', name, 'model.cell')
  options, D = settled(name, options)
  x = draws.normal(B, L, D)
  for impl in ('auto', 'native'):
    cell = module.Cell(
      options,
      D,
      base.Plan(impl),
      precision.POLICIES['bfloat16'],
    )
    run, state = jax.make_jaxpr(cell.apply), cell.init_state(B)
    if impl == 'auto':
      variables = draws.parameters(cell.init, state, x[:, :1])
      assert 'rnn_jax' not in str(run(variables, state, x))
    else:
      with pytest.raises(NotImplementedError, match=message):
        run(variables, state, x)


@pytest.mark.native
@pytest.mark.parametrize(
  ('case', 'target'),
  (
    ('lstm-0', 'lstm'),
    ('min_lstm-0', 'min_lstm'),
    ('gru-0', 'gru'),
    ('gru-1', 'gru_before'),
    ('rhn-0', 'rhn'),
    ('slstm-0', 'slstm'),
  ),
)
def test_auto_is_native_except_for_a_single_step(case, target):
  cell = example(case).cell.clone(plan=base.Plan('auto'))
  variables = example(case).variables
  for length, native in ((1, False), (2, True)):
    x = draws.normal(B, length, cell.width)
    program = jax.make_jaxpr(cell.apply)(variables, cell.init_state(B), x)
    assert (f'rnn_jax_{target}_forward' in str(program)) == native


@pytest.mark.slow
@pytest.mark.parametrize(
  ('case', 'schedule', 'every'),
  (
    ('gru-0', 'logarithmic', 2),
    ('lstm-0', 'binomial', 2),
    ('gla-0', 'uniform', 4),  # 2 steps are left over
  ),
)
def test_the_scan_has_the_gradients_of_the_steps(case, schedule, every):
  plan = {'remat_every': every, 'remat_schedule': schedule, 'remat_kept': 2}
  assert_close(both_ways(case, impl='scan', **plan), stepped(case))


@ALL
def test_states_have_the_batch_first_and_begin_at_zero(case):
  cell = example(case).cell
  one, three = (jax.eval_shape(lambda n=n: cell.init_state(n)) for n in (1, 3))
  states = one, three, cell.init_state(B)
  for one, three, zeros in zip(*map(jax.tree.leaves, states), strict=True):
    assert three.shape == (3, *one.shape[1:]) and one.shape[0] == 1
    assert not np.asarray(zeros).any()


@pytest.mark.parametrize('name', NAMES)
def test_a_state_needs_no_parameters(name):
  module = config_lib.load('cells', name, 'model.cell')
  cell = module.Cell(*settled(name, {}))
  axes, states = zip(
    *(
      (c.state_axes(), jax.eval_shape(lambda c=c: c.init_state(1)))
      for c in (cell, cell.bind({}))
    ),
    strict=True,
  )
  assert axes[0] == axes[1]
  shapes, bound = (jax.tree.map(lambda x: x.shape, x) for x in states)
  assert shapes == bound and jax.tree.leaves(shapes)


@ALL
def test_a_state_can_be_donated(case):
  leaves = jax.tree.leaves(example(case).cell.init_state(B))
  assert len({id(x) for x in leaves}) == len(leaves)


@pytest.mark.parametrize(
  ('case', 'policy'),
  [
    *(
      pytest.param(case, policy, marks=marks_of(case))
      for case in CASES
      for policy in ('float32', 'bfloat16')
    ),
    *((case, policy) for case in SOME for policy in OTHER_POLICIES),
  ],
)
def test_states_are_float32_under_every_policy(case, policy):
  given = example(case)
  cell = given.cell.clone(policy=precision.POLICIES[policy])
  stored = cell.policy.activations
  x, made = given.x.astype(stored), given.variables
  if policy == 'float32':
    one = given.run(given.state, x[:, :1], given.starts[:, :1])
    runs = [one, whole_row(case)[0]]
  else:
    init = functools.partial(cell.init_with_output, jax.random.key(0))
    one, made = jax.eval_shape(init, given.state, x[:, :1])
    many = jax.eval_shape(cell.apply, made, given.state, x)
    runs = [one, many]
  for state, y in runs:
    assert y.dtype == stored
    for got, old in zip(
      *map(jax.tree.leaves, (state, given.state)), strict=True
    ):
      assert (got.shape, got.dtype) == (old.shape, jnp.float32)
  for leaf in jax.tree.leaves((given.state, made)):
    assert leaf.dtype == jnp.float32


HEADED = '''"""A cell whose heads divide the model's width."""

import dataclasses

from rnn_jax import errors
from rnn_jax.cells.parts import vector

LOGICAL_AXES = vector.LOGICAL_AXES


@dataclasses.dataclass(frozen=True)
class Config(vector.Config):
  heads: int = 4

  def check(self, config):
    super().check(config)
    if config.model.width % self.heads or config.model.width < {least}:
      errors.refuse('cell.heads', self.heads, 'they must divide model.width')


class Cell(vector.Cell):
  parts = 1
'''


@pytest.mark.parametrize('least', (1, 20, 10_000))
def test_a_cell_has_a_width_that_its_check_accepts(
  least, tmp_path, monkeypatch
):
  name = f'headed{least}'
  (tmp_path / f'{name}.py').write_text(HEADED.format(least=least))
  monkeypatch.setattr(cells, '__path__', [*cells.__path__, str(tmp_path)])
  if least > WIDTHS[-1]:
    with pytest.raises(errors.InputError, match='cell.heads=4: they must div'):
      settled(name, {})
    return
  options, D = settled(name, {})
  assert (options.heads, options.state_width) == (4, D)
  assert {1: 8, 20: 24}[least] == D


def test_the_tables_name_cells_that_exist():
  assert NAMES and {*VARIANTS} <= {*NAMES}
  assert {*IMPLS, *REACH, *SILENT, *LATER} <= {*CASES}
  assert {*OTHERS} <= {*EQUATIONS} <= {*NAMES}
