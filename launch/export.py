"""Exports a run's model to a file that other programs read.

  python -m launch.export --workdir=runs/demo --format=safetensors \\
      --output=model.safetensors

Formats: safetensors (parameters, config and tokenizer in one file, which
launch.convert reads), hf (a folder of transformers or flash-linear-attention,
for architectures that they have), torch_simple_rnn (the published model's
PyTorch state dict, .pt or .safetensors), stablehlo (a folder with the decode
step, exported ahead of time, that needs neither rnn_jax nor Flax). See
docs/interop.md.
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
  ['float32', 'bfloat16', 'float16'],
  'hf: of all tensors. Default: those of the folder that was converted.',
)


def main(argv):
  from rnn_jax.interop import request
  from rnn_jax.runs import bundle as bundle_lib

  del argv
  path = pathlib.Path(OUTPUT.value)
  module = request.find(FORMAT.value, 'write')
  request.check_absent(path)
  platforms = PLATFORMS.value
  target = request.Target(
    path,
    BATCH_SIZE.value,
    None if platforms is None else tuple(platforms),
    DTYPE.value,
  )
  bundle = bundle_lib.read(WORKDIR.value, CHECKPOINT.value)
  module.write(bundle, target)
  print(path)


if __name__ == '__main__':
  command.run(main, keeps_memory=False)
