"""Cells against their equations, in float64, one row of a batch at a time."""

import functools

import jax
import numpy as np

from rnn_jax import config as config_lib
from rnn_jax import errors
from tests.support import draws

B, L, D = 2, 7, 5
CLOSE = 2e-6  # measured: 3e-7, of the largest number


def sigmoid(x):
  return 1 / (1 + np.exp(-x))


def compare(name, options, equations):
  """A cell from a state of zeros against `equations(params, x_LxD)`.

  These return h of each step, and the cell's gates by name; what an output
  layer makes of h is added here.
  """
  cell = made(name, **options)
  x, state = draws.normal(B, L, D), draws.computed(lambda: cell.init_state(B))
  variables = draws.parameters(cell.init, state, x)
  got, looked = jax.jit(functools.partial(_run, cell))(variables, x)
  params = jax.tree.map(np.float64, variables['params'])
  rows = [equations(params, row) for row in np.float64(x)]
  want, gates = zip(*rows, strict=True)
  want = np.stack(want)
  if 'output' in params:
    output = params['output']
    want = want @ output['kernel'] + output.get('bias', 0.0)
  atol = CLOSE * abs(want).max()
  np.testing.assert_allclose(got, want, rtol=0, atol=atol)
  _compare_gates(looked, gates)


def _run(cell, variables, x):
  """Returns y of a row, and the gates of its steps with time first."""

  def look(state, u):
    return cell.apply(variables, state, u, method=_next_and_gates)

  state = cell.init_state(B)
  _, y = cell.apply(variables, state, x)
  u = cell.apply(variables, x, method='project')
  by_time = jax.tree.map(lambda u: u.swapaxes(0, 1), u)
  return y, jax.lax.scan(look, state, by_time)[1]


def _next_and_gates(cell, state, u):
  return cell.step(state, u)[0], cell.gates(state, u)


def _compare_gates(looked, want):
  """Compares the gates of a cell with those of each row."""
  got = jax.tree.map(lambda x: np.asarray(x).swapaxes(0, 1), looked)
  assert got.values.keys() == want[0].keys()
  for name, values in got.values.items():
    np.testing.assert_allclose(values, [row[name] for row in want], atol=CLOSE)
  np.testing.assert_allclose(np.exp(got.loga), got.values['keep'], atol=CLOSE)


def made(name, **options):
  """A cell of a width of D."""
  module = config_lib.load('cells', name, 'model.cell')
  return module.Cell(module.Config(**options), D)


def initial(name, **options):
  """A cell's parameters at the start."""
  cell, x = made(name, **options), draws.normal(B, 1, D)
  run = jax.jit(cell.init)
  return run(jax.random.key(0), cell.init_state(B), x)['params']


def count(name, **options):
  """How many parameters a cell has."""
  cell, x = made(name, **options), draws.normal(B, L, D)
  state = cell.init_state(B)
  variables = jax.eval_shape(cell.init, jax.random.key(0), state, x)
  return sum(leaf.size for leaf in jax.tree.leaves(variables))


def refusal(cell, section, key, value):
  """What the config says to one value."""
  raw = config_lib.default(cell)
  raw[section][key] = value
  try:
    config_lib.parse(raw)
  except errors.InputError as error:
    return str(error)
  raise AssertionError(f'{section}.{key}={value!r} was taken')
