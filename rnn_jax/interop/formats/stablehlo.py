"""Exports a model as a StableHLO program.

A folder has all that it takes to run it with only jax and NumPy. Of a model
that writes text it is the decoding step (interop/programs.py):

    step.stablehlo           the program, of jax.export
    parameters.safetensors   params by name, float32
    state.safetensors        the state of rows that have read nothing
    interface.json           inputs and outputs by name, shape and dtype
    tokenizer.json           the vocabulary, of package `tokenizers`; a
                             vocabulary of numbers has none
    decode.py                a script that writes tokens with these
    README.md                the model card

Of a classifier with a head it is classify.stablehlo and classify.py, without a
state; interface.json has the classes.
"""

import shutil

from rnn_jax import errors
from rnn_jax.interop import model_card
from rnn_jax.interop import programs
from rnn_jax.interop import request
from rnn_jax.interop import standard_tokenizer
from rnn_jax.interop import tensors
from rnn_jax.runs import bundle as bundle_lib
from rnn_jax.system import files

PLATFORMS = ('cpu', 'cuda', 'rocm', 'tpu')


def write(bundle: bundle_lib.Bundle, target: request.Target) -> None:
  """Writes the folder, which is complete or absent at any time.

  Raises:
    InputError: there are no rows, the platform is unknown, or the folder can't
      be written.
  """
  target.refuse('dtype', 'opset', 'max_shard_size')
  batch_size = 1 if target.batch_size is None else target.batch_size
  platforms = target.platforms or PLATFORMS[:1]
  _check(batch_size, platforms)
  task = bundle.config.task
  if task.reads_series or not (task.writes_text or task.classifies):
    errors.refuse(
      'task.name',
      task.name,
      'its model writes no text, and predicts no class of one',
    )
  make = programs.step if task.writes_text else programs.probabilities
  program = make(bundle, batch_size, platforms)
  vocabulary = standard_tokenizer.describe(bundle.tokenizer)
  script, name = program.script
  with target.folder() as part:
    serialized = program.exported.serialize()
    (part / f'{program.name}.stablehlo').write_bytes(serialized)
    for file, arrays in program.tensors.items():
      tensors.write(part / f'{file}.safetensors', arrays)
    _dump(part / 'interface.json', program.interface)
    if vocabulary is not None:
      _dump(part / 'tokenizer.json', vocabulary)
    shutil.copyfile(script, part / name)
    form = model_card.of_programs(bundle, 'StableHLO', 'float32')
    model_card.write(part, bundle, target, form)


def _dump(path, value):
  text = files.to_json(value, indent=1) + '\n'
  path.write_text(text, encoding='utf-8')


def _check(batch_size, platforms):
  if batch_size < 1:
    errors.refuse('--batch_size', batch_size, 'give 1 or more')
  for platform in platforms:
    if platform not in PLATFORMS:
      raise errors.InputError(
        f'--platforms={",".join(platforms)}: choose from {PLATFORMS}'
      )
