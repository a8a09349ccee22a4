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
from rnn_jax.data.text import tokenizer as tokenizer_lib
from rnn_jax.interop import keys as keys_lib
from rnn_jax.interop import request
from rnn_jax.interop import tensors
from rnn_jax.runs import bundle as bundle_lib
from rnn_jax.system import files

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
FILES = ('model.safetensors', 'pytorch_model.bin')
PREFIX = 'transformer.'
NORMS = {'ln_1': 'cell_norm', 'ln_2': 'mlp_norm'}
MASKS = ('.attn.bias', '.attn.masked_bias')  # in older files; not parameters
BOUNDARY = '<|endoftext|>'
EMBEDDING, HEAD = 'wte.weight', 'lm_head.weight'


def read(source: request.Source) -> bundle_lib.Bundle:
  """Returns the model of a folder.

  A --config adds data and training, and its data.length is the context;
  without a --config the context is all positions of the model.

  Raises:
    InputError: files are missing, the model differs from GPT-2, or the tensors
      don't fit its config.json.
  """
  folder = source.path
  keys = keys_lib.read(folder / 'config.json')
  for name, value in NEEDED.items():
    keys.one_of(name, (value,), value)
  config = _config(keys, source.config)
  size = keys.whole('vocab_size', least=2)
  weights = _tensors(folder, size, config.model)
  tokenizer = source.tokenizer or _tokenizer(folder, size)
  if tokenizer.size != size:
    raise errors.InputError(
      f'{folder}: config.json has vocab_size={size}, and the tokenizer '
      f'{tokenizer.size} entries: give the tokenizer of this model'
    )
  return bundle_lib.make(config, tokenizer, _to_ours(weights, config))


def _config(keys, given):
  """Returns the Config of a config.json; other sections are those `given`."""
  width, heads = keys.whole('n_embd'), keys.whole('n_head')
  longest = keys.whole('n_positions')
  if width % heads:
    keys.refuse('n_head', heads, f'it must divide n_embd={width}')
  raw = config_lib.default('attention', layout='packed').to_dict()
  raw = request.completed(raw, given)
  if given is None:
    raw['data']['length'] = longest
    raw['sample']['new_tokens'] = min(200, longest // 2)
  raw['model'] |= {
    'layers': keys.whole('n_layer', most=keys_lib.LAYERS),
    'width': width,
    'mlp_width': keys.whole('n_inner', 4 * width),
    'mlp': ACTIVATIONS[
      keys.one_of('activation_function', ACTIVATIONS, 'gelu_new')
    ],
    'norm': 'layer',
    'biases': True,
    'positions': 'learned',
    'max_positions': longest,
    'embedding_scale': 0.02,
    'kernel_scale': 0.02,
    'dropout': keys.number('resid_pdrop', 0.1, most=0.999),
    'dropout_shape': 'elements',
    'tied': keys.flag('tie_word_embeddings', True),
    'tied_multiplier': 1.0,
  }
  raw['cell'] = {
    'heads': heads,
    'head_width': width // heads,
    'window': 0,  # data.length
    'rotary': 0.0,
    'biases': True,
  }
  try:
    return config_lib.parse(raw)
  except errors.InputError as error:
    raise errors.InputError(f'{keys.path}: {error}') from error


def _tokenizer(folder, size):
  vocabulary, merges = folder / 'vocab.json', folder / 'merges.txt'
  if not (vocabulary.exists() and merges.exists()):
    return tokenizer_lib.Numbers(size)
  keys = keys_lib.read(vocabulary, files.LIMIT)
  for name in keys.values:
    keys.whole(name, least=0)
  entries = dict(keys.values)
  if entries.get(BOUNDARY) != len(entries) - 1:
    raise errors.InputError(
      f'{vocabulary}: {BOUNDARY}={entries.get(BOUNDARY)!r} is not the last of '
      f'{len(entries)} entries, as in GPT-2: remove the file to use only ids'
    )
  del entries[BOUNDARY]
  with files.reading(merges, f'get it and {vocabulary.name} again'):
    lines = files.read_text(merges).splitlines()
    pairs = [x.split(' ') for x in lines if x and x[:8] != '#version']
    return tokenizer_lib.byte_pairs(entries, pairs)


def _tensors(folder, vocabulary, model):
  """Returns the tensors without prefix, masks and a second copy of wte."""
  paths = [folder / name for name in FILES if (folder / name).exists()]
  if not paths:
    raise errors.InputError(f'{folder}: it has none of {FILES}')
  shapes = _shapes(vocabulary, model)

  def check(headers):
    named = _parameters(headers)
    if model.tied:  # what it has is compared below
      named.pop(HEAD, None)
    bundle_lib.check(named, shapes, str(folder))

  weights = _parameters(tensors.read(paths[0], check=check))
  if model.tied and np.array_equal(weights.get(HEAD, ()), weights[EMBEDDING]):
    del weights[HEAD]
  bundle_lib.check(weights, shapes, str(folder))
  return weights


def _parameters(by_name):
  """Returns what is by name without prefix and masks."""
  return {
    name.removeprefix(PREFIX): x
    for name, x in by_name.items()
    if not name.endswith(MASKS)
  }


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
