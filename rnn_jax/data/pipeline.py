"""From a corpus to batches: the order of training, and held-out passes.

Batch sizes are those of the whole job. With several processes, each one plans
all of every batch, so that an iterator's state and the shapes of batches don't
depend on the number of processes, and makes the rows that its devices take
(parallel/mesh.py).
"""

import functools
import math
from collections.abc import Callable

import grain
import numpy as np

from rnn_jax import config as config_lib
from rnn_jax import errors
from rnn_jax.data import corpus as corpus_lib
from rnn_jax.data import loader
from rnn_jax.data.batching import batch as batch_lib
from rnn_jax.data.batching import curriculum
from rnn_jax.data.batching import length_schedule
from rnn_jax.data.batching import order as order_lib
from rnn_jax.data.batching import plan as plan_lib
from rnn_jax.data.batching import rows as rows_lib
from rnn_jax.data.batching import shapes as shapes_lib

PROBED = 64  # windows that are looked at for what they predict
COUNTED = 4  # blocks of a plan

Own = Callable[[int], np.ndarray]  # of a number of rows, which are made


def training_batches(
  corpus: corpus_lib.Corpus,
  config: config_lib.Config,
  multiple: int = 1,
  *,
  place: loader.Place | None = None,
  own: Own | None = None,
) -> grain.DatasetIterator[batch_lib.Batch]:
  """Returns the endless, shuffled batches of the job.

  `get_state` is one number, independent of data.workers. Call `close` to end
  the workers.

  Args:
    corpus: what to train on.
    config: of the run.
    multiple: divides the number of rows of each batch.
    place: puts a batch on its devices, ahead of its use.
    own: which of so many rows they take; None: all. Others stay blank.

  Raises:
    InputError: a batch would have no row.
  """
  stages = training_stages(corpus, config, multiple)
  return _loaded(corpus, stages, config.data, config.data.workers, place, own)


def heldout_batches(
  corpus: corpus_lib.Corpus,
  config: config_lib.Config,
  split: str,
  multiple: int = 1,
  *,
  place: loader.Place | None = None,
  own: Own | None = None,
  tokens: int = 0,
) -> grain.DatasetIterator[batch_lib.Batch]:
  """Returns one pass over a held-out split, in order.

  Rows that the text doesn't fill have weight 0. The other arguments are those
  of `training_batches`.

  Args:
    split: 'train', 'validation' or 'test'.
    tokens: about as many tokens as this are read, see `heldout_windows`; 0:
      nothing is left out.

  Raises:
    InputError: the split is empty, or a batch would have no row.
  """
  if not len(corpus.documents[split]):
    path = f'{split}_path'
    files = (
      f', or its files in data.{path}' if hasattr(config.data, path) else ''
    )
    raise errors.InputError(
      f'split={split!r} has no document: give it a percentage in data.splits='
      f'{config.data.splits!r}{files}'
    )
  data = config.data.heldout(config.evaluate)
  chosen, _ = heldout_windows(corpus, config, split, tokens)
  stage = plan_lib.Stage(
    data,
    corpus.examples(data, split),
    corpus.windows(data, split),
    order_lib.Chosen(chosen),
    len(chosen),
    heldout_shapes(corpus, config, split, multiple, tokens),
    end=1,
  )
  # Starting workers takes longer than a held-out split takes one process.
  return _loaded(corpus, [stage], data, 0, place, own)


def heldout_shapes(
  corpus: corpus_lib.Corpus,
  config: config_lib.Config,
  split: str,
  multiple: int = 1,
  tokens: int = 0,
) -> tuple[tuple[int, int], ...]:
  """Returns the (rows, length) of batches of a pass, by ascending length.

  A split of few rows has no batches of `evaluate.batch_size`: the next power
  of two times `multiple` is enough. So few shapes are ever compiled.

  Args:
    corpus: the documents.
    config: of the run.
    split: 'train', 'validation' or 'test'.
    multiple: divides the number of rows of each batch.
    tokens: that are read, see `heldout_windows`.

  Raises:
    InputError: a batch would have no row.
  """
  shapes = shapes_lib.heldout_shapes(corpus, config, multiple)
  most = max(rows for rows, _ in shapes)
  chosen, _ = heldout_windows(corpus, config, split, tokens)
  if len(chosen) >= most:
    return shapes
  data = config.data.heldout(config.evaluate)
  _, start, stop = corpus.windows(data, split).at(chosen)
  needed = int(np.sum(stop - start > 1))
  enough = multiple * 2 ** max(-(-needed // multiple) - 1, 0).bit_length()
  return tuple((min(rows, enough), length) for rows, length in shapes)


def heldout_windows(
  corpus: corpus_lib.Corpus, config: config_lib.Config, split: str, tokens: int
) -> tuple[np.ndarray, float]:
  """Returns evenly spaced windows of a held-out split, and their fraction.

  Their number is derived from their mean size, so that the tokens read are
  about the given number.

  Args:
    corpus: the documents.
    config: of the run.
    split: 'train', 'validation' or 'test'.
    tokens: to read; 0: all windows.
  """
  data = config.data.heldout(config.evaluate)
  examples, windows = corpus.examples(data, split), corpus.windows(data, split)
  total = len(windows)
  if not tokens or not total:
    return np.arange(total), 1.0
  # An image is one token in training, and its bytes here.
  if data.holds_images:
    mean = len(examples.read(0)) - 1
  else:
    mean = np.maximum(examples.lengths - 1, 0).sum() / total
  count = min(int(-(-tokens // max(mean, 1))), total)
  sample = _evenly(total, PROBED)
  made = map(examples.read, *(x.tolist() for x in windows.at(sample)))
  filled = sample[[rows_lib.predicted(ids) > 0 for ids in made]]
  if count <= len(filled):  # a few: none of them may be empty
    return filled[_evenly(len(filled), count)], count / total
  return _evenly(total, count), count / total


def batch_shapes(
  corpus: corpus_lib.Corpus, config: config_lib.Config, multiple: int = 1
) -> tuple[tuple[int, int], ...]:
  """Returns the (rows, length) of all training batches, sorted.

  Where a batch is as long as its longest row (`data.shapes_vary`), these are
  all possible shapes; a run may meet fewer.

  Raises:
    InputError: a batch would have no row.
  """
  shapes = {
    shape
    for stage in length_schedule.stages(config.data)
    for shape in shapes_lib.training_shapes(
      corpus, stage.data, config.train.seed_of_order, multiple
    )
  }
  return tuple(sorted(shapes))


def training_stages(
  corpus: corpus_lib.Corpus, config: config_lib.Config, multiple: int = 1
) -> list[plan_lib.Stage]:
  """Returns the stages of the length schedule, of which batches are planned.

  Raises:
    InputError: a batch would have no row.
  """
  return [
    _stage(corpus, stage, config.train.seed_of_order, multiple)
    for stage in length_schedule.stages(config.data)
  ]


def batches_in(
  epochs: float,
  corpus: corpus_lib.Corpus,
  config: config_lib.Config,
  multiple: int = 1,
) -> float:
  """Returns how many batches so many epochs of training have.

  It is exact for whole blocks of a plan, of which a stage has up to COUNTED;
  of more, these count for all.

  Raises:
    InputError: as `batch_shapes`.
  """
  batches = 0.0
  for stage in training_stages(corpus, config, multiple):
    inside = min(epochs, epochs if stage.end is None else stage.end)
    if inside > stage.first:
      batches += _batches_of(stage, inside - stage.first)
  return batches


def _batches_of(stage, epochs):
  """Returns how many batches the first epochs of a stage have."""
  counted = max(min(math.ceil(epochs / stage.epochs), COUNTED), 1)
  plans = [stage.plan(block) for block in range(counted)]
  places = sum(len(stage.places(block)) for block in range(counted))
  made = sum(len(plan.shapes) for plan in plans)
  return made * epochs * stage.count / places


def describe(
  corpus: corpus_lib.Corpus, config: config_lib.Config, multiple: int = 1
) -> str:
  """Returns a line about the training batches: rows x length, and padding.

  If examples are too long for a row and left out, it says how many.

  Raises:
    InputError: as `batch_shapes`.
  """
  data = config.data
  shapes = batch_shapes(corpus, config, multiple)
  ends = dict.fromkeys(f'{rows}x{n}' for rows, n in (shapes[0], shapes[-1]))
  summary = (
    f'{data.layout}, {"at most " * data.shapes_vary}'
    f'{len(shapes)} shape{"s" * (len(shapes) > 1)}: {" ... ".join(ends)}'
  )
  summary += _left_out(corpus.examples(data, 'train'))
  if not data.pads:
    return f'{summary}, no padding'
  stage = training_stages(corpus, config, multiple)[-1]
  plan = stage.plan(0)
  efficiency = plan.tokens / max(plan.padded_tokens, 1)
  return f'{summary}, padding efficiency {efficiency:.0%}'


def _left_out(examples):
  """Returns ', 3 of 64 examples ...', or '' if all fit."""
  return (
    f', {examples.unfit:,} of {len(examples.lengths):,} examples are left out: '
    'they need a longer data.length'
    if examples.unfit
    else ''
  )


def _stage(corpus, stage, seed, multiple):
  """Returns a stage of the length schedule, to plan."""
  data = stage.data
  windows = corpus.windows(data, 'train', seed)
  if not len(windows):
    raise errors.InputError('the text has nothing to predict: give more')
  if data.curriculum:
    hard = curriculum.hard(corpus, data, seed)
    order = curriculum.Order(hard, seed, data)
  else:
    order = order_lib.Shuffled(len(windows), seed)
  split = getattr(shapes_lib.layout(data), 'split', None)
  return plan_lib.Stage(
    data,
    corpus.examples(data, 'train', seed),
    windows,
    order,
    len(windows),
    shapes_lib.training_shapes(corpus, data, seed, multiple),
    seed,
    split and split(corpus, data, seed),
    stage.first,
    stage.end,
  )


def _loaded(corpus, stages, data, workers, place, own):
  """Returns the batches of stages, some of them made in advance."""
  unpack = getattr(corpus_lib.task_module(corpus.task), 'unpack', None)
  rows = {rows for stage in stages for rows, _ in stage.shapes}
  batches = plan_lib.Batches(
    stages,
    None if own is None else {count: own(count) for count in rows},
    unpack and functools.partial(unpack, corpus.tokenizer),
  )
  return grain.experimental.ThreadPrefetchDatasetIterator(
    loader.Loader(batches, workers, place), data.prefetch
  )


def _evenly(total, count):
  """Returns at most `count` of range(total), evenly spaced."""
  count = min(count, total)
  return np.arange(count) * total // count
