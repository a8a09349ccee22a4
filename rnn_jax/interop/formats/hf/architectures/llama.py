"""Llama and what differs from it a little: Qwen2, Qwen3, Mistral.

    x = x + attention(rms_norm(x) * s)       x = x + mlp(rms_norm(x) * t)

with grouped queries, rotary positions and a gated MLP. Qwen2 has biases, Qwen3
norms of queries and keys, Mistral a window.
Source: Touvron et al., "LLaMA: Open and Efficient Foundation Language Models",
2023.
"""

from typing import Any

from rnn_jax import config as config_lib
from rnn_jax.cells import attention as attention_cell
from rnn_jax.interop import keys as keys_lib
from rnn_jax.interop.formats.hf import rotary
from rnn_jax.interop.formats.hf import table

MODEL_TYPES = ('llama', 'mistral', 'qwen2', 'qwen3')
CELLS = ('attention',)


def options(keys: keys_lib.Keys) -> dict[str, Any]:
  """Returns our options by key, or raises InputError about a key of theirs."""
  heads = keys.whole('num_attention_heads')
  biases, output_bias = _biases(keys)
  tied = keys.flag('tie_word_embeddings', False)
  epsilon = keys.number('rms_norm_eps', 1e-6)
  normed = keys.values['model_type'] == 'qwen3'
  head_width = 128 if normed else keys.whole('hidden_size') // heads
  activation = keys.one_of('hidden_act', table.ACTIVATIONS, 'silu')
  return {
    'model.cell': 'attention',
    'model.layers': keys.whole('num_hidden_layers', most=keys_lib.LAYERS),
    'model.width': keys.whole('hidden_size'),
    'model.mlp_width': keys.whole('intermediate_size'),
    'model.mlp': table.ACTIVATIONS[activation],
    'model.biases': keys.flag('mlp_bias', False),
    'model.norm_scale': True,
    'model.norm_epsilon': epsilon,
    'model.tied': tied,
    'model.tied_multiplier': float(tied),
    'model.head_bias': tied,  # a tied head has none
    'cell.heads': heads,
    'cell.head_width': keys.whole('head_dim', head_width),
    'cell.kv_heads': keys.whole('num_key_value_heads', heads),
    'cell.window': _window(keys),
    'cell.rotary': rotary.base(keys, (*rotary.SCALINGS,)),
    'cell.rotary_scaling': rotary.scaling(keys),
    'cell.biases': biases,
    'cell.output_bias': output_bias,
    **({'cell.qk_norm': True, 'cell.norm_epsilon': epsilon} if normed else {}),
  }


def _biases(keys):
  """Returns whether q, k and v have a bias, and whether the output has one."""
  if keys.values['model_type'] == 'qwen2':
    return True, False
  return keys.flag('attention_bias', False), True


def _window(keys):
  """Returns the earlier steps that a step sees; 0: all."""
  model_type = keys.values['model_type']
  if model_type.startswith('qwen'):
    keys.one_of('use_sliding_window', (False,), False)
    keys.names('layer_types', ('full_attention',))
    return 0
  if model_type == 'llama' or keys.values.get('sliding_window', 1) is None:
    return 0
  return keys.whole('sliding_window', 4096, least=2) - 1


def describe(config: config_lib.Config, model_type: str) -> dict[str, Any]:
  """Returns the keys of config.json that define the model."""
  model, cell = config.model, config.cell
  own: dict[str, Any] = {}
  if model_type == 'llama':
    own = {'attention_bias': cell.biases, 'mlp_bias': model.biases}
  if model_type == 'mistral':
    whole = cell.window >= config.data.length
    own = {'sliding_window': None if whole else cell.window + 1}
  if model_type == 'qwen2':
    own = {'use_sliding_window': False}
  if model_type == 'qwen3':
    own = {'use_sliding_window': False, 'attention_bias': cell.biases}
  return own | {
    'architectures': [f'{_CLASSES[model_type]}ForCausalLM'],
    'num_hidden_layers': model.layers,
    'hidden_size': model.width,
    'intermediate_size': model.mlp_width,
    'hidden_act': table.activation(model.mlp),
    'rms_norm_eps': model.norm_epsilon or 1e-6,
    'num_attention_heads': cell.heads,
    'num_key_value_heads': cell.groups,
    'head_dim': cell.head_width,
    'rope_parameters': rotary.described(cell.rotary, cell.rotary_scaling),
  }


def tensors(config: config_lib.Config, vocabulary: int) -> list[table.Tensor]:
  """Returns the table of tensors; see table.py."""
  listed = table.ends(
    config.model, vocabulary, ('model.embed_tokens', 'model.norm')
  )
  for n, (ours, place, _) in enumerate(table.layers(config.model)):
    listed += layer(config, f'model.layers.{n}', ours, place)
  return listed


def layer(
  config: config_lib.Config, theirs: str, ours: str, place: int | None
) -> list[table.Tensor]:
  """Returns the tensors of a layer of attention and MLP."""
  return [
    *without_mlp(config, theirs, ours, place),
    *table.dense(mlp(config.model), f'{theirs}.mlp', f'{ours}.mlp', place),
  ]


def without_mlp(
  config: config_lib.Config, theirs: str, ours: str, place: int | None
) -> list[table.Tensor]:
  """Returns the tensors of a layer's attention and of its two norms."""
  width = config.model.width
  return [
    table.scale(f'{theirs}.input_layernorm', f'{ours}.cell_norm', width, place),
    table.scale(
      f'{theirs}.post_attention_layernorm', f'{ours}.mlp_norm', width, place
    ),
    *table.dense(
      attention(config), f'{theirs}.self_attn', f'{ours}.cell', place
    ),
    *_norms(config.cell, f'{theirs}.self_attn', f'{ours}.cell', place),
  ]


def _norms(cell, theirs, ours, place):
  """Returns the scales of the norms of queries and keys, if there are any."""
  names = {'q_norm': 'query_norm', 'k_norm': 'key_norm'} if cell.qk_norm else {}
  return [
    table.scale(f'{theirs}.{name}', f'{ours}.{leaf}', cell.head_width, place)
    for name, leaf in names.items()
  ]


def attention(config: config_lib.Config) -> list[table.Dense]:
  """Returns the layers of attention, of which ours are fused."""
  cell: attention_cell.Config = config.cell
  biased = cell.biases and cell.projection_bias
  width, K = config.model.width, cell.head_width
  # In both, a gate follows its query.
  queries = cell.heads // cell.groups * (1 + cell.output_gate)
  parts = {  # heads of a group in our fused projection
    'q_proj': slice(0, queries),
    'k_proj': slice(queries, queries + 1),
    'v_proj': slice(queries + 1, queries + 2),
  }
  listed = []
  for name, heads in parts.items():
    rows = (heads.stop - heads.start) * cell.groups * K

    def view(x, heads=heads):
      # Ours ends in G groups of queries, a key and a value.
      x = x.T.reshape(cell.groups, queries + 2, K, *x.shape[:-1])
      return x[:, heads]

    listed.append(table.Dense(name, 'projection', (rows, width), biased, view))
  shape, biased = (width, cell.heads * K), cell.biases and cell.output_bias
  return [*listed, table.Dense('o_proj', 'output', shape, biased)]


def mlp(model: config_lib.Model) -> list[table.Dense]:
  """Returns the layers of a gated MLP."""
  inner, outer = (model.mlp_width, model.width), (model.width, model.mlp_width)
  return [
    table.Dense('gate_proj', 'gate', inner, model.biases),
    table.Dense('up_proj', 'up', inner, model.biases),
    table.Dense('down_proj', 'down', outer, model.biases),
  ]


_CLASSES = {
  'llama': 'Llama',
  'mistral': 'Mistral',
  'qwen2': 'Qwen2',
  'qwen3': 'Qwen3',
}
