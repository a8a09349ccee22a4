"""An MLP with a state: the channel mix against its equation, over documents."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np

from rnn_jax.cells import simple_rnn
from rnn_jax.models import blocks
from rnn_jax.models import stack as stack_lib
from tests.models import test_blocks
from tests.support import draws

B, L, D, R = (getattr(test_blocks, name) for name in 'BLDR')
MIDDLE = 3  # where the second document of row 1 begins


def build():
  """A stack, its parameters, a state that isn't zero, inputs and starts."""
  stack, variables, state, x = test_blocks.build(
    mlp_width=5, mlp='channel_mix', norm='layer', biases=True
  )
  state = jax.tree.map(lambda s: draws.normal(*s.shape, seed=2), state)
  starts = np.zeros((B, L), np.int32)
  starts[1, MIDDLE] = 1
  return stack, variables, state, x, jnp.asarray(starts)


def run_cell(params, state, x, starts):
  cell = simple_rnn.Cell(test_blocks.CELL, D)
  return cell.apply({'params': params}, state, x, starts)


def by_hand(params, state, x, starts):
  """One block, in float64 around the cell."""
  normed = test_blocks.normed(params, 'cell_norm', x)
  of_cell, y = run_cell(params['cell'], state.cell, normed, starts)
  x = x + np.float64(y)
  h = test_blocks.normed(params, 'mlp_norm', x)
  before = np.concatenate([state.mlp_Bx1xD, h[:, :-1]], 1)
  before[np.asarray(starts) != 0] = 0
  mixed = h + (before - h) * params['mlp_shift']['share']
  up, down = params['mlp']['up'], params['mlp']['down']
  units = np.maximum(mixed @ up['kernel'] + up['bias'], 0) ** 2
  y = units @ down['kernel'] + down['bias']
  return x + y, blocks.State(of_cell, h[:, -1:])


def test_rows_and_steps_equal_the_equation():
  stack, variables, state, x, starts = build()
  run = jax.jit(stack.apply)
  got_state, got = run(variables, state, x, starts)
  want, states = np.float64(x), []
  for n in range(R):
    of_layer = variables['params']['blocks'], state[1]
    params, old = jax.tree.map(lambda p, n=n: np.float64(p[n]), of_layer)
    want, new = by_hand(params, old, want, starts)
    states.append(new)
  stacked = jax.tree.map(lambda *leaves: np.stack(leaves), *states)
  test_blocks.assert_close((got_state[1], got), (stacked, want))
  steps = []
  for t in range(L):
    now = slice(t, t + 1)
    state, y = run(variables, state, x[:, now], starts[:, now])
    steps.append(y)
  steps = jnp.concatenate(steps, 1)
  test_blocks.assert_close((state, steps), (got_state, got))


def test_other_mlps_have_no_state():
  stack, *_ = build()
  shifted = stack.init_state(B)[1]
  assert shifted.mlp_Bx1xD.shape == (R, B, 1, D)
  assert stack.state_axes()[1].mlp_Bx1xD == 'RxB'
  for change in ({'mlp': 'relu'}, {'mlp_width': 0}):
    config = dataclasses.replace(stack.config, **change)
    other = stack_lib.Stack(config, *test_blocks.PARTS).init_state(B)[1]
    assert isinstance(other, type(shifted.cell))
