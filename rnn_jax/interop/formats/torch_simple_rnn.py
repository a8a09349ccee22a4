"""Converts the state dict of the published SimpleRNN language model.

    embedding.weight                 V x D
    layers.N.proj.weight, .bias      [q | k | g | v] x D, fused
    layers.N.query_proj.weight, ...  one each: query, key, gate, value
    layers.N.out_proj.weight, .bias  O x P
    lm_head.weight, .bias            V x O

PyTorch's matrices are the transpose of ours. Each of its parts concatenates all
heads, while our fused projection has the parts of a head together. The names
don't show the preset or the number of heads: the config does. It has block
'plain', the preset 'simple' or 'modified', an untied head, and no attention.
cell.fused decides which of the two namings is written; both can be read.
"""

import jax
import numpy as np

from rnn_jax import errors
from rnn_jax.cells import simple_rnn
from rnn_jax.data.text import tokenizer as tokenizer_lib
from rnn_jax.interop import request
from rnn_jax.interop import tensors
from rnn_jax.runs import bundle as bundle_lib
from rnn_jax.system import files

NEEDED = {  # the published model in keys of the config
  'model.cell': ('simple_rnn',),
  'model.cells': ((),),
  'model.block': ('plain',),
  'model.tied': (False,),
  'model.positions': ('none',),
  'model.embedding_multiplier': (1.0,),
  'model.logits_cap': (0.0,),
  'model.embedding_norm': (False,),
  'cell.preset': ('simple', 'modified'),
  'cell.attention': ('none',),
}


def read(source: request.Source) -> bundle_lib.Bundle:
  """Returns the model of a .pt or .safetensors file.

  Without a tokenizer, the vocabulary is one of numbers.

  Raises:
    InputError: the config is of another model, or the tensors don't fit it.
  """
  config = source.config
  if config is None:
    raise errors.InputError(
      "--config is missing: the tensors don't show their preset: give "
      'configs/published.py, or a config like it'
    )
  _check(config)
  weights = tensors.read(source.path, files.named(source.path))
  vocabulary = _vocabulary(weights, config, source.tokenizer)
  fused = any(name.endswith('.proj.weight') for name in weights)
  expected = _shapes(config, vocabulary, fused)
  bundle_lib.check(weights, expected, str(source.path))
  tokenizer = source.tokenizer or tokenizer_lib.Numbers(vocabulary)
  return bundle_lib.make(config, tokenizer, _to_ours(weights, config, fused))


def write(bundle: bundle_lib.Bundle, target: request.Target) -> None:
  """Writes a .pt or .safetensors file.

  Raises:
    InputError: the model isn't the published one, the name has another suffix,
      or PyTorch is needed and isn't installed.
  """
  target.refuse('batch_size', 'platforms', 'dtype')
  _check(bundle.config)
  tensors.check_kind(target.path)
  tensors.write(target.path, _to_theirs(bundle.params, bundle.config))


def _check(config):
  sections = {'model': config.model, 'cell': config.cell}
  for key, values in NEEDED.items():
    section, _, name = key.partition('.')
    value = getattr(sections[section], name)
    if value not in values:
      raise errors.InputError(
        f'{key}={value!r}: the published SimpleRNN has {values[0]!r}'
        + ''.join(f' or {other!r}' for other in values[1:])
      )
  if not config.task.writes_text:
    raise errors.InputError(
      "task.answer='pooled': the published SimpleRNN writes the class: give "
      "'word'"
    )


def _vocabulary(weights, config, tokenizer):
  if tokenizer is not None:
    return tokenizer.size
  rows = weights.get('embedding.weight', np.empty(0)).shape
  return rows[0] if len(rows) == 2 else config.data.vocabulary


def _shapes(config, vocabulary, fused):
  model, cell = config.model, config.cell
  inner = model.embedding_width or model.width
  shapes = {'embedding': (vocabulary, inner), 'lm_head': None}
  shapes['lm_head'] = vocabulary, model.width
  for n in range(model.layers):
    read = model.width if n else inner
    rows = {f'{part}_proj': width for part, width in cell.widths.items()}
    if fused:
      rows = {'proj': sum(rows.values())}
    for name, width in rows.items():
      shapes[f'layers.{n}.{name}'] = width, read
    values = cell.widths['value']
    shapes[f'layers.{n}.out_proj'] = model.width, values
  weights = {f'{name}.weight': shape for name, shape in shapes.items()}
  biases = {f'{name}.bias': shape[:1] for name, shape in shapes.items()}
  del biases['embedding.bias']
  return weights | biases


def _to_ours(weights, config, fused):
  layers = [
    _layer(weights, n, config, fused) for n in range(config.model.layers)
  ]
  return {
    'embedding': {'embedding': weights['embedding.weight']},
    'stack': _stacked(layers, config.model),
    'head': _dense(weights, 'lm_head'),
  }


def _stacked(layers, model):
  """Returns layers as models/stack.py has them: a different first, the rest."""
  stack = {}
  if (model.embedding_width or model.width) != model.width:
    stack['first'] = {'cell': layers.pop(0)}
  if layers:
    leaves = [bundle_lib.flat(layer) for layer in layers]
    joined = {name: np.stack([x[name] for x in leaves]) for name in leaves[0]}
    stack['blocks'] = {'cell': bundle_lib.nested(joined)}
  return stack


def _layer(weights, n, config, fused):
  widths = config.cell.widths
  if fused:
    whole = _dense(weights, f'layers.{n}.proj')
    ends = np.cumsum([*widths.values()])[:-1]
    cut = {leaf: np.split(x, ends, -1) for leaf, x in whole.items()}
    parts = {
      f'projections_{part}': {leaf: x[i] for leaf, x in cut.items()}
      for i, part in enumerate(widths)
    }
  else:
    parts = {
      f'projections_{part}': _dense(weights, f'layers.{n}.{part}_proj')
      for part in widths
    }
  parts['output'] = _dense(weights, f'layers.{n}.out_proj')
  if config.cell.fused:
    return _on_device(simple_rnn.fuse_projections, parts, config.cell)
  return parts


def _dense(weights, name):
  return {
    'kernel': np.ascontiguousarray(weights[f'{name}.weight'].T),
    'bias': weights[f'{name}.bias'],
  }


def _to_theirs(params, config):
  weights = {'embedding.weight': params['embedding']['embedding']}
  for n, layer in enumerate(_layers(params['stack'])):
    cell = layer['cell']
    if config.cell.fused:
      cell = _on_device(simple_rnn.separate_projections, cell, config.cell)
    parts = {part: cell[f'projections_{part}'] for part in config.cell.widths}
    if config.cell.fused:
      kernel = np.concatenate([x['kernel'] for x in parts.values()], -1)
      bias = np.concatenate([x['bias'] for x in parts.values()])
      _put(weights, f'layers.{n}.proj', {'kernel': kernel, 'bias': bias})
    else:
      for part, dense in parts.items():
        _put(weights, f'layers.{n}.{part}_proj', dense)
    _put(weights, f'layers.{n}.out_proj', cell['output'])
  _put(weights, 'lm_head', params['head'])
  return weights


def _layers(stack):
  """Inverts `_stacked`."""
  layers = [stack['first']] if 'first' in stack else []
  if 'blocks' in stack:
    leaves = bundle_lib.flat(stack['blocks'])
    for n in range(len(next(iter(leaves.values())))):
      one = {name: x[n] for name, x in leaves.items()}
      layers.append(bundle_lib.nested(one))
  return layers


def _put(weights, name, dense):
  weights[f'{name}.weight'] = dense['kernel'].T
  weights[f'{name}.bias'] = dense['bias']


def _on_device(function, params, config):
  run = jax.jit(function, static_argnums=1)  # no implicit transfers
  return jax.device_get(run(jax.device_put(params), config))
