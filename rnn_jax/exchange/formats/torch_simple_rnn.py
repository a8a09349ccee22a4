"""The state dict of a SimpleRNN language model in PyTorch, as published.

    embedding.weight                 V x D
    layers.N.proj.weight, .bias      [q | k | g | v] x D, fused
    layers.N.query_proj.weight, ...  one each: query, key, gate, value
    layers.N.out_proj.weight, .bias  O x P
    lm_head.weight, .bias            V x O

PyTorch's matrices are the transpose of ours. Of several heads, each part has
head behind head, while our fused projection has all parts of a head together.
The names don't say which preset they are of, nor how many heads: the config
does. It has block 'plain', the preset 'simple' or 'modified', an untied head,
and no attention. Which of the two namings is written follows cell.fused; both
are read whatever it is.
"""

import jax
import numpy as np

from rnn_jax import errors
from rnn_jax.cells import simple_rnn
from rnn_jax.data import tokenizer as tokenizer_lib
from rnn_jax.exchange import request
from rnn_jax.exchange import tensors
from rnn_jax.training import bundle as bundle_lib

NEEDED = {  # what the published model is, in keys of the config
  'model.cell': ('simple_rnn',),
  'model.block': ('plain',),
  'model.tied': (False,),
  'model.positions': ('none',),
  'model.embedding_multiplier': (1.0,),
  'cell.preset': ('simple', 'modified'),
  'cell.attention': ('none',),
}


def read(source: request.Source) -> bundle_lib.Bundle:
  """Returns the model of a .pt or .safetensors file.

  Without a tokenizer, the vocabulary is one of numbers.

  Raises:
    InputError: a config of another model, or tensors that don't fit it.
  """
  config = source.config
  if config is None:
    raise errors.InputError(
      '--config is missing: the tensors do not say which preset they are of: '
      'give configs/published.py, or a config like it'
    )
  _check(config)
  found = tensors.read(source.path)
  vocabulary = _vocabulary(found, config, source.tokenizer)
  fused = any(name.endswith('.proj.weight') for name in found)
  expected = _shapes(config, vocabulary, fused)
  bundle_lib.check(found, expected, str(source.path))
  tokenizer = source.tokenizer or tokenizer_lib.Numbers(vocabulary)
  return bundle_lib.make(config, tokenizer, _to_ours(found, config, fused))


def write(bundle: bundle_lib.Bundle, target: request.Target) -> None:
  """Writes a .pt or .safetensors file.

  Raises:
    InputError: another model than the published one, a name of another kind,
      or no PyTorch where the name asks for it.
  """
  target.refuse('batch_size', 'platforms')
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
  if config.task.name == 'classification' and config.task.answer == 'pooled':
    raise errors.InputError(
      "task.answer='pooled': the published SimpleRNN writes the class: give "
      "'word'"
    )


def _vocabulary(found, config, tokenizer):
  if tokenizer is not None:
    return tokenizer.size
  rows = found.get('embedding.weight', np.empty(0)).shape
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
  found = {f'{name}.weight': shape for name, shape in shapes.items()}
  biases = {f'{name}.bias': shape[:1] for name, shape in shapes.items()}
  del biases['embedding.bias']
  return found | biases


def _to_ours(found, config, fused):
  layers = [_layer(found, n, config, fused) for n in range(config.model.layers)]
  return {
    'embedding': {'embedding': found['embedding.weight']},
    'stack': _stacked(layers, config.model),
    'head': _dense(found, 'lm_head'),
  }


def _stacked(layers, model):
  """Layers as models/stack.py has them: a first one that differs, the rest."""
  stack = {}
  if (model.embedding_width or model.width) != model.width:
    stack['first'] = {'cell': layers.pop(0)}
  if layers:
    leaves = [bundle_lib.flat(layer) for layer in layers]
    joined = {name: np.stack([x[name] for x in leaves]) for name in leaves[0]}
    stack['blocks'] = {'cell': bundle_lib.nested(joined)}
  return stack


def _layer(found, n, config, fused):
  widths = config.cell.widths
  if fused:
    whole = _dense(found, f'layers.{n}.proj')
    ends = np.cumsum([*widths.values()])[:-1]
    cut = {leaf: np.split(x, ends, -1) for leaf, x in whole.items()}
    parts = {
      f'projections_{part}': {leaf: x[i] for leaf, x in cut.items()}
      for i, part in enumerate(widths)
    }
  else:
    parts = {
      f'projections_{part}': _dense(found, f'layers.{n}.{part}_proj')
      for part in widths
    }
  parts['output'] = _dense(found, f'layers.{n}.out_proj')
  if config.cell.fused:
    return _on_device(simple_rnn.fuse_projections, parts, config.cell)
  return parts


def _dense(found, name):
  return {
    'kernel': np.ascontiguousarray(found[f'{name}.weight'].T),
    'bias': found[f'{name}.bias'],
  }


def _to_theirs(params, config):
  found = {'embedding.weight': params['embedding']['embedding']}
  for n, layer in enumerate(_layers(params['stack'])):
    cell = layer['cell']
    if config.cell.fused:
      cell = _on_device(simple_rnn.separate_projections, cell, config.cell)
    parts = {part: cell[f'projections_{part}'] for part in config.cell.widths}
    if config.cell.fused:
      kernel = np.concatenate([x['kernel'] for x in parts.values()], -1)
      bias = np.concatenate([x['bias'] for x in parts.values()])
      _put(found, f'layers.{n}.proj', {'kernel': kernel, 'bias': bias})
    else:
      for part, dense in parts.items():
        _put(found, f'layers.{n}.{part}_proj', dense)
    _put(found, f'layers.{n}.out_proj', cell['output'])
  _put(found, 'lm_head', params['head'])
  return found


def _layers(stack):
  """The inverse of `_stacked`."""
  layers = [stack['first']] if 'first' in stack else []
  if 'blocks' in stack:
    leaves = bundle_lib.flat(stack['blocks'])
    for n in range(len(next(iter(leaves.values())))):
      one = {name: x[n] for name, x in leaves.items()}
      layers.append(bundle_lib.nested(one))
  return layers


def _put(found, name, dense):
  found[f'{name}.weight'] = dense['kernel'].T
  found[f'{name}.bias'] = dense['bias']


def _on_device(function, params, config):
  run = jax.jit(function, static_argnums=1)  # nothing moves by the way
  return jax.device_get(run(jax.device_put(params), config))
