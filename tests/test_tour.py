"""The notebooks of docs/ run from their first cells to their last.

Cells run in this process, as their commands do but `launch.predict`: bash runs
that one, as a user types it.
"""

import ast
import json
import os
import pathlib
import shlex
import subprocess
import sys

import pytest
from IPython import display
from matplotlib import pyplot

from tests.support import launchers
from tests.support import tiny

# Answers needn't be right. In place of the steps of a notebook:
SMALL = """\
    --config.train.steps=4 --config.metrics.writers='()' \\
    --config.data.buckets=1 --config.model.width=16"""
TOUR = '    --config.train.steps=60'
SERIES = '    --config.train.steps=100'


def run_python(source, names):
  """Runs a cell. Returns the value of its last line, if it has one."""
  cell = ast.parse(source)
  last = cell.body.pop() if isinstance(cell.body[-1], ast.Expr) else None
  exec(compile(cell, 'tour', 'exec'), names)
  if last:
    return eval(compile(ast.Expression(last.value), 'tour', 'eval'), names)
  return None


def run_bash(script, small):
  if 'launch.predict' in script:
    subprocess.run(['bash', '-euc', script], check=True)
    return
  line = script.replace(*small).replace('\\\n', '')
  command = shlex.split(os.path.expandvars(line))
  assert command[:2] == ['python', '-m']
  code, _, err = launchers.run(command[2].removeprefix('launch.'), *command[3:])
  assert code == 0, err


@pytest.fixture(name='run')
def _run(monkeypatch, capsys):
  """Returns a function that runs a notebook.

  It returns the notebook's pictures and the last cell's output and value.
  """
  docs = tiny.ROOT / 'docs'
  monkeypatch.chdir(docs)
  monkeypatch.setenv('RUNS', 'set by the first cell')
  # Its commands run this Python.
  folders = str(pathlib.Path(sys.executable).parent), os.environ['PATH']
  monkeypatch.setenv('PATH', os.pathsep.join(folders))

  def run(name, steps, small):
    pictures, names, value = [], {}, None
    monkeypatch.setattr(pyplot, 'show', lambda: pictures.append(pyplot.gcf()))
    cells = json.loads((docs / name).read_text())['cells']
    sources = [''.join(x['source']) for x in cells if x['cell_type'] == 'code']
    assert sum(steps in source for source in sources) == 1
    for source in sources:
      capsys.readouterr()
      if source.startswith('%%bash\n'):
        run_bash(source.removeprefix('%%bash\n'), (steps, small))
      elif isinstance(value := run_python(source, names), display.Image):
        assert value.data.startswith(b'\x89PNG')
        pictures.append(value)
    pyplot.close('all')
    return pictures, capsys.readouterr().out, value

  return run


@pytest.mark.slow
def test_the_tour_ends_with_labelled_rows(run):
  small = f'{SMALL} --config.data.vocabulary=300'
  pictures, out, _ = run('tour.ipynb', TOUR, small)
  assert len(pictures) == 3
  answers = out.splitlines()
  assert [line.split()[0] for line in answers] == ['T-2001', 'T-2002', 'T-2003']
  known = {'account', 'billing', 'bug', 'shipping'}
  assert {line.split()[1] for line in answers} <= known


@pytest.mark.slow
def test_the_notebook_of_series_ends_with_a_stream(run):
  pictures, _, value = run('series_tour.ipynb', SERIES, SMALL)
  assert len(pictures) == 3
  assert value is True
