"""docs/tour.ipynb runs from its first cell to its last.

It has `launch.evaluate` and `launch.predict` as a user types them.
"""

import os
import pathlib
import sys

import nbclient
import nbformat
import pytest

from tests.support import tiny

# Labels needn't be right.
SMALL = """\
    --config.train.steps=4 --config.metrics.writers='()' \\
    --config.data.vocabulary=300 --config.data.buckets=1 \\
    --config.model.width=16 --config.model.block=plain \\
    --config.model.mlp_width=0 --config.cell.preset=simple"""


@pytest.mark.slow
def test_the_tour_ends_with_labelled_rows(monkeypatch):
  docs = tiny.ROOT / 'docs'
  notebook = nbformat.read(docs / 'tour.ipynb', 4)
  (train,) = (x for x in notebook.cells if 'launch.train' in x.source)
  smaller = train.source.replace('    --config.train.steps=60', SMALL)
  assert smaller != train.source
  train.source = smaller
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
