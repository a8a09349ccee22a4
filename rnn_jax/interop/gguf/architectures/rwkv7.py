"""RWKV-7: the shares of earlier inputs are one tensor, in the order rwkvag.

llama.cpp adds 64e-5 to the variance of a head's outputs, whatever the file
says, and practically nothing to the squared length of its keys. It wants maps
of the first layer's values too, which nothing reads: zeros of the width of the
rates'.
"""

from typing import Any

import numpy as np

from rnn_jax import config as config_lib
from rnn_jax.cells import rwkv7
from rnn_jax.interop import table
from rnn_jax.interop.formats.hf.architectures import rwkv7 as hf_rwkv7
from rnn_jax.interop.gguf import architectures
from rnn_jax.interop.gguf import fields as fields_lib
from rnn_jax.interop.gguf import tensors as tensors_lib

ARCHITECTURES = {'rwkv7': ('rwkv7',)}
NUMBERS: dict[str, tensors_lib.Numbers] = {}
IGNORED = ('cell.key_epsilon',)  # of which llama.cpp has the smaller
LOW_RANK = {'w_lora': 'w', 'a_lora': 'a', 'g_lora': 'g', 'v_lora': 'v'}
NAMES = {
  'attn_norm': 'attn_norm',
  'ffn_norm': 'attn_norm_2',
  'attn.r_proj': 'time_mix_receptance',
  'attn.k_proj': 'time_mix_key',
  'attn.v_proj': 'time_mix_value',
  'attn.o_proj': 'time_mix_output',
  'attn.k_k': 'time_mix_k_k.weight',
  'attn.k_a': 'time_mix_k_a.weight',
  'attn.r_k': 'time_mix_r_k.weight',
  'attn.g_norm': 'time_mix_ln',
  'ffn.key': 'channel_mix_key',
  'ffn.value': 'channel_mix_value',
  'ffn.x_k': 'channel_mix_lerp_k.weight',
  **{
    f'attn.{theirs}.lora.{number}': f'time_mix_{part}{number // 2 + 1}'
    for theirs, part in LOW_RANK.items()
    for number in (0, 2)
  },
  **{
    f'attn.{theirs}.lora.2.bias': f'time_mix_{part}0.weight'
    for theirs, part in LOW_RANK.items()
  },
}
FIELDS = (
  fields_lib.Field('block_count', 'num_hidden_layers'),
  fields_lib.Field('embedding_length', 'hidden_size'),
  fields_lib.Field('feed_forward_length', 'intermediate_size'),
  fields_lib.Field('wkv.head_size', 'head_dim'),
  fields_lib.Field('attention.decay_lora_rank', 'decay_low_rank_dim'),
  fields_lib.Field('attention.iclr_lora_rank', 'a_low_rank_dim'),
  fields_lib.Field('attention.gate_lora_rank', 'gate_low_rank_dim'),
  fields_lib.Field('attention.layer_norm_epsilon', 'norm_eps', 1e-5),
)
MIX = fields_lib.Field(
  'attention.value_residual_mix_lora_rank', 'v_low_rank_dim'
)
EPSILON = 64e-5  # of a head's outputs


def keys(fields: fields_lib.Fields, file: Any) -> dict[str, Any]:
  """Returns the keys of config.json."""
  del file
  own = fields_lib.read(fields, FIELDS)
  head, epsilon = own['head_dim'], own['norm_eps']
  if not np.isclose(head * epsilon, EPSILON, rtol=1e-4, atol=0):
    fields.refuse(
      'attention.layer_norm_epsilon',
      epsilon,
      f'with heads of {head} only {EPSILON / max(1, head):.3g} is supported',
    )
  return own | {
    'model_type': 'rwkv7',
    'fuse_norm': False,
    'norm_first': True,
    **fields_lib.read(fields, (MIX,)),
  }


def describe(theirs: dict[str, Any]) -> dict[str, Any]:
  """Returns the values by name, from the keys of config.json."""
  rank = theirs.get(MIX.theirs, theirs['a_low_rank_dim'])  # of one layer
  return {
    'attention.head_count': 0,
    **fields_lib.write(theirs | {MIX.theirs: rank}, (*FIELDS, MIX)),
    architectures.CONTEXT: architectures.ANY_LENGTH,
  }


def layer(config: config_lib.Config) -> list[table.Row]:
  """Returns the tensors of a layer, the only kind of this Config."""
  D, cell = config.model.width, config.cell
  shapes = {
    'channel_mix_lerp_k.weight': (1, 1, D),
    'time_mix_r_k.weight': (cell.heads * cell.key_width,),
  }
  places = [list(rwkv7.SHIFTS).index(part) for part in 'rwkvag']
  shares = table.Tensor(
    'time_mix_lerp_fused.weight',
    (len(places), 1, 1, D),
    'cell.shift',
    lambda x: [x[n] for n in places],
  )
  rows = tensors_lib.named(hf_rwkv7.layer(config), NAMES, shapes)
  return [*rows, shares]


def constants(config: config_lib.Config) -> dict[str, np.ndarray]:
  """Returns the maps of the first layer's values, which are zero."""
  D, rank = config.model.width, config.cell.ranks['a']
  shapes = {'v0': (D,), 'v1': (rank, D), 'v2': (D, rank)}
  return {
    f'blk.0.time_mix_{name}.weight': np.zeros(shape, np.float32)
    for name, shape in shapes.items()
  }
