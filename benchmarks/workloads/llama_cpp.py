"""llama.cpp decodes with a Mamba-2 of random weights, which this file writes.

Its tensors and metadata are those that llama.cpp's architecture 'mamba2' reads,
of the sizes of packed.py.
"""

import contextlib
import json
import os
import pathlib
import sys
import tempfile
from collections.abc import Iterator
from typing import Any

import numpy as np

from benchmarks.harness import measure
from benchmarks.workloads import process

FORMATS = {  # of ours, what llama.cpp calls them
  'float32': 'F32',
  'bfloat16': 'BF16',
  'int8_blocks': 'Q8_0',
  'int4': 'Q4_0',
}
KERNEL = 4  # taps of the convolution
MODEL = 'model.gguf'


def decoding(
  repeats: int,
  format: str,
  rows: int,
  new_tokens: int = 32,
  sizes: dict[str, Any] | None = None,
) -> measure.Values:
  """Greedy tokens of several sequences, one call a step.

  Args:
    repeats: of the tokens.
    format: a key of FORMATS.
    rows: sequences that write at once.
    new_tokens: of a sequence.
    sizes: in place of some of packed.SIZES.
  """
  with tempfile.TemporaryDirectory() as folder:
    path = pathlib.Path(folder, MODEL)
    size = write_model(path, format, sizes)
    with _opened(path, rows, _repacks(format, rows)) as write:
      values = measure.repeat(lambda: write(new_tokens), repeats)
  rate = rows * new_tokens / values['median']
  return values | {'tokens_per_second': rate, 'bytes': size}


def loading(
  repeats: int, format: str, sizes: dict[str, Any] | None = None
) -> measure.Values:
  """How long a new process takes to the first token, as loading.py's.

  Args:
    repeats: processes.
    format: of the weights.
    sizes: in place of some of packed.SIZES.
  """
  with tempfile.TemporaryDirectory() as folder:
    size = write_model(pathlib.Path(folder, MODEL), format, sizes)
    return process.repeat(__name__, folder, format, repeats) | {'bytes': size}


def write_model(
  path: pathlib.Path, format: str, sizes: dict[str, Any] | None = None
) -> int:
  """Writes a model. Returns the bytes of the file.

  Args:
    path: of the file.
    format: a key of FORMATS.
    sizes: in place of some of packed.SIZES.
  """
  from benchmarks.workloads import packed

  _write(path, FORMATS[format], packed.SIZES | (sizes or {}))
  return path.stat().st_size


def _write(path, kind, sizes):
  import gguf

  width, layers = sizes['model.width'], sizes['model.layers']
  heads, keys = sizes['cell.heads'], sizes['cell.key_width']
  inner, vocabulary = heads * sizes['cell.value_width'], sizes['vocabulary']
  writer = gguf.GGUFWriter(path, 'mamba2')
  writer.add_context_length(1 << 20)
  writer.add_embedding_length(width)
  writer.add_feed_forward_length(0)
  writer.add_head_count(0)
  writer.add_block_count(layers)
  writer.add_ssm_conv_kernel(KERNEL)
  writer.add_ssm_inner_size(inner)
  writer.add_ssm_state_size(keys)
  writer.add_ssm_time_step_rank(heads)
  writer.add_ssm_group_count(1)
  writer.add_layer_norm_rms_eps(1e-5)
  writer.add_tokenizer_model('none')
  writer.add_vocab_size(vocabulary)
  rng = np.random.default_rng(0)
  stored = gguf.GGMLQuantizationType[kind]

  def matrix(name, rows, columns):
    w = 0.02 * rng.standard_normal((rows, columns), dtype=np.float32)
    data = w if kind == 'F32' else gguf.quants.quantize(w, stored)
    writer.add_tensor(name, data, raw_dtype=stored)

  def vector(name, *shape, value=1.0):
    writer.add_tensor(name, np.full(shape, value, np.float32))

  channels = inner + 2 * keys  # of the convolution
  matrix('token_embd.weight', vocabulary, width)
  vector('output_norm.weight', width)
  for n in range(layers):
    block = f'blk.{n}.'
    vector(block + 'attn_norm.weight', width)
    matrix(block + 'ssm_in.weight', inner + channels + heads, width)
    vector(block + 'ssm_conv1d.weight', channels, KERNEL, value=0.25)
    vector(block + 'ssm_conv1d.bias', channels, value=0.0)
    vector(block + 'ssm_dt.bias', heads, value=0.0)
    vector(block + 'ssm_a', heads, 1, value=-1.0)
    vector(block + 'ssm_d', heads, 1)
    vector(block + 'ssm_norm.weight', 1, inner)
    matrix(block + 'ssm_out.weight', width, inner)
  writer.write_header_to_file()
  writer.write_kv_data_to_file()
  writer.write_tensors_to_file()
  writer.close()


def _repacks(format, rows):
  """Returns whether llama.cpp may pack the weights again for the processor.

  In 8 and 4 bits its form for AMX ends the process where several rows write.
  """
  info = pathlib.Path('/proc/cpuinfo')
  has_amx = info.exists() and 'amx_int8' in info.read_text()
  return rows == 1 or not has_amx or format not in ('int8_blocks', 'int4')


@contextlib.contextmanager
def _opened(path, rows, repacks=True) -> Iterator[Any]:
  """Yields a function that writes so many tokens of each row."""
  import llama_cpp as lib

  lib.llama_backend_init()
  quiet = lib.llama_log_callback(lambda level, text, data: None)
  lib.llama_log_set(quiet, None)
  loading_options = lib.llama_model_default_params()
  loading_options.use_extra_bufts = repacks
  model = lib.llama_model_load_from_file(str(path).encode(), loading_options)
  options = lib.llama_context_default_params()
  options.n_ctx = 4096 * rows
  options.n_batch = options.n_ubatch = max(rows, 32)
  options.n_seq_max = rows
  options.n_threads = options.n_threads_batch = os.cpu_count()
  context = lib.llama_init_from_model(model, options)
  vocabulary = lib.llama_vocab_n_tokens(lib.llama_model_get_vocab(model))
  batch = lib.llama_batch_init(rows, 0, 1)
  tokens, step = np.arange(rows) + 1, 0

  def write(count):
    nonlocal tokens, step
    for _ in range(count):
      batch.n_tokens = rows
      for row in range(rows):
        batch.token[row], batch.pos[row] = int(tokens[row]), step
        batch.n_seq_id[row], batch.seq_id[row][0] = 1, row
        batch.logits[row] = True
      assert lib.llama_decode(context, batch) == 0
      step += 1
      tokens = np.array(
        [
          np.ctypeslib.as_array(
            lib.llama_get_logits_ith(context, row), (vocabulary,)
          ).argmax()
          for row in range(rows)
        ]
      )

  yield write
  lib.llama_batch_free(batch)
  lib.llama_free(context)
  lib.llama_model_free(model)


def main(folder: str) -> None:
  """Loads a folder's model, generates one token, and prints process.Steps."""
  steps = process.Steps()
  import llama_cpp  # noqa: F401

  steps.ended('import')
  with _opened(pathlib.Path(folder, MODEL), 1) as write:
    steps.ended('load')
    write(1)
    steps.ended('token')
    steps.values['compile_seconds'] = 0.0
    print(json.dumps(steps.values))


if __name__ == '__main__':
  main(sys.argv[1])
