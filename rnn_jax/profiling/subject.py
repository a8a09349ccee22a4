"""What is measured: a config's training step on random tokens.

No dataset is read. The vocabulary is that of bytes, or of data.vocabulary
entries where a text would have to decide; what a task predicts is random too.
"""

import dataclasses
from collections.abc import Sequence

import jax
import ml_collections
import numpy as np

from rnn_jax import config as config_lib
from rnn_jax import errors
from rnn_jax.data import batch as batch_lib
from rnn_jax.data import pictures
from rnn_jax.data import tokenizer as tokenizer_lib
from rnn_jax.parallel import mesh as mesh_lib
from rnn_jax.training import memory
from rnn_jax.training import step as step_lib


class Vocabulary(tokenizer_lib.Tokenizer):
  """Stands for a tokenizer that no text has made: a size, and no text."""

  def __init__(self, size: int, lossless: bool):
    super().__init__([b'?'] * (size - 1))
    self.lossless = lossless


@dataclasses.dataclass(frozen=True)
class Subject:
  """A Config with what a training step of it needs; see `make`.

  Attributes:
    multiple: rows of a batch are a multiple of it.
  """

  config: config_lib.Config
  tokenizer: tokenizer_lib.Tokenizer
  steps: step_lib.Steps
  multiple: int

  def rows(self, asked: int = 0) -> int:
    """Returns the rows of a batch, `asked` or as the config says.

    Raises:
      InputError: `asked` is no multiple of what it must be, or the config's
        batch holds no row.
    """
    if asked and asked % self.multiple:
      raise errors.InputError(
        f'--rows={asked}: give a multiple of devices x train.accumulate = '
        f'{self.multiple}'
      )
    return asked or self._rows_of_config()

  def _rows_of_config(self):
    data = self.config.data
    if data.memory_gib:
      made = self.config, self.tokenizer, self.multiple
      return memory.rows_for_budget(*made)
    rows = data.tokens_per_batch // data.length or data.batch_size
    if rows < self.multiple:
      raise errors.InputError(
        f'data.batch_size={rows}: give devices x train.accumulate = '
        f'{self.multiple} or more'
      )
    return rows // self.multiple * self.multiple

  def batch(self, rows: int, seed: int = 0) -> batch_lib.Batch:
    """Returns random tokens, on the devices, each row one document."""
    made = random_batch(self.config, self.tokenizer.size, rows, seed)
    return mesh_lib.put(made, self.steps.batch_sharding)

  def describe(self) -> str:
    """A line on what is measured."""
    data, train = self.config.data, self.config.train
    source = '' if data.tokenizer == 'bytes' else ' (data.vocabulary)'
    return (
      f'rows of {data.length} tokens, vocabulary {self.tokenizer.size}{source}'
      f', {train.precision}, accumulate {train.accumulate}, '
      f'{jax.device_count()} x {jax.devices()[0].device_kind}'
    )


def parse(raw: ml_collections.ConfigDict, length: int) -> config_lib.Config:
  """Parses a config, for rows of `length` tokens if that is above 0.

  Raises:
    InputError: as `config.parse`.
  """
  if length:
    raw = raw.copy_and_resolve_references()
    raw.data.update(length=length, boundaries=(), growth=())
  return config_lib.parse(raw)


def make(
  config: config_lib.Config, devices: Sequence[jax.Device] | None = None
) -> Subject:
  """Returns the Subject of a Config, on all devices if `devices` is None."""
  data = config.data
  if data.tokenizer == 'bytes':
    tokenizer = tokenizer_lib.Bytes()
  else:
    words = data.tokenizer == 'bpe' and data.pre_tokenizer == 'whitespace'
    tokenizer = Vocabulary(data.vocabulary, not words)
  steps = step_lib.from_config(config, tokenizer, devices)
  multiple = mesh_lib.row_multiple(steps.mesh, config.mesh)
  multiple *= config.train.accumulate
  return Subject(config, tokenizer, steps, multiple)


def random_batch(
  config: config_lib.Config, vocabulary: int, rows: int, seed: int
) -> batch_lib.Batch:
  """Returns rows of data.length random tokens, each predicting the next.

  A row that a head classifies has its class at the last step.
  """
  rng = np.random.default_rng(seed)
  if config.data.layout == 'images':
    return _random_pictures(config, rows, rng)
  shape = rows, config.data.length
  ids = rng.integers(0, vocabulary, (rows, shape[1] + 1), np.int32)
  targets = ids[:, 1:].copy()
  if config.task.name == 'classification' and config.task.answer == 'pooled':
    classes = len(config.data.classes)
    targets[:, -1] = vocabulary + rng.integers(0, classes, rows)
  starts = np.zeros(shape, np.int32)
  starts[:, 0] = 1
  return batch_lib.Batch(
    ids[:, :-1].copy(), targets, np.ones(shape, np.float32), starts
  )


def _random_pictures(config, rows, rng):
  batch = pictures.blank(rows, config.data.image)
  return batch._replace(
    weights_BxL=np.ones_like(batch.weights_BxL),
    label_B=rng.integers(0, len(config.data.classes), rows, np.int32),
    image_BxHxWxC=rng.integers(0, 256, batch.image_BxHxWxC.shape, np.uint8),
  )
