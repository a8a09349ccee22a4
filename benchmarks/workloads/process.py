"""A process that times its own steps, and what starts several of them."""

import json
import statistics
import sys
import time

from benchmarks.harness import measure
from rnn_jax.system import host
from rnn_jax.system import subprocesses


class Steps:
  """Times the steps of a process and looks at its memory."""

  def __init__(self) -> None:
    self._begin = time.perf_counter()
    self.values: measure.Values = {}

  def ended(self, name: str) -> None:
    """Notes the seconds of a step, and the resident bytes after it."""
    now = time.perf_counter()
    self.values[f'{name}_seconds'] = now - self._begin
    self.values[f'{name}_bytes'] = host.status('VmRSS')
    self._begin = time.perf_counter()


def repeat(
  module: str, folder: str, format: str, repeats: int
) -> measure.Values:
  """Runs a module as so many processes, after one that doesn't count.

  Args:
    module: it prints the steps of its process as JSON.
    folder: its first argument.
    format: its second one.
    repeats: processes.

  Returns:
    The seconds of each process, and the medians of what they print.

  Raises:
    RuntimeError: a process failed; says what it wrote.
  """
  command = [sys.executable, '-m', module, folder, format]
  taken = []

  def run():
    result = subprocesses.run(command, timeout=600)
    if result.code:
      raise RuntimeError('\n'.join(result.err[-3:]))
    taken.append(json.loads(result.out[-1]))

  values = measure.repeat(run, repeats)
  counted = taken[1:]
  return values | {
    name: statistics.median(one[name] for one in counted) for name in taken[0]
  }
