"""Llama, Mistral without a window, and Mixtral.

llama.cpp rotates channels 2 i and 2 i + 1 of a head together, ours and
transformers i and i + K / 2: the rows of queries and keys are in another order.
The gates of a token's experts sum to 1.
"""

from typing import Any

import numpy as np

from rnn_jax import config as config_lib
from rnn_jax.interop import table
from rnn_jax.interop.formats.hf.architectures import llama as hf_llama
from rnn_jax.interop.formats.hf.architectures import mixtral as hf_mixtral
from rnn_jax.interop.gguf import fields as fields_lib
from rnn_jax.interop.gguf import rope
from rnn_jax.interop.gguf import tensors as tensors_lib

ARCHITECTURES = {'llama': ('llama', 'mistral', 'mixtral')}
NUMBERS: dict[str, tensors_lib.Numbers] = {}
ATTENTION = {
  'input_layernorm': 'attn_norm',
  'self_attn.q_proj': 'attn_q',
  'self_attn.k_proj': 'attn_k',
  'self_attn.v_proj': 'attn_v',
  'self_attn.o_proj': 'attn_output',
  'self_attn.q_norm': 'attn_q_norm',
  'self_attn.k_norm': 'attn_k_norm',
}
MLP = {
  'mlp.gate_proj': 'ffn_gate',
  'mlp.up_proj': 'ffn_up',
  'mlp.down_proj': 'ffn_down',
}
ROUTER = 'ffn_gate_inp'
NAMES = {
  **ATTENTION,
  **MLP,
  'post_attention_layernorm': 'ffn_norm',
  'block_sparse_moe.gate': ROUTER,  # Mixtral's
  'mlp.gate': ROUTER,  # Qwen's
}
FIELDS = (
  fields_lib.Field('block_count', 'num_hidden_layers'),
  fields_lib.Field('embedding_length', 'hidden_size'),
  fields_lib.Field('attention.head_count', 'num_attention_heads'),
  fields_lib.Field('attention.layer_norm_rms_epsilon', 'rms_norm_eps', 1e-6),
)
WIDTH = fields_lib.Field('feed_forward_length', 'intermediate_size')
EXPERTS = (
  fields_lib.Field('expert_count', 'num_local_experts'),
  fields_lib.Field('expert_used_count', 'num_experts_per_tok'),
)
WINDOW = 'attention.sliding_window'


def keys(fields: fields_lib.Fields, file: Any) -> dict[str, Any]:
  """Returns the keys of config.json."""
  own = attention(fields, file)
  own |= fields_lib.read(fields, (WIDTH,))
  if fields.whole('expert_count', 0, least=0):
    experts = fields_lib.read(fields, EXPERTS)
    return own | experts | {'model_type': 'mixtral'}
  return own | {
    'model_type': 'llama',
    'attention_bias': 'blk.0.attn_q.bias' in file.tensors,
    'mlp_bias': 'blk.0.ffn_gate.bias' in file.tensors,
  }


def attention(
  fields: fields_lib.Fields, file: Any, rotates_all: bool = True
) -> dict[str, Any]:
  """Returns the keys of attention, of the layers' number and of their width."""
  own = fields_lib.read(fields, FIELDS)
  heads = own['num_attention_heads']
  width = own['hidden_size'] // max(1, heads)
  head = fields.whole('attention.key_length', width)
  fields.one_of('attention.value_length', (head,), head)
  if rotates_all:
    fields.one_of('rope.dimension_count', (head,), head)
  fields.absent(WINDOW)
  return own | {
    'head_dim': head,
    'num_key_value_heads': fields.whole('attention.head_count_kv', heads),
    'rope_parameters': rope.read(fields, head, file),
  }


def describe(theirs: dict[str, Any]) -> dict[str, Any]:
  """Returns the values by name, from the keys of config.json."""
  own = described_attention(theirs)
  own |= fields_lib.write(theirs, (WIDTH,))
  if theirs['model_type'] == 'mixtral':
    own |= fields_lib.write(theirs, EXPERTS)
  return own


def described_attention(theirs: dict[str, Any]) -> dict[str, Any]:
  """Returns the values of `attention`."""
  head = theirs['head_dim']
  return {
    **fields_lib.write(theirs, FIELDS),
    'attention.head_count_kv': theirs['num_key_value_heads'],
    'attention.key_length': head,
    'attention.value_length': head,
    'rope.dimension_count': head,
    **rope.write(theirs),
  }


def layer(config: config_lib.Config) -> list[table.Row]:
  """Returns the tensors of a layer, the only kind of this Config."""
  return in_pairs(rows(config), config.cell.head_width)


def in_pairs(listed: list[table.Row], head: int) -> list[table.Row]:
  """Returns rows whose queries and keys have pairs of channels together.

  Args:
    listed: a layer's rows.
    head: channels of a head.
  """

  def paired(x):
    halves = x.reshape(len(x), -1, 2, head // 2, *x.shape[2:])
    return halves.swapaxes(2, 3)

  return tensors_lib.changed(listed, ('attn_q', 'attn_k'), paired)


def rows(config: config_lib.Config) -> list[table.Row]:
  """Returns the tensors of a layer, with channels of heads as ours."""
  if not config.model.experts.count:
    return tensors_lib.named(hf_llama.layer(config), NAMES)
  own = tensors_lib.named(hf_mixtral.layer(config), NAMES)
  return own + tensors_lib.experts(config.model)


def constants(config: config_lib.Config) -> dict[str, np.ndarray]:
  """Returns the quotients of frequencies, if there are any."""
  cell = config.cell
  parameters = hf_llama.rotary.described(cell.rotary, cell.rotary_scaling)
  own = rope.quotients({'rope_parameters': parameters}, cell.head_width)
  return {} if own is None else {rope.TENSOR: own}
