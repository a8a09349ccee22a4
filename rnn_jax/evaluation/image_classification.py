"""Classes predicted for the pictures of a split.

Their scores are those of evaluation/classification.py.
"""

import functools

import jax
import numpy as np

from rnn_jax.data import pictures

BATCH = 256  # pictures at a time


@functools.partial(jax.jit, static_argnums=0)
def _probabilities(model, params, image_BxHxWxC):
  logits_BxC = model.apply({'params': params}, image_BxHxWxC)
  return jax.nn.softmax(logits_BxC)


def predict(run, split, limit):
  """Returns a dict for each picture of a split, in order; the first `limit`.

  Keys: name, label, predicted, and the 'probabilities' of the classes.
  """
  documents = run.corpus.documents[split]
  count = min(len(documents), limit or len(documents))
  classes, names = run.config.data.classes, documents.names
  found = []
  for begin in range(0, count, BATCH):
    chosen = range(begin, min(begin + BATCH, count))
    rows_NxC = _of_chosen(run, documents, chosen)
    found += [
      {
        'name': names[n],
        'label': classes[documents.labels[n]],
        'predicted': classes[int(np.argmax(row))],
        'probabilities': [round(float(p), 6) for p in row],
      }
      for n, row in zip(chosen, rows_NxC, strict=True)
    ]
  return found


def _of_chosen(run, documents, chosen):
  shape = pictures.shape(run.config.data.image)
  image_BxHxWxC = np.zeros((BATCH, *shape), np.uint8)
  for row, n in enumerate(chosen):
    pixels = np.frombuffer(documents.read(n), np.uint8)
    image_BxHxWxC[row] = pixels.reshape(shape)
  device = jax.local_devices()[0]
  inputs = jax.device_put((run.params, image_BxHxWxC), device)
  rows = jax.device_get(_probabilities(run.steps.task.model, *inputs))
  return rows[: len(chosen)]
