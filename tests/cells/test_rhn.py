"""The recurrent highway network against its equations."""

import numpy as np
import pytest

from tests.cells import equations

D = equations.D


def by_hand(params, x):
  """The module's docstring, layer by layer of a step."""
  W, b = params['projection']['kernel'], params['projection']['bias']
  depth = sum(name.startswith('recurrents_') for name in params)
  s, out = np.zeros(W.shape[1] // 2), []
  gates = {f'take_{n + 1}': [] for n in range(depth)} | {'keep': []}
  for x_t in x:
    kept = 1
    for n in range(depth):
      own = params[f'recurrents_{n}']
      read = s @ own['kernel'] + (own['bias'] if n else x_t @ W + b)
      c, t = np.split(read, 2)
      t = equations.sigmoid(t)
      s = t * np.tanh(c) + (1 - t) * s
      gates[f'take_{n + 1}'].append(t)
      kept = kept * (1 - t)
    gates['keep'].append(kept)
    out.append(s)
  return np.stack(out), gates


@pytest.mark.parametrize(('depth', 'width'), ((1, 0), (3, 4)))
def test_it_equals_its_equations(depth, width):
  options = {'depth': depth, 'state_width': width}
  equations.compare('rhn', options, by_hand)


def test_each_layer_begins_by_carrying():
  params = equations.initial('rhn', depth=2, transform_bias=-3.0)
  want = np.repeat([0.0, -3.0], D)
  for name in ('projection', 'recurrents_1'):
    np.testing.assert_array_equal(params[name]['bias'], want)
  assert 'bias' not in params['recurrents_0']


def test_it_has_as_many_parameters_as_documented():
  for depth in (1, 4):
    want = 2 * D * (D + depth * D + depth)
    assert equations.count('rhn', depth=depth) == want


@pytest.mark.parametrize(
  ('section', 'key', 'value', 'message'),
  (
    ('cell', 'depth', 0, 'give 1 or more'),
    ('mesh', 'sequence', 2, "model.cell='rhn' runs a row step by step"),
  ),
)
def test_bad_options_are_refused(section, key, value, message):
  refusal = equations.refusal('rhn', section, key, value)
  assert refusal.startswith(f'{section}.{key}={value!r}: {message}')
