"""Writes the model of a run to a file that other programs read.

  python -m launch.export --workdir=runs/demo --format=safetensors \\
      --output=model.safetensors

Formats: safetensors (parameters, config and tokenizer in one file, which
launch.convert reads), torch_simple_rnn (the published model's PyTorch state
dict, .pt or .safetensors), stablehlo (a folder with the compiled-ahead step of
decoding, which runs with jax and numpy alone). See docs/exchange.md.
"""

import pathlib

from absl import flags

from launch import command

WORKDIR = flags.DEFINE_string('workdir', None, 'The run.', required=True)
FORMAT = flags.DEFINE_string('format', None, 'The format.', required=True)
OUTPUT = flags.DEFINE_string(
  'output', None, 'The file or folder to write; it is not there yet.'
)
CHECKPOINT = flags.DEFINE_string(
  'checkpoint', 'best', "'best', 'latest' or a step."
)
BATCH_SIZE = flags.DEFINE_integer(
  'batch_size', None, 'Rows of a step, of stablehlo; 1 if not given.'
)
PLATFORMS = flags.DEFINE_list(
  'platforms', None, 'cpu, cuda, ..., of stablehlo; cpu if not given.'
)


def main(argv):
  from rnn_jax import errors
  from rnn_jax.exchange import request
  from rnn_jax.training import bundle as bundle_lib

  del argv
  if not OUTPUT.value:
    raise errors.InputError('--output is missing: name what to write')
  path = pathlib.Path(OUTPUT.value)
  module = request.find(FORMAT.value, 'write')
  request.check_absent(path)
  platforms = PLATFORMS.value
  target = request.Target(
    path, BATCH_SIZE.value, None if platforms is None else tuple(platforms)
  )
  bundle = bundle_lib.read(WORKDIR.value, CHECKPOINT.value)
  module.write(bundle, target)
  print(path)


if __name__ == '__main__':
  command.run(main)
