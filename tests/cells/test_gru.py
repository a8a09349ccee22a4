"""The GRU against its equations, in both of its forms."""

import functools

import numpy as np
import pytest

from rnn_jax import config as config_lib
from rnn_jax import errors
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
def test_it_is_what_its_docstring_says(reset, width):
  equations.compare(
    'gru',
    {'state_width': width, 'reset': reset},
    functools.partial(by_hand, reset),
  )


def test_it_begins_by_keeping_much():
  cell = equations.made('gru', keep_bias=2.0)
  want = np.repeat([0.0, 2.0, 0.0], D)
  np.testing.assert_array_equal(cell.begin_biases(None, want.shape), want)


def test_it_has_the_parameters_of_its_docstring():
  assert equations.count('gru') == 3 * D * (2 * D + 1) + D
  assert equations.count('gru', reset='before') == 3 * D * (2 * D + 1)


@pytest.mark.parametrize(
  ('section', 'key', 'value', 'message'),
  (
    ('cell', 'reset', 'never', "choose one of ('after', 'before')"),
    ('mesh', 'sequence', 2, "model.cell='gru' reads a row step by step"),
  ),
)
def test_what_cannot_be_is_refused(section, key, value, message):
  told = equations.refusal('gru', section, key, value)
  assert told.startswith(f'{section}.{key}={value!r}: {message}')


def test_native_resets_after_the_product():
  raw = config_lib.default('gru')
  raw.cell.reset, raw.recurrence.impl = 'before', 'native'
  with pytest.raises(
    errors.InputError, match="cell.reset='before': recurrence.impl='native' has"
  ):
    config_lib.parse(raw)
