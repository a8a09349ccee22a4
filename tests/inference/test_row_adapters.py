"""Rows with adapters of their own, against models with the sums of matrices."""

import dataclasses

import jax
import numpy as np
import pytest

from rnn_jax import config as config_lib
from rnn_jax import errors
from rnn_jax.config import adapters as config_adapters
from rnn_jax.inference import decode
from rnn_jax.inference import layers
from rnn_jax.inference import row_adapters
from rnn_jax.models import adapters as adapters_lib
from rnn_jax.models import language_model
from rnn_jax.models import rounded_weights
from rnn_jax.runs import adapter as adapter_lib
from rnn_jax.runs import bundle as bundle_lib
from tests.support import bundles
from tests.support import shared


@pytest.fixture(scope='module', autouse=True)
def _programs():
  with shared.programs():
    yield


CELLS = {
  'bdh': {'heads': 2, 'neurons': 8},
  'rg_lru': {},
  'rwkv7': {'heads': 2, 'rank': 2},
  'mamba2': {'heads': 2},
  'mamba': {'rank': 2},
  'kda': {'heads': 2, 'key_width': 4, 'value_width': 4},
  'gru': {},
  'rhn': {'depth': 2},
  'slstm': {'heads': 2},
  'attention': {'heads': 2, 'head_width': 4, 'window': 7},
}
EVERY = '.*/kernel', '.*embedding'


def raw_config(cells=None, **changes):
  cells = cells or {'simple_rnn': {'heads': 2, 'key_width': 4}}
  raw = config_lib.default((*cells,) if len(cells) > 1 else [*cells][0])
  raw.model.update(width=8, mlp_width=8, layers=max(2, len(cells)))
  raw.model.update(changes)
  raw.data.length, raw.sample.new_tokens = 9, 4
  raw.cell.update(cells if len(cells) > 1 else [*cells.values()][0])
  return raw


def adapter(bundle, seed, **options):
  """An adapter of a model, with random changes."""
  options = {'rank': 2, 'alpha': 3.0, 'targets': EVERY} | options
  options = config_adapters.Adapters(**options)
  config = dataclasses.replace(bundle.config, adapters=options)
  changes = jax.eval_shape(
    lambda key: adapters_lib.init(key, bundle.params, options),
    jax.random.key(0),
  )
  rng = np.random.default_rng(seed)
  changes = jax.tree.map(
    lambda x: rng.normal(0, 0.3, x.shape).astype(np.float32), changes
  )
  return adapter_lib.Adapter(config, bundle.tokenizer, changes, 0)


def rounded(bundle):
  """A model whose matrices were in 8 bits."""
  packed = jax.jit(rounded_weights.pack)(bundle.params)
  params = jax.device_get(jax.jit(rounded_weights.unpack)(packed))
  return dataclasses.replace(bundle, params=params)


def network(bundle):
  model = language_model.from_config(bundle.config, bundle.tokenizer.size)
  return layers.for_inference(model)


def summed(bundle, given):
  """The parameters of a model with an adapter: W + alpha / r A B."""
  if given is None:
    return bundle.params
  options = given.config.adapters
  params, changes = bundle_lib.flat(bundle.params), {}
  for path, x in bundle_lib.flat(given.changes).items():
    name, _, side = path.rpartition('.')
    changes.setdefault(name, {})[side] = np.float64(x)
  for name, x in changes.items():
    change = options.alpha / options.rank * x['a'] @ x['b']
    params[name] = np.float32(params[name] + change)
  return bundle_lib.nested(params)


@pytest.mark.parametrize(
  ('cells', 'targets', 'changes'),
  (
    (CELLS, '.*/projection/kernel', {'block': 'plain', 'mlp_width': 0}),
    (
      None,
      '.*/up/kernel',
      {
        'biases': True,
        'tied': True,
        'positions': 'learned',
        'logits_cap': 2.0,
      },
    ),
  ),
  ids=('cells', 'tied'),
)
def test_a_row_steps_as_the_model_with_its_adapter(cells, targets, changes):
  bundle = bundles.make(raw_config(cells, **changes))
  model = network(bundle)
  each = [
    None,
    adapter(bundle, 1),
    adapter(bundle, 2, rank=3, targets=(targets,)),
  ]
  table = row_adapters.make_table(each[1:])
  params = layers.unstack(bundle.params)
  row_adapters.check(model, params, table)
  order_B = np.array([2, 0, 1, 2])
  rng = np.random.default_rng(3)
  tokens_LxB = rng.integers(0, bundle.tokenizer.size, (3, len(order_B)))

  @jax.jit
  def run(params, table, index_B, tokens_LxB):
    state = model.apply({}, tokens_LxB.shape[1], method='init_state')
    own = row_adapters.take(table, index_B)

    def step(state, token_B):
      with row_adapters.applied(own):
        return decode.apply(model, params, state, token_B[:, None])

    return jax.lax.scan(step, state, tokens_LxB)

  state, logits = jax.device_get(run(params, table, order_B, tokens_LxB))
  none = jax.tree.map(np.zeros_like, table)
  merged = jax.jit(
    lambda params, table, n: row_adapters.merged(
      params, row_adapters.take(table, n)
    )
  )
  for n, given in enumerate(each):
    rows, own = order_B == n, layers.unstack(summed(bundle, given))
    want, want_logits = jax.device_get(run(own, none, order_B, tokens_LxB))
    jax.tree.map(
      lambda x, y: np.testing.assert_allclose(x[rows], y[rows], 2e-5, 2e-5),  # noqa: B023
      (state, logits.swapaxes(0, 1)),
      (want, want_logits.swapaxes(0, 1)),
    )
    jax.tree.map(
      lambda x, y: np.testing.assert_allclose(x, y, 1e-6, 1e-6),
      merged(params, table, np.int32(n)),
      own,
    )
  assert np.abs(logits[:, 0] - logits[:, 1]).max() > 0.1


def test_what_rows_must_share_is_named():
  bundle = bundles.make(raw_config())
  table = row_adapters.make_table([adapter(bundle, 1)])
  table |= {'layer_0/mixer/kernel': table['layer_0/mlp/up/kernel']}
  message = "adapters.targets='layer_0/mixer/kernel': these matrices cannot"
  with pytest.raises(errors.InputError, match=message):
    row_adapters.check(network(bundle), layers.unstack(bundle.params), table)
  row_adapters.check(network(bundle), layers.unstack(bundle.params), {})
