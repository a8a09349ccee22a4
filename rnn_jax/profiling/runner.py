"""Runs a compiled training step, and sees what memory that takes."""

import time

import jax

from rnn_jax import host
from rnn_jax.profiling import subject as subject_lib


class Runner:
  """Steps of a compiled program on one random batch.

  Attributes:
    held: bytes of the train state and the batch, on all devices of this host.
  """

  def __init__(
    self,
    subject: subject_lib.Subject,
    rows: int,
    program: jax.stages.Compiled,
  ):
    self._program = program
    self._batch = subject.batch(rows)
    state = subject.steps.init(subject.config.train.seed, rows)
    self._state = jax.block_until_ready(state)
    arrays = jax.tree.leaves((self._state, self._batch))
    self.held = sum(
      shard.data.nbytes
      for array in arrays
      for shard in array.addressable_shards
    )
    # What compilations freed would hide what the steps take.
    host.give_back_free_memory()
    self._memory = host.Memory()

  def run(self, steps: int) -> list[float]:
    """Runs so many steps. Returns the seconds of each."""
    seconds = []
    for number in range(steps):
      began = time.perf_counter()
      with jax.profiler.StepTraceAnnotation('train', step_num=number):
        self._state, metrics = self._program(self._state, self._batch)
        jax.block_until_ready((self._state, metrics))
      seconds.append(time.perf_counter() - began)
    return seconds

  def peak(self) -> tuple[str, int]:
    """Returns (who tells, the most bytes of a device so far).

    Where no device tells it is what the process grew by during the steps, and
    what it held before, shared among this host's devices.
    """
    stats = jax.local_devices()[0].memory_stats()
    if stats and 'peak_bytes_in_use' in stats:
      return 'device', stats['peak_bytes_in_use']
    grown = self._memory.values()['resident_delta_bytes']
    return 'resident growth', (self.held + grown) // jax.local_device_count()
