"""GPT-2 of transformers: x = x + attention(norm(x)), x = x + mlp(norm(x)).

Norms are layer norms, positions are learned. Matrices are D x F like ours (its
Conv1D). q, k and v each concatenate all heads, while ours have the three parts
of a head together. The prefix 'transformer.' is left out in published folders;
both are read.
Source: Radford et al., "Language Models are Unsupervised Multitask Learners",
2019.
"""

from typing import Any

import numpy as np

from rnn_jax import config as config_lib
from rnn_jax.interop import keys as keys_lib
from rnn_jax.interop import table
from rnn_jax.interop.formats.hf import fields

MODEL_TYPES = {'gpt2': 'GPT2LMHeadModel'}
CELLS = ('attention',)
NAMES = table.Names(
  'transformer.wte',
  'transformer.ln_f',
  'transformer.h',
  positions='transformer.wpe',
  optional='transformer.',
)
ACTIVATIONS = {
  'gelu_new': 'gelu_tanh',
  'gelu_pytorch_tanh': 'gelu_tanh',
  'gelu': 'gelu',
  'relu': 'relu',
}
NEEDED = {  # what the cell `attention` computes, the default of transformers
  'scale_attn_weights': True,
  'scale_attn_by_inverse_layer_idx': False,
  'add_cross_attention': False,
}
FIELDS = (
  fields.Field('n_layer', 'model.layers', most=keys_lib.LAYERS),
  fields.Field('n_embd', 'model.width'),
  fields.Field('n_positions', 'model.max_positions'),
  fields.Field('n_head', 'cell.heads'),
  fields.Field('layer_norm_epsilon', 'model.norm_epsilon', 1e-5),
  fields.Field('resid_pdrop', 'model.dropout', 0.1),
)


def options(keys: keys_lib.Keys) -> dict[str, Any]:
  """Returns our options by key, or raises InputError about a key of theirs."""
  fields.need(keys, NEEDED)
  own = fields.options(keys, FIELDS)
  width, heads = own['model.width'], own['cell.heads']
  if width % heads:
    keys.refuse('n_head', heads, f'it must divide n_embd={width}')
  activation = keys.one_of('activation_function', ACTIVATIONS, 'gelu_new')
  return {
    **own,
    **fields.head(keys, tied=True),
    'model.cell': 'attention',
    'model.mlp': ACTIVATIONS[activation],
    'model.mlp_width': keys.whole('n_inner', 4 * width),
    'model.norm': 'layer',
    'model.biases': True,
    'model.positions': 'learned',
    'model.embedding_scale': 0.02,
    'model.kernel_scale': 0.02,
    'model.dropout_shape': 'elements',
    'cell.head_width': width // heads,
    'cell.window': 0,  # all
    'cell.rotary': 0.0,
    'cell.biases': True,
  }


def describe(config: config_lib.Config, model_type: str) -> dict[str, Any]:
  """Returns the keys of config.json that define the model."""
  del model_type
  return {
    **NEEDED,
    **fields.describe(config, FIELDS),
    'n_inner': config.model.mlp_width,
    'activation_function': fields.activation(config.model.mlp, ACTIVATIONS),
  }


def layer(config: config_lib.Config) -> list[table.Row]:
  """Returns the tensors of a layer, the only kind of this Config."""
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
