"""onnxruntime decodes with the exported step of packed.py's model.

The state stays in onnxruntime's memory from step to step; the token is chosen
by NumPy, as in the generate.py that an export has.
"""

import json
import pathlib
import tempfile
from typing import Any

import numpy as np

from benchmarks.harness import measure
from benchmarks.workloads import packed


def decoding(
  repeats: int,
  format: str,
  rows: int,
  new_tokens: int = 32,
  sizes: dict[str, Any] | None = None,
) -> measure.Values:
  """Greedy tokens of several rows, one call a step.

  Args:
    repeats: of the tokens.
    format: of the weights in the file.
    rows: that write at once.
    new_tokens: of a row.
    sizes: in place of some of packed.SIZES.
  """
  from rnn_jax.interop import request
  from rnn_jax.interop.formats import onnx

  with tempfile.TemporaryDirectory() as folder:
    path = pathlib.Path(folder, 'model')
    bundle = packed.bundle(packed.SIZES | (sizes or {}))
    onnx.write(bundle, request.Target(path, dtype=format))
    size = (path / 'weights.bin').stat().st_size
    write = _opened(path, rows)
    values = measure.repeat(lambda: write(new_tokens), repeats)
  rate = rows * new_tokens / values['median']
  return values | {'tokens_per_second': rate, 'bytes': size}


def _opened(folder, rows):
  """Returns a function that writes so many tokens of each row."""
  import onnxruntime

  options = onnxruntime.SessionOptions()
  options.intra_op_num_threads = measure.cores()
  step = onnxruntime.InferenceSession(folder / 'step.onnx', options)
  interface = json.loads((folder / 'interface.json').read_text())
  names = [output.name for output in step.get_outputs()]
  value = onnxruntime.OrtValue.ortvalue_from_numpy
  feeds = {
    f'state.{name}': value(
      np.full(
        [rows if size == 'B' else size for size in x['shape']],
        float(x['value']),
        x['dtype'],
      )
    )
    for name, x in interface['state'].items()
  }
  feeds['tokens_BxL'] = value(np.zeros((rows, 1), np.int32))

  def write(count):  # continues where the last one ended
    nonlocal feeds
    for _ in range(count):
      made = step.run_with_ort_values(names, feeds)
      results = dict(zip(names, made, strict=True))
      logits_BxLxV = results.pop('logits_BxLxV').numpy()
      feeds = {x.removeprefix('next_'): own for x, own in results.items()}
      tokens_BxL = logits_BxLxV.argmax(-1).astype(np.int32)
      feeds['tokens_BxL'] = value(tokens_BxL)

  return write
