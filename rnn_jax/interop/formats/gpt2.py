"""Reads a GPT-2 checkpoint that Hugging Face's transformers wrote.

    config.json                       sizes, activation, dropout
    model.safetensors                 or pytorch_model.bin
    vocab.json, merges.txt            the tokenizer, optional

Tensors, with or without the prefix 'transformer.', layer N under 'h.N.':
    wte.weight V x D        wpe.weight N x D        ln_f.weight, .bias
    ln_1, ln_2 .weight, .bias                   attn.c_attn D x 3D [q | k | v]
    attn.c_proj D x D       mlp.c_fc D x F      mlp.c_proj F x D, all .bias too

Matrices are D x F like ours (its Conv1D). q, k and v each concatenate all
heads, while ours have the three parts of a head together. The output head is
wte, transposed and not scaled, or lm_head.weight V x D if it isn't tied.
Source of the model: Radford et al., "Language Models are Unsupervised
Multitask Learners", 2019.
"""

import numpy as np

from rnn_jax import config as config_lib
from rnn_jax import errors
from rnn_jax import files
from rnn_jax.data.text import tokenizer as tokenizer_lib
from rnn_jax.interop import request
from rnn_jax.interop import tensors
from rnn_jax.runs import bundle as bundle_lib

ACTIVATIONS = {
  'gelu_new': 'gelu_tanh',
  'gelu_pytorch_tanh': 'gelu_tanh',
  'gelu': 'gelu',
  'relu': 'relu',
}
NEEDED = {  # what the cell `attention` computes, the default of transformers
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
MASKS = ('.attn.bias', '.attn.masked_bias')  # in older files; not parameters
BOUNDARY = '<|endoftext|>'


def read(source: request.Source) -> bundle_lib.Bundle:
  """Returns the model of a folder.

  A --config adds data and training, and its data.length is the context;
  without a --config the context is all positions of the model.

  Raises:
    InputError: files are missing, the model differs from GPT-2, or the tensors
      don't fit its config.json.
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
  weights = _tensors(folder, config.model.tied)
  sizes = theirs['vocab_size'], config.model
  bundle_lib.check(weights, _shapes(*sizes), str(folder))
  return bundle_lib.make(config, tokenizer, _to_ours(weights, config))


def _read_json(path):
  try:
    return files.read_json(path)
  except OSError as error:
    raise errors.InputError(f'{path}: {error.strerror}') from error
  except ValueError as error:
    raise errors.InputError(
      f"{path} isn't valid JSON ({error}): get it again"
    ) from error


def _check(theirs, folder):
  path = folder / 'config.json'
  for key, value in NEEDED.items():
    if theirs.get(key, value) != value:
      raise errors.InputError(
        f'{path}: {key}={theirs[key]!r}: only GPT-2 models with {value!r} are '
        'supported'
      )
  for key in SIZES:
    if not isinstance(theirs.get(key), int):
      raise errors.InputError(
        f'{path}: {key}={theirs.get(key)!r}: give a whole number'
      )
  if (name := _activation(theirs)) not in ACTIVATIONS:
    raise errors.InputError(
      f'{path}: activation_function={name!r}: only {[*ACTIVATIONS]} are '
      'supported'
    )


def _activation(theirs):
  return theirs.get('activation_function', 'gelu_new')


def _config(theirs, given):
  """Returns the Config of a config.json; other sections are those `given`."""
  width, heads = theirs['n_embd'], theirs['n_head']
  longest = theirs['n_positions']
  raw = config_lib.default('attention', layout='packed').to_dict()
  raw = request.completed(raw, given)
  if given is None:
    raw['data']['length'] = longest
    raw['sample']['new_tokens'] = min(200, longest // 2)
  raw['model'] |= {
    'layers': theirs['n_layer'],
    'width': width,
    'mlp_width': theirs.get('n_inner') or 4 * width,
    'mlp': ACTIVATIONS[_activation(theirs)],
    'norm': 'layer',
    'biases': True,
    'positions': 'learned',
    'max_positions': longest,
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
      f'{len(entries)} entries, as in GPT-2: remove the file to use only ids'
    )
  del entries[BOUNDARY]
  lines = merges.read_text(encoding='utf-8').splitlines()
  pairs = [line.split(' ') for line in lines if line and line[:8] != '#version']
  try:
    return tokenizer_lib.byte_pairs(entries, pairs)
  except (ValueError, KeyError) as error:
    raise errors.InputError(
      f"{vocabulary} and {merges.name} aren't a byte-level BPE ({error}): get "
      'them again'
    ) from error


def _tensors(folder, tied):
  """Returns the tensors without prefix, masks and a second copy of wte."""
  paths = [folder / name for name in FILES if (folder / name).exists()]
  if not paths:
    raise errors.InputError(f'{folder}: it has none of {FILES}')
  weights = {
    name.removeprefix(PREFIX): x
    for name, x in tensors.read(paths[0]).items()
    if not name.endswith(MASKS)
  }
  head, embedding = weights.get('lm_head.weight'), weights.get('wte.weight')
  if tied and head is not None and np.array_equal(head, embedding):
    del weights['lm_head.weight']
  return weights


def _shapes(vocabulary, model):
  width, inner = model.width, model.mlp_width
  shapes = {
    'wte.weight': (vocabulary, width),
    'wpe.weight': (model.max_positions, width),
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


def _to_ours(weights, config):
  layers = [
    bundle_lib.flat(_layer(weights, f'h.{n}', config.cell.heads))
    for n in range(config.model.layers)
  ]
  stacked = {name: np.stack([x[name] for x in layers]) for name in layers[0]}
  params = {
    'embedding': {'embedding': weights['wte.weight']},
    'positions': {'table': {'embedding': weights['wpe.weight']}},
    'stack': {'blocks': bundle_lib.nested(stacked)},
    'norm': _norm(weights, 'ln_f'),
  }
  if not config.model.tied:
    kernel = np.ascontiguousarray(weights['lm_head.weight'].T)
    bias = np.zeros(kernel.shape[1], np.float32)
    params['head'] = {'kernel': kernel, 'bias': bias}
  return params


def _layer(weights, name, heads):
  projection = _dense(weights, f'{name}.attn.c_attn')
  return {
    'cell': {
      'projection': {k: _by_heads(x, heads) for k, x in projection.items()},
      'output': _dense(weights, f'{name}.attn.c_proj'),
    },
    'mlp': {
      'up': _dense(weights, f'{name}.mlp.c_fc'),
      'down': _dense(weights, f'{name}.mlp.c_proj'),
    },
    **{ours: _norm(weights, f'{name}.{own}') for own, ours in NORMS.items()},
  }


def _by_heads(x, heads):
  """Converts [q | k | v], each of all heads, to heads of [q | k | v]."""
  parts = x.reshape(*x.shape[:-1], 3, heads, -1)
  return np.moveaxis(parts, -3, -2).reshape(x.shape)


def _dense(weights, name):
  return {'kernel': weights[f'{name}.weight'], 'bias': weights[f'{name}.bias']}


def _norm(weights, name):
  return {'scale': weights[f'{name}.weight'], 'bias': weights[f'{name}.bias']}
