"""Probabilities of classes for texts, by a classifier with a head.

Texts are right-aligned in a batch, as prompts are in `inference.decode`; the
last step gives the class. See models/classifier.py.
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
    model: the classifier.
    params: its parameters.
    texts: ids, framed by `data.text.examples.classification`.
  """
  params = jax.device_put(params, jax.local_devices()[0])
  probabilities_NxC = np.zeros((len(texts), model.classes), np.float32)
  # Texts of similar length share a batch: padding wastes time.
  order = sorted(range(len(texts)), key=lambda n: len(texts[n]))
  for begin in range(0, len(order), BATCH):
    chosen = order[begin : begin + BATCH]
    filled = [texts[n] for n in chosen]
    filled += [texts[chosen[0]]] * (BATCH - len(chosen))
    inputs = jax.device_put(decode.pad(filled))
    rows = jax.device_get(_probabilities(model, params, *inputs))
    probabilities_NxC[chosen] = rows[: len(chosen)]
  return probabilities_NxC
