"""A model folder of Hugging Face's transformers, read and written.

    config.json                        sizes and options; model_type names it
    model.safetensors                  or shards that an index lists, or else
                                       pytorch_model.bin
    tokenizer.json                     of package `tokenizers`, optional; or
                                       vocab.json and merges.txt of GPT-2
    chat_template.jinja                or in tokenizer_config.json, optional
    generation_config.json, ...        kept, and written back as they were
    README.md                          the model card, written

An architecture is a file of `architectures`, chosen by model_type. Tensors are
read one at a time into our parameters, and written shard by shard, so that a
model is in memory once. Numbers aren't computed with, only placed: they return
bit for bit, in the dtypes that they had.

A chat template becomes the tokenizer's, and the model's task is then dialogue;
a --config whose task knows no turns leaves it out. A work folder keeps the
folder's small files. A model without them, trained here, is written with a
config.json made from its own config.
"""

import dataclasses
import json
import statistics

from rnn_jax import errors
from rnn_jax.config import values
from rnn_jax.interop import keys as keys_lib
from rnn_jax.interop import model_card
from rnn_jax.interop import request
from rnn_jax.interop.formats.hf import architectures
from rnn_jax.interop.formats.hf import checkpoint
from rnn_jax.interop.formats.hf import config_json
from rnn_jax.interop.formats.hf import tokenizer_files
from rnn_jax.runs import bundle as bundle_lib
from rnn_jax.system import bounds

KEPT = (  # files that are written back as they were
  config_json.CONFIG,
  'generation_config.json',
  tokenizer_files.CONFIG,
  'special_tokens_map.json',
  tokenizer_files.TEMPLATE,
)
HALVES = (*checkpoint.HALVES.values(),)


def read(source: request.Source) -> bundle_lib.Bundle:
  """Returns the model of a folder.

  A --config adds data, task and training, and its data.length is the context of
  attention; without one the context is the model's, or config_json.CONTEXT if
  that is less.

  Raises:
    InputError: files are missing, the architecture or an option of it isn't
      supported, or the tensors don't fit config.json.
  """
  folder = source.path
  keys = architectures.text_part(keys_lib.read(folder / config_json.CONFIG))
  architecture = architectures.find(keys)
  vocabulary = keys.whole('vocab_size', least=2)
  config = config_json.read(keys, architecture, source)
  rows = architectures.tensors(architecture, config, vocabulary)
  # Before anything of their size is made.
  found = checkpoint.find(folder, rows)
  tokenizer = source.tokenizer or tokenizer_files.read(
    folder, keys, source.config
  )
  if tokenizer.size != vocabulary:
    raise errors.InputError(
      f'{folder}: config.json has vocab_size={vocabulary}, and the tokenizer '
      f'{tokenizer.size} entries: give the tokenizer of this model'
    )
  if tokenizer.template:
    config = config_json.read(
      keys, architecture, source, {'task.name': 'dialogue'}
    )
  like = bundle_lib.like(config, tokenizer)
  sizes = values.largest_sizes(config)
  bounds.check_arrays(like, f'parameters of {folder} with {sizes}')
  params = bundle_lib.nested(checkpoint.read(found, bundle_lib.flat(like)))
  bundle = bundle_lib.make(config, tokenizer, params, like)
  names = KEPT
  if not (folder / tokenizer_files.TOKENIZER).exists():
    names += tokenizer_files.BYTE_PAIRS
  kept = {
    name: tokenizer_files.text(folder, name)
    for name in names
    if (folder / name).exists()
  }
  if halves := checkpoint.halves(found):
    kept[bundle_lib.DTYPES] = json.dumps(halves)
  return dataclasses.replace(bundle, kept=kept)


def write(bundle: bundle_lib.Bundle, target: request.Target) -> None:
  """Writes a folder, which is complete or absent at any time.

  Raises:
    InputError: no architecture has such a model, or the folder can't be
      written.
  """
  target.refuse('batch_size', 'platforms', 'opset')
  target.dtype_of(('float32', *HALVES))
  limit = target.max_shard_size and request.nbytes(target.max_shard_size)
  theirs, stored = config_json.describe(bundle)
  halves = _dtypes(bundle.kept)
  dtypes = {
    name: target.dtype or halves.get(x.parts[0].name, 'float32')
    for name, x in stored.items()
  }
  theirs['dtype'] = statistics.mode(dtypes.values())
  with target.folder() as part:
    for name, text in bundle.kept.items():
      if name != bundle_lib.DTYPES:
        (part / name).write_text(text, encoding='utf-8')
    keys_lib.write(part / config_json.CONFIG, theirs)
    tokenizer_files.write(bundle, part)
    arrays = bundle_lib.flat(bundle.params)
    checkpoint.write(part, stored, arrays, dtypes, limit)
    form = model_card.Form('safetensors', theirs['dtype'], theirs['model_type'])
    model_card.write(part, bundle, target, form)


def _dtypes(kept):
  """Returns the dtypes of 16 bits that a run's folder names."""
  keys = config_json.kept(kept, bundle_lib.DTYPES)
  return {name: keys.one_of(name, HALVES, '') for name in keys.values}
