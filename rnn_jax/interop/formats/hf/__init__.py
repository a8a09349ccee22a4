"""A model folder of Hugging Face's transformers, read and written.

    config.json                        sizes and options; model_type names it
    model.safetensors                  or shards that an index lists
    tokenizer.json                     of package `tokenizers`, optional
    chat_template.jinja                or in tokenizer_config.json, optional
    generation_config.json, ...        kept, and written back as they were

An architecture is a file of `architectures` (table.py says what it has), chosen
by model_type. Tensors are read one at a time into our parameters, and written
shard by shard, so that a model is in memory once. Numbers aren't computed with,
only placed: they return bit for bit, in the dtypes that they had.

A chat template becomes the tokenizer's, and the model's task is then dialogue;
a --config whose task knows no turns leaves it out. A work folder keeps the
folder's small files. A model without them, trained here, is written with a
config.json made from its own config.
"""

import collections
import contextlib
import dataclasses
import json
import os
import shutil

import flax.traverse_util

from rnn_jax import config as config_lib
from rnn_jax import errors
from rnn_jax.config import values
from rnn_jax.data.text import chat_template
from rnn_jax.data.text import tokenizer as tokenizer_lib
from rnn_jax.data.text import tokenizer_file
from rnn_jax.interop import keys as keys_lib
from rnn_jax.interop import request
from rnn_jax.interop.formats.hf import checkpoint
from rnn_jax.interop.formats.hf import table
from rnn_jax.runs import bundle as bundle_lib
from rnn_jax.system import bounds
from rnn_jax.system import files

CONFIG = 'config.json'
TOKENIZER = 'tokenizer.json'
TOKENIZER_CONFIG = 'tokenizer_config.json'
TEMPLATE = 'chat_template.jinja'
KEPT = (  # files that are written back as they were
  CONFIG,
  'generation_config.json',
  TOKENIZER_CONFIG,
  'special_tokens_map.json',
  TEMPLATE,
)
HALVES = (*checkpoint.HALVES.values(),)
FREE = {  # options of a model that its config.json doesn't describe
  'dropout',
  'dropout_shape',
  'token_dropout',
  'embedding_scale',
  'kernel_scale',
  'branch_scale',
  'balance',
  'input_bias',  # and the next, at the start of training
  'forget_biases',
  'unroll',
}
CONTEXTS = ('max_position_embeddings', 'model_max_length')
CONTEXT = 4096  # tokens at most, without a config that says how many


def read(source: request.Source) -> bundle_lib.Bundle:
  """Returns the model of a folder.

  A --config adds data, task and training, and its data.length is the context of
  attention; without one the context is the model's, or CONTEXT if that is less.

  Raises:
    InputError: files are missing, the architecture or an option of it isn't
      supported, or the tensors don't fit config.json.
  """
  folder = source.path
  keys = keys_lib.read(folder / CONFIG)
  architecture = table.find(keys)
  vocabulary = keys.whole('vocab_size', least=2)
  config = _config(keys, architecture, source)
  found = _find(folder, config, architecture, vocabulary)
  tokenizer = source.tokenizer or _tokenizer(folder, keys, source.config)
  if tokenizer.size != vocabulary:
    raise errors.InputError(
      f'{folder}: config.json has vocab_size={vocabulary}, and the tokenizer '
      f'{tokenizer.size} entries: give the tokenizer of this model'
    )
  if tokenizer.template:
    config = _config(keys, architecture, source, {'task.name': 'dialogue'})
  like = bundle_lib.like(config, tokenizer)
  sizes = values.largest_sizes(config)
  bounds.check_arrays(like, f'parameters of {folder} with {sizes}')
  params = bundle_lib.nested(checkpoint.read(found, bundle_lib.flat(like)))
  bundle = bundle_lib.make(config, tokenizer, params, like)
  kept = _kept(folder)
  if halves := checkpoint.halves(found):
    kept[bundle_lib.DTYPES] = json.dumps(halves)
  return dataclasses.replace(bundle, kept=kept)


def _find(folder, config, architecture, vocabulary):
  """Returns where the tensors are, before anything of their size is made."""
  tensors = architecture.tensors(config, vocabulary)
  joined = (
    architecture.joined(config) if hasattr(architecture, 'joined') else []
  )
  return checkpoint.find(folder, tensors, joined)


def write(bundle: bundle_lib.Bundle, target: request.Target) -> None:
  """Writes a folder, which is complete or absent at any time.

  Raises:
    InputError: no architecture has such a model, or the folder can't be
      written.
  """
  target.refuse('batch_size', 'platforms')
  theirs, tensors = _described(bundle)
  dtypes = _dtypes(bundle.kept)
  if target.dtype is not None:
    dtypes = {tensor.name: target.dtype for tensor in tensors}
  theirs['dtype'] = _most(dtypes.get(x.name, 'float32') for x in tensors)
  part = target.path.with_name(f'{target.path.name}.{os.getpid()}.part')
  try:
    part.mkdir()
    for name, text in bundle.kept.items():
      if name != bundle_lib.DTYPES:
        (part / name).write_text(text, encoding='utf-8')
    _dump(part / CONFIG, theirs)
    _write_tokenizer(bundle, part)
    checkpoint.write(part, tensors, bundle_lib.flat(bundle.params), dtypes)
    os.replace(part, target.path)
  except OSError as error:
    raise errors.InputError(f'--output={target.path}: {error}') from error
  finally:
    shutil.rmtree(part, ignore_errors=True)


def _dtypes(kept):
  """Returns the dtypes of 16 bits that a run's folder names."""
  keys = _own(kept, bundle_lib.DTYPES)
  return {name: keys.one_of(name, HALVES, '') for name in keys.values}


def _own(kept, name):
  """Returns the keys of a file of JSON that a run's folder keeps."""
  path = f'{bundle_lib.KEPT}/{name}'
  with files.reading(path, 'remove it'):
    values = files.from_json(kept.get(name, '{}'), finite=False)
    if not isinstance(values, dict):
      raise ValueError('not a JSON object')
  return keys_lib.Keys(path, values)


def _most(dtypes):
  """Returns the one that most tensors have."""
  ((dtype, _),) = collections.Counter(dtypes).most_common(1)
  return dtype


def _config(keys, architecture, source, others=None):
  """Returns the Config of a config.json; other sections are those given.

  `others` are options of ours by key that it doesn't have.
  """
  options = architecture.options(keys)
  _check_sizes(keys, options)
  try:
    raw = request.completed(_raw(options | (others or {})), source.config)
    if source.config is None:
      context = keys.whole(_context(keys.values), CONTEXT)
      raw['data']['length'] = min(context, CONTEXT)
    return config_lib.parse(_fitted(raw))
  except errors.InputError as error:
    where = '' if str(error).startswith(str(keys.path)) else f'{keys.path}: '
    raise errors.InputError(f'{where}{error}') from error


def _check_sizes(keys, options):
  """Refuses sizes that factors of theirs make too large."""
  for name, value in options.items():
    if type(value) is int and value > keys_lib.MAX_SIZE:
      keys.refuse(
        name, value, f'its keys make that of it: at most {keys_lib.MAX_SIZE:,}'
      )
  layers = options['model.layers']
  count = layers * max(1, options.get('model.experts.count', 0))
  if count > keys_lib.MATRICES:
    keys.refuse(
      'num_hidden_layers',
      layers,
      f'{count:,} experts in all layers, and {keys_lib.MATRICES:,} are enough',
    )


def _fitted(raw):
  """Returns a raw config without windows that are longer than its rows."""
  cell = flax.traverse_util.flatten_dict(raw['cell'])
  for path, value in cell.items():
    if path[-1] == 'window' and value > raw['data']['length']:
      cell[path] = 0
  return raw | {'cell': flax.traverse_util.unflatten_dict(cell)}


def _raw(options):
  """Returns a raw config from {'model.width': 64, ...} and defaults."""
  cells = options.get('model.cells') or options['model.cell']
  raw = config_lib.default(cells, layout='packed')
  config_lib.override(raw, options)
  return raw.to_dict()


def _tokenizer(folder, keys, given):
  path, size = folder / TOKENIZER, keys.whole('vocab_size')
  template, boundary = None, _boundary(keys, size)
  if not path.exists():
    return tokenizer_lib.Numbers(size)
  model = keys_lib.read(path, files.LIMIT).values
  with _usable(path):
    tokenizer_file.check(model, size)
  task = given and given.task
  has_turns = not task or task.answers and not task.classifies
  if has_turns and (text := _template(folder)):
    template, boundary = _read_template(folder, text, model)
  with _usable(path):
    return tokenizer_lib.Pretrained(model, size, boundary, template)


@contextlib.contextmanager
def _usable(path):
  """Inside it a ValueError is about the tokenizer.json of this path."""
  try:
    yield
  except ValueError as error:
    raise errors.InputError(
      f"{path}: it isn't a tokenizer that can be used ({error}): remove it to "
      'use only ids'
    ) from error


def _template(folder):
  """Returns the source of a chat template, '' for none."""
  if (folder / TEMPLATE).exists():
    return _text(folder, TEMPLATE)
  keys = _tokenizer_config(folder)
  if not isinstance(keys.get('chat_template'), list):
    return keys.text('chat_template', '')
  for each in keys.items('chat_template'):  # of several by name
    if not isinstance(each, dict):
      keys.refuse('chat_template', each, 'give {name, template}')
    one = dataclasses.replace(keys, values=each)
    if one.text('name') == 'default':
      return one.text('template')
  return ''


def _tokenizer_config(folder):
  path = folder / TOKENIZER_CONFIG
  return keys_lib.read(path) if path.exists() else keys_lib.Keys(path, {})


def _text(folder, name):
  """Returns the text of a small file of a folder."""
  path = folder / name
  with files.reading(path, 'put a text file of the model there, or remove it'):
    return files.read_text(path, files.SMALL)


def _read_template(folder, text, model):
  """Returns (spec of a chat template, the id of the token that ends a reply).

  Raises:
    InputError: it can't frame turns.
  """
  given = _tokenizer_config(folder).values
  ids = {x['content']: x['id'] for x in model.get('added_tokens') or []}
  try:
    tokens = {}
    for name in sorted(chat_template.names(text) & {*given}):
      value = given[name]
      value = value.get('content') if isinstance(value, dict) else value
      if isinstance(value, str):
        tokens[name] = value
    end = chat_template.find_end(text, tokens, ids)
  except errors.InputError as error:
    raise errors.InputError(
      f'{folder}: {error}; or remove it to convert the model without turns'
    ) from error
  return {'text': text, 'tokens': tokens}, ids[end]


def _write_tokenizer(bundle, folder):
  """Writes a pretrained tokenizer, and of its template what isn't kept."""
  spec = bundle.tokenizer.spec()
  if spec['kind'] != 'pretrained':
    return
  _dump(folder / TOKENIZER, spec['model'])
  template = bundle.tokenizer.template
  if template and _template(folder) != template.text:
    (folder / TEMPLATE).write_text(template.text, encoding='utf-8')
  if template and not (folder / TOKENIZER_CONFIG).exists():
    tokens = {'eos_token': template.end} | template.tokens
    kind = {'tokenizer_class': 'PreTrainedTokenizerFast'}
    _dump(folder / TOKENIZER_CONFIG, kind | tokens)


def _boundary(keys, size):
  """Returns the id that ends a text, else that which begins one."""
  for name in ('eos_token_id', 'bos_token_id'):
    if (value := keys.get(name)) is not None:
      first = value[0] if isinstance(value, list) and value else value
      one = dataclasses.replace(keys, values={name: first})
      return one.whole(name, least=0, most=size - 1)
  return size - 1


def _kept(folder):
  texts = {}
  for name in KEPT:
    if (folder / name).exists():
      texts[name] = _text(folder, name)
  return texts


def _dump(path, value):
  text = json.dumps(value, ensure_ascii=False, indent=2)
  path.write_text(text + '\n', encoding='utf-8')


def _described(bundle):
  """Returns (config.json, the table of tensors) of a model.

  Raises:
    InputError: names the options that the closest architecture lacks.
  """
  source = _own(bundle.kept, CONFIG).values
  closest: list[str] | None = None
  for architecture, model_type in table.known(source.get('model_type')):
    if not {*bundle.config.model.pattern} <= {*architecture.CELLS}:
      continue
    own = architecture.describe(bundle.config, model_type)
    candidates = [source | own]
    if source.get('model_type') == model_type:
      candidates.insert(0, own | source)  # may say the same in another way
    for keys in candidates:
      theirs = _complete(bundle, keys, model_type)
      differences = _differences(bundle.config, architecture, theirs)
      if not differences:
        size = bundle.tokenizer.size
        return theirs, architecture.tensors(bundle.config, size)
    if closest is None or len(differences) < len(closest):
      closest = [f'{x} ({model_type})' for x in differences]
  if closest is None:
    cells = [*bundle.config.model.pattern]
    closest = [f'no architecture has the cells {cells}']
  raise errors.InputError(
    'transformers has no such model: ' + '; '.join(closest)
  )


def _context(keys):
  """Returns the name of the longest context in a config.json."""
  named = [name for name in CONTEXTS if name in keys]
  return named[0] if named else CONTEXTS[0]


def _complete(bundle, keys, model_type):
  theirs = {
    _context(keys): bundle.config.data.length,
    'eos_token_id': bundle.tokenizer.boundary,
    **keys,
    'model_type': model_type,
    'vocab_size': bundle.tokenizer.size,
    'tie_word_embeddings': bundle.config.model.tied,
    'dtype': 'float32',
  }
  theirs.pop('torch_dtype', None)  # an older name of dtype
  return theirs


def _differences(config, architecture, theirs):
  """Returns the options of a model that its config.json doesn't describe."""
  try:
    options = architecture.options(keys_lib.Keys(CONFIG, theirs))
    raw = _fitted(request.completed(_raw(options), config))
    read = config_lib.parse(raw)
  except errors.InputError as error:
    return [str(error)]
  ours, theirs = _flat(config), _flat(read)
  return [
    f'{key}={value!r}, not {theirs.get(key)!r}'
    for key, value in ours.items()
    if value != theirs.get(key)
  ]


def _flat(config):
  """Returns what defines a model, {'cell.heads': 4, ...}."""
  raw = {name: config_lib.to_dict(config)[name] for name in request.OF_MODEL}
  return {
    key: value
    for key, value in flax.traverse_util.flatten_dict(raw, sep='.').items()
    if key.rpartition('.')[2] not in FREE
  }
