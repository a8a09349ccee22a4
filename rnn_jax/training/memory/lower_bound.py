"""The least memory that a config needs, by arithmetic; refused if it is absent.

A batch of B rows of L tokens of width D needs at least

    12 B L (prefetch + 2)                bytes of the host: ids, targets...
    2 B L D / (accumulate devices)       bytes of each device: one activation

and data.workers processes WORKER bytes each.
"""

from rnn_jax import config as config_lib
from rnn_jax.system import bounds

TOKEN = 12  # bytes: id, target and weight
WORKER = 100 * 2**20  # bytes of a process that reads data


def check(config: config_lib.Config) -> None:
  """Checks the batches of a config and the processes that make them.

  Raises:
    InputError: the machine's memory can't hold them; it names the keys.
  """
  data = config.data
  bounds.check(
    data.workers * WORKER,
    f'data.workers={data.workers:,} processes',
    'give fewer',
  )
  if config.task.reads_images:
    _check_images(config)
    return
  rows = data.batch_size
  given = f'data.batch_size={rows:,}'
  if data.tokens_per_batch:
    rows = data.tokens_per_batch // data.length
    given = f'data.tokens_per_batch={data.tokens_per_batch:,}'
  _check_rows(config, rows, data.length, f'{given} with data.length')
  held_out = data.heldout(config.evaluate)
  if config.evaluate.every:
    given = f'evaluate.batch_size={held_out.batch_size:,} with evaluate.length'
    _check_rows(config, held_out.batch_size, held_out.length, given, 1)


def _check_rows(config, rows, length, given, accumulate=0):
  tokens = rows * length
  given = f'{given}={length:,}'
  bounds.check(
    tokens * TOKEN * (config.data.prefetch + 2),
    f'{given} tokens and data.prefetch={config.data.prefetch:,}',
    'give less of them',
  )
  steps = min(length, config.remat.segment or length)
  accumulate = accumulate or config.train.accumulate
  bounds.check(
    rows * steps * 2 * config.model.width // accumulate,
    f'{given} tokens of model.width={config.model.width:,}',
    'give less of them',
    bounds.of_devices(),
  )


def _check_images(config):
  image, prefetch = config.data.image, config.data.prefetch
  for key, rows in (
    ('data.batch_size', config.data.batch_size),
    ('evaluate.batch_size', config.evaluate.batch_size),
  ):
    bounds.check(
      rows * image.size**2 * image.channels * (prefetch + 2),
      f'{key}={rows:,} images of {image.size:,} x {image.size:,} pixels and '
      f'data.prefetch={prefetch:,}',
      'give less of them',
    )
