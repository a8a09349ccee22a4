"""How much the loss at one step depends on inputs long before it.

    g_t = |d loss_T / d x_t|,  x BxLxD what the first layer reads

Root mean square over rows of held-out text, one document as far as the model
knows. In a residual stack of causal cells, what reaches x_t for t < T comes
through the recurrence alone.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax

from benchmarks.subjects import trained


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
  found = _norms(run.task.model, run.params, ids)
  return run.values | {'norms': [float(f'{x:.4g}') for x in found[::-1]]}


def _text(corpus, rows, length):
  """ids of the first long documents that were held out, rows x length."""
  found, documents = [], corpus.documents['validation']
  for n in range(len(documents)):
    ids = corpus.tokenizer.encode_document(documents.read(n))
    if len(ids) >= length and len(found) < rows:
      found.append(ids[:length])
  return np.stack(found)


def _norms(model, params, ids):
  """The norm for each t, the last one behind the others."""

  @jax.jit
  def slopes(tokens, targets_B):
    apply = functools.partial(model.apply, {'params': params})
    x = apply(tokens, method=lambda model, tokens: model.embed(tokens))
    gradient = jax.grad(lambda x: apply(x, targets_B, method=_last_loss))(x)
    return jnp.sqrt(jnp.mean(jnp.sum(gradient**2, -1), 0))

  return np.asarray(slopes(ids[:, :-1], ids[:, -1]))


def _last_loss(model, x_BxLxD, targets_B):
  """Nats of the last step alone, summed over rows."""
  state = model.stack.init_state(len(targets_B))
  _, x_BxLxD = model.stack(state, x_BxLxD, None)
  kernel_DxV, bias_V = model.head_weights()
  logits = model.norm(x_BxLxD[:, -1]) @ kernel_DxV + bias_V[None]
  losses = optax.softmax_cross_entropy_with_integer_labels(logits, targets_B)
  return jnp.sum(losses)
