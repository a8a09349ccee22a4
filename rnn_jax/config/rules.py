"""The rules of a config: ranges, choices, and fields that must agree."""

import math
import operator

from rnn_jax import errors
from rnn_jax.config import images
from rnn_jax.config import optimization
from rnn_jax.config import ranges
from rnn_jax.ops import remat_schedules

IMAGES = 'image_classification'
CLASSIFYING = ('classification', IMAGES)


def _value(config, key):
  return operator.attrgetter(key)(config)


def check(config):
  """Checks a Config.

  Raises:
    InputError: values that contradict each other, or out of their range; the
      message names the key, the value and the remedy.
  """
  for key, choices in ranges.CHOICES.items():
    if (value := _value(config, key)) not in choices:
      errors.refuse(key, value, f'choose one of {choices}')
  for key, least in ranges.AT_LEAST.items():
    if (value := _value(config, key)) < least:
      errors.refuse(key, value, f'give {least} or more')
  for key, most in ranges.AT_MOST.items():
    if (value := _value(config, key)) > most:
      errors.refuse(key, value, f'give {most} or less')
  for key in ranges.BELOW_ONE:
    if not 0 <= (value := _value(config, key)) < 1:
      errors.refuse(key, value, 'give a number in [0, 1)')
  _check_task(config)
  _check_data(config)
  _check_batches(config)
  _check_order(config.data)
  _check_model(config)
  _check_remat(config)
  _check_loss_scale(config.train)
  optimization.check(config)
  config.cell.check(config)
  if config.task.name == IMAGES:
    images.check(config)


def _check_task(config):
  task, data = config.task, config.data
  if (data.layout == 'images') != (task.name == IMAGES):
    errors.refuse(
      'data.layout',
      data.layout,
      f"task.name={IMAGES!r} and layout 'images' need each other",
    )
  if task.name == 'language_modeling':
    return
  if data.layout == 'stream':
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
      f'task.name={task.name!r} has whole examples, which would lie in every '
      "split: give 'document'",
    )
  if task.name == 'recall' and config.remat.segment:
    errors.refuse('remat.segment', config.remat.segment, 'it would cut answers')
  if task.least_reply_tokens > task.reply_tokens:
    errors.refuse(
      'task.least_reply_tokens',
      task.least_reply_tokens,
      f'give at most task.reply_tokens={task.reply_tokens}',
    )
  if task.name in CLASSIFYING:
    _check_classes(data)
  for key in ('text_weight', 'evidence'):
    if (
      task.name == 'classification'
      and task.answer == 'word'
      and (value := getattr(task, key))
    ):
      errors.refuse(f'task.{key}', value, "task.answer='word' has none")


def _check_classes(data):
  if len(data.classes) < 2 or len(set(data.classes)) < len(data.classes):
    errors.refuse(
      'data.classes',
      data.classes,
      "name two or more classes in their order, as in ('negative', 'positive')",
    )


def _check_data(config):
  data = config.data
  if len(data.splits) != 3 or sum(data.splits) != 100 or min(data.splits) < 0:
    errors.refuse(
      'data.splits', data.splits, 'give three percentages with sum 100'
    )
  if data.splits[0] == 0:
    errors.refuse('data.splits', data.splits, 'leave something to train on')


def _check_batches(config):
  data = config.data
  if list(data.boundaries) != sorted(set(data.boundaries)):
    errors.refuse('data.boundaries', data.boundaries, 'give rising lengths')
  if data.boundaries and data.boundaries[0] < 1:
    errors.refuse('data.boundaries', data.boundaries, 'give lengths above 0')
  if data.boundaries and data.boundaries[-1] != data.length:
    errors.refuse(
      'data.boundaries',
      data.boundaries,
      f'end with data.length={data.length}, the longest row',
    )
  if data.carry_state and data.layout != 'stream':
    errors.refuse('data.carry_state', True, "it needs data.layout='stream'")
  if data.rarity_buckets > 1 and data.layout != 'buckets':
    errors.refuse(
      'data.rarity_buckets',
      data.rarity_buckets,
      f"layout {data.layout!r} has no buckets: give 1, or layout 'buckets'",
    )
  _check_rows(config)


def _check_rows(config):
  data = config.data
  if data.memory_gib and data.tokens_per_batch:
    errors.refuse(
      'data.memory_gib',
      data.memory_gib,
      f'it decides data.tokens_per_batch={data.tokens_per_batch}: give one of '
      'them, and 0 for the other',
    )
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


def _check_order(data):
  lengths = [0, *data.growth, data.length]
  if lengths != sorted(set(lengths)):
    errors.refuse(
      'data.growth',
      data.growth,
      f'give rising lengths between 0 and data.length={data.length}',
    )
  if data.growth and data.carry_state:
    for key in ('tokens_per_batch', 'memory_gib'):
      if value := getattr(data, key):
        errors.refuse(
          f'data.{key}',
          value,
          'its rows change with the length, and data.carry_state keeps one '
          'state a row: give 0 and data.batch_size, or no data.growth',
        )
  if (data.curriculum == 'column') != bool(data.difficulty):
    errors.refuse(
      'data.difficulty',
      data.difficulty,
      "data.curriculum='column' needs the name of a column, others have none",
    )
  shares = data.curriculum_shares
  if not shares or min(shares) < 1 or max(shares) > 99:
    errors.refuse(
      'data.curriculum_shares', shares, 'give percentages from 1 to 99'
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
  if model.block != 'residual' and model.mlp_width:
    errors.refuse(
      'model.mlp_width',
      model.mlp_width,
      f"block {model.block!r} has no MLP: give 0, or block 'residual'",
    )
  if model.shared_layers and inner != model.width:
    errors.refuse(
      'model.shared_layers',
      True,
      f'the first of layers with embedding_width={inner} differs from the '
      'others: give 0',
    )
  if model.tied and not model.head_bias:
    errors.refuse('model.head_bias', False, 'a tied head has none: give True')
  _check_positions(config)


def _check_positions(config):
  model, data = config.model, config.data
  inner = model.embedding_width or model.width
  if model.positions == 'sinusoidal' and inner % 2:
    errors.refuse('model.width', inner, 'sinusoidal positions need an even one')
  if model.positions != 'learned' or config.task.name == IMAGES:
    return  # of a picture there are as many as it has patches
  longest = model.longest or data.length
  for key in ('data.length', 'evaluate.length'):
    if (length := _value(config, key)) > longest:
      errors.refuse(
        key, length, f'there are model.longest={longest} learned positions'
      )
  written = len(config.sample.prompt.encode()) + config.sample.new_tokens
  if written > longest:
    errors.refuse(
      'sample.new_tokens',
      config.sample.new_tokens,
      f'with the prompt, more than model.longest={longest} learned positions',
    )
  if data.carry_state:
    errors.refuse(
      'data.carry_state',
      True,
      "positions grow with the document, and model.positions='learned' has "
      f"{longest}: choose 'sinusoidal', or rotary ones of the cell",
    )


def _check_remat(config):
  every, recurrence = config.remat.every, config.recurrence
  if isinstance(every, str) and every not in ('auto', 'sqrt'):
    errors.refuse(
      'remat.every', every, "give a number of steps, 'auto' or 'sqrt'"
    )
  if not isinstance(every, str) and every < 0:
    errors.refuse('remat.every', every, 'give 0 or more')
  if every and recurrence.impl == 'associative':
    errors.refuse(
      'remat.every', every, "recurrence.impl 'associative' keeps all"
    )
  _check_remat_schedule(config)
  _check_layer_remat(config)


def _check_remat_schedule(config):
  remat = config.remat
  if (name := remat.schedule) not in remat_schedules.NAMES:
    errors.refuse(
      'remat.schedule', name, f'choose one of {remat_schedules.NAMES}'
    )
  if name != 'uniform' and not remat.every:
    errors.refuse('remat.schedule', name, 'remat.every=0 keeps all: give it')
  if remat.kept and name != 'binomial':
    errors.refuse(
      'remat.kept',
      remat.kept,
      f"remat.schedule='binomial' takes it, not {name}",
    )
  if (remat.every == 'auto') != bool(remat.memory_gib):
    errors.refuse(
      'remat.memory_gib',
      remat.memory_gib,
      f'it goes with remat.every="auto", not {remat.every!r}: give both',
    )
  if remat.every == 'auto' and config.data.memory_gib:
    errors.refuse(
      'remat.memory_gib',
      remat.memory_gib,
      'data.memory_gib takes what there is for more rows: give one of them',
    )


def _check_layer_remat(config):
  remat = config.remat
  inner = config.model.embedding_width or config.model.width
  layers = config.model.layers - (inner != config.model.width)
  if remat.layers and layers % remat.layers:
    errors.refuse(
      'remat.layers', remat.layers, f'it must divide {layers} layers'
    )
  if unknown := [name for name in remat.keep if name not in ranges.KEEPABLE]:
    errors.refuse('remat.keep', unknown, f'choose of {ranges.KEEPABLE}')
  if remat.keep and not remat.layers:
    errors.refuse('remat.keep', remat.keep, 'remat.layers=0 keeps all: give it')
  if remat.offload and not remat.keep:
    errors.refuse('remat.offload', True, 'remat.keep names nothing to offload')
  if remat.offload and 'matmuls' in remat.keep and len(remat.keep) > 1:
    errors.refuse(
      'remat.keep', remat.keep, "remat.offload takes 'matmuls' alone, or others"
    )


def _check_loss_scale(train):
  scale = train.loss_scale
  if train.precision == 'float16' and not scale:
    errors.refuse(
      'train.loss_scale',
      scale,
      "train.precision='float16' rounds small gradients to 0 without one: give "
      '32768.0',
    )
  if scale and (scale < 1 or math.frexp(scale)[0] != 0.5):
    errors.refuse(
      'train.loss_scale',
      scale,
      'give a power of two, 1 or more, which rounds nothing',
    )
