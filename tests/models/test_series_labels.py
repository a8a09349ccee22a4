"""A pool of a labelled series is the pool of its steps, by plain NumPy."""

import jax
import numpy as np
import pytest

from rnn_jax import config as config_lib
from rnn_jax.models import series_labels
from tests.support import draws
from tests.support import labelled_series


def made(pooling, bidirectional):
  raw = labelled_series.raw_config('t.csv')
  raw.model.bidirectional = bidirectional
  raw.data.update(channels=('a', 'b'), classes=('x', 'y'))
  config = config_lib.parse(raw)
  return series_labels.from_config(config, 3, pooling)


@pytest.mark.parametrize('bidirectional', (False, True))
def test_pools_are_those_of_the_steps(bidirectional):
  rng = np.random.default_rng(0)
  readings = rng.normal(size=(1, 9, 2)).astype(np.float32)
  starts = np.array([[1, 0, 0, 0, 1, 0, 0, -1, 0]])  # two series, and padding
  model = made('concat', bidirectional)
  state = model.bind({}).init_state(1)
  params = draws.parameters(model.init, state, readings)
  run = jax.jit(type(model).apply, static_argnums=0, static_argnames='method')

  def pooled(model, readings, starts=None):
    _, y = run(model, params, state, readings, starts, method='pooled')
    return np.asarray(y[0])

  def stacked(self, state, readings):
    return self.stack(state[0], self.read(readings), None)[1]

  together = pooled(model, readings, starts)
  for begin, end in ((0, 4), (4, 7)):
    own = readings[:, begin:end]
    # The steps of a series by itself: a residual block's, without a norm.
    each = np.asarray(run(model, params, state, own, method=stacked)[0])
    last = each[-1].copy()
    if bidirectional:  # what the backward cell reads last is the first step
      last[6:] = each[0, 6:]
    wanted = np.concatenate([last, each.max(0), each.mean(0)])
    np.testing.assert_allclose(together[end - 1], wanted, rtol=1e-4, atol=1e-5)
    one = pooled(made('max', bidirectional), own)[-1]
    np.testing.assert_allclose(one, each.max(0), rtol=1e-4, atol=1e-5)


def test_its_axes_name_all_parameters_and_states():
  model = made('mean', True)
  given = model.bind({}).init_state(1), np.zeros((1, 2, 2), np.float32)
  params = draws.parameters(model.init, *given)['params']
  assert {*params} == {'input', 'stack', 'head'}
  axes = jax.tree.leaves(model.bind({}).state_axes())
  state = jax.tree.leaves(model.bind({}).init_state(2))
  assert [len(x.split('x')) for x in axes] == [x.ndim for x in state]
