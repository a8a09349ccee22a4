"""Evaluation on the whole of a held-out split."""

import dataclasses
import functools

import jax

from rnn_jax import config as config_lib
from rnn_jax import errors
from rnn_jax.config import compression as config_compression
from rnn_jax.data import compressors
from rnn_jax.data import documents
from rnn_jax.data import pipeline
from rnn_jax.parallel import mesh as mesh_lib
from rnn_jax.training import checkpoint
from rnn_jax.training import step as step_lib
from rnn_jax.training import workdir as workdir_lib


def evaluate(steps, params, corpus, config, split):
  """One pass over a split: the task's metrics, see `batch_sums`, `metrics`."""
  sums = batch_sums(steps, params, corpus, config, split)
  return metrics(steps.task, sums)


def metrics(task, sums):
  """The task's metrics of all batches, and 'tokens', how many predictions."""
  total = {name: sum(one[name] for one in sums) for name in sums[0]}
  return task.summarize(total) | {'tokens': int(total['weight'])}


def batch_sums(steps, params, corpus, config, split):
  """One pass over a split, added up batch by batch.

  Args:
    steps: training.step.Steps, whose compiled programs run it.
    params: the model's parameters.
    corpus: data.pipeline.Corpus.
    config: the run's Config.
    split: 'train', 'validation' or 'test'.

  Returns:
    A list of dicts of floats, what Task.sums names, an entry a batch.

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
        carry = steps.init_carry(batch.weights_BxL.shape[0])
      carry, more = steps.evaluate(params, carry, batch)
      sums.append(more)
  finally:
    batches.close()
  return [jax.tree.map(float, one) for one in jax.device_get(sums)]


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
    # The run's mesh was that of another machine, perhaps, and so its teacher.
    config = dataclasses.replace(
      config,
      mesh=config_lib.Mesh(),
      distillation=config_compression.Distillation(),
    )
    corpus = pipeline.Corpus.open(config, workdir)
    steps = step_lib.from_config(config, corpus.tokenizer)
    folder = checkpoint.Checkpoints(
      workdir_lib.checkpoint_folder(workdir, config.train.checkpoint_dir)
    )
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

  def batch_sums(self, split):
    """The function of that name, of this run."""
    return batch_sums(self.steps, self.params, self.corpus, self.config, split)


def check_split(split):
  """Returns `split`; raises InputError unless it names one, or is empty."""
  if split not in ('', *documents.SPLITS):
    raise errors.InputError(
      f'--split={split!r}: choose one of {documents.SPLITS}'
    )
  return split


def evaluate_run(run, split):
  """Evaluates a run's parameters on a split, see `describe`.

  Args:
    run: a Run.
    split: 'train', 'validation' or 'test', or '', see `Run.split`.

  Raises:
    InputError: no such split, or an empty one.
  """
  split = run.split(check_split(split))
  return describe(run, split, run.batch_sums(split))


def describe(run, split, sums):
  """What a run is worth on a split, beside gzip and xz.

  Args:
    run: a Run.
    split: 'train', 'validation' or 'test'.
    sums: of `batch_sums` on it.

  Returns:
    A dict: split, step, the task's metrics, tokens (predictions), documents,
    parameters. Of language modelling also bytes, and where the metrics have
    bits_per_byte, those of gzip and xz on the same documents.
  """
  values = metrics(run.steps.task, sums)
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
