"""Probabilities of classes for texts, by a classifier with a head.

Texts stand flush right in a batch, as prompts do in `inference.decode`; the
class is read off the last step. Source of the form: see models/classifier.py.
"""

import functools
from collections.abc import Sequence

import jax
import numpy as np

from rnn_jax.inference import decode
from rnn_jax.models import classifier

BATCH = 64  # texts at a time


@functools.partial(jax.jit, static_argnums=0)
def _probabilities(model, params, tokens_BxL, starts_BxL):
  state = model.apply({}, tokens_BxL.shape[0], method='init_state')
  _, logits = model.apply({'params': params}, state, tokens_BxL, starts_BxL)
  return jax.nn.softmax(logits[:, -1])


def probabilities(
  model: classifier.Classifier, params: dict, texts: Sequence[np.ndarray]
) -> np.ndarray:
  """Returns the probability of each class for each text, NxC, float32.

  Args:
    model: the classifier that `params` are for.
    params: its parameters.
    texts: ids, each as `data.examples.classification` frames a text.
  """
  params = jax.device_put(params, jax.local_devices()[0])
  found = np.zeros((len(texts), model.classes), np.float32)
  # Texts of like length together: what is padded is computed for nothing.
  order = sorted(range(len(texts)), key=lambda n: len(texts[n]))
  for begin in range(0, len(order), BATCH):
    chosen = order[begin : begin + BATCH]
    filled = [texts[n] for n in chosen]
    filled += [texts[chosen[0]]] * (BATCH - len(chosen))
    inputs = jax.device_put(decode.pad(filled))
    rows = jax.device_get(_probabilities(model, params, *inputs))
    found[chosen] = rows[: len(chosen)]
  return found
