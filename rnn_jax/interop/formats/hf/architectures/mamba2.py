"""Mamba-2 of transformers: x = x + mamba2(rms_norm(x) * s), without an MLP.

Their fused projection has the parts g, v, k, q and dt of all heads in turn,
ours has those of a group of heads together; so do the channels of the
convolution. Their first tap is of the oldest input, ours of the newest.
Source: Dao and Gu, "Transformers are SSMs: Generalized Models and Efficient
Algorithms Through Structured State Space Duality", 2024.
"""

import itertools
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from rnn_jax import config as config_lib
from rnn_jax.cells import mamba2
from rnn_jax.interop import keys as keys_lib
from rnn_jax.interop.formats.hf import table

MODEL_TYPES = ('mamba2',)
CELLS = ('mamba2',)
MIXED = ('value', 'key', 'query')


def options(keys: keys_lib.Keys) -> dict[str, Any]:
  """Returns our options by key, or raises InputError about a key of theirs."""
  for name, value in (
    ('hidden_act', 'silu'),
    ('use_bias', False),
    ('use_conv_bias', True),
  ):
    keys.one_of(name, (value,), value)
  _check_limits(keys)
  width = keys.whole('hidden_size')
  heads, head = keys.whole('num_heads'), keys.whole('head_dim')
  expand = keys.number('expand', 2)
  if int(expand * width) != heads * head:
    keys.refuse('expand', expand, f'hidden_size={width} and heads need another')
  epsilon = keys.number('layer_norm_epsilon', 1e-5)
  tied = keys.flag('tie_word_embeddings', False)
  return {
    'model.cell': 'mamba2',
    'model.layers': keys.whole('num_hidden_layers', most=keys_lib.LAYERS),
    'model.width': width,
    'model.norm_scale': True,
    'model.norm_epsilon': epsilon,
    'model.tied': tied,
    'model.tied_multiplier': float(tied),
    'model.head_bias': tied,  # a tied head has none
    'cell.heads': heads,
    'cell.key_width': keys.whole('state_size'),
    'cell.value_width': head,
    'cell.groups': keys.whole('n_groups', 8),
    'cell.convolution': keys.whole('conv_kernel', 4, most=keys_lib.TAPS),
    'cell.norm_scale': True,
    'cell.norm_epsilon': epsilon,
  }


def _check_limits(keys):
  """Refuses limits of the step size dt, which ours doesn't have."""
  limits = keys.items('time_step_limit')
  # Infinity is written in either of two ways.
  known = [[0, math.inf], [0, {'__float__': 'Infinity'}]]
  if limits and limits not in known:
    keys.refuse('time_step_limit', limits, 'only [0, Infinity] is supported')


def describe(config: config_lib.Config, model_type: str) -> dict[str, Any]:
  """Returns the keys of config.json that define the model."""
  del model_type
  model, cell = config.model, config.cell
  return {
    'architectures': ['Mamba2ForCausalLM'],
    'num_hidden_layers': model.layers,
    'hidden_size': model.width,
    'layer_norm_epsilon': cell.norm_epsilon,
    'num_heads': cell.heads,
    'head_dim': cell.value_width,
    'expand': cell.heads * cell.value_width // model.width,
    'state_size': cell.key_width,
    'n_groups': cell.groups,
    'conv_kernel': cell.convolution,
    'hidden_act': 'silu',
    'use_bias': False,
    'use_conv_bias': True,
  }


def tensors(config: config_lib.Config, vocabulary: int) -> list[table.Tensor]:
  """Returns the table of tensors; see table.py."""
  return backbone(config, vocabulary, _mixer)


def backbone(
  config: config_lib.Config,
  vocabulary: int,
  mixer: Callable[..., list[table.Tensor]],
) -> list[table.Tensor]:
  """Returns the table of a stack of mixers, of Mamba and Mamba-2.

  `mixer` returns the tensors of a cell from (config, prefix of theirs, prefix
  of ours, place).
  """
  listed = table.ends(
    config.model, vocabulary, ('backbone.embeddings', 'backbone.norm_f')
  )
  for n, (ours, place, _) in enumerate(table.layers(config.model)):
    theirs, width = f'backbone.layers.{n}', config.model.width
    listed.append(
      table.scale(f'{theirs}.norm', f'{ours}.cell_norm', width, place)
    )
    listed += mixer(config, f'{theirs}.mixer', f'{ours}.cell', place)
  return listed


def _mixer(config, theirs, ours, place):
  cell: mamba2.Config = config.cell
  widths, inner = cell.widths, cell.heads * cell.value_width
  columns, width = cell.groups * sum(widths.values()), config.model.width
  mixed = {name: widths[name] for name in MIXED}
  channels = cell.groups * sum(mixed.values())

  def project(x):
    return _by_parts(x.T, widths, cell.groups)

  def convolve(x):
    return _by_parts(x[::-1].T if x.ndim > 1 else x, mixed, cell.groups)

  dense = (
    table.Dense('in_proj', 'projection', (columns, width), view=project),
    table.Dense('out_proj', 'output', (width, inner)),
  )
  rows = (
    ('conv1d.weight', (channels, 1, cell.convolution), 'taps', convolve),
    ('conv1d.bias', (channels,), 'taps_bias', convolve),
    ('dt_bias', (cell.heads,), 'dt_bias', np.asarray),
    ('A_log', (cell.heads,), 'log_rate', np.asarray),
    ('D', (cell.heads,), 'skip', np.asarray),
    ('norm.weight', (inner,), 'norm.scale', np.asarray),
  )
  return [
    *table.dense(dense, theirs, ours, place),
    *table.others(rows, theirs, ours, place),
  ]


def _by_parts(x, widths, groups):
  """Returns the rows of each part of all groups, from those of each group."""
  x = x.reshape(groups, -1, *x.shape[1:])
  ends = [*itertools.accumulate(widths.values())]
  return [
    x[:, end - width : end]
    for end, width in zip(ends, widths.values(), strict=True)
  ]
