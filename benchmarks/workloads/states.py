"""What matrix states in bfloat16 change in what a trained model predicts.

The same texts are read token by token, as decoding makes them, with float32
states and with rounded ones. Each step rounds the state once, so that errors
could add up over a text.
"""

import functools
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.harness import tables
from rnn_jax.inference import decode
from rnn_jax.inference import generate

PARTS = 4  # of a text, whose divergences are averaged


def divergence(bundle: Any, texts: Sequence[str], most: int) -> tables.Row:
  """Returns the Kullback-Leibler divergence from float32 states, in nats.

  Args:
    bundle: a runs.bundle.Bundle of a model that writes text.
    texts: what is read; those of fewer tokens than the median are left out.
    most: tokens of each text.

  Returns:
    {'tokens': in each text, 'texts': their number, 'kl': per token, 'by_part':
    the same for each of PARTS parts of the texts, 'nll': {states: the negative
    log-likelihood per token}}.
  """
  logp = {}
  for states in ('float32', 'bfloat16'):
    made = generate.Generator.from_bundle(bundle, 'float32', True, states)
    ids = [made.prompts.encode(text) for text in texts]
    length = min(most, int(np.median([len(x) for x in ids])))
    ids_BxL = np.stack([x[:length] for x in ids if len(x) >= length])
    run = _predict(made.model, made._weights, ids_BxL)
    logp[states] = np.float64(jax.device_get(run))
  exact_LxBxV, rounded_LxBxV = logp.values()
  kl_LxB = np.sum(np.exp(exact_LxBxV) * (exact_LxBxV - rounded_LxBxV), -1)
  next_LxB = ids_BxL.T[1:, :, None]
  return {
    'tokens': length,
    'texts': len(ids_BxL),
    'kl': float(kl_LxB.mean()),
    'by_part': [float(x.mean()) for x in np.array_split(kl_LxB, PARTS)],
    'nll': {
      states: float(-np.take_along_axis(x[:-1], next_LxB, -1).mean())
      for states, x in logp.items()
    },
  }


@functools.partial(jax.jit, static_argnums=0)
def _predict(model, weights, ids_BxL):
  """Returns the log-probabilities after each token, LxBxV."""
  step = decode.stepping(model, weights)

  def advance(state, token_B):
    state, logits_BxV = step(state, token_B)
    return state, jax.nn.log_softmax(logits_BxV)

  state = model.apply({}, len(ids_BxL), method='init_state')
  return jax.lax.scan(advance, state, jnp.asarray(ids_BxL.T, jnp.int32))[1]
