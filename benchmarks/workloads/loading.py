"""How long a new process takes to a model's first token, and what it holds.

The model is that of packed.py, in a folder of its own. Each process imports,
opens the folder, compiles or finds its programs, and writes one token; the
first one, which compiles them, doesn't count.

  python -m benchmarks.workloads.loading FOLDER FORMAT
"""

import json
import pathlib
import statistics
import sys
import tempfile
import time
from typing import Any

from benchmarks.harness import measure
from rnn_jax.system import host
from rnn_jax.system import subprocesses

PROMPT = 8  # tokens


def ours(
  repeats: int, format: str, file: bool, sizes: dict[str, Any] | None = None
) -> measure.Values:
  """A run whose weights are in a packed file, or are packed at each start.

  Args:
    repeats: processes.
    format: of the weights.
    file: whether there is a packed file.
    sizes: in place of some of packed.SIZES.
  """
  with tempfile.TemporaryDirectory() as folder:
    size = _write(pathlib.Path(folder, 'run'), format, file, sizes or {})
    return _repeat(__name__, folder, format, repeats) | {'bytes': size}


def llama_cpp(
  repeats: int, format: str, sizes: dict[str, Any] | None = None
) -> measure.Values:
  """The same of llama.cpp; the arguments are those of `ours`."""
  from benchmarks.workloads import llama_cpp as lib

  with tempfile.TemporaryDirectory() as folder:
    size = lib.write_model(pathlib.Path(folder, lib.MODEL), format, sizes)
    name = 'benchmarks.workloads.llama_cpp'
    return _repeat(name, folder, format, repeats) | {'bytes': size}


def _write(folder, format, file, sizes):
  """Writes a run. Returns the bytes of its weights when they are packed."""
  import dataclasses

  import jax

  from benchmarks.workloads import packed
  from rnn_jax.models import packed_weights
  from rnn_jax.runs import bundle as bundle_lib

  bundle = packed.bundle(packed.SIZES | sizes)
  params = jax.device_put(bundle.params)
  made = jax.device_get(packed_weights.panels(params, format))
  bundle_lib.write(bundle, folder)
  if file:
    whole = dataclasses.replace(bundle, params=made)
    bundle_lib.write_packed(whole, folder, format)
  return sum(x.nbytes for x in jax.tree.leaves(made))


def _repeat(module, folder, format, repeats):
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


def main(folder: str, format: str) -> None:
  """Prints the steps of this process as JSON."""
  steps = Steps()
  import jax
  import numpy as np

  from rnn_jax.inference import generate
  from rnn_jax.inference import sampling
  from rnn_jax.system import compile_cache

  compile_cache.keep(str(pathlib.Path(folder, 'programs')))
  jax.devices()
  steps.ended('import')
  run = pathlib.Path(folder, 'run')
  generator = generate.Generator.from_workdir(run, 'best', format)
  jax.block_until_ready(generator.params)
  steps.ended('load')
  options = generate.Options(
    max_new_tokens=1, sampling=sampling.Sampling(temperature=0.0)
  )
  prompt = np.arange(1, 1 + PROMPT, dtype=np.int32)
  timing = generator.generate([prompt], options).timing
  steps.ended('token')
  steps.values['compile_seconds'] = timing.compile_seconds
  print(json.dumps(steps.values))


if __name__ == '__main__':
  main(*sys.argv[1:])
