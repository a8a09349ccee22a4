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
from rnn_jax.interop import table
from rnn_jax.interop.formats.hf import fields
from rnn_jax.interop.formats.hf import rotary
from rnn_jax.interop.formats.hf.architectures import llama

MODEL_TYPES = {
  'mixtral': 'MixtralForCausalLM',
  'qwen3_moe': 'Qwen3MoeForCausalLM',
}
LIKE = {'mixtral': 'mistral', 'qwen3_moe': 'qwen3'}  # whose attention it is
NAMES = llama.NAMES
CELLS = ('attention',)
MIXTRAL = {'gate': 'w1', 'up': 'w3', 'down': 'w2'}  # of an expert
NO_CHOICE = 'with one expert per token its gate would always be 1'
QWEN = {name: f'{name}_proj' for name in ('gate', 'up', 'down')}
NEEDED = {'decoder_sparse_step': 1}


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
  return {
    **llama.options(keys_lib.Keys(keys.path, keys.values | as_llama)),
    **own,
    'cell.rotary': rotary.base(keys, (*rotary.SCALINGS,), base),
    'model.experts.count': _count(keys, count),
  }


def _count(keys, default):
  # transformers reads either name, and writes the newer one.
  names = [x for x in ('num_local_experts', 'num_experts') if x in keys.values]
  name = names[0] if names else 'num_local_experts'
  return keys.whole(name, default, least=2, most=keys_lib.EXPERTS)


def _of_mixtral(keys):
  per_token = choice(keys)
  return {
    'model.experts.per_token': per_token,
    'model.experts.normalized': True,
  }


def choice(keys: keys_lib.Keys) -> int:
  """Returns the experts per token, whose gates sum to 1: 2 or more."""
  chosen = keys.whole('num_experts_per_tok', 2)
  if chosen < 2:
    keys.refuse(
      'num_experts_per_tok', chosen, f'{NO_CHOICE}: only 2 or more is supported'
    )
  return chosen


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
  fields.need(keys, NEEDED)
  keys.absent('mlp_only_layers')
  names = 'num_experts_per_tok', 'norm_topk_prob'
  return routed_options(keys, names, (per_token, normalized))


def routed_options(
  keys: keys_lib.Keys, names: tuple[str, str], defaults: tuple[int, bool]
) -> dict[str, Any]:
  """Returns the options of the experts per token, and of their gates.

  Args:
    keys: of config.json.
    names: of the two keys.
    defaults: their values, unless the keys say.

  Raises:
    InputError: a gate would always be 1.
  """
  chosen = keys.whole(names[0], defaults[0])
  given = keys.flag(names[1], defaults[1])
  if chosen == 1 and given:
    keys.refuse(
      names[1],
      True,
      f'{names[0]}=1: {NO_CHOICE}: only false is supported',
    )
  return {
    'model.experts.per_token': chosen,
    'model.experts.normalized': given or chosen == 1,
  }


def describe(config: config_lib.Config, model_type: str) -> dict[str, Any]:
  """Returns the keys of config.json that define the model."""
  experts, own = config.model.experts, llama.describe(config, LIKE[model_type])
  own['num_local_experts'] = experts.count
  if model_type == 'mixtral':
    return own | {'num_experts_per_tok': experts.per_token}
  inner = own.pop('intermediate_size')  # of layers without experts
  return own | {
    'moe_intermediate_size': inner,
    'num_experts': experts.count,
    **described(experts),
  }


def described(experts: config_lib.Experts) -> dict[str, Any]:
  """Returns the keys of `of_qwen`."""
  return NEEDED | {
    'num_experts_per_tok': experts.per_token,
    'norm_topk_prob': experts.normalized and experts.per_token > 1,
    'mlp_only_layers': [],
  }


def layer(config: config_lib.Config) -> list[table.Row]:
  """Returns the tensors of a layer, the only kind of this Config."""
  if config.cell.qk_norm:
    return llama.attention_block(config) + routed(config.model, 'mlp', QWEN)
  older = 'block_sparse_moe'
  rows = routed(config.model, older, MIXTRAL)
  return [
    *llama.attention_block(config),
    *rows,
    *table.renamed(rows[:1], older, 'mlp'),  # the router
  ]


def routed(
  model: config_lib.Model,
  theirs: str,
  names: dict[str, str],
  newer: str = 'mlp',
  router: str = 'gate',
) -> list[table.Row]:
  """Returns the tensors of a layer's router and experts.

  Args:
    model: section `model`.
    theirs: their prefix.
    names: of an expert's matrices in theirs, by ours.
    newer: the prefix of joined experts.
    router: its name.
  """
  E, D, F = model.experts.count, model.width, model.mlp_width
  shapes = {'gate': (F, D), 'up': (F, D), 'down': (D, F)}
  rows: list[table.Row] = [*table.dense(router, 'router', (E, D))]
  rows += [
    table.Tensor(
      f'experts.{n}.{name}.weight',
      shapes[leaf],
      f'{leaf}.kernel',
      lambda x, n=n: x[n].T,
    )
    for n in range(E)
    for leaf, name in names.items()
  ]

  def joined(name, shape, *leaves):
    parts = [
      f'{theirs}.experts.{n}.{names[leaf]}.weight'
      for n in range(E)
      for leaf in leaves
    ]
    return table.Joined(f'{newer}.experts.{name}', shape, parts)

  if 'gate' in names:
    up = joined('gate_up_proj', (E, 2 * F, D), 'gate', 'up')
  else:
    up = joined('up_proj', (E, F, D), 'up')
  return [
    *table.within(theirs, 'experts', rows),
    up,
    joined('down_proj', (E, D, F), 'down'),
  ]
