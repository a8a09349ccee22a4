"""Evaluation on the whole of a held-out split."""

import dataclasses
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
    mesh_lib.row_multiple(steps.mesh, config.mesh),
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


@dataclasses.dataclass(frozen=True, eq=False)
class Run:
  """A run as it lies in its folder, with the parameters of a checkpoint."""

  config: config_lib.Config
  corpus: pipeline.Corpus
  steps: step_lib.Steps
  params: dict
  step: int

  @classmethod
  def open(cls, workdir, which='best'):
    """Restores a run's 'best' or 'latest' checkpoint, or that of a step.

    Raises:
      InputError: no such run or checkpoint, or its data is gone.
    """
    config = config_lib.parse(workdir_lib.load_config(workdir))
    # The run's mesh was that of another machine, perhaps.
    config = dataclasses.replace(config, mesh=config_lib.Mesh())
    corpus = pipeline.Corpus.open(config, workdir)
    steps = step_lib.from_config(config, corpus.tokenizer)
    folder = checkpoint.Checkpoints(f'{workdir}/checkpoints')
    try:
      like = steps.parameters_like()
      step, params = folder.restore_parameters(like, which)
    finally:
      folder.close()
    return cls(config, corpus, steps, params, step)

  def split(self, name):
    """Returns a split's name: '' is 'test', or 'validation' without one."""
    if name:
      return name
    return 'test' if len(self.corpus.documents['test']) else 'validation'


def check_split(split):
  """Raises InputError unless `split` names one, or is empty."""
  if split not in ('', *documents.SPLITS):
    raise errors.InputError(
      f'--split={split!r}: choose one of {documents.SPLITS}'
    )


def evaluate_run(run, split):
  """Evaluates a run's parameters on a split, beside gzip and xz.

  Args:
    run: a Run.
    split: 'train', 'validation' or 'test', or '', see `Run.split`.

  Returns:
    A dict: split, step, the task's metrics, tokens (predictions), documents,
    parameters. Of language modelling also bytes, and where the metrics have
    bits_per_byte, those of gzip and xz on the same documents.

  Raises:
    InputError: no such split, or an empty one.
  """
  check_split(split)
  split = run.split(split)
  values = evaluate(run.steps, run.params, run.corpus, run.config, split)
  held_out = run.corpus.documents[split]
  row = {'split': split, 'step': run.step, **values, 'documents': len(held_out)}
  row['parameters'] = sum(leaf.size for leaf in jax.tree.leaves(run.params))
  if run.config.task.name != 'language_modeling':
    row.pop('bits_per_byte', None)  # the targets are a part of the text
    return row
  row['bytes'] = held_out.total_bytes
  if 'bits_per_byte' in values:
    row |= compressors.bits_per_byte(held_out)
  return row
