"""A config's training step on random tokens: what is measured.

No dataset is read, except for the classes if the config leaves them to it. The
vocabulary is that of bytes, or has data.vocabulary entries where a tokenizer
would be fitted to text; targets are random too.
"""

import dataclasses
import time
from collections.abc import Sequence

import jax
import ml_collections
import numpy as np

from rnn_jax import config as config_lib
from rnn_jax import errors
from rnn_jax.data.batching import batch as batch_lib
from rnn_jax.data.batching import rows as rows_lib
from rnn_jax.data.text import tokenizer as tokenizer_lib
from rnn_jax.parallel import mesh as mesh_lib
from rnn_jax.system import host
from rnn_jax.system import target
from rnn_jax.training import programs as programs_lib
from rnn_jax.training import resolve
from rnn_jax.training.memory import batch_size


class Vocabulary(tokenizer_lib.Tokenizer):
  """Stands in for a tokenizer that needs a text: it only has a size."""

  def __init__(self, size: int, lossless: bool):
    super().__init__([b'?'] * (size - 1))
    self.lossless = lossless


@dataclasses.dataclass(frozen=True)
class Workload:
  """A Config with what its training step needs; see `make`.

  Attributes:
    multiple: the rows of a batch are a multiple of it.
  """

  config: config_lib.Config
  tokenizer: tokenizer_lib.Tokenizer
  programs: programs_lib.Programs
  multiple: int

  def rows(self, requested: int = 0) -> int:
    """Returns the rows of a batch, `requested` or (0) as the config says.

    Raises:
      InputError: `requested` is not a multiple of `multiple`, or the config's
        batch has no row.
    """
    if requested and requested % self.multiple:
      errors.refuse(
        '--rows',
        requested,
        f'give a multiple of devices x train.accumulate = {self.multiple}',
      )
    return requested or self._rows_of_config()

  def _rows_of_config(self):
    data = self.config.data
    if data.memory_gib:
      return batch_size.rows_for_budget(
        self.config, self.tokenizer, self.multiple
      )
    rows = data.tokens_per_batch // data.length or data.batch_size
    if rows < self.multiple:
      errors.refuse(
        'data.batch_size',
        rows,
        f'give devices x train.accumulate = {self.multiple} or more',
      )
    return rows // self.multiple * self.multiple

  def batch(self, rows: int, seed: int = 0) -> batch_lib.Batch:
    """Returns random tokens on the devices; each row is one document."""
    batch = random_batch(self.config, self.tokenizer.size, rows, seed)
    return self.programs.put(batch)

  def describe(self) -> str:
    """Returns a line on what is measured."""
    data, train = self.config.data, self.config.train
    devices = self.programs.mesh.devices.flatten()
    source = '' if data.tokenizer == 'bytes' else ' (data.vocabulary)'
    return (
      f'rows of {data.length} tokens, vocabulary {self.tokenizer.size}{source}'
      f', {train.precision}, accumulate {train.accumulate}, '
      f'{len(devices)} x {devices[0].device_kind}'
    )


class Runner:
  """Runs a compiled training step again and again on one random batch.

  Attributes:
    held: bytes of the train state and the batch, on all devices of this host.
  """

  def __init__(
    self, workload: Workload, rows: int, program: jax.stages.Compiled
  ):
    self._program = program
    self._batch = workload.batch(rows)
    state = workload.programs.states.init(rows)
    self._state = jax.block_until_ready(state)
    self.held = sum(
      shard.data.nbytes
      for array in jax.tree.leaves((self._state, self._batch))
      for shard in array.addressable_shards
    )
    # What compilations freed would hide what the steps take.
    host.release_freed_memory()
    self._memory = host.Memory()

  def run(self, steps: int) -> list[float]:
    """Runs `steps` steps and returns the seconds of each."""
    seconds = []
    for number in range(steps):
      began = time.perf_counter()
      with jax.profiler.StepTraceAnnotation('train', step_num=number):
        self._state, metrics = self._program(self._state, self._batch)
        jax.block_until_ready((self._state, metrics))
      seconds.append(time.perf_counter() - began)
    return seconds

  def peak(self) -> tuple[str, int]:
    """Returns (the source of the figure, the peak bytes of a device so far).

    Where devices report none, it is what the process grew by during the steps,
    plus what it held before, divided by this host's devices.
    """
    stats = jax.local_devices()[0].memory_stats()
    if stats and 'peak_bytes_in_use' in stats:
      return 'device', stats['peak_bytes_in_use']
    growth = self._memory.values()['resident_delta_bytes']
    return 'resident growth', (self.held + growth) // jax.local_device_count()


def parse(raw: ml_collections.ConfigDict, length: int) -> config_lib.Config:
  """Parses a config, with rows of `length` tokens if that is above 0.

  Raises:
    InputError: as `config.parse` and `resolve.of_data`.
  """
  if length:
    raw = raw.copy_and_resolve_references()
    raw.data.update(length=length, length_schedule=())
    if 'boundaries' in raw.data:
      raw.data.boundaries = ()
  config = config_lib.parse(raw)
  # A model's head has the size of the classes, or of the horizon.
  open_classes = config.task.classifies and not config.data.classes
  if open_classes or config.task.reads_series:
    return resolve.of_data(config)
  return config


def make(
  config: config_lib.Config, devices: Sequence[jax.Device] | None = None
) -> Workload:
  """Returns the Workload of a Config.

  Args:
    config: of a run.
    devices: None: all of this machine, or as many of the target's as the mesh
      needs.
  """
  data = config.data
  if devices is None and target.used():
    devices = target.devices(mesh_lib.fewest(config.mesh))
  if data.tokenizer in ('bytes', 'scales'):
    tokenizer = tokenizer_lib.Bytes()
  else:
    words = data.tokenizer == 'bpe' and data.pre_tokenizer == 'whitespace'
    tokenizer = Vocabulary(data.vocabulary, not words)
  programs = programs_lib.from_config(config, tokenizer, devices)
  multiple = programs.row_multiple * config.train.accumulate
  return Workload(config, tokenizer, programs, multiple)


def random_batch(
  config: config_lib.Config, vocabulary: int, rows: int, seed: int
) -> batch_lib.Batch:
  """Returns rows of data.length random tokens, each predicting the next.

  Of series of numbers, readings.

  A row that a head classifies has its class at the last step.
  """
  rng = np.random.default_rng(seed)
  if config.task.reads_images:
    return _random_images(config, rows, rng)
  if config.task.reads_series:
    return _random_series(config, rows, rng)
  shape = rows, config.data.length
  ids = rng.integers(0, vocabulary, (rows, shape[1] + 1), np.int32)
  targets = ids[:, 1:].copy()
  if config.task.classifies and not config.task.writes_text:
    classes = len(config.data.classes)
    targets[:, -1] = vocabulary + rng.integers(0, classes, rows)
  starts = np.zeros(shape, np.int32)
  starts[:, 0] = 1
  return batch_lib.Batch(
    ids[:, :-1].copy(), targets, np.ones(shape, np.float32), starts
  )


def _random_series(config, rows, rng):
  data = config.data
  batch = rows_lib.blank_series(
    rows, data.length, data.widths, data.covariate_widths
  )
  batch.starts_BxL[:, 0] = 1
  if batch.known_BxLxHxK is not None:
    batch = batch._replace(
      known_BxLxHxK=rng.random(batch.known_BxLxHxK.shape, np.float32),
      inputs_BxLxC=rng.random(batch.inputs_BxLxC.shape, np.float32),
    )
  return batch._replace(
    weights_BxL=np.ones_like(batch.weights_BxL),
    readings_BxLxW=rng.random(batch.readings_BxLxW.shape, np.float32),
    calendar_BxLxF=rng.random(batch.calendar_BxLxF.shape, np.float32),
    future_BxLxH=_random_targets(config, batch.future_BxLxH.shape, rng),
  )


def _random_targets(config, shape, rng):
  """Returns readings that follow, numbers, or classes by their numbers."""
  if classes := len(config.data.classes):
    return rng.integers(0, classes, shape).astype(np.float32)
  return rng.random(shape, np.float32)


def _random_images(config, rows, rng):
  batch = rows_lib.blank_images(rows, config.data.image)
  return batch._replace(
    weights_BxL=np.ones_like(batch.weights_BxL),
    label_B=rng.integers(0, len(config.data.classes), rows, np.int32),
    image_BxHxWxC=rng.integers(0, 256, batch.image_BxHxWxC.shape, np.uint8),
  )
