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

import numpy as np

from rnn_jax import errors
from rnn_jax.cells import simple_rnn
from rnn_jax.data.text import tokenizer as tokenizer_lib
from rnn_jax.interop import request
from rnn_jax.interop import table
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
  'model.head_multiplier': (1.0,),
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
  stored = table.stored(_rows(config, vocabulary), weights)
  expected = {name: x.shape for name, x in stored.items()}
  bundle_lib.check(weights, expected, str(source.path))
  tokenizer = source.tokenizer or tokenizer_lib.Numbers(vocabulary)
  like = bundle_lib.like(config, tokenizer)
  arrays = table.zeros(bundle_lib.flat(like))
  for name, x in stored.items():
    x.place(arrays, weights[name])
  return bundle_lib.make(config, tokenizer, bundle_lib.nested(arrays), like)


def write(bundle: bundle_lib.Bundle, target: request.Target) -> None:
  """Writes a .pt or .safetensors file.

  Raises:
    InputError: the model isn't the published one, the name has another suffix,
      or PyTorch is needed and isn't installed.
  """
  target.refuse('batch_size', 'platforms', 'dtype', 'opset')
  target.refuse('license', 'max_shard_size')
  _check(bundle.config)
  tensors.check_kind(target.path)
  rows = _rows(bundle.config, bundle.tokenizer.size)
  joined = {x.name for x in rows if isinstance(x, table.Joined)}
  stored = table.stored(rows, joined if bundle.config.cell.fused else ())
  arrays = bundle_lib.flat(bundle.params)
  weights = {name: x.take(arrays) for name, x in stored.items()}
  tensors.write(target.path, weights)


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


def _rows(config, vocabulary):
  model, cell = config.model, config.cell
  inner = model.embedding_width or model.width
  rows = [
    table.Tensor(
      'embedding.weight', (vocabulary, inner), 'embedding.embedding'
    ),
    *table.dense('lm_head', 'head', (vocabulary, model.width), biased=True),
  ]
  for n, (ours, place, _) in enumerate(table.layers(model)):
    own = _layer(cell, model.width if n else inner, model.width)
    rows += table.within(f'layers.{n}', f'{ours}.cell', own, place)
  return rows


def _layer(cell: simple_rnn.Config, read, width):
  """Returns the rows of a cell; `read` is the width of its inputs."""
  names = {part: f'{part}_proj' for part in cell.widths}
  if cell.fused:
    by_head = {part: x // cell.heads for part, x in cell.widths.items()}
    own = table.projected(names, by_head, cell.heads, read, biased=True)
  else:
    own = [
      row
      for part, name in names.items()
      for row in table.dense(
        name, f'projections_{part}', (cell.widths[part], read), biased=True
      )
    ]
  whole = sum(cell.widths.values())
  return [
    *own,
    table.Joined('proj.weight', (whole, read), [x.name for x in own[::2]]),
    table.Joined('proj.bias', (whole,), [x.name for x in own[1::2]]),
    *table.dense(
      'out_proj', 'output', (width, cell.widths['value']), biased=True
    ),
  ]
