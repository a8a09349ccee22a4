"""A GPT-2 checkpoint as Hugging Face's transformers write it to a folder.

    config.json                       sizes, activation, dropout
    model.safetensors                 or pytorch_model.bin
    vocab.json, merges.txt            the tokenizer, if they are there

Tensors, with or without 'transformer.' in front, of layer N under 'h.N.':
    wte.weight V x D        wpe.weight N x D        ln_f.weight, .bias
    ln_1, ln_2 .weight, .bias                   attn.c_attn D x 3D [q | k | v]
    attn.c_proj D x D       mlp.c_fc D x F      mlp.c_proj F x D, all .bias too

Matrices are D x F as ours are (its Conv1D). q, k and v have head behind head
each, while ours have all three of a head together. The head is wte, transposed
and not scaled, or lm_head.weight V x D where it is not tied.
Source of the model: Radford et al., "Language Models are Unsupervised
Multitask Learners", 2019.
"""

import json

import numpy as np

from rnn_jax import config as config_lib
from rnn_jax import errors
from rnn_jax.data import tokenizer as tokenizer_lib
from rnn_jax.exchange import request
from rnn_jax.exchange import tensors
from rnn_jax.training import bundle as bundle_lib

ACTIVATIONS = {
  'gelu_new': 'gelu_tanh',
  'gelu_pytorch_tanh': 'gelu_tanh',
  'gelu': 'gelu',
  'relu': 'relu',
}
NEEDED = {  # what the cell attention does; and the default of transformers
  'model_type': 'gpt2',
  'layer_norm_epsilon': 1e-5,
  'scale_attn_weights': True,
  'scale_attn_by_inverse_layer_idx': False,
  'add_cross_attention': False,
}
SIZES = ('vocab_size', 'n_positions', 'n_embd', 'n_layer', 'n_head')
FILES = ('model.safetensors', 'pytorch_model.bin')
PREFIX = 'transformer.'
NORMS = {'ln_1': 'cell_norm', 'ln_2': 'mlp_norm'}
MASKS = ('.attn.bias', '.attn.masked_bias')  # of older files; no parameters
BOUNDARY = '<|endoftext|>'


def read(source: request.Source) -> bundle_lib.Bundle:
  """Returns the model of a folder.

  A --config says what the folder doesn't: data and training. Its data.length
  is how far the model sees; without one that is all that it has positions for.

  Raises:
    InputError: files that are missing, a model that differs from GPT-2, or
      tensors that are not those of its config.json.
  """
  folder = source.path
  theirs = _read_json(folder / 'config.json')
  _check(theirs, folder)
  config = _config(theirs, source.config)
  tokenizer = source.tokenizer or _tokenizer(folder, theirs['vocab_size'])
  if tokenizer.size != theirs['vocab_size']:
    raise errors.InputError(
      f'{folder}: config.json has vocab_size={theirs["vocab_size"]}, and the '
      f'tokenizer {tokenizer.size} entries: give the tokenizer of this model'
    )
  found = _tensors(folder, config.model.tied)
  sizes = theirs['vocab_size'], config.model
  bundle_lib.check(found, _shapes(*sizes), str(folder))
  return bundle_lib.make(config, tokenizer, _to_ours(found, config))


def _read_json(path):
  try:
    return json.loads(path.read_text(encoding='utf-8'))
  except OSError as error:
    raise errors.InputError(f'{path}: {error.strerror}') from error
  except ValueError as error:
    raise errors.InputError(f'{path} is no JSON ({error}): get it anew') from (
      error
    )


def _check(theirs, folder):
  path = folder / 'config.json'
  for key, value in NEEDED.items():
    if theirs.get(key, value) != value:
      raise errors.InputError(
        f'{path}: {key}={theirs[key]!r}: GPT-2 models with {value!r} alone are '
        'read'
      )
  for key in SIZES:
    if not isinstance(theirs.get(key), int):
      raise errors.InputError(f'{path}: {key}={theirs.get(key)!r}: no number')
  if (name := _activation(theirs)) not in ACTIVATIONS:
    raise errors.InputError(
      f'{path}: activation_function={name!r}: one of {[*ACTIVATIONS]} is read'
    )


def _activation(theirs):
  return theirs.get('activation_function', 'gelu_new')


def _config(theirs, given):
  """The Config of a config.json; what isn't the model's is the given one's."""
  width, heads = theirs['n_embd'], theirs['n_head']
  longest = theirs['n_positions']
  raw = config_lib.default('attention').to_dict()
  if given is not None:
    raw |= {
      name: section
      for name, section in config_lib.to_dict(given).items()
      if name not in ('model', 'cell')
    }
  else:
    raw['data'] |= {'length': longest, 'layout': 'packed'}
    raw['sample']['new_tokens'] = min(200, longest // 2)
  raw['model'] |= {
    'layers': theirs['n_layer'],
    'width': width,
    'mlp_width': theirs.get('n_inner') or 4 * width,
    'mlp': ACTIVATIONS[_activation(theirs)],
    'norm': 'layer',
    'biases': True,
    'positions': 'learned',
    'longest': longest,
    'embedding_scale': 0.02,
    'kernel_scale': 0.02,
    'dropout': float(theirs.get('resid_pdrop', 0.1)),
    'dropout_shape': 'elements',
    'tied': theirs.get('tie_word_embeddings', True),
    'tied_multiplier': 1.0,
  }
  raw['cell'] = {
    'heads': heads,
    'head_width': width // heads,
    'window': 0,  # data.length
    'rotary': 0.0,
    'biases': True,
  }
  return config_lib.parse(raw)


def _tokenizer(folder, size):
  vocabulary, merges = folder / 'vocab.json', folder / 'merges.txt'
  if not (vocabulary.exists() and merges.exists()):
    return tokenizer_lib.Numbers(size)
  entries = _read_json(vocabulary)
  if entries.get(BOUNDARY) != len(entries) - 1:
    raise errors.InputError(
      f'{vocabulary}: {BOUNDARY}={entries.get(BOUNDARY)!r} is not the last of '
      f'{len(entries)} entries, as in GPT-2: remove the file to read ids alone'
    )
  del entries[BOUNDARY]
  lines = merges.read_text(encoding='utf-8').splitlines()
  pairs = [line.split(' ') for line in lines if line and line[:8] != '#version']
  try:
    return tokenizer_lib.byte_pairs(entries, pairs)
  except (ValueError, KeyError) as error:
    raise errors.InputError(
      f'{vocabulary} and {merges.name} are no byte-level BPE ({error}): get '
      'them anew'
    ) from error


def _tensors(folder, tied):
  """The tensors without their prefix, the masks and a second copy of wte."""
  paths = [folder / name for name in FILES if (folder / name).exists()]
  if not paths:
    raise errors.InputError(f'{folder}: there is none of {FILES}')
  found = {
    name.removeprefix(PREFIX): x
    for name, x in tensors.read(paths[0]).items()
    if not name.endswith(MASKS)
  }
  head, embedding = found.get('lm_head.weight'), found.get('wte.weight')
  if tied and head is not None and np.array_equal(head, embedding):
    del found['lm_head.weight']
  return found


def _shapes(vocabulary, model):
  width, inner = model.width, model.mlp_width
  shapes = {
    'wte.weight': (vocabulary, width),
    'wpe.weight': (model.longest, width),
  }
  if not model.tied:
    shapes['lm_head.weight'] = vocabulary, width
  for n in range(model.layers):
    for name, shape in (
      ('attn.c_attn', (width, 3 * width)),
      ('attn.c_proj', (width, width)),
      ('mlp.c_fc', (width, inner)),
      ('mlp.c_proj', (inner, width)),
    ):
      shapes[f'h.{n}.{name}.weight'] = shape
      shapes[f'h.{n}.{name}.bias'] = shape[1:]
  norms = [f'h.{n}.{name}' for n in range(model.layers) for name in NORMS]
  for name in (*norms, 'ln_f'):
    shapes |= {f'{name}.weight': (width,), f'{name}.bias': (width,)}
  return shapes


def _to_ours(found, config):
  layers = [
    bundle_lib.flat(_layer(found, f'h.{n}', config.cell.heads))
    for n in range(config.model.layers)
  ]
  stacked = {name: np.stack([x[name] for x in layers]) for name in layers[0]}
  params = {
    'embedding': {'embedding': found['wte.weight']},
    'positions': {'table': {'embedding': found['wpe.weight']}},
    'stack': {'blocks': bundle_lib.nested(stacked)},
    'norm': _norm(found, 'ln_f'),
  }
  if not config.model.tied:
    kernel = np.ascontiguousarray(found['lm_head.weight'].T)
    bias = np.zeros(kernel.shape[1], np.float32)
    params['head'] = {'kernel': kernel, 'bias': bias}
  return params


def _layer(found, name, heads):
  projection = _dense(found, f'{name}.attn.c_attn')
  return {
    'cell': {
      'projection': {k: _by_heads(x, heads) for k, x in projection.items()},
      'output': _dense(found, f'{name}.attn.c_proj'),
    },
    'mlp': {
      'up': _dense(found, f'{name}.mlp.c_fc'),
      'down': _dense(found, f'{name}.mlp.c_proj'),
    },
    **{ours: _norm(found, f'{name}.{own}') for own, ours in NORMS.items()},
  }


def _by_heads(x, heads):
  """From [q | k | v] of head behind head to heads of [q | k | v] each."""
  parts = x.reshape(*x.shape[:-1], 3, heads, -1)
  return np.moveaxis(parts, -3, -2).reshape(x.shape)


def _dense(found, name):
  return {'kernel': found[f'{name}.weight'], 'bias': found[f'{name}.bias']}


def _norm(found, name):
  return {'scale': found[f'{name}.weight'], 'bias': found[f'{name}.bias']}
