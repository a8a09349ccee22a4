"""The corpus of a run: the documents of each split, tokenized once.

    source -> documents -> ids (store/tokens.py) -> examples of the task

A large corpus is read and tokenized into files (data/store), which a later
start finds. What is made of a corpus is in pipeline.py.
"""

import dataclasses
import os
import types
from typing import Any

from absl import logging

from rnn_jax import config as config_lib
from rnn_jax import errors
from rnn_jax.data import identity
from rnn_jax.data.batching import length_schedule
from rnn_jax.data.batching import rows as rows_lib
from rnn_jax.data.batching import windows as windows_lib
from rnn_jax.data.store import sealed
from rnn_jax.data.store import texts
from rnn_jax.data.store import tokens
from rnn_jax.data.text import documents as documents_lib
from rnn_jax.data.text import tokenizer as tokenizer_lib
from rnn_jax.data.text import tokenizer_training
from rnn_jax.data.text.examples import base as examples_lib
from rnn_jax.system import activity


@dataclasses.dataclass(frozen=True, eq=False)
class Corpus:
  """The documents of each split and the tokenizer made for them."""

  task: config_lib.Task
  documents: dict[str, documents_lib.Documents]
  tokenizer: tokenizer_lib.Tokenizer
  digests: identity.Identity = dataclasses.field(default_factory=dict)
  _made: dict[Any, Any] = dataclasses.field(default_factory=dict)

  @classmethod
  def open(
    cls,
    config: config_lib.Config,
    workdir: str | os.PathLike | None,
    accept_new_data: bool = False,
    verify: bool = False,
    tokenizer: tokenizer_lib.Tokenizer | None = None,
  ) -> 'Corpus':
    """Finds the documents; loads `workdir`/tokenizer.json, or makes it.

    Args:
      config: of the run.
      workdir: its folder; None: it has none yet, and nothing is written.
      accept_new_data: the documents may be others than the run began with.
      verify: checks all token files now, not as they are read.
      tokenizer: None: that of the folder, or one made for the documents.

    Raises:
      InputError: files are missing or aren't text, they are others than the
        run's, the task can't use the documents or the lengths of rows, or
        tokenizer.json is of another kind.
    """
    try:
      corpus = cls._open(config, workdir, accept_new_data, tokenizer)
      if verify:
        tokens.verify(corpus.documents)
      return corpus
    except sealed.DamagedError as error:
      logging.warning('%s: token files are written again', error.args[0])
      return cls._open(config, workdir, accept_new_data, tokenizer)

  @classmethod
  def _open(cls, config, workdir, accept_new_data, tokenizer):
    data = config.data
    documents = load_documents(config)
    digests = identity.of(documents)
    if workdir is not None:
      identity.check(digests, workdir, accept_new_data)
    tokenizer = tokenizer or tokenizer_training.load_or_make(
      data, documents['train'], workdir
    )
    parts = getattr(task_module(config.task), 'parts', None)
    encode_parts = parts and parts(config.task)
    documents = tokens.load(documents, tokenizer, encode_parts)
    tokenizer_training.warn_of_unknown(tokenizer, documents)
    corpus = cls(config.task, documents, tokenizer, digests)
    # Refuses rows that are too short now, not when their stage begins.
    heldout = data.heldout(config.evaluate)
    lengths = data.length, *data.length_schedule, heldout.length
    corpus.examples(dataclasses.replace(data, length=min(lengths)), 'train')
    for stage in length_schedule.stages(data):
      corpus.check_predicts(stage.data, 'train')
    if len(documents['validation']):
      corpus.check_predicts(heldout, 'validation')
    if len(documents['test']) and not corpus.predicts(heldout, 'test'):
      logging.warning('%s, so it has no scores', corpus.lacks(heldout, 'test'))
    return corpus

  @classmethod
  def of_documents(
    cls,
    config: config_lib.Config,
    workdir: str | os.PathLike,
    documents: dict[str, documents_lib.Documents],
  ) -> 'Corpus':
    """Returns a corpus of other documents than the run began with.

    The run's own splits needn't exist: what is derived from training documents
    is derived from the first of these.

    Args:
      config: of the run.
      workdir: its folder.
      documents: of each split; the names are new.

    Raises:
      InputError: the task can't use the documents, or there is no tokenizer.
    """
    first = next(iter(documents.values()))
    documents = dict.fromkeys(documents_lib.SPLITS, first) | documents
    # Of classes, or numbers, one is enough here.
    if not (config.task.classifies or config.task.series_label):
      task_module(config.task).check_documents(documents, config)
    path = os.path.join(workdir, tokenizer_training.FILE)
    if not os.path.exists(path):
      raise errors.InputError(f'{path} is missing: train first')
    tokenizer = tokenizer_lib.load(path)
    tokenizer_training.warn_of_unknown(tokenizer, documents)
    return cls(config.task, documents, tokenizer)

  def examples(
    self, data: config_lib.Data, split: str, seed: int | None = None
  ) -> Any:
    """Returns a split's examples_lib.Examples, of the task's own class.

    Without a `seed` every epoch is the same.
    """
    key = data, split, seed
    if key not in self._made:
      options = examples_lib.Options(self.task, data, data.length, seed)
      self._made[key] = task_module(self.task).make_examples(
        self.documents[split], self.tokenizer, options
      )
    return self._made[key]

  def windows(
    self, data: config_lib.Data, split: str, seed: int | None = None
  ) -> windows_lib.Windows:
    """Returns the windows of a split's examples; the arguments are those."""
    return windows_lib.Windows(
      self.examples(data, split, seed).lengths,
      data.window_length(),
      data.stride,
      seed if self.task.predicts_all else None,
    )

  def predicts(self, data: config_lib.Data, split: str) -> bool:
    """Returns whether any token of a split is predicted.

    A split of which all that the task asks for is hidden, or too long for a
    row, would be read to its end for ever.
    """
    examples = self.examples(data, split)
    if self.task.predicts_all:
      return bool((examples.lengths > 1).any())
    made = map(examples.read, range(len(examples.lengths)))
    return any(rows_lib.predicted(ids) for ids in made)

  def check_predicts(self, data: config_lib.Data, split: str) -> None:
    """Refuses a split without anything to predict.

    Raises:
      InputError: it names the split, its files, and counts.
    """
    if self.predicts(data, split):
      return
    unfit = self.examples(data, split).unfit
    raise errors.InputError(
      self.lacks(data, split)
      + (
        f': {unfit} are too long: give a longer data.length'
        if unfit
        else f' with task.name={self.task.name!r}: correct them, or name others'
      )
    )

  def lacks(self, data: config_lib.Data, split: str) -> str:
    """Returns that a split has nothing to predict, for a message."""
    documents = self.documents[split]
    files = documents.reader.files
    named = f' of {files[0]}' if files else ''
    more = f' and {len(files) - 1} more' if len(files) > 1 else ''
    return (
      f'split={split!r}: none of its {len(documents)} documents{named}{more} '
      f'has a token to predict in a row of {data.length}'
    )


def load_documents(
  config: config_lib.Config,
) -> dict[str, documents_lib.Documents]:
  """Returns the documents of each split.

  Raises:
    InputError: files are missing or aren't text, there is none to train on, or
      the task can't use them.
  """
  data = config.data
  source = config_lib.load('data/sources', data.source, 'data.source')
  with activity.doing('reading the data'):
    documents = texts.load(data, source)
  if not len(documents['train']):
    raise errors.InputError(
      f'data.splits={data.splits!r} leave no text to train on: give more'
    )
  task_module(config.task).check_documents(documents, config)
  return documents


def task_module(task: config_lib.Task) -> types.ModuleType:
  """Returns the module of a task."""
  return config_lib.load('tasks', task.name, 'task.name')
