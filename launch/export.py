"""Exports a run's model to a file that other programs read.

  python -m launch.export --workdir=runs/demo --format=safetensors \\
      --output=model.safetensors

Formats: safetensors (parameters, config and tokenizer in one file, which
launch.convert reads), hf (a folder of transformers or flash-linear-attention,
for architectures that they have), gguf (a folder with a file that llama.cpp
runs), torch_simple_rnn (the published model's PyTorch state dict, .pt or
.safetensors), stablehlo (a folder with the decode step, exported ahead of time,
that needs neither rnn_jax nor Flax), onnx (a folder with graphs of a step and
of a row, for onnxruntime in Python, a browser or an app). Folders have a model
card. See docs/interop.md.
"""

import pathlib

from absl import flags

from launch import command

PURPOSE = 'Exchange'
WORKDIR, CHECKPOINT = command.define_run()
FORMAT = flags.DEFINE_string('format', None, 'Format to write.', required=True)
OUTPUT = flags.DEFINE_string(
  'output',
  None,
  'File or folder to write; it must not exist yet.',
  required=True,
)
BATCH_SIZE = flags.DEFINE_integer(
  'batch_size', None, 'stablehlo: rows in a step. Default: 1.'
)
PLATFORMS = flags.DEFINE_list(
  'platforms', None, 'stablehlo: cpu, cuda, ... Default: cpu.'
)
DTYPE = flags.DEFINE_enum(
  'dtype',
  None,
  ['float32', 'bfloat16', 'float16', 'int8', 'q8_0', 'q4_0'],
  'hf: of all tensors; default: those of the folder that was converted. onnx: '
  'of the weights in the file, also int8; gguf: of matrices, also q8_0 and '
  'q4_0; default: float32.',
)
LICENSE = flags.DEFINE_string(
  'license',
  None,
  "Of a folder's model card, as 'apache-2.0'. Default: other.",
)
MAX_SHARD_SIZE = flags.DEFINE_string(
  'max_shard_size',
  None,
  "hf, gguf: of a file, as '2GB' or '500MB'; a larger model is several files. "
  'Default: 1 GiB for hf; a single file for gguf.',
)
OPSET = flags.DEFINE_integer(
  'opset',
  None,
  'onnx: version of its operators. Default: 27; an older runtime reads 26, '
  'whose graphs step through a row.',
)


def main(argv):
  from rnn_jax.interop import model_card
  from rnn_jax.interop import request
  from rnn_jax.runs import bundle as bundle_lib

  del argv
  path = pathlib.Path(OUTPUT.value)
  module = request.find(FORMAT.value, 'write')
  request.check_absent(path)
  if LICENSE.value is not None:
    model_card.check_license(LICENSE.value)
  if MAX_SHARD_SIZE.value is not None:
    request.nbytes(MAX_SHARD_SIZE.value)
  platforms = PLATFORMS.value
  target = request.Target(
    path,
    BATCH_SIZE.value,
    None if platforms is None else tuple(platforms),
    DTYPE.value,
    OPSET.value,
    LICENSE.value,
    MAX_SHARD_SIZE.value,
    pathlib.Path(WORKDIR.value).absolute(),
  )
  bundle = bundle_lib.read(WORKDIR.value, CHECKPOINT.value)
  module.write(bundle, target)
  print(path)


if __name__ == '__main__':
  command.run(main, keeps_memory=False)
