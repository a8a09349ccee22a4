"""Logical axes of parameters."""

import jax
import jax.numpy as jnp
import pytest

from rnn_jax.parallel import fsdp
from rnn_jax.parallel import rules

PARAMS = {
  'mlp': {'up': {'kernel': jnp.ones((2, 3)), 'bias': jnp.ones(3)}},
  'norm': {'scale': jnp.ones(2)},
}
NAMES = {'mlp/*/kernel': 'DxF', 'mlp/*/bias': 'D+F', 'norm/*': 'D'}


def test_logical_axes_are_matched_by_path():
  assert fsdp.logical_axes(PARAMS, NAMES) == {
    'mlp': {'up': {'kernel': 'DxF', 'bias': 'D+F'}},
    'norm': {'scale': 'D'},
  }


@pytest.mark.parametrize(
  ('names', 'message'),
  (
    (
      {'mlp/*': 'DxF'},
      r"mlp/up/bias has 1 axes, of shape \(\d+,\), and 'DxF' in LOGICAL_AXES "
      "of its file names 2: name each, joined by x, as 'D'",
    ),
    (
      {'norm/*': 'D'},
      'mlp/up/bias has no logical axes: add them to LOGICAL_AXES',
    ),
  ),
)
def test_a_parameter_without_logical_axes_is_refused(names, message):
  with pytest.raises(ValueError, match=message):
    fsdp.logical_axes(PARAMS, names)


def test_one_device_has_all_of_a_parameter():
  logical_axes = fsdp.logical_axes(PARAMS, NAMES)
  sharded = rules.parse(('D=fsdp', 'F=tensor'), 3)
  for gathered in (
    fsdp.gather(PARAMS, logical_axes, sharded),
    fsdp.sum_gradients(PARAMS, logical_axes, sharded),
  ):
    same = jax.tree.map(lambda x, y: x is y, PARAMS, gathered)
    assert jax.tree.all(same)
