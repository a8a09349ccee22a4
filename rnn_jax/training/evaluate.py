"""Evaluation on a whole held-out split."""

import contextlib
import dataclasses
import os
from typing import Any

import jax

from rnn_jax import config as config_lib
from rnn_jax import errors
from rnn_jax.config import compression as config_compression
from rnn_jax.data import corpus as corpus_lib
from rnn_jax.data import held_out
from rnn_jax.data import pipeline
from rnn_jax.data.text import compressors
from rnn_jax.data.text import documents
from rnn_jax.parallel import mesh as mesh_lib
from rnn_jax.runs import bundle as bundle_lib
from rnn_jax.runs import workdir as workdir_lib
from rnn_jax.runs.checkpoints import checkpoint
from rnn_jax.system import activity
from rnn_jax.training import ahead as ahead_lib
from rnn_jax.training import programs as programs_lib
from rnn_jax.training.memory import batch_size
from rnn_jax.training.memory import lower_bound

PyTree = Any


@dataclasses.dataclass(frozen=True, eq=False)
class Run:
  """A run opened from its folder, with the parameters of a checkpoint."""

  config: config_lib.Config
  corpus: corpus_lib.Corpus
  programs: programs_lib.Programs
  params: PyTree
  step: int
  temperature: float | None = None  # see runs/bundle.py

  @classmethod
  def open(
    cls,
    workdir: str | os.PathLike,
    which: checkpoint.Which = 'best',
    accept_new_data: bool = False,
    programs: programs_lib.Programs | None = None,
    verify: bool = False,
  ) -> 'Run':
    """Restores a run's 'best' or 'latest' checkpoint, or that of a step.

    Args:
      workdir: the run's folder.
      which: 'best', 'latest' or a step.
      accept_new_data: the documents may be others than the run began with.
      programs: those that trained the run, on one device and without a teacher:
        their evaluation step needn't be compiled again. None: new ones.
      verify: checks all token files of the data, not as they are read.

    Raises:
      InputError: the run, the checkpoint or its data doesn't exist, or the data
        are others.
    """
    config = _local_config(workdir)
    corpus = corpus_lib.Corpus.open(config, workdir, accept_new_data, verify)
    return cls._restore(config, corpus, workdir, which, programs)

  @classmethod
  def open_on(
    cls,
    workdir: str | os.PathLike,
    given: str,
    split: str = '',
    which: checkpoint.Which = 'best',
    options: held_out.Options = held_out.BY_CONFIG,
  ) -> tuple['Run', str]:
    """Restores a run to evaluate it on a file; its own data needn't exist.

    Args:
      workdir: the run's folder.
      given: the file, see data/held_out.py.
      split: of a prepared dataset, see there.
      which: 'best', 'latest' or a step.
      options: how rows are read.

    Returns:
      The run, and the name of the split that the file is.

    Raises:
      InputError: the run or the checkpoint doesn't exist, or the run can't
        read the file.
    """
    config = _local_config(workdir)
    if config.task.columns:
      errors.refuse(
        '--input',
        given,
        f'task.name={config.task.name!r} reads several columns of a row: train '
        'with data.test_path, and give --split=test',
      )
    config = dataclasses.replace(config, data=config.data.refitted())
    name, documents = held_out.open_documents(given, split, config, options)
    data = config.data.holding(documents)
    config = dataclasses.replace(config, data=data)
    corpus = corpus_lib.Corpus.of_documents(config, workdir, {name: documents})
    return cls._restore(config, corpus, workdir, which), name

  @classmethod
  def _restore(cls, config, corpus, workdir, which, programs=None):
    bundle = bundle_lib.read(workdir, which, calibrated=False)
    if config.adapters.rank:  # they are merged
      programs, merged = None, bundle.config
      config = dataclasses.replace(
        config, adapters=merged.adapters, task=merged.task
      )
    programs = programs or programs_lib.from_config(config, corpus.tokenizer)
    shardings = programs.states.placement.shardings('parameters')
    params = mesh_lib.put(bundle.params, shardings)
    return cls(config, corpus, programs, params, bundle.step)

  def split(self, name: str) -> str:
    """Returns `name`; for '', 'test' if it predicts any, else 'validation'.

    Raises:
      InputError: the split doesn't exist.
    """
    if name:
      return name if name in self.corpus.documents else check_split(name)
    data = self.config.data.heldout(self.config.evaluate)
    has_documents = len(self.corpus.documents['test']) > 0
    is_scored = has_documents and self.corpus.predicts(data, 'test')
    return 'test' if is_scored else 'validation'

  def evaluate(self, split: str, tokens: int = 0) -> dict[str, float]:
    """Returns the task's metrics on a split, see `batch_sums` and `metrics`.

    The key 'fraction' has the part of the split that was read.
    """
    sums = self.batch_sums(split, tokens)
    _, fraction = pipeline.heldout_windows(
      self.corpus, self.config, split, tokens
    )
    return metrics(self.programs.task, sums) | {'fraction': fraction}

  def batch_sums(self, split: str, tokens: int = 0) -> list[dict[str, float]]:
    """Runs over a split and returns the sums of each batch, see step.Aux.

    Args:
      split: 'train', 'validation' or 'test'.
      tokens: to read of it, about and evenly spaced; 0: the whole split.

    Raises:
      InputError: the split is empty, or has nothing to predict.
    """
    programs = self.programs
    batches = pipeline.heldout_batches(
      self.corpus,
      self.config,
      split,
      programs.row_multiple,
      place=programs.put,
      own=programs.own_rows,
      tokens=tokens,
    )
    carry: PyTree = None
    sums, ahead = [], ahead_lib.Ahead()
    with (
      contextlib.closing(batches),
      activity.doing(f'evaluating {split}', unit='batches') as done,
    ):
      for batch in batches:
        if carry is None:
          carry = programs.states.init_carry(batch.weights_BxL.shape[0])
        carry, batch_sum = programs.evaluate_step(self.params, carry, batch)
        sums.append(batch_sum)
        done(ahead.wait(batch_sum))
      done(ahead.finish())
    values = [jax.tree.map(float, batch) for batch in jax.device_get(sums)]
    if not sum(batch['weight'] for batch in values):
      self._refuse_empty(split, tokens)
    return values

  def _refuse_empty(self, split, tokens):
    """Says why nothing of a split was predicted."""
    data = self.config.data.heldout(self.config.evaluate)
    self.corpus.check_predicts(data, split)
    errors.refuse(
      'evaluate.tokens',
      tokens,
      f'what is read of split={split!r} has nothing to predict: give more, or '
      '0 for all of it',
    )


def metrics(task: Any, sums: list[dict[str, float]]) -> dict[str, float]:
  """Returns the task's metrics of all batches.

  The key 'tokens' has the number of predictions.
  """
  total = {name: sum(batch[name] for batch in sums) for name in sums[0]}
  return task.summarize(total) | {'tokens': int(total['weight'])}


def _local_config(workdir):
  """Returns the config of a run, for one device and without its teacher."""
  config = config_lib.parse(workdir_lib.load_config(workdir))
  # This machine may lack the run's devices and its teacher.
  config = dataclasses.replace(
    config,
    mesh=config_lib.Mesh(),
    distillation=config_compression.Distillation(),
  )
  lower_bound.check(config)
  return config


def check_split(split: str) -> str:
  """Returns `split`, which may be empty.

  Raises:
    InputError: the split doesn't exist.
  """
  if split not in ('', *documents.SPLITS):
    raise errors.InputError(
      f'--split={split!r}: choose one of {documents.SPLITS}'
    )
  return split


def tokens_after(config: config_lib.Config, trained: int) -> int:
  """Returns about how many tokens an evaluation after training reads; 0: all.

  They are no more than were trained on: a short training isn't followed by a
  longer evaluation.

  Args:
    config: of the run.
    trained: tokens that it was trained on.
  """
  tokens = config.evaluate.tokens
  # An image is one token in training, and its bytes in `heldout_windows`.
  return tokens if config.data.holds_images else min(tokens, trained)


def evaluate_run(run: Run, split: str, tokens: int = 0) -> dict[str, Any]:
  """Evaluates a run's parameters on a split, see `describe`.

  Args:
    run: a Run.
    split: 'train', 'validation' or 'test', or '', see `Run.split`.
    tokens: to read of it, about and evenly spaced; 0: the whole split.

  Raises:
    InputError: the split doesn't exist or is empty.
  """
  split = run.split(split)
  sums = run.batch_sums(split, tokens)
  _, fraction = pipeline.heldout_windows(run.corpus, run.config, split, tokens)
  return describe(run, split, sums, fraction)


def describe(
  run: Run, split: str, sums: list[dict[str, float]], fraction: float = 1.0
) -> dict[str, Any]:
  """Returns a run's scores on a split, with those of gzip and xz.

  Args:
    run: a Run.
    split: 'train', 'validation' or 'test'.
    sums: of `Run.batch_sums` on it.
    fraction: of the split that was read.

  Returns:
    A dict: split, step, the task's metrics, tokens (predictions), fraction,
    documents, parameters, state_bytes (of a row's recurrent state). For
    language modelling also bytes, and where the metrics have bits_per_byte of
    the whole split, those of gzip and xz.
  """
  values = metrics(run.programs.task, sums)
  held_out = run.corpus.documents[split]
  row = {'split': split, 'step': run.step, **values, 'fraction': fraction}
  row['documents'] = len(held_out)
  row['parameters'] = sum(leaf.size for leaf in jax.tree.leaves(run.params))
  state = jax.eval_shape(lambda: run.programs.task.init_state(1))
  row['state_bytes'] = batch_size.tree_bytes(state)
  if run.config.task.reads_series:
    of = 'numbers' if run.config.task.series_label else 'readings'
    in_nats = run.config.data.classes
    return row if in_nats else row | {'loss_unit': f'of scaled {of}'}
  if not run.config.task.predicts_all:
    row.pop('bits_per_byte', None)  # targets are only part of the text
    return row
  row['bytes'] = held_out.total_bytes
  if 'bits_per_byte' in values and fraction == 1:
    row |= compressors.bits_per_byte(held_out)
  return row
