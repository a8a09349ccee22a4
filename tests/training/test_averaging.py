"""Averages of the parameters: that of `ema_decay`, and training steps."""

import jax
import numpy as np
import pytest

from rnn_jax.training import optimizer
from tests.training import test_step
from tests.training.optimizers import following

CHANGES = [
  ('schedule.name', 'constant'),
  ('optimizer.learning_rate', 0.03),
  ('optimizer.frozen', ('embedding/.*', 'head/bias')),
]
CASES = {  # and the average's share of where gradients are taken
  'schedule_free': ([('optimizer.name', 'schedule_free')], 0.9),
  'ema_decay': ([('optimizer.ema_decay', 0.9)], 0.0),
}


@pytest.mark.parametrize('ema_decay', (0.3, 0.95))
def test_parameters_are_the_average_of_an_optimizers(ema_decay):
  """In the first steps .95 is above t / (t + 9), and .3 only in the first 3."""

  def reference(x, gradients, decay):
    z = x
    for t, g in enumerate(gradients, 1):
      z = z - following.rate(t - 1) * (g + decay * z)
      d = min(ema_decay, t / (t + 9))
      x = d * x + (1 - d) * z
    return x

  settings = following.config('sgd', b1=0.0, ema_decay=ema_decay)
  following.compare(settings, reference)


def z_of(state):
  """{path of a parameter: the optimizer's own point}."""
  leaves = {}
  for path, leaf in jax.tree.leaves_with_path(state.opt_state):
    names = [str(getattr(k, 'key', getattr(k, 'name', k))) for k in path]
    if 'z' in names:
      leaves['/'.join(names[names.index('z') + 1 :])] = leaf
  return jax.device_get(leaves)


def shifted(task, params, corpus):
  """Begins elsewhere, with both points."""
  del task, corpus
  return params | {'head': jax.tree.map(lambda x: x + 1.0, params['head'])}


@pytest.mark.parametrize('case', CASES)
def test_gradients_are_taken_elsewhere_and_evaluations_at_the_average(
  case, monkeypatch
):
  """Of frozen parameters there is but one point, and no state."""
  changes, share = CASES[case]
  programs, state = test_step.make(CHANGES + changes)
  monkeypatch.setattr(type(programs.task), 'init_from_data', shifted)
  state = programs.states.init_from_data(state, None)
  before = jax.tree.map(np.array, jax.device_get(state.params))
  for n in range(3):
    state, _ = programs.train_step(state, test_step.draw(n))
  x = jax.device_get(state.params)
  moved = jax.tree.map(lambda a, b: bool((a != b).any()), before, x)
  assert moved['embedding'] == {'embedding': False}
  assert moved['head'] == {'kernel': True, 'bias': False}
  own = z_of(state)
  assert 'head/kernel' in own
  assert {'head/bias', 'embedding/embedding'}.isdisjoint(own)
  z = jax.tree.map_with_path(
    lambda path, x: own.get(optimizer.parameter_name(path), x), x
  )
  assert 1e-3 < test_step.largest_difference(x, z) < 0.5  # they began as one
  y = jax.tree.map(lambda x, z: np.float32((1 - share) * z + share * x), x, z)
  batch = test_step.draw(3)
  at_y, at_x = (
    programs.evaluate_step(params, None, batch)[1]['loss'] for params in (y, x)
  )
  _, values = programs.train_step(state, batch)
  np.testing.assert_allclose(values['sums']['loss'], at_y, rtol=1e-6)
  assert abs(at_x / at_y - 1) > 1e-5
