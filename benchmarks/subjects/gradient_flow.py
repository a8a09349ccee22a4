"""How much the loss at one step depends on inputs long before it.

What `rnn_jax/inspection/flow.py` finds of rows of held-out text, each of them
one document as far as the model knows.
"""

import jax
import numpy as np

from benchmarks.subjects import trained
from rnn_jax.data import batch as batch_lib
from rnn_jax.inspection import curves
from rnn_jax.inspection import flow


def norms(repeats, model, steps, length=512, rows=16, seed=0):
  """Gradient norms by T - t of a byte model of the standard library.

  `repeats` is of no use here.
  """
  del repeats
  raw = trained.raw_config(model)
  raw.task.name = 'language_modeling'
  raw.train.update(steps=steps, seed=seed)
  raw.data.update(
    source='python_stdlib',
    tokenizer='bytes',
    layout='stream',
    length=length,
    boundaries=(),
    batch_size=8,
    splits=(98, 1, 1),
  )
  run = trained.train(raw)
  ids = _text(run.corpus, rows, length + 1)
  found = curves.norms([flow.sums(run.task, run.params, _batch(ids))])
  return run.values | {'norms': [float(f'{x:.4g}') for x in found]}


def _text(corpus, rows, length):
  """ids of the first long documents that were held out, rows x length."""
  found, documents = [], corpus.documents['validation']
  for n in range(len(documents)):
    ids = corpus.tokenizer.encode_document(documents.read(n))
    if len(ids) >= length and len(found) < rows:
      found.append(ids[:length])
  return np.stack(found)


def _batch(ids):
  """Rows of ids, each of which predicts the next."""
  starts = np.zeros(ids[:, 1:].shape, np.int32)
  starts[:, 0] = 1
  weights = np.ones(starts.shape, np.float32)
  return jax.device_put(
    batch_lib.Batch(ids[:, :-1], ids[:, 1:], weights, starts)
  )
