"""The notebooks of docs/ run from their first cells to their last.

Cells run in this process, and so do their commands; bash runs launch.predict,
as a user types it, and what isn't one command of ours.
"""

import ast
import json
import os
import pathlib
import shlex
import subprocess
import sys
from typing import Any
from typing import NamedTuple

import jax
import numpy as np
import pytest
from IPython import display
from matplotlib import pyplot

from tests.support import launchers
from tests.support import tiny

# Answers needn't be right. In place of the steps of a notebook:
SMALL = """\
    --config.train.steps=4 --config.metrics.writers='()' \\
    --config.data.buckets=1 --config.model.width=16"""
TOUR = '    --config.train.steps=120'
SERIES = '    --config.train.steps=100'
# Of a stream of bytes, whose rows aren't in buckets.
BYTES = """\
    --config.train.steps=4 --config.metrics.writers='()' \\
    --config.model.width=16 --config.model.layers=1 --config.data.length=64"""
CSV = """\
raw.train.steps = 4
raw.metrics.writers = ()
raw.data.buckets = 1
raw.model.width = 16"""


class Ran(NamedTuple):
  """What a notebook leaves."""

  pictures: list[Any]
  out: str  # of the last cell
  value: Any  # of the last cell
  names: dict[str, Any]


def run_python(source, names):
  """Runs a cell. Returns the value of its last line, if it has one."""
  cell = ast.parse(source)
  last = cell.body.pop() if isinstance(cell.body[-1], ast.Expr) else None
  exec(compile(cell, 'tour', 'exec'), names)
  if last:
    return eval(compile(ast.Expression(last.value), 'tour', 'eval'), names)
  return None


def run_bash(script):
  line = os.path.expandvars(script.replace('\\\n', ''))
  ours = line.startswith('python -m launch.') and line.strip().count('\n') == 0
  if not ours or 'launch.predict' in script:
    subprocess.run(['bash', '-euo', 'pipefail', '-c', script], check=True)
    return
  command = shlex.split(line)
  code, _, err = launchers.run(command[2].removeprefix('launch.'), *command[3:])
  assert code == 0, err


@pytest.fixture(name='run')
def _run(monkeypatch, capsys):
  """Returns a function that runs a notebook.

  It takes the notebook's name and what is changed in it, (before, after), each
  in one place.
  """
  docs = tiny.ROOT / 'docs'
  monkeypatch.chdir(docs)
  for name in ('RUNS', 'FOLDER', 'MINE', 'PYTHONPATH'):
    monkeypatch.setenv(name, os.environ.get(name, ''))  # first cells set them
  monkeypatch.setattr(sys, 'path', [*sys.path])
  # Its commands run this Python.
  folders = str(pathlib.Path(sys.executable).parent), os.environ['PATH']
  monkeypatch.setenv('PATH', os.pathsep.join(folders))

  def run(name, *changes):
    pictures, names, value = [], {}, None
    monkeypatch.setattr(pyplot, 'show', lambda: pictures.append(pyplot.gcf()))
    cells = json.loads((docs / name).read_text())['cells']
    sources = [''.join(x['source']) for x in cells if x['cell_type'] == 'code']
    for before, after in changes:
      assert sum(source.count(before) for source in sources) == 1, before
      sources = [source.replace(before, after) for source in sources]
    for source in sources:
      capsys.readouterr()
      if source.startswith('%%bash\n'):
        run_bash(source.removeprefix('%%bash\n'))
      elif isinstance(value := run_python(source, names), display.Image):
        assert value.data.startswith(b'\x89PNG')
        pictures.append(value)
    pyplot.close('all')
    return Ran(pictures, capsys.readouterr().out, value, names)

  with launchers.jax_config(), jax.numpy_rank_promotion('allow'):
    yield run


@pytest.mark.slow
def test_the_tour_ends_with_labelled_rows(run):
  small = f'{SMALL} --config.data.vocabulary=300'
  ran = run('tour.ipynb', (TOUR, small))
  assert len(ran.pictures) == 3
  answers = ran.out.splitlines()
  assert [line.split()[0] for line in answers] == ['T-2001', 'T-2002', 'T-2003']
  known = {'account', 'billing', 'bug', 'shipping'}
  assert {line.split()[1] for line in answers} <= known


@pytest.mark.slow
def test_the_notebook_of_series_ends_with_a_stream(run):
  ran = run('series_tour.ipynb', (SERIES, SMALL))
  assert len(ran.pictures) == 3
  assert ran.value is True


@pytest.mark.slow
def test_a_table_of_one_s_own_is_labelled(run):
  names = run('classify_csv.ipynb', ('raw.train.steps = 120', CSV)).names
  assert names['config'].data.classes == ()  # they are found in the file
  assert {*names['new'].team} <= {*names['classes']}
  assert (names['folder'] / 'labelled.csv').is_file()
  # The linear classifier learns as always.
  assert np.mean(names['theirs'] == names['truth']) > 0.7


@pytest.mark.slow
def test_layers_learn_in_a_loop_of_one_s_own(run):
  ran = run('layers_in_flax.ipynb', ('STEPS = 200', 'STEPS = 30'))
  assert len(ran.pictures) == 1 and ran.value == (True, True)
  for _, losses in ran.names['trained'].values():
    assert losses[-1] < losses[0] - 0.3
  np.testing.assert_allclose(ran.names['whole'], ran.names['logits'], atol=1e-4)


@pytest.mark.slow
def test_a_new_cell_has_the_equations_of_its_paper(run):
  # All of a cell's contract takes long, and other cells show that it works.
  contract = '-k ugrnn', "-k 'ugrnn and documents'"
  names = run('new_cell.ipynb', contract, (SERIES, BYTES)).names
  try:
    np.testing.assert_allclose(names['y'], names['want'], atol=1e-5)
    assert names['ours'] == pytest.approx(names['theirs'], rel=1e-3)
  finally:
    for name in [x for x in sys.modules if x.startswith('my_cells')]:
      del sys.modules[name]


@pytest.mark.slow
def test_a_folder_is_fine_tuned_and_comes_back(run):
  small = 'train.steps=150', "train.steps=4 --config.metrics.writers='()'"
  ran = run('fine_tune_folder.ipynb', small)
  assert bool(ran.value) is True
  assert 0 < len(ran.names['changed']) < len(ran.names['before'])


@pytest.mark.slow
def test_a_server_answers_and_streams_the_same(run):
  ran = run('serve_and_stream.ipynb', (SERIES, BYTES))
  assert ran.value == (143, 143)
  answer = ran.names['answer']['choices'][0]['text']
  assert answer and ''.join(ran.names['parts']) == answer
