"""Names of the files that come with rnn_jax."""

import pathlib

import pytest

from rnn_jax import errors
from rnn_jax.system import shipped


def test_names_are_those_of_the_folder():
  assert {'recall', 'stdlib_bytes'} <= {*shipped.names()}
  assert 'memory_lab' in shipped.names(shipped.GRIDS)
  assert not any(name.startswith('_') for name in shipped.names())


def test_a_name_is_a_file_that_comes_with_rnn_jax(monkeypatch, tmp_path):
  monkeypatch.chdir(tmp_path)
  pathlib.Path('recall').touch()
  found = shipped.find('--config', 'recall')
  assert found == str(shipped.ROOT / 'configs/recall.py')
  assert shipped.find('--config', './recall') == './recall'


def test_a_path_stays_as_it_is(monkeypatch, tmp_path):
  monkeypatch.chdir(tmp_path)
  pathlib.Path('recal.py').touch()
  for given in ('recal.py', 'absent_and_unlike.py', 'folder/config.json', '.'):
    assert shipped.find('--config', given) == given


@pytest.mark.parametrize(
  ('given', 'message'),
  (
    ('memory-lab', "--grid='memory-lab': no such name: did you mean 'mem"),
    ('zzz', "--grid='zzz': no such name: choose one of "),
    ('x/memory_lb.py', 'no such file: did you mean --grid=memory_lab, which'),
  ),
)
def test_a_near_miss_is_suggested(given, message):
  with pytest.raises(errors.InputError) as caught:
    shipped.find('--grid', given, shipped.GRIDS)
  assert message in str(caught.value)
