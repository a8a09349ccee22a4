"""Cells by name: those of the package, and those of folders of one's own."""

import importlib
import os
import re
import sys

import pytest

from configs import recall
from configs import tiny_shakespeare
from rnn_jax import cells
from rnn_jax import config as config_lib
from rnn_jax import errors
from tests.support import launchers
from tests.support import tiny

PAGE = tiny.ROOT / 'docs' / 'cells.md'
SMALL = {
  'data.length': 16,
  'data.segment_tokens': 64,
  'data.batch_size': 2,
  'model.layers': 1,
  'model.width': 8,
  'model.mlp_width': 8,
  'data.splits': (100, 0, 0),
  'model.dropout': 0.0,
  'train.steps': 2,
  'schedule.warmup_steps': 1,
  'evaluate.every': 0,
  'evaluate.length': 16,
  'sample.prompt': 'the',
  'sample.new_tokens': 4,
}


def example():
  """The cell of the page on how to add one."""
  return re.search(r'```python\n(.*?)```', PAGE.read_text(), re.DOTALL)[1]


def train(cell, folder):
  """Trains the config of Tiny Shakespeare on another text, as a user does."""
  path = folder / 'input.txt'
  path.write_text('the gate forgets and the state reads ' * 40)
  flags = [f'--config.{key}={value}' for key, value in SMALL.items()]
  return launchers.run(
    'train',
    f'--config=configs/tiny_shakespeare.py:{cell}',
    f'--config.data.path={path}',
    f'--workdir={folder / "run"}',
    *flags,
  )


@pytest.fixture
def own(tmp_path):
  """A folder of the user's with the cell 'average', imported as at a start."""
  folder = tmp_path / 'my_cells'
  folder.mkdir()
  (folder / 'average.py').write_text(example())
  with pytest.MonkeyPatch.context() as patch:
    patch.setenv(cells.VARIABLE, str(folder))
    importlib.reload(cells)
    yield folder
  sys.modules.pop(f'{cells.__name__}.average', None)
  importlib.reload(cells)


@pytest.mark.slow
def test_a_cell_in_the_user_s_folder_trains_and_generates(own, tmp_path):
  assert str(own) in cells.__path__
  code, out, err = train('average', tmp_path)
  assert code == 0, err
  assert 'trained: all steps' in out and "a sample after 'the'" in out


@pytest.mark.parametrize('name', config_lib.names('cells'))
@pytest.mark.parametrize('document', (recall, tiny_shakespeare))
def test_a_config_can_name_any_cell(document, name):
  parsed = config_lib.parse(document.get_config(name))
  assert parsed.model.cell == name
  assert type(parsed.cell).__module__.startswith('rnn_jax.cells.')


def test_an_unknown_cell_lists_those_that_exist(tmp_path, monkeypatch):
  (tmp_path / 'average.py').write_text(example())
  monkeypatch.setattr(cells, '__path__', [*cells.__path__, str(tmp_path)])
  with pytest.raises(errors.InputError) as caught:
    config_lib.default('avrage')
  refusal = str(caught.value)
  assert refusal.startswith("model.cell='avrage': choose one of [")
  for name in ('average', 'gru', 'qrnn', 'simple_rnn'):
    assert repr(name) in refusal
  assert "'base'" not in refusal and "'parts'" not in refusal


def test_folders_are_joined_as_in_path(tmp_path, monkeypatch):
  names = [tmp_path / name for name in ('a', 'b')]
  for name in names:
    name.mkdir()
  joined = os.pathsep.join(map(str, names))
  monkeypatch.setenv(cells.VARIABLE, joined)
  assert cells.folders() == [*map(str, names)]


@pytest.mark.parametrize(
  ('make', 'message'),
  (
    (None, "RNN_JAX_CELLS='.*': there is no such folder"),
    ('lstm.py', 'rnn_jax/cells has a file lstm.py as well: rename yours'),
    ('base.py', 'rnn_jax/cells has a file base.py as well: rename yours'),
  ),
)
def test_a_wrong_folder_is_refused(tmp_path, monkeypatch, make, message):
  folder = tmp_path / 'mine'
  if make:
    folder.mkdir()
    (folder / make).write_text('')
  monkeypatch.setenv(cells.VARIABLE, str(folder))
  with pytest.raises(errors.InputError, match=message):
    cells.folders()
