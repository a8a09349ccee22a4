"""Logical axes to axes of the mesh."""

import jax
import pytest

from rnn_jax import config as config_lib
from rnn_jax import errors
from rnn_jax.parallel import rules

Spec = jax.sharding.PartitionSpec
SIZES = {'data': 2, 'fsdp': 2, 'pipe': 1, 'sequence': 1, 'tensor': 2}
DEFAULTS = config_lib.Mesh().rules


@pytest.mark.parametrize(
  ('zero', 'kind', 'axes'),
  (
    (3, 'parameters', ('fsdp', 'tensor')),
    (2, 'parameters', (None, 'tensor')),
    (2, 'gradients', ('fsdp', 'tensor')),
    (1, 'gradients', (None, 'tensor')),
    (1, 'optimizer', ('fsdp', 'tensor')),
    (0, 'optimizer', (None, 'tensor')),
  ),
)
def test_zero_says_what_is_sharded_over_the_axes_of_rows(zero, kind, axes):
  spec = rules.parse(DEFAULTS, zero).spec('DxF', (8, 16), SIZES, kind)
  assert spec == Spec(*axes)


def test_an_axis_of_size_one_shards_nothing():
  parsed = rules.parse(DEFAULTS, 3)
  sizes = dict.fromkeys(SIZES, 1)
  assert parsed.spec('RxDxF', (2, 8, 16), sizes, 'parameters') == Spec()


def test_a_logical_axis_may_be_sharded_over_two_mesh_axes():
  parsed = rules.parse(('D=data+fsdp',), 3)
  spec = parsed.spec('_xD', (3, 8), SIZES, 'parameters')
  assert spec == Spec(None, ('data', 'fsdp'))


def test_a_vocabulary_that_cannot_be_sharded_equally_is_replicated():
  parsed = rules.parse(DEFAULTS, 3)
  spec = parsed.spec('VxD', (257, 8), SIZES, 'parameters')
  assert spec == Spec(None, 'fsdp')
  assert parsed.spec('V', (257,), SIZES, 'parameters') == Spec()
  assert parsed.spec('V', (256,), SIZES, 'parameters') == Spec('tensor')


def test_an_addend_is_sharded_by_its_own_axes():
  parsed = rules.parse(DEFAULTS, 3)
  assert parsed.spec('D+F', (8,), SIZES, 'parameters') == Spec('fsdp')


def test_other_sizes_are_refused():
  parsed = rules.parse(DEFAULTS, 3)
  message = r'mesh.fsdp=2: model width \(D\) is 9 in a parameter'
  with pytest.raises(errors.InputError, match=message):
    parsed.spec('DxF', (9, 16), SIZES, 'parameters')


def test_two_logical_axes_on_one_axis_are_refused():
  parsed = rules.parse(('D=fsdp', 'F=fsdp'), 3)
  message = "D and F are both sharded over 'fsdp', and a parameter is DxF"
  with pytest.raises(errors.InputError, match=message):
    parsed.spec('DxF', (8, 16), SIZES, 'parameters')


@pytest.mark.parametrize(
  ('text', 'message'),
  (
    ('D', "mesh.rules: 'D': write LETTER=AXIS"),
    ('X=fsdp', "mesh.rules: 'X=fsdp': write LETTER=AXIS with a letter of"),
    ('D=rows', "'rows' isn't an axis of the mesh: choose one of"),
    ('B=data', "B isn't an axis of a parameter: leave it out, it is always"),
    ('D=tensor', 'tensor shards H, F, V: choose one of'),
    ('F=pipe', 'pipe shards R: choose one of'),
    ('D=sequence', 'sequence shards no axis of a parameter'),
    ('R=data', 'R has a rule already: join them'),
  ),
)
def test_a_wrong_rule_is_refused(text, message):
  with pytest.raises(errors.InputError, match=message):
    rules.parse(('R=pipe', text), 3)


def test_rows_and_steps_are_sharded_without_a_rule():
  rows = 'data', 'fsdp', 'expert'
  assert rules.batch_spec('BxL') == Spec(rows, ('sequence',))
  parsed = rules.parse(DEFAULTS, 3)
  assert parsed.state_spec('RxBxHx_') == Spec(
    ('pipe',), rows, ('tensor',), None
  )
