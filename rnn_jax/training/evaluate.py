"""Evaluation on the whole of a held-out split."""

import functools

import jax
import numpy as np

from rnn_jax import config as config_lib
from rnn_jax import errors
from rnn_jax.data import compressors
from rnn_jax.data import documents
from rnn_jax.data import pipeline
from rnn_jax.parallel import mesh as mesh_lib
from rnn_jax.training import checkpoint
from rnn_jax.training import step as step_lib
from rnn_jax.training import workdir as workdir_lib


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


def evaluate_run(workdir, split, which='best'):
  """Evaluates a checkpoint of a run on a split, beside gzip and xz.

  Args:
    workdir: the run's folder.
    split: 'train', 'validation' or 'test'; '' is 'test', or 'validation'
      where the run has no test split.
    which: 'best', 'latest' or a step.

  Returns:
    A dict: split, step, the task's metrics, tokens, bytes, the number of
    parameters, and where the metrics have bits_per_byte, those of gzip and xz
    on the same documents.

  Raises:
    InputError: no such run, split or checkpoint, or an empty split.
  """
  if split not in ('', *documents.SPLITS):
    raise errors.InputError(
      f'--split={split!r}: choose one of {documents.SPLITS}'
    )
  config = config_lib.parse(workdir_lib.load_config(workdir))
  corpus = pipeline.Corpus.open(config, workdir)
  if not split:
    split = 'test' if len(corpus.documents['test']) else 'validation'
  steps = step_lib.from_config(config, corpus.tokenizer)
  like = steps.parameters_like()
  folder = checkpoint.Checkpoints(f'{workdir}/checkpoints')
  try:
    step, params = folder.restore_parameters(like, which)
  finally:
    folder.close()
  values = evaluate(steps, params, corpus, config, split)
  held_out = corpus.documents[split]
  row = {'split': split, 'step': step, **values, 'bytes': held_out.total_bytes}
  row['parameters'] = sum(leaf.size for leaf in jax.tree.leaves(like))
  if 'bits_per_byte' in values:
    row |= compressors.bits_per_byte(held_out)
  return row
