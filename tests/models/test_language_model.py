"""The whole model: one pass, its parts, its formats."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from configs import bdh
from rnn_jax import config as config_lib
from rnn_jax import errors
from rnn_jax.cells import base
from rnn_jax.models import blocks
from rnn_jax.models import language_model
from rnn_jax.ops import cross_entropy
from rnn_jax.ops import precision
from tests.support import bdh_oracle
from tests.support import close
from tests.support import draws

B, L, V = 2, 12, 7
CLOSE = 2e-6  # measured: 6e-7, of the largest logit
ROUNDED = 1e-4  # measured: 1.9e-5, by a scan and steps


def build(**changes):
  """A small model and its parameters, `section__key=value` changed."""
  config = config_lib.default()
  config.model.width = 8
  config.recurrence.chunk_length = 4  # compiles faster than 64
  config.cell.update({'heads': 2, 'key_width': 3, 'value_width': 4})
  for key, value in changes.items():
    section, _, name = key.partition('__')
    config[section][name] = value
  model = language_model.from_config(config_lib.parse(config), V)
  tokens = tokens_and_starts()[0]
  return model, draws.parameters(model.init, fresh(model), tokens)


def outputs(model, variables):
  """The logits and the features, of one program."""
  tokens, _ = tokens_and_starts()

  @jax.jit
  def run(variables, state):
    _, logits = model.apply(variables, state, tokens)
    _, features = model.apply(variables, state, tokens, method='features')
    return logits, features

  return run(variables, fresh(model))


def fresh(model, rows=B):
  return draws.computed(lambda: model.apply({}, rows, method='init_state'))


def tokens_and_starts():
  tokens = jnp.asarray(np.random.default_rng(0).integers(V, size=(B, L)))
  return tokens, jnp.zeros((B, L), jnp.int32).at[1, 5].set(1)


assert_close = functools.partial(close.check, tolerance=CLOSE)


@pytest.mark.slow
@pytest.mark.parametrize(
  'changes',
  (
    {'model__mlp_width': 16, 'model__tied': True}
    | {'model__positions': 'learned', 'model__norm': 'layer'},
    {'model__block': 'plain', 'model__embedding_width': 6},
  ),
  ids=('residual', 'plain'),
)
def test_prefill_and_steps_give_the_logits_of_one_pass(changes):
  model, variables = build(**changes)
  tokens, starts = tokens_and_starts()
  run = jax.jit(functools.partial(model.apply, variables))
  _, whole = run(fresh(model), tokens, starts)
  state, logits = run(fresh(model), tokens[:, :7], starts[:, :7])
  parts = [logits]
  for t in range(7, L):
    now = slice(t, t + 1)
    state, logits = run(state, tokens[:, now], starts[:, now])
    parts.append(logits)
  assert whole.shape == (B, L, V)
  # A head's RMSNorm blows up the rounding of sums that nearly cancel.
  assert_close(np.concatenate(parts, 1), whole, tolerance=ROUNDED)
  # Row 1 is packed of two documents: the second one equals a row of its own.
  _, single = run(fresh(model), tokens[:, 5:], 0 * starts[:, 5:])
  assert_close(whole[1, 5:], single[1], tolerance=ROUNDED)


@pytest.mark.parametrize('multiplier', (0.0, 0.5))
def test_a_tied_head_is_the_transposed_embedding(multiplier):
  model, variables = build(model__tied=True, model__tied_multiplier=multiplier)
  logits, features = outputs(model, variables)
  embedding = variables['params']['embedding']['embedding']
  assert 'head' not in variables['params']
  scale = multiplier or 8**-0.5
  assert_close(logits, np.float64(features) @ embedding.T * scale)


def test_the_head_reads_a_multiple_of_what_the_blocks_give():
  model, variables = build(model__head_multiplier=0.5)
  plain, _ = build()
  _, features = outputs(plain, variables)
  logits, _ = outputs(model, variables)
  head = jax.tree.map(np.float64, variables['params']['head'])
  want = 0.5 * np.float64(features) @ head['kernel'] + head['bias']
  assert_close(logits, want)


def test_a_cap_bounds_the_logits_that_are_seen_and_lost_by():
  model, variables = build(model__logits_cap=1.5)
  tokens, _ = tokens_and_starts()
  logits, features = outputs(model, variables)
  head = jax.tree.map(np.float64, variables['params']['head'])
  z = np.float64(features) @ head['kernel'] + head['bias']
  want = 1.5 * np.tanh(z / 1.5)
  assert abs(z).max() > 1.5  # so that the cap matters
  assert_close(logits, want)
  weights = jnp.ones((B, L))
  head = model.apply(variables, method='head_weights')
  options = cross_entropy.Options()
  sums = language_model.token_sums(
    model, features, head, (tokens, weights), options
  )
  logp = want - np.log(np.exp(want).sum(-1, keepdims=True))
  nats = -np.take_along_axis(logp, np.asarray(tokens)[..., None], -1).sum()
  np.testing.assert_allclose(sums.nats, nats, rtol=1e-5)


def test_dropout_needs_a_key_and_depends_on_it():
  model, variables = build(model__dropout=0.5, model__mlp_width=8)
  tokens, _ = tokens_and_starts()

  @jax.jit
  def logits(key=None):
    rngs = {} if key is None else blocks.dropout_keys(key)
    return model.apply(variables, fresh(model), tokens, rngs=rngs)[1]

  one, other = (logits(jax.random.key(n)) for n in (0, 1))
  assert np.array_equal(logits(), logits())
  assert np.array_equal(one, logits(jax.random.key(0)))
  assert not np.allclose(one, other) and not np.allclose(one, logits())


def test_a_plain_stack_is_dropped_where_it_is_read():
  model, variables = build(model__dropout=0.5, model__block='plain')
  tokens, _ = tokens_and_starts()
  rngs = blocks.dropout_keys(jax.random.key(0))

  @jax.jit
  def run(variables, state):
    def both(model, state):
      x = model.hidden(state, tokens)[1]
      return x, model.normalize(x)

    return model.apply(variables, state, rngs=rngs, method=both)

  x, read = map(np.asarray, run(variables, fresh(model)))
  # A pool over time reads x, which has the size that it has in evaluation. A
  # token of which all is dropped is 0.
  assert (x != 0).mean() > 0.9
  kept = read != 0
  np.testing.assert_array_equal(read[kept], 2 * x[kept])
  assert 0.2 < kept.mean() < 0.8 and not (kept == kept[:, :1]).all()


# Root mean square of the errors over that of the logits. (A norm of what a
# document's first step reads can blow a single rounding up.)     # measured
FORMATS = {
  'float32': 0.0,
  'bfloat16': 4e-2,  # 2e-2
  'bfloat16_operands': 3e-2,  # 1.1e-2
  'float16': 5e-3,  # 1.5e-3
}


@functools.cache
def both_ways(policy):
  """The state and the logits, and the gradients' shapes."""
  tokens, starts = tokens_and_starts()
  model, variables = build(
    model__mlp_width=16, model__layers=1, train__precision=policy
  )

  def run(variables):
    return model.apply(variables, fresh(model), tokens, starts)

  slopes = jax.grad(lambda variables: jnp.sin(run(variables)[1]).sum())
  return *jax.jit(run)(variables), jax.eval_shape(slopes, variables)


@pytest.mark.parametrize('policy', FORMATS)
def test_a_policy_changes_formats_inside_and_results_only_a_little(policy):
  state, logits, slopes = both_ways(policy)
  for leaf in jax.tree.leaves((state, logits, slopes)):
    assert leaf.dtype == jnp.float32
  exact = both_ways('float32')[1]
  error = np.float64(logits) - np.float64(exact)
  assert np.std(error) <= FORMATS[policy] * np.std(exact)
  assert np.array_equal(logits, exact) == (policy == 'float32')


def test_the_model_has_the_config_s_plan_and_policy():
  config = config_lib.default()
  config.recurrence.update({'impl': 'scan', 'chunk_length': 32})
  config.remat.every = 'sqrt'
  config.data.length = 50
  config.train.update(precision='bfloat16_operands', quantized='int8')
  model = language_model.from_config(config_lib.parse(config), V)
  assert model.plan == base.Plan('scan', 32, 8, fresh=True)
  bfloat16_operands = precision.policy('bfloat16_operands', 'int8')
  assert model.policy == bfloat16_operands
  config.remat.update({'layers': 2, 'keep': ('hidden',), 'offload': True})
  kept = dataclasses.replace(
    model.plan, layers=2, keep=('hidden',), offload=True
  )
  model = language_model.from_config(config_lib.parse(config), V)
  assert model.plan == kept


def test_an_unsupported_format_is_refused_by_name():
  for key in ('train.precision', 'recurrence.operands'):
    with pytest.raises(
      errors.InputError, match=f"^{key}='tf32': this device .*'float32'"
    ):
      build(**{key.replace('.', '__'): 'tf32'})


@pytest.mark.slow
@pytest.mark.parametrize('cell', ('simple_rnn', 'gla', 'kda', 'rwkv7', 'bdh'))
def test_operands_reach_the_recurrence(cell):
  def program(operands):
    impl = 'chunked' if cell == 'bdh' else 'auto'
    config = config_lib.default(cell)
    config.recurrence.update({'impl': impl, 'operands': operands})
    model = language_model.from_config(config_lib.parse(config), V)
    inputs = fresh(model, 1), jnp.zeros((1, 9), jnp.int32)
    variables = jax.eval_shape(model.init, jax.random.key(0), *inputs)
    return str(jax.make_jaxpr(model.apply)(variables, *inputs))

  assert 'bf16' in program('bfloat16')
  assert 'bf16' not in program('auto')


@pytest.mark.slow
@pytest.mark.parametrize('kind', ('int8', 'fp8'))
def test_8_bits_round_the_layers_and_not_the_head(kind):
  plain, variables = build()
  rounded, _ = build(train__quantized=kind)
  (_, exact), (logits, features) = (
    outputs(model, variables) for model in (plain, rounded)
  )
  # The median: a small head, divided by its norm, may turn.
  off = np.median(abs(features - exact)) / np.std(exact)
  assert 1e-3 < off < 0.1  # measured: 0.011 of int8, 0.050 of fp8
  head = jax.tree.map(np.float64, variables['params']['head'])
  want = np.float64(features) @ head['kernel'] + head['bias']
  assert_close(logits, want)


# tests/cells/test_contract.py has the layer in its other forms.
def test_the_dragon_hatchling_equals_its_equations():
  """x = LN(Emb); x = LN(x + LN(layer(x))) in turn, one layer for all; x W."""
  raw = bdh.get_config('small')
  raw.model.update(layers=3, width=8, embedding_scale=1.0)
  raw.cell.update(heads=2, neurons=16)
  raw.recurrence.impl = 'pairs'
  parsed = config_lib.parse(raw)
  model = language_model.from_config(parsed, 11)
  tokens = np.random.default_rng(0).integers(11, size=(2, 9))
  state = model.apply({}, 2, method='init_state')
  params = draws.parameters(model.init, state, tokens[:, :1])['params']
  _, got = jax.jit(model.apply)({'params': params}, state, tokens)
  params = jax.tree.map(np.float64, params)
  x = bdh_oracle.standard(params['embedding']['embedding'][tokens])
  options = bdh_oracle.Options(2, parsed.cell.rotary, 'past')
  for _ in range(3):
    y = bdh_oracle.layer(params['stack']['shared']['cell'], x, options)
    x = bdh_oracle.standard(x + bdh_oracle.standard(y))
  want = x @ params['head']['kernel']
  assert_close(got, want, tolerance=2e-5)
