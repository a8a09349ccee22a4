"""The quasi-recurrent network against its equations."""

import functools

import jax
import numpy as np
import pytest

from rnn_jax import config as config_lib
from rnn_jax import errors
from rnn_jax.cells import base
from rnn_jax.cells import qrnn
from tests.cells import equations
from tests.support import draws
from tests.support import loops

D = equations.D
GATES = {'f': 'zf', 'fo': 'zfo', 'ifo': 'zfoi'}


def by_hand(pooling, taps, params, x):
  """The module's docstring, gate by gate."""
  W, b = params['projection']['kernel'], params['projection']['bias']
  W = W.reshape(taps, D, -1)
  h, out = np.zeros(len(b) // len(GATES[pooling])), []
  names = {'f': 'keep', 'i': 'write', 'o': 'read'}
  by_name = {'write': []} | {names[name]: [] for name in GATES[pooling][1:]}
  for t in range(len(x)):
    read = b + sum(x[t - d] @ W[d] for d in range(taps) if d <= t)
    parts = np.split(read, len(GATES[pooling]))
    z, *others = parts
    gates = dict(
      zip(GATES[pooling][1:], map(equations.sigmoid, others), strict=True)
    )
    gates.setdefault('i', 1 - gates['f'])
    h = gates['f'] * h + gates['i'] * np.tanh(z)
    out.append(gates.get('o', 1.0) * h)
    for name, gate in gates.items():
      by_name[names[name]].append(gate)
  return np.stack(out), by_name


@pytest.mark.parametrize(
  ('pooling', 'taps', 'width'), (('f', 3, 0), ('fo', 2, 4), ('ifo', 1, 0))
)
def test_it_equals_its_equations(pooling, taps, width):
  equations.compare(
    'qrnn',
    {'pooling': pooling, 'taps': taps, 'state_width': width},
    functools.partial(by_hand, pooling, taps),
  )


def test_it_begins_with_a_high_forget_gate():
  cell = equations.made('qrnn', forget_bias=2.0, pooling='ifo')
  want = np.repeat([0.0, 2.0, 0.0, 0.0], D)
  np.testing.assert_array_equal(cell.init_biases(None, want.shape), want)


def test_it_has_as_many_parameters_as_documented():
  for pooling, gates in GATES.items():
    want = len(gates) * D * (3 * D + 1)
    assert equations.count('qrnn', taps=3, pooling=pooling) == want


def traced(length=12, **plan):
  cell = qrnn.Cell(qrnn.Config(), D, base.Plan(**plan))
  x, state = draws.normal(2, length, D), cell.init_state(2)
  variables = draws.parameters(cell.init, state, x)
  return jax.make_jaxpr(cell.apply)(variables, state, x)


@pytest.mark.parametrize(
  ('plan', 'turns'),
  (
    ({'impl': 'chunked', 'chunk_length': 4}, [4, 3]),
    ({'impl': 'associative'}, []),
    ({'impl': 'scan'}, [12]),
    ({'impl': 'associative', 'remat_every': 3}, [4]),
  ),
)
def test_the_plan_s_implementation_is_the_one_that_runs(plan, turns):
  assert loops.lengths(traced(**plan).jaxpr) == turns


@pytest.mark.parametrize(
  ('section', 'key', 'value', 'message'),
  (
    ('cell', 'taps', 0, 'give 1 or more'),
    ('cell', 'pooling', 'max', "choose one of ('f', 'fo', 'ifo')"),
    ('recurrence', 'impl', 'pallas', "model.cell='qrnn' has ('auto', 'scan'"),
  ),
)
def test_bad_options_are_refused(section, key, value, message):
  refusal = equations.refusal('qrnn', section, key, value)
  assert refusal.startswith(f'{section}.{key}={value!r}: {message}')


def test_incompatible_options_are_refused():
  raw = config_lib.default('qrnn')
  raw.mesh.sequence, raw.remat.every = 2, 16
  raw.data.layout = 'stream'
  with pytest.raises(errors.InputError) as caught:
    config_lib.parse(raw)
  assert str(caught.value) == (
    "remat.every=16: with mesh.sequence=2 model.cell='qrnn' stores all states: "
    'give 0'
  )
  raw = config_lib.default('qrnn')
  raw.model.update(block='plain', embedding_width=32)
  with pytest.raises(errors.InputError, match='embedding_width=32'):
    config_lib.parse(raw)
