"""Letters of parameters."""

import jax
import jax.numpy as jnp
import pytest

from rnn_jax.parallel import rules
from rnn_jax.parallel import shares

PARAMS = {
  'mlp': {'up': {'kernel': jnp.ones((2, 3)), 'bias': jnp.ones(3)}},
  'norm': {'scale': jnp.ones(2)},
}
NAMES = {'mlp/*/kernel': 'DxF', 'mlp/*/bias': 'D+F', 'norm/*': 'D'}


def test_letters_are_found_by_path():
  assert shares.letters(PARAMS, NAMES) == {
    'mlp': {'up': {'kernel': 'DxF', 'bias': 'D+F'}},
    'norm': {'scale': 'D'},
  }


@pytest.mark.parametrize(
  ('names', 'message'),
  (
    ({'mlp/*': 'DxF'}, "mlp/up/bias is 'DxF' and has 1 axes"),
    ({'norm/*': 'D'}, 'mlp/up/bias has no letters: add them to LETTERS'),
  ),
)
def test_a_parameter_without_its_letters_is_refused(names, message):
  with pytest.raises(ValueError, match=message):
    shares.letters(PARAMS, names)


def test_one_device_has_all_of_a_parameter():
  letters = shares.letters(PARAMS, NAMES)
  found = rules.parse(('D=fsdp', 'F=tensor'), 3)
  for gathered in (
    shares.gather(PARAMS, letters, found),
    shares.add_up(PARAMS, letters, found),
  ):
    same = jax.tree.map(lambda x, y: x is y, PARAMS, gathered)
    assert jax.tree.all(same)
