"""Mamba of transformers: x = x + mamba(rms_norm(x) * s), without an MLP.

Their fused projection has the x of all channels and then their z, ours both of
a channel side by side. Their first tap is of the oldest input, ours of the
newest. Ours adds up residuals in float32, whatever `residual_in_fp32` says.
Source: Gu and Dao, "Mamba: Linear-Time Sequence Modeling with Selective State
Spaces", 2023.
"""

from typing import Any

import numpy as np

from rnn_jax import config as config_lib
from rnn_jax.cells import mamba
from rnn_jax.interop import keys as keys_lib
from rnn_jax.interop.formats.hf import table
from rnn_jax.interop.formats.hf.architectures import mamba2

MODEL_TYPES = ('mamba',)
CELLS = ('mamba',)


def options(keys: keys_lib.Keys) -> dict[str, Any]:
  """Returns our options by key, or raises InputError about a key of theirs."""
  keys.one_of('hidden_act', ('silu', 'swish'), 'silu')
  keys.one_of('use_bias', (False,), False)
  width, expand = keys.whole('hidden_size'), keys.whole('expand', 2)
  tied = keys.flag('tie_word_embeddings', True)
  return {
    'model.cell': 'mamba',
    'model.layers': keys.whole('num_hidden_layers', most=keys_lib.LAYERS),
    'model.width': width,
    'model.norm_scale': True,
    'model.norm_epsilon': keys.number('layer_norm_epsilon', 1e-5),
    'model.tied': tied,
    'model.tied_multiplier': float(tied),
    'model.head_bias': tied,  # a tied head has none
    'cell.inner_width': expand * width,
    'cell.key_width': keys.whole('state_size', 16),
    'cell.rank': _rank(keys, width),
    'cell.convolution': keys.whole('conv_kernel', 4, most=keys_lib.TAPS),
    'cell.convolution_bias': keys.flag('use_conv_bias', True),
  }


def _rank(keys, width):
  """Returns R, for which 'auto' is what ours is without one."""
  default = mamba.Config().of_width(width).rank
  if keys.get('time_step_rank') == 'auto':
    return default
  return keys.whole('time_step_rank', default)


def describe(config: config_lib.Config, model_type: str) -> dict[str, Any]:
  """Returns the keys of config.json that define the model."""
  del model_type
  model, cell = config.model, config.cell
  expand = cell.inner_width / model.width
  return {
    'architectures': ['MambaForCausalLM'],
    'num_hidden_layers': model.layers,
    'hidden_size': model.width,
    'intermediate_size': cell.inner_width,
    'layer_norm_epsilon': model.norm_epsilon or 1e-6,
    # Another expand, which they don't have, is refused.
    'expand': int(expand) if expand.is_integer() else expand,
    'state_size': cell.key_width,
    'time_step_rank': cell.rank,
    'conv_kernel': cell.convolution,
    'use_conv_bias': cell.convolution_bias,
    'hidden_act': 'silu',
    'use_bias': False,
  }


def tensors(config: config_lib.Config, vocabulary: int) -> list[table.Tensor]:
  """Returns the table of tensors; see table.py."""
  return mamba2.backbone(config, vocabulary, _mixer)


def _mixer(config, theirs, ours, place):
  cell: mamba.Config = config.cell
  width, inner = config.model.width, cell.inner_width
  chosen = cell.rank + 2 * cell.key_width
  dense = (
    table.Dense('in_proj', 'projection', (2 * inner, width), view=_halves),
    table.Dense('x_proj', 'selection', (chosen, inner)),
    table.Dense('dt_proj', 'dt', (inner, cell.rank)),
    table.Dense('out_proj', 'output', (width, inner)),
  )
  rows = [
    ('conv1d.weight', (inner, 1, cell.convolution), 'taps', _taps),
    ('dt_proj.bias', (inner,), 'dt_bias', np.asarray),
    ('A_log', (inner, cell.key_width), 'log_rate', np.asarray),
    ('D', (inner,), 'skip', np.asarray),
  ]
  if cell.convolution_bias:
    rows.append(('conv1d.bias', (inner,), 'taps_bias', np.asarray))
  return [
    *table.dense(dense, theirs, ours, place),
    *table.others(rows, theirs, ours, place),
  ]


def _halves(x):
  """Returns the rows of x and of z, from columns of both side by side."""
  return [x.T[::2], x.T[1::2]]


def _taps(x):
  return x[::-1].T
