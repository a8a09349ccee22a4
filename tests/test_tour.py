"""docs/tour.ipynb runs from its first cell to its last.

Its cells run in this process, as its commands do but the last: bash runs that
cell, with `launch.predict` as a user types it.
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

# Labels needn't be right.
SMALL = """\
    --config.train.steps=4 --config.metrics.writers='()' \\
    --config.data.vocabulary=300 --config.data.buckets=1 \\
    --config.model.width=16"""
STEPS = '    --config.train.steps=60'


def run_python(source, names):
  """Runs a cell. Returns the value of its last line, if it has one."""
  cell = ast.parse(source)
  last = cell.body.pop() if isinstance(cell.body[-1], ast.Expr) else None
  exec(compile(cell, 'tour', 'exec'), names)
  if last:
    return eval(compile(ast.Expression(last.value), 'tour', 'eval'), names)
  return None


def run_bash(script):
  if 'launch.predict' in script:
    subprocess.run(['bash', '-euc', script], check=True)
    return
  line = script.replace(STEPS, SMALL).replace('\\\n', '')
  command = shlex.split(os.path.expandvars(line))
  assert command[:2] == ['python', '-m']
  code, _, err = launchers.run(command[2].removeprefix('launch.'), *command[3:])
  assert code == 0, err


@pytest.mark.slow
def test_the_tour_ends_with_labelled_rows(monkeypatch, capsys):
  docs = tiny.ROOT / 'docs'
  monkeypatch.chdir(docs)
  monkeypatch.setenv('RUNS', 'set by the first cell')
  # Its command runs this Python.
  folders = str(pathlib.Path(sys.executable).parent), os.environ['PATH']
  monkeypatch.setenv('PATH', os.pathsep.join(folders))
  pictures, names = [], {}
  monkeypatch.setattr(pyplot, 'show', lambda: pictures.append(pyplot.gcf()))
  cells = json.loads((docs / 'tour.ipynb').read_text())['cells']
  sources = [''.join(x['source']) for x in cells if x['cell_type'] == 'code']
  assert sum(STEPS in source for source in sources) == 1
  for source in sources:
    capsys.readouterr()
    if source.startswith('%%bash\n'):
      run_bash(source.removeprefix('%%bash\n'))
    elif isinstance(value := run_python(source, names), display.Image):
      assert value.data.startswith(b'\x89PNG')
      pictures.append(value)
  pyplot.close('all')
  assert len(pictures) == 3
  answers = capsys.readouterr().out.splitlines()
  assert [line.split()[0] for line in answers] == ['T-2001', 'T-2002', 'T-2003']
  known = {'account', 'billing', 'bug', 'shipping'}
  assert {line.split()[1] for line in answers} <= known
