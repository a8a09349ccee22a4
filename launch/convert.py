"""Makes a work folder of a model that another program wrote.

  python -m launch.convert --input=model.safetensors --format=safetensors \\
      --workdir=runs/converted
  python -m launch.convert --input=gpt2 --format=gpt2 --workdir=runs/gpt2
  python -m launch.convert --input=model.pt --format=torch_simple_rnn \\
      --config=configs/published.py --workdir=runs/published

launch.generate, launch.evaluate and launch.train take the folder as that of a
run before its first step: training begins with its parameters. See
docs/exchange.md for the formats.
"""

import pathlib

from absl import flags
from ml_collections import config_flags

from launch import command

INPUT = flags.DEFINE_string('input', None, 'File or folder.', required=True)
FORMAT = flags.DEFINE_string('format', None, 'Its format.', required=True)
WORKDIR = flags.DEFINE_string(
  'workdir', None, 'The folder to make.', required=True
)
TOKENIZER = flags.DEFINE_string(
  'tokenizer', '', "A run's tokenizer.json, where the input has none."
)
CONFIG = config_flags.DEFINE_config_file(
  'config', None, 'A file of configs/, where the input says too little.'
)


def main(argv):
  from rnn_jax import config as config_lib
  from rnn_jax import errors
  from rnn_jax.data import tokenizer
  from rnn_jax.exchange import request
  from rnn_jax.training import bundle as bundle_lib

  del argv
  module = request.find(FORMAT.value, 'read')
  bundle_lib.check_absent(WORKDIR.value)
  path = pathlib.Path(INPUT.value)
  if not path.exists():
    raise errors.InputError(f'--input={INPUT.value!r}: there is no such file')
  if TOKENIZER.value and not pathlib.Path(TOKENIZER.value).is_file():
    raise errors.InputError(
      f'--tokenizer={TOKENIZER.value!r}: there is no such file'
    )
  source = request.Source(
    path,
    None if CONFIG.value is None else config_lib.parse(CONFIG.value),
    tokenizer.load(TOKENIZER.value) if TOKENIZER.value else None,
  )
  bundle_lib.write(module.read(source), WORKDIR.value)
  print(WORKDIR.value)


if __name__ == '__main__':
  command.run(main)
