"""How long a new process takes to a model's first token, and what it holds.

The model is that of packed.py, in a folder of its own. Each process imports,
opens the folder, compiles or finds its programs, and writes one token; the
first one, which compiles them, doesn't count.

  python -m benchmarks.workloads.loading FOLDER FORMAT
"""

import json
import pathlib
import sys
import tempfile
from typing import Any

from benchmarks.harness import measure
from benchmarks.workloads import process

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
    return process.repeat(__name__, folder, format, repeats) | {'bytes': size}


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


def main(folder: str, format: str) -> None:
  """Prints the steps of this process as JSON."""
  steps = process.Steps()
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
