"""docs/tour.ipynb runs from its first cell to its last.

It has `launch.evaluate` and `launch.predict` as a user types them; the command
that trains runs in this process.
"""

import os
import pathlib
import shlex
import sys

import nbclient
import nbformat
import pytest

from tests.support import launchers
from tests.support import tiny

# Labels needn't be right.
SMALL = {
  'train.steps': 4,
  'metrics.writers': '()',
  'data.vocabulary': 300,
  'data.buckets': 1,
  'model.width': 16,
  'model.block': 'plain',
  'model.mlp_width': 0,
  'cell.preset': 'simple',
}


def trained(cell, folder):
  """Runs a cell's command for a small model. Returns a cell that copies it."""
  magic, typed = cell.split('\n', 1)
  python, m, launcher, *flags, workdir = shlex.split(typed.replace('\\\n', ''))
  assert (magic, python, m, launcher) == (
    '%%bash',
    'python',
    '-m',
    'launch.train',
  )
  name, _, copy = workdir.partition('=')
  small = [f'--config.{key}={value}' for key, value in SMALL.items()]
  code, _, err = launchers.run('train', *flags, *small, f'{name}={folder}')
  assert code == 0, err
  return f'{magic}\ncp -r {folder} {copy}'


@pytest.mark.slow
def test_the_tour_ends_with_labelled_rows(monkeypatch, tmp_path):
  docs = tiny.ROOT / 'docs'
  notebook = nbformat.read(docs / 'tour.ipynb', 4)
  (train,) = (x for x in notebook.cells if 'launch.train' in x.source)
  train.source = trained(train.source, tmp_path / 'run')
  # Its commands run this Python.
  folders = str(pathlib.Path(sys.executable).parent), os.environ['PATH']
  monkeypatch.setenv('PATH', os.pathsep.join(folders))
  where = {'metadata': {'path': str(docs)}}
  nbclient.NotebookClient(notebook, timeout=600, resources=where).execute()
  outputs = [
    output for cell in notebook.cells for output in cell.get('outputs', ())
  ]
  pictures = [x for x in outputs if 'image/png' in x.get('data', ())]
  assert len(pictures) == 3
  answers = outputs[-1]['text'].splitlines()
  assert [line.split()[0] for line in answers] == ['T-2001', 'T-2002', 'T-2003']
  known = {'account', 'billing', 'bug', 'shipping'}
  assert {line.split()[1] for line in answers} <= known
