"""Schedule-free AdamW against its equations, also in a training step."""

import jax
import numpy as np

from rnn_jax.training import optimizer
from tests.training import test_step
from tests.training.optimizers import following

FREE = [
  ('optimizer.name', 'schedule_free'),
  ('schedule.name', 'constant'),
  ('optimizer.learning_rate', 0.03),
  ('optimizer.frozen', ('embedding/.*', 'head/bias')),
]


def test_parameters_follow_the_published_equations():
  b1, b2, eps = 0.8, 0.95, 1e-8

  def reference(x, gradients, decay):
    z, v, total = x, 0.0, 0.0
    for t, g in enumerate(gradients, 1):
      rate = following.rate(t - 1)
      y = (1 - b1) * z + b1 * x
      v = b2 * v + (1 - b2) * g**2
      u = g / (np.sqrt(v / (1 - b2**t)) + eps)
      z = z - rate * (u + decay * y)
      total += rate**2
      x = (1 - rate**2 / total) * x + rate**2 / total * z
    return x

  settings = following.config('schedule_free', b1=b1, b2=b2)
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


def test_gradients_are_taken_between_and_evaluations_at_the_average(
  monkeypatch,
):
  """Of frozen parameters there is but one point, and no state."""
  programs, state = test_step.make(FREE)
  monkeypatch.setattr(type(programs.task), 'init_from_data', shifted)
  state = programs.init_from_data(state, None)
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
  y = jax.tree.map(lambda x, z: np.float32(0.1 * z + 0.9 * x), x, z)
  batch = test_step.draw(3)
  at_y, at_x = (
    programs.evaluate_step(params, None, batch)[1]['loss'] for params in (y, x)
  )
  _, values = programs.train_step(state, batch)
  np.testing.assert_allclose(values['sums']['loss'], at_y, rtol=1e-6)
  assert abs(at_x / at_y - 1) > 1e-4
