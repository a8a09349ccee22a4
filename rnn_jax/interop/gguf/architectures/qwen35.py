"""Qwen3.5: a Qwen3-Next whose heads of values are in another order.

Head j of the values of key head k is row j G + k of G heads of keys, so that
heads of keys can be repeated as a whole: that of q, k and v's last part, of
gates, rates and taps, and of the columns of the output. Beta and the decay are
projected by one matrix each. A layer has an MLP, or in `qwen35moe` experts.
Positions of text are the same on the three axes that rope.dimension_sections
share channels among.
"""

from typing import Any

import numpy as np

from rnn_jax import config as config_lib
from rnn_jax.cells import gated_deltanet
from rnn_jax.cells.parts import delta
from rnn_jax.interop import table
from rnn_jax.interop.formats.hf.architectures import qwen_3_5 as hf_qwen35
from rnn_jax.interop.gguf import fields as fields_lib
from rnn_jax.interop.gguf import tensors as tensors_lib
from rnn_jax.interop.gguf.architectures import llama
from rnn_jax.interop.gguf.architectures import qwen3next

ARCHITECTURES = {
  'qwen35': ('qwen3_5_text', 'qwen3_next'),  # the latter without experts
  'qwen35moe': ('qwen3_5_moe_text',),
}
NUMBERS = qwen3next.NUMBERS
NAMES = qwen3next.NAMES | llama.MLP
SECTIONS = 'rope.dimension_sections'
REORDERED = ('linear_attn.in_proj_', 'linear_attn.conv1d', 'linear_attn.out_')
RATES = ('linear_attn.A_log', 'linear_attn.dt_bias')
ALONE = {'output_gate': 'attn_gate', 'beta': 'ssm_beta', 'decay': 'ssm_alpha'}


def keys(fields: fields_lib.Fields, file: Any) -> dict[str, Any]:
  """Returns the keys of config.json."""
  own = qwen3next.linear_keys(fields, file)
  by_name = {name: first for name, (first, *_) in ARCHITECTURES.items()}
  if fields.architecture == 'qwen35':
    own |= fields_lib.read(fields, (llama.WIDTH,))
  else:
    own |= fields_lib.read(fields, qwen3next.EXPERTS)
  return own | {'model_type': by_name[fields.architecture]}


def describe(theirs: dict[str, Any]) -> dict[str, Any]:
  """Returns the values by name, from the keys of config.json."""
  own = qwen3next.described_linear(theirs)
  pairs = own[qwen3next.ROTATED] // 2
  own[SECTIONS] = [(pairs + 2 - n) // 3 for n in range(3)] + [0]
  routed = theirs['model_type'] == 'qwen3_5_moe_text'
  listed = qwen3next.EXPERTS if routed else (llama.WIDTH,)
  return own | fields_lib.write(theirs, listed)


def layer(config: config_lib.Config) -> list[table.Row]:
  """Returns the tensors of a layer, the only kind of this Config."""
  own = hf_qwen35.layer(config)
  routed = config.model.experts.count > 0
  experts = tensors_lib.experts(config.model) if routed else []
  shapes = {'ffn_gate_inp_shexp.weight': (config.model.width,)}
  if config.model.cell == 'attention':
    return tensors_lib.named(own, NAMES, shapes) + experts
  others = [x for x in own if not x.name.startswith((*REORDERED, *RATES))]
  return [
    *tensors_lib.named(others, NAMES, shapes),
    *_linear(config.cell, config.model.width),
    *experts,
  ]


def _linear(cell: gated_deltanet.Config, width):
  """Returns the tensors of a DeltaNet that have heads of values."""
  G, V, P = cell.heads, cell.memories, cell.value_width
  mixed = {name: cell.widths[name] for name in delta.Cell.mixed}
  channels = G * sum(mixed.values())

  def tiled(x):
    """Returns the view of heads of values, of the rows of each key head."""
    by_head = x.reshape(G, V // G, -1, *x.shape[2:])
    return by_head.swapaxes(0, 1)

  def of_part(part, widths, step=1):
    view = table.head_view(widths, part, G, step)
    if part in ('query', 'key'):
      return view
    return lambda x: tiled(view(x))

  def all_mixed(widths, step=1):
    views = [of_part(part, widths, step) for part in mixed]
    return lambda x: [view(x) for view in views]

  leaf = 'cell.projection'
  alone = [
    row
    for part, name in ALONE.items()
    for row in table.dense(
      name,
      leaf,
      (G * cell.widths[part], width),
      view=of_part(part, cell.widths),
    )
  ]
  return [
    *table.dense(
      'attn_qkv', leaf, (channels, width), view=all_mixed(cell.widths)
    ),
    *alone,
    table.Tensor(
      'ssm_conv1d.weight',
      (channels, cell.convolution),
      'cell.taps',
      all_mixed(mixed, step=-1),
    ),
    *table.dense(
      'ssm_out',
      'cell.output',
      (width, V * P),
      view=lambda x: x.T.reshape(width, G, V // G, P).swapaxes(1, 2),
    ),
    *(
      table.Tensor(name, (V,), f'cell.{ours}', lambda x: x.reshape(G, -1).T)
      for name, ours in (('ssm_a', 'log_rate'), ('ssm_dt.bias', 'step_bias'))
    ),
  ]


def constants(config: config_lib.Config) -> dict[str, np.ndarray]:
  """Returns tensors that aren't parameters."""
  del config
  return {}
