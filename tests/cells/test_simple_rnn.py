"""SimpleRNN's presets, dropout and published size."""

import jax
import jax.numpy as jnp
import numpy as np

from rnn_jax import config as config_lib
from rnn_jax.cells import base
from rnn_jax.cells import simple_rnn
from rnn_jax.models import language_model
from tests.support import draws

B, L, D = 2, 3, 5


def build(**options):
  """A cell, its parameters away from 0 and 1, a state and inputs."""
  given = {'heads': 2, 'key_width': 3, 'value_width': 4, **options}
  plan = base.Plan('scan')
  cell = simple_rnn.Cell(simple_rnn.Config(**given), D, plan)
  x, state = draws.normal(B, L, D), cell.init_state(B)
  return cell, draws.parameters(cell.init, state, x), state, x


def test_the_coupled_preset_without_its_changes_is_the_improved_one():
  off = {'input_gate': False, 'skip': False, 'taps_bias': False}
  options = {'preset': 'coupled', 'groups': 2, 'even_taps': False}
  # One gate for each head: those of keys start apart.
  cell, variables, state, x = build(**options, **off, decay='head')
  plain, expected, _, _ = build(decay='head')
  jax.tree.map(np.testing.assert_array_equal, variables, expected)
  y = [jax.jit(one.apply)(variables, state, x)[1] for one in (cell, plain)]
  np.testing.assert_array_equal(*y)


def test_the_published_size_has_189504_parameters():
  config = config_lib.default()
  config.model.update({'block': 'plain', 'width': 128, 'layers': 2})
  config.cell.update(
    {'preset': 'simple', 'heads': 1, 'key_width': 32, 'value_width': 64}
  )
  model = language_model.from_config(config_lib.parse(config), 512)

  def init(tokens):
    state = model.apply({}, 2, method='init_state')
    return model.init(jax.random.key(0), state, tokens)['params']

  params = jax.eval_shape(init, jnp.zeros((2, 3), jnp.int32))
  assert sum(leaf.size for leaf in jax.tree.leaves(params)) == 189_504


def test_dropout_is_on_y_and_only_with_its_key():
  cell, variables, state, x = build(preset='modified', dropout=0.5)
  run = jax.jit(lambda rngs: cell.apply(variables, state, x, rngs=rngs)[1])
  plain, again = run({}), run({})
  dropped = run({'dropout': jax.random.key(0)})
  assert np.array_equal(plain, again) and not np.allclose(plain, dropped)
