"""Every parallel form, and products of two, against one device."""

import pytest

from tests.parallel import forms
from tests.support import virtual

CASES = [
  f'{cell}, {form}'
  for cell, some in forms.FORMS_OF.items()
  for form in some
  if cell != forms.CARRIED
]
LAYER = 16 * 3 * 16 * 4  # bytes of the largest matrix of a layer, Dx(3S)
TABLE = 257 * 16 * 4  # bytes of the embedding


@pytest.fixture(scope='module')
def results():
  return virtual.call('tests.parallel.forms', 'measure')


@pytest.mark.parametrize('case', CASES)
def test_a_mesh_gives_the_parameters_of_one_device(results, case):
  # Measured after 3 steps: parameters 3e-7, sums of losses 6e-7 of them.
  assert results[case]['params'] < 2e-6
  assert results[case]['losses'] < 3e-6


@pytest.mark.parametrize(
  ('case', 'opcodes'),
  (
    ('min_lstm, zero 1', {'all-reduce', 'all-gather'}),
    ('min_lstm, zero 2', {'all-reduce', 'all-gather', 'reduce-scatter'}),
    ('min_lstm, zero 3', {'all-reduce', 'all-gather', 'reduce-scatter'}),
    (
      'rwkv7, zero 3 and tensor',
      {'all-reduce', 'all-gather', 'reduce-scatter'},
    ),
    ('min_lstm, copies and 1f1b', {'all-reduce', 'collective-permute'}),
  ),
)
def test_each_form_has_its_collectives(results, case, opcodes):
  assert {*results[case]['collectives']} == opcodes


def test_layers_are_gathered_one_at_a_time(results):
  gathered = {*results['min_lstm, zero 3']['collectives']['all-gather']}
  assert max(gathered) == TABLE
  assert max(gathered - {TABLE}) <= LAYER


@pytest.mark.parametrize(
  ('zero', 'sharded'),
  (
    (0, set()),
    (1, {'optimizer'}),
    (2, {'optimizer', 'gradients'}),
    (3, {'optimizer', 'gradients', 'parameters'}),
  ),
)
def test_zero_shards_the_state(results, zero, sharded):
  for name, (own, whole) in results['bytes'][zero].items():
    assert own <= whole / 7 if name in sharded else own == whole
