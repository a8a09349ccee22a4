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
from rnn_jax.data.text import tokenizer_training
from rnn_jax.interop import keys as keys_lib
from rnn_jax.interop import request
from rnn_jax.interop import table
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
  rows = _rows(config, size)
  weights = _tensors(folder, rows)
  tokenizer = source.tokenizer or _tokenizer(folder, size)
  if tokenizer.size != size:
    raise errors.InputError(
      f'{folder}: config.json has vocab_size={size}, and the tokenizer '
      f'{tokenizer.size} entries: give the tokenizer of this model'
    )
  like = bundle_lib.like(config, tokenizer)
  arrays = table.zeros(bundle_lib.flat(like))
  for row in rows:
    row.place(arrays[row.leaf], weights[row.name])
  return bundle_lib.make(config, tokenizer, bundle_lib.nested(arrays), like)


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
    return tokenizer_training.byte_pairs(entries, pairs)


def _tensors(folder, rows):
  """Returns the tensors without prefix, masks and a second copy of wte."""
  paths = [folder / name for name in FILES if (folder / name).exists()]
  if not paths:
    raise errors.InputError(f'{folder}: it has none of {FILES}')
  shapes = {row.name: row.shape for row in rows}

  def check(headers):
    named = _parameters(headers)
    if HEAD not in shapes:  # what it has is compared below
      named.pop(HEAD, None)
    bundle_lib.check(named, shapes, str(folder))

  weights = _parameters(tensors.read(paths[0], check=check))
  if HEAD not in shapes and np.array_equal(
    weights.get(HEAD, ()), weights[EMBEDDING]
  ):
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


def _rows(config, vocabulary):
  model, width = config.model, config.model.width
  rows = [
    table.Tensor(EMBEDDING, (vocabulary, width), 'embedding.embedding'),
    table.Tensor(
      'wpe.weight', (model.max_positions, width), 'positions.table.embedding'
    ),
    *table.layer_norm('ln_f', 'norm', width),
  ]
  if not model.tied:
    rows += table.dense('lm_head', 'head', (vocabulary, width))
  for n, (ours, place, _) in enumerate(table.layers(model)):
    rows += table.within(f'h.{n}', ours, _layer(config), place)
  return rows


def _layer(config):
  width, inner = config.model.width, config.model.mlp_width

  def by_part(x):
    """Returns the view of heads of [q | k | v] as [q | k | v] of heads."""
    by_head = x.reshape(*x.shape[:-1], config.cell.heads, 3, -1)
    return np.moveaxis(by_head, -3, -2)

  return [
    *table.layer_norm('ln_1', 'cell_norm', width),
    *table.layer_norm('ln_2', 'mlp_norm', width),
    *_dense('attn.c_attn', 'cell.projection', (width, 3 * width), by_part),
    *_dense('attn.c_proj', 'cell.output', (width, width)),
    *_dense('mlp.c_fc', 'mlp.up', (width, inner)),
    *_dense('mlp.c_proj', 'mlp.down', (inner, width)),
  ]


def _dense(theirs, ours, shape, view=np.asarray):
  return [
    table.Tensor(f'{theirs}.weight', shape, f'{ours}.kernel', view),
    table.Tensor(f'{theirs}.bias', shape[1:], f'{ours}.bias', view),
  ]
