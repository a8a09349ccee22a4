"""Pruning: how much, when, and that zeros stay."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rnn_jax import config as config_lib
from rnn_jax.config import compression as config_compression
from rnn_jax.runs import bundle as bundle_lib
from rnn_jax.training import loop
from rnn_jax.training import pruning
from tests.support import launchers
from tests.support import shared
from tests.support import tiny


@pytest.fixture(scope='module', autouse=True)
def _programs():
  with shared.programs():
    yield


def draw():
  rng = np.random.default_rng(0)

  def matrix(*shape, scale=1.0):
    return {'kernel': scale * rng.normal(size=shape).astype(np.float32)}

  return {
    'embedding': {'embedding': rng.normal(size=(5, 4)).astype(np.float32)},
    'stack': {'blocks': {'a': matrix(2, 10, 6, scale=0.1)}},
    'head': matrix(8, 10) | {'bias': np.full(10, 1e-3, np.float32)},
  }


def smallest_gone(x, fraction):
  """Sets a fraction of a matrix, its smallest numbers, to 0."""
  x = x.copy()
  order = np.argsort(np.abs(x), None)
  x.flat[order[: int(fraction * x.size)]] = 0
  return x


def test_each_layer_has_the_same_sparsity():
  params = draw()
  got = pruning.prune(params, 0.3, 'layer')
  stacked = params['stack']['blocks']['a']['kernel']
  want = np.stack([smallest_gone(x, 0.3) for x in stacked])
  np.testing.assert_array_equal(got['stack']['blocks']['a']['kernel'], want)
  head = smallest_gone(params['head']['kernel'], 0.3)
  np.testing.assert_array_equal(got['head']['kernel'], head)
  assert got['head']['bias'] is params['head']['bias']
  assert got['embedding'] == params['embedding']
  assert pruning.sparsity(got) == pytest.approx(0.3)


def test_all_layers_together_lose_the_smallest():
  params = draw()
  got = pruning.prune(params, 0.6, 'global')
  kernels = params['stack']['blocks']['a']['kernel'], params['head']['kernel']
  joined = smallest_gone(np.concatenate([x.ravel() for x in kernels]), 0.6)
  np.testing.assert_array_equal(
    np.concatenate(
      [
        np.ravel(got['stack']['blocks']['a']['kernel']),
        np.ravel(got['head']['kernel']),
      ]
    ),
    joined,
  )
  # The layers' numbers are a tenth of the head's: nearly all of it stays.
  assert (np.asarray(got['head']['kernel']) != 0).mean() > 0.85


def test_the_sparsity_follows_the_cubic_and_zeros_stay():
  options = config_compression.Pruning(0.5, 'layer', 2, 10, 4)
  update = jax.jit(pruning.update, static_argnums=3)
  rng = np.random.default_rng(1)
  params = {'head': draw()['head']}
  seen = []
  for step in range(14):
    old = params
    params = {
      'head': {
        'kernel': old['head']['kernel'] + rng.normal(size=(8, 10)),
        'bias': old['head']['bias'],
      }
    }
    params = jax.device_get(
      update(jnp.int32(step), old, jax.tree.map(np.float32, params), options)
    )
    seen.append(pruning.sparsity(params))
    zero = old['head']['kernel'] == 0
    assert (params['head']['kernel'][zero] == 0).all()
  half = 0.5 * (1 - 0.5**3)  # at step 6, half-way
  want = [0, 0, 0, 0, 0, 0, *[half] * 4, *[0.5] * 4]
  # A fraction of 80 numbers is rounded down.
  np.testing.assert_allclose(seen, np.floor(80 * np.array(want)) / 80)


@pytest.mark.slow
def test_a_run_ends_sparse_and_a_pruned_model_stays_so(tmp_path):
  raw = tiny.raw_config(tiny.write_text(tmp_path / 'text'))
  raw.data.boundaries = (32,)
  raw.model.layers = 1
  raw.evaluate.every = 2
  raw.pruning.update(sparsity=0.5, end_step=8, every=3)
  run = tmp_path / 'run'
  loop.train(config_lib.parse(raw), str(run))
  # The best of those after the last pruning.
  params = bundle_lib.read(run, 'best').params
  # Matrices of 64 to 4112 numbers, whose numbers of zeros are rounded down.
  assert pruning.sparsity(params) == pytest.approx(0.5, abs=0.005)
  out = tmp_path / 'pruned'
  flags = f'--workdir={run}', '--sparsity=0.75', f'--output={out}'
  code, printed, err = launchers.run('prune', *flags)
  assert code == 0, err
  assert 'zeros in matrices: 75.0%' in printed
  before = bundle_lib.flat(bundle_lib.read(out, 0).params)
  loop.train(config_lib.parse(raw), str(out))
  after = bundle_lib.flat(bundle_lib.read(out, 'latest').params)
  for name, x in before.items():
    if name.endswith('kernel'):
      np.testing.assert_array_equal(after[name][x == 0], 0)
      assert (after[name] != x).any()
  flags = f'--workdir={run}', '--sparsity=1.5', f'--output={out}2'
  code, _, err = launchers.run('prune', *flags)
  assert code == 1 and '--sparsity=1.5: give a fraction in (0, 1)' in err
