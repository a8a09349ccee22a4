"""The GRU against its equations, in both of its forms."""

import functools

import numpy as np
import pytest

from tests.cells import equations

D = equations.D


def by_hand(reset, params, x):
  """The module's docstring, gate by gate."""
  W, b = params['projection']['kernel'], params['projection']['bias']
  U = params['recurrent']['kernel']
  S = U.shape[0]
  h, out, gates = np.zeros(S), [], {'keep': [], 'read': []}
  for x_t in x:
    read = np.split(x_t @ W + b, 3)
    r, z = (
      equations.sigmoid(read[n] + h @ U[:, n * S : (n + 1) * S])
      for n in range(2)
    )
    if reset == 'after':
      seen = r * (h @ U[:, 2 * S :] + params['candidate_bias'])
    else:
      seen = (r * h) @ params['recurrent_candidate']['kernel']
    h = (1 - z) * np.tanh(read[2] + seen) + z * h
    out.append(h)
    gates['keep'].append(z)
    gates['read'].append(r)
  return np.stack(out), gates


@pytest.mark.parametrize(('reset', 'width'), (('after', 3), ('before', 0)))
def test_it_equals_its_equations(reset, width):
  equations.compare(
    'gru',
    {'state_width': width, 'reset': reset},
    functools.partial(by_hand, reset),
  )


def test_it_begins_with_a_high_update_gate():
  cell = equations.made('gru', keep_bias=2.0)
  want = np.repeat([0.0, 2.0, 0.0], D)
  np.testing.assert_array_equal(cell.init_biases(None, want.shape), want)


def test_it_has_as_many_parameters_as_documented():
  assert equations.count('gru') == 3 * D * (2 * D + 1) + D
  assert equations.count('gru', reset='before') == 3 * D * (2 * D + 1)


@pytest.mark.parametrize(
  ('section', 'key', 'value', 'message'),
  (
    ('cell', 'reset', 'never', "choose one of ('after', 'before')"),
    ('mesh', 'sequence', 2, "model.cell='gru' runs a row step by step"),
  ),
)
def test_bad_options_are_refused(section, key, value, message):
  refusal = equations.refusal('gru', section, key, value)
  assert refusal.startswith(f'{section}.{key}={value!r}: {message}')
