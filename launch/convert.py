"""Converts a model of another program into a work folder.

  python -m launch.convert --input=model.safetensors --format=safetensors \\
      --workdir=runs/converted
  python -m launch.convert --input=llama --format=hf --workdir=runs/llama
  python -m launch.convert --input=model.gguf --format=gguf --workdir=runs/gguf
  python -m launch.convert --input=model.pt --format=torch_simple_rnn \\
      --config=published --workdir=runs/published

launch.generate, launch.evaluate and launch.train read the folder as a run that
hasn't taken its first step: training starts from its parameters.
docs/interop.md describes the formats.
"""

import pathlib

from absl import flags

from launch import command

PURPOSE = 'Exchange'
INPUT = flags.DEFINE_string(
  'input', None, 'File or folder to read.', required=True
)
FORMAT = flags.DEFINE_string(
  'format', None, 'Format of the input.', required=True
)
WORKDIR = flags.DEFINE_string(
  'workdir', None, 'Work folder to create.', required=True
)
TOKENIZER = flags.DEFINE_string(
  'tokenizer', '', "A run's tokenizer.json, for an input without one."
)
CONFIG = command.define_config(
  "A name or a file, for an input that doesn't describe its model."
)


def main(argv):
  from rnn_jax import config as config_lib
  from rnn_jax import errors
  from rnn_jax.data.text import tokenizer
  from rnn_jax.interop import request
  from rnn_jax.runs import bundle as bundle_lib
  from rnn_jax.system import files

  del argv
  module = request.find(FORMAT.value, 'read')
  bundle_lib.check_absent(WORKDIR.value)
  path = pathlib.Path(INPUT.value)
  if not path.exists():
    raise errors.InputError(f'--input={INPUT.value!r}: no such file')
  if TOKENIZER.value and not pathlib.Path(TOKENIZER.value).is_file():
    raise errors.InputError(f'--tokenizer={TOKENIZER.value!r}: no such file')
  source = request.Source(
    path,
    None if CONFIG.value is None else config_lib.parse(CONFIG.value),
    tokenizer.load(TOKENIZER.value, files.named(TOKENIZER.value))
    if TOKENIZER.value
    else None,
  )
  bundle_lib.write(module.read(source), WORKDIR.value)
  print(WORKDIR.value)


if __name__ == '__main__':
  command.run(main, keeps_memory=False)
