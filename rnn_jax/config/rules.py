"""The rules of a config: fields that must agree."""

import math
import operator
from typing import Any

from rnn_jax import errors
from rnn_jax.config import optimization
from rnn_jax.config import pattern
from rnn_jax.config import values


def _value(config, key):
  return operator.attrgetter(key)(config)


def check(config: Any) -> None:
  """Checks a Config, except what each part and section checks itself.

  Raises:
    InputError: values that contradict each other; the message names the key,
      the value and the remedy.
  """
  _check_task(config)
  _check_length_of_run(config.train)
  _check_splits(config.data)
  _check_rows(config)
  _check_stride(config.data)
  _check_order(config.data)
  _check_model(config)
  _check_bidirectional(config)
  _check_operands(config)
  _check_remat(config)
  _check_loss_scale(config.train)
  optimization.check(config)


def _check_task(config):
  task, data = config.task, config.data
  if data.holds_images != task.reads_images:
    errors.refuse(
      'data.layout',
      data.layout,
      f'task.name={task.name!r} reads '
      f'{"images" if task.reads_images else "tokens"}, and this layout holds '
      f'{"images" if data.holds_images else "tokens"}: they need each other, '
      "as 'image_classification' and 'images' do",
    )
  if data.holds_series != task.reads_series:
    errors.refuse(
      'data.source',
      data.source,
      f'task.name={task.name!r} reads '
      f'{"series of numbers" if task.reads_series else "texts or images"}, and '
      "this source has others: they need each other, as 'forecasting' and "
      "'series' do",
    )
  if data.labels_series != bool(task.series_label):
    errors.refuse(
      'data.source',
      data.source,
      f'task.name={task.name!r} needs series '
      f'{"with labels" if task.series_label else "to forecast"}: give '
      f'{"labelled_series" if task.series_label else "series"!r}',
    )
  if task.classifies:
    _check_classes(data)
  if task.predicts_all:
    return
  if data.cuts_documents:
    errors.refuse(
      'data.layout',
      data.layout,
      f'task.name={task.name!r} needs rows of whole examples: choose another '
      'layout',
    )
  if data.split_by == 'position':
    errors.refuse(
      'data.split_by',
      data.split_by,
      f'task.name={task.name!r} has whole examples, which would be in every '
      "split: give 'document'",
    )


def _check_classes(data):
  if data.names_classes and not data.classes:
    return  # data/columns.py finds them
  if len(data.classes) < 2 or len(set(data.classes)) < len(data.classes):
    errors.refuse(
      'data.classes',
      data.classes,
      "name two or more classes in order, as in ('negative', 'positive')",
    )


def _check_length_of_run(train):
  if not train.steps and not train.epochs:
    errors.refuse('train.steps', 0, 'give 1 or more, or train.epochs instead')


def _check_splits(data):
  if len(data.splits) != 3 or sum(data.splits) != 100 or min(data.splits) < 0:
    errors.refuse(
      'data.splits', data.splits, 'give three percentages with sum 100'
    )
  if data.splits[0] == 0:
    errors.refuse('data.splits', data.splits, 'leave something to train on')


def _check_rows(config):
  data = config.data
  if 0 < data.tokens_per_batch < data.length * config.train.accumulate:
    errors.refuse(
      'data.tokens_per_batch',
      data.tokens_per_batch,
      f'give data.length * train.accumulate = '
      f'{data.length * config.train.accumulate} or more',
    )
  given = data.tokens_per_batch or data.memory_gib
  if not given and data.batch_size % config.train.accumulate:
    errors.refuse(
      'train.accumulate',
      config.train.accumulate,
      f'it must divide data.batch_size={data.batch_size}',
    )


def _check_stride(data):
  if data.stride > data.length:
    errors.refuse(
      'data.stride',
      data.stride,
      f'tokens between windows would be skipped: give up to data.length='
      f'{data.length}, or 0',
    )


def _check_order(data):
  lengths = [0, *data.length_schedule, data.length]
  if lengths != sorted(set(lengths)):
    errors.refuse(
      'data.length_schedule',
      data.length_schedule,
      f'give rising lengths between 0 and data.length={data.length}',
    )
  if data.length_schedule and data.carry_state:
    for key in ('tokens_per_batch', 'memory_gib'):
      if value := getattr(data, key):
        errors.refuse(
          f'data.{key}',
          value,
          'it changes the number of rows with their length, and '
          'data.carry_state keeps one state per row: give 0 and '
          'data.batch_size, or no data.length_schedule',
        )
  if data.curriculum == 'column' and not data.difficulty:
    errors.refuse(
      'data.difficulty', '', "data.curriculum='column' needs a column: name it"
    )
  percentages = data.curriculum_shares
  if not percentages or min(percentages) < 1 or max(percentages) > 99:
    errors.refuse(
      'data.curriculum_shares', percentages, 'give percentages from 1 to 99'
    )


def _check_model(config):
  model = config.model
  inner = model.embedding_width or model.width
  if inner != model.width and model.block != 'plain':
    errors.refuse(
      'model.embedding_width',
      inner,
      f'a residual block needs model.width={model.width} (or 0)',
    )
  if inner != model.width and model.tied:
    errors.refuse(
      'model.tied', True, 'a tied head needs embedding_width = width'
    )
  if model.shared_layers and inner != model.width:
    errors.refuse(
      'model.shared_layers',
      True,
      f'the first of layers with embedding_width={inner} differs from the '
      'others: give 0',
    )
  _check_positions(config)


def _check_bidirectional(config):
  model, task = config.model, config.task
  if not model.bidirectional:
    return
  key = 'model.bidirectional'
  if task.writes_text:
    errors.refuse(
      key,
      True,
      f'task.name={task.name!r} predicts tokens, which the backward cells have '
      "read: give False, or a task that reads whole texts, as 'classification' "
      "with task.answer='pooled' or 'tagging'",
    )
  if weight := getattr(task, 'text_weight', 0):
    errors.refuse(
      key,
      True,
      f'task.text_weight={weight} predicts tokens, which the backward cells '
      'have read: give False, or task.text_weight=0',
    )
  if model.width % 2:
    errors.refuse(
      'model.width',
      model.width,
      f'{key} gives each direction half of it: give an even number',
    )


def _check_positions(config):
  model, data = config.model, config.data
  inner = model.embedding_width or model.width
  if model.positions == 'sinusoidal' and inner % 2:
    errors.refuse(
      'model.width', inner, 'sinusoidal positions need an even number'
    )
  if model.positions != 'learned' or config.task.reads_images:
    return  # of images, one position per patch
  longest = model.max_positions or data.length
  for key in ('data.length', 'evaluate.length'):
    if (length := _value(config, key)) > longest:
      errors.refuse(
        key,
        length,
        f'model.max_positions={longest} positions are learned',
      )
  written = len(config.sample.prompt.encode()) + config.sample.new_tokens
  if written > longest:
    errors.refuse(
      'sample.new_tokens',
      config.sample.new_tokens,
      f'with the prompt, more than the model.max_positions={longest} learned '
      'positions',
    )
  if data.carry_state:
    errors.refuse(
      'data.carry_state',
      True,
      "positions grow with the document, and model.positions='learned' has "
      f"{longest}: choose 'sinusoidal', or the cell's rotary ones",
    )


def _check_operands(config):
  operands, impl = config.recurrence.operands, config.recurrence.impl
  if operands == 'auto':
    return
  cells = [cell for _, cell in pattern.sections(config.cell)]
  readers = {name for cell in cells for name in cell.multiplying}
  if impl not in readers:
    others = f' or recurrence.impl one of {sorted(readers)}' if readers else ''
    errors.refuse(
      'recurrence.operands',
      operands,
      f'{config.model.pattern!r} has no such matmuls under recurrence.impl='
      f"{impl!r}: give 'auto'{others}",
    )


def _check_remat(config):
  every = config.remat.every
  if isinstance(every, str) and every not in ('auto', 'sqrt'):
    errors.refuse(
      'remat.every', every, "give a number of steps, 'auto' or 'sqrt'"
    )
  if not isinstance(every, str) and every < 0:
    errors.refuse('remat.every', every, 'give 0 or more')
  if every == 'auto' and not config.remat.memory_gib:
    errors.refuse('remat.memory_gib', 0.0, "remat.every='auto' needs it")
  _check_layer_remat(config)


def _check_layer_remat(config):
  remat = config.remat
  inner = config.model.embedding_width or config.model.width
  pattern = len(config.model.pattern)
  layers = config.model.layers - (inner != config.model.width)
  if config.model.experts.dense_layers:
    layers -= pattern  # the first period runs by itself
  for key in ('layers', 'stored_layers'):
    if (count := getattr(remat, key)) % pattern:
      errors.refuse(
        f'remat.{key}',
        count,
        f'give a multiple of the {pattern} cells of model.cells, or 0',
      )
  if remat.layers and layers % (remat.layers + remat.stored_layers):
    plus = f' + remat.stored_layers={remat.stored_layers}'
    errors.refuse(
      'remat.layers',
      remat.layers,
      f'it{plus * bool(remat.stored_layers)} must divide {layers} layers',
    )
  keepable = values.choices_of('models.remat:KEEPABLE')
  if unknown := [name for name in remat.keep if name not in keepable]:
    errors.refuse('remat.keep', unknown, f'choose from {keepable}')
  if remat.offload and 'matmuls' in remat.keep and len(remat.keep) > 1:
    errors.refuse(
      'remat.keep', remat.keep, "remat.offload: give only 'matmuls', or others"
    )


def _check_loss_scale(train):
  scale = train.loss_scale
  if train.precision == 'float16' and not scale:
    errors.refuse(
      'train.loss_scale',
      scale,
      "train.precision='float16' without it rounds small gradients to 0: give "
      '32768.0',
    )
  if scale and (scale < 1 or math.frexp(scale)[0] != 0.5):
    errors.refuse(
      'train.loss_scale',
      scale,
      'give a power of two, 1 or more, which does not round',
    )
