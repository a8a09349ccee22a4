"""Evaluation on the whole of a held-out split."""

import functools

import jax
import numpy as np

from rnn_jax.data import pipeline
from rnn_jax.parallel import mesh as mesh_lib


def evaluate(steps, params, corpus, config, split):
  """One pass over a split.

  Args:
    steps: training.step.Steps, whose compiled programs run it.
    params: the model's parameters.
    corpus: data.pipeline.Corpus.
    config: the run's Config.
    split: 'train', 'validation' or 'test'.

  Returns:
    The task's metrics and 'tokens', the number of predictions; a dict.

  Raises:
    InputError: the split is empty.
  """
  batches = pipeline.heldout_batches(
    corpus,
    config,
    split,
    jax.device_count(),
    process_index=jax.process_index(),
    process_count=jax.process_count(),
    place=functools.partial(mesh_lib.put, shardings=steps.batch_sharding),
  )
  carry, sums = None, []
  try:
    for batch in batches:
      if carry is None:
        carry = steps.init_carry(batch.tokens_BxL.shape[0])
      carry, more = steps.evaluate(params, carry, batch)
      sums.append(more)
  finally:
    batches.close()
  host = jax.device_get(sums)
  total = jax.tree.map(lambda *x: float(np.sum(np.float64(x))), *host)
  return steps.task.summarize(total) | {'tokens': int(total['weight'])}
