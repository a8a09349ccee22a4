"""Mixtral and Qwen3-MoE: attention of a Llama, and experts after it.

    x = x + attention(rms_norm(x) * s)    x = x + experts(rms_norm(x) * t)

Every layer has experts. Their matrices are one tensor for each expert, or in
folders that transformers wrote with `save_original_format=False` two for all of
a layer, which are read too; ours are three for all of a layer. The gates of
a token's experts sum to 1 in Mixtral, whose attention may have a window; in
Qwen3-MoE they may also be the router's probabilities, and its queries and keys
are normed. The weight of the loss that evens out their load isn't read: theirs
is of whole batches.
Source: Jiang et al., "Mixtral of Experts", 2024; Qwen Team, "Qwen3 Technical
Report", 2025.
"""

from typing import Any

from rnn_jax import config as config_lib
from rnn_jax.interop import keys as keys_lib
from rnn_jax.interop.formats.hf import rotary
from rnn_jax.interop.formats.hf import table
from rnn_jax.interop.formats.hf.architectures import llama

LIKE = {'mixtral': 'mistral', 'qwen3_moe': 'qwen3'}  # whose attention it is
MODEL_TYPES = (*LIKE,)
CELLS = ('attention',)
MIXTRAL = {'gate': 'w1', 'up': 'w3', 'down': 'w2'}  # of an expert
NO_CHOICE = 'with one expert per token its gate would always be 1'
QWEN = {name: f'{name}_proj' for name in ('gate', 'up', 'down')}


def options(keys: keys_lib.Keys) -> dict[str, Any]:
  """Returns our options by key, or raises InputError about a key of theirs."""
  if keys.values['model_type'] == 'mixtral':
    own = _of_mixtral(keys)
    name, count, base = 'intermediate_size', 8, 1e6
  else:
    own = of_qwen(keys, per_token=8, normalized=False)
    name, count, base = 'moe_intermediate_size', 128, 1e4
  heads, width = keys.whole('num_attention_heads'), keys.whole('hidden_size')
  as_llama = {
    'intermediate_size': keys.whole(name),
    'head_dim': keys.whole('head_dim', width // heads),
    'sliding_window': keys.values.get('sliding_window'),
    'model_type': LIKE[keys.values['model_type']],
  }
  dense = llama.options(keys_lib.Keys(keys.path, keys.values | as_llama))
  return (
    dense
    | {'cell.rotary': rotary.base(keys, (*rotary.SCALINGS,), base)}
    | own
    | {'model.experts.count': _count(keys, count)}
  )


def _count(keys, default):
  # transformers reads either name, and writes the newer one.
  names = [x for x in ('num_local_experts', 'num_experts') if x in keys.values]
  name = names[0] if names else 'num_local_experts'
  return keys.whole(name, default, least=2, most=keys_lib.EXPERTS)


def _of_mixtral(keys):
  chosen = keys.whole('num_experts_per_tok', 2)
  if chosen < 2:
    keys.refuse(
      'num_experts_per_tok', chosen, f'{NO_CHOICE}: only 2 or more is supported'
    )
  return {'model.experts.per_token': chosen, 'model.experts.normalized': True}


def of_qwen(
  keys: keys_lib.Keys, per_token: int, normalized: bool
) -> dict[str, Any]:
  """Returns the options of experts but their count.

  Args:
    keys: of config.json.
    per_token: the default number of experts per token.
    normalized: whether their gates sum to 1, unless the keys say.

  Raises:
    InputError: a layer has another MLP, or gates are 1.
  """
  keys.one_of('decoder_sparse_step', (1,), 1)
  if listed := keys.items('mlp_only_layers'):
    keys.refuse('mlp_only_layers', listed, 'only [] is supported')
  chosen = keys.whole('num_experts_per_tok', per_token)
  given = keys.flag('norm_topk_prob', normalized)
  if chosen == 1 and given:
    keys.refuse(
      'norm_topk_prob',
      True,
      f'num_experts_per_tok=1: {NO_CHOICE}: only false is supported',
    )
  return {
    'model.experts.per_token': chosen,
    'model.experts.normalized': given or chosen == 1,
  }


def describe(config: config_lib.Config, model_type: str) -> dict[str, Any]:
  """Returns the keys of config.json that define the model."""
  experts, own = config.model.experts, llama.describe(config, LIKE[model_type])
  if model_type == 'mixtral':
    return own | {
      'architectures': ['MixtralForCausalLM'],
      'num_local_experts': experts.count,
      'num_experts_per_tok': experts.per_token,
    }
  inner = own.pop('intermediate_size')  # of layers without experts
  return own | {
    'architectures': ['Qwen3MoeForCausalLM'],
    'moe_intermediate_size': inner,
    'num_local_experts': experts.count,
    'num_experts': experts.count,
    **described(experts),
  }


def described(experts: config_lib.Experts) -> dict[str, Any]:
  """Returns the keys of `of_qwen`."""
  return {
    'num_experts_per_tok': experts.per_token,
    'norm_topk_prob': experts.normalized and experts.per_token > 1,
    'decoder_sparse_step': 1,
    'mlp_only_layers': [],
  }


def tensors(config: config_lib.Config, vocabulary: int) -> list[table.Tensor]:
  """Returns the table of tensors; see table.py."""
  listed = table.ends(
    config.model, vocabulary, ('model.embed_tokens', 'model.norm')
  )
  mlp, names = _named(config)
  for n, (ours, place, _) in enumerate(table.layers(config.model)):
    theirs = f'model.layers.{n}'
    listed += llama.without_mlp(config, theirs, ours, place)
    listed += routed(config.model, f'{theirs}.{mlp}', ours, place, names)
  return listed


def routed(
  model: config_lib.Model,
  theirs: str,
  ours: str,
  place: int | None,
  names: dict[str, str],
) -> list[table.Tensor]:
  """Returns the tensors of a layer's router and experts.

  Args:
    model: section `model`.
    theirs: prefix of their names.
    ours: prefix of the layer.
    place: its place.
    names: of an expert's matrices in theirs, by ours.
  """
  D, F, ours = model.width, model.mlp_width, f'{ours}.experts'
  shapes = {'gate': (F, D), 'up': (F, D), 'down': (D, F)}
  router = table.Dense('gate', 'router', (model.experts.count, D))
  return table.dense((router,), theirs, ours, place) + [
    table.Tensor(
      f'{theirs}.experts.{n}.{name}.weight',
      shapes[leaf],
      f'{ours}.{leaf}.kernel',
      lambda x, n=n: x[n].T,
      place,
    )
    for n in range(model.experts.count)
    for leaf, name in names.items()
  ]


def joined(config: config_lib.Config) -> list[table.Joined]:
  """Returns the tensors of all of a layer's experts; see table.py."""
  mlp, names = _named(config)
  E, D, listed = config.model.experts.count, config.model.width, []
  for n in range(config.model.layers):
    newer, older = f'model.layers.{n}.mlp', f'model.layers.{n}.{mlp}'
    listed += joined_experts(config.model, newer, older, names)
    if newer != older:
      router = f'{newer}.gate.weight', (E, D), [f'{older}.gate.weight']
      listed.append(table.Joined(*router))
  return listed


def joined_experts(
  model: config_lib.Model, newer: str, older: str, names: dict[str, str]
) -> list[table.Joined]:
  """Returns the two tensors of a layer's experts.

  Args:
    model: section `model`.
    newer: prefix of their names.
    older: prefix of their parts' names.
    names: as in `routed`.
  """
  E, D, F = model.experts.count, model.width, model.mlp_width

  def parts(*leaves):
    return [
      f'{older}.experts.{n}.{names[leaf]}.weight'
      for n in range(E)
      for leaf in leaves
    ]

  both = f'{newer}.experts.gate_up_proj', (E, 2 * F, D), parts('gate', 'up')
  down = f'{newer}.experts.down_proj', (E, D, F), parts('down')
  return [table.Joined(*both), table.Joined(*down)]


def _named(config):
  """Returns (the part of a layer, the names of an expert's matrices)."""
  return ('mlp', QWEN) if config.cell.qk_norm else ('block_sparse_moe', MIXTRAL)
