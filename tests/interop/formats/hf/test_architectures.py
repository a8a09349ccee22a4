"""Each architecture: the same folder back; the logits of those of fla."""

import dataclasses
import json

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

from configs import hybrid
from rnn_jax import config as config_lib
from rnn_jax import errors
from rnn_jax.data.batching import batch as batch_lib
from rnn_jax.data.text import tokenizer
from rnn_jax.interop import keys as keys_lib
from rnn_jax.interop.formats.hf.architectures import kimi_linear
from rnn_jax.runs import bundle as bundle_lib
from tests.interop import oracles
from tests.interop.formats.hf import folders
from tests.support import bundles

TOKENS = np.random.default_rng(1).integers(0, folders.V, (2, 18))
QKV = ('q_proj', 'k_proj', 'v_proj')
ALL = (*QKV, 'o_proj', 'gate_proj', 'up_proj', 'down_proj')
CASES = {
  'llama': ({}, ()),
  'llama3': ({'rope_scaling': folders.LLAMA3}, ()),
  'yarn': ({'rope_scaling': folders.YARN}, ()),
  'linear, biased': (
    {
      'rope_scaling': {'type': 'linear', 'factor': 2.0},
      'attention_bias': True,
      'mlp_bias': True,
    },
    ALL,
  ),
  'qwen2': ({'model_type': 'qwen2', 'tie_word_embeddings': True}, QKV),
  'mistral': ({'model_type': 'mistral', 'sliding_window': 5}, ()),
  'qwen3': ({'model_type': 'qwen3', 'attention_bias': True}, (*QKV, 'o_proj')),
}
OTHERS = {
  'mamba': (folders.MAMBA, folders.mamba),
  'mamba, plain': (folders.PLAIN_MAMBA, lambda: folders.mamba(plain=True)),
  'mixtral': (folders.MIXTRAL, lambda: folders.experts(qwen=False)),
  'qwen3_moe': (folders.QWEN3_MOE, lambda: folders.experts(qwen=True)),
  'mamba2': (folders.MAMBA2, folders.mamba2),
  'xlstm': (folders.XLSTM, folders.xlstm),
  'gated_deltanet': (
    folders.GATED_DELTANET,
    lambda: folders.deltanet(9, gated=True),
  ),
  'delta_net': (folders.DELTANET, lambda: folders.deltanet(3, gated=False)),
  'gla': (folders.GLA, folders.gla),
  'rwkv7': (folders.RWKV7, folders.rwkv7),
  'recurrent_gemma': (folders.RECURRENT_GEMMA, folders.recurrent_gemma),
  'qwen3_next': (folders.QWEN3_NEXT, folders.qwen3_next),
  'kimi_linear': (folders.KIMI_LINEAR, folders.kimi_linear),
  'qwen3_5': (folders.QWEN3_5, folders.qwen3_5),
  'qwen3_5_moe': (folders.QWEN3_5_MOE, lambda: folders.qwen3_5(experts=5)),
  'granite': (folders.GRANITE, folders.granite),
  'bamba': (folders.BAMBA, folders.bamba),
  'lfm2': (folders.LFM2, folders.lfm2),
  'lfm2_moe': (folders.LFM2_MOE, lambda: folders.lfm2(experts=5)),
  'falcon_h1': (folders.FALCON_H1, folders.falcon_h1),
  'jamba': (folders.JAMBA, folders.jamba),
  'nemotron_h': (folders.NEMOTRON_H, folders.nemotron_h),
  'zamba2': (folders.ZAMBA2, folders.zamba2),
}
# Of fla, which needs a GPU; test_transformers.py has the logits of the others.
ORACLES = {
  'gated_deltanet': oracles.deltanet,
  'delta_net': oracles.deltanet,
  'gla': oracles.gla,
  'rwkv7': oracles.rwkv7,
}


def make(case):
  """(Keys of config.json, tensors) of a case."""
  if case in OTHERS:
    keys, draw = OTHERS[case]
    return keys, draw()
  keys, biases = CASES[case]
  norms = ('q_norm', 'k_norm') if case == 'qwen3' else ()
  state = folders.llama(biases=biases, norms=norms)
  keys = folders.LLAMA | keys
  if keys['tie_word_embeddings']:
    del state['lm_head.weight']
  return keys, state


@pytest.mark.parametrize('case', [*CASES, *OTHERS])
def test_the_same_folder_comes_back(case, tmp_path):
  keys, state = make(case)
  folder = folders.write(tmp_path / 'in', keys, state)
  # Without kept keys a Qwen3.5 is a Qwen3-Next.
  known = {'model_type': keys['model_type']} if 'qwen3_5' in case else None
  folders.assert_comes_back(folders.read(folder), folder, known)


@pytest.mark.parametrize('case', ORACLES)
def test_the_logits_of_the_equations(case, tmp_path):
  keys, state = make(case)
  bundle = folders.read(folders.write(tmp_path / 'in', keys, state))
  want = ORACLES[case](state, TOKENS, keys)
  got = bundles.logits(bundle, TOKENS)
  np.testing.assert_allclose(got, want, rtol=0, atol=1e-5)


@pytest.mark.parametrize(
  'keys',
  (
    {'norm_first': False, 'fuse_norm': True},
    {'num_hidden_layers': 1, 'a_low_rank_dim': 5, 'value_dim': [24]},
    {'head_dim': None, 'num_heads': 2, 'intermediate_size': 20},
  ),
  ids='-'.join,
)
def test_variants_of_rwkv7(keys, tmp_path):
  keys = folders.RWKV7 | keys
  folder = folders.write(tmp_path / 'in', keys, folders.rwkv7(keys))
  bundle = folders.read(folder)
  keys['head_dim'] = 6
  got = bundles.logits(bundle, TOKENS)
  want = oracles.rwkv7(folders.stored(folder), TOKENS, keys)
  np.testing.assert_allclose(got, want, rtol=0, atol=1e-5)
  folders.assert_comes_back(bundle, folder)


def test_steps_and_packed_rows_of_rwkv7_are_the_row(tmp_path):
  folder = folders.write(tmp_path / 'in', folders.RWKV7, folders.rwkv7())
  bundle = folders.read(folder)
  model, (rows, length) = bundles.model(bundle), TOKENS.shape

  @jax.jit
  def run(params, tokens):
    def step(state, token_B):
      state, y = model.apply(params, state, token_B[:, None])
      return state, y[:, 0]

    state = model.apply({}, rows, method='init_state')
    _, steps = jax.lax.scan(step, state, tokens.T)
    packed = tokens.reshape(1, -1)
    starts = jnp.zeros(packed.shape, jnp.int32).at[:, ::length].set(1)
    fresh = model.apply({}, 1, method='init_state')
    _, y = model.apply(params, fresh, packed, starts)
    return steps.swapaxes(0, 1), y.reshape(rows, length, -1)

  want = oracles.rwkv7(folders.rwkv7(), TOKENS, folders.RWKV7)
  for got in run({'params': bundle.params}, TOKENS):
    np.testing.assert_allclose(got, want, rtol=0, atol=1e-5)


def test_what_rwkv7_lacks_is_named(tmp_path):
  folder = folders.write(tmp_path / 'in', folders.RWKV7, folders.rwkv7())
  bundle = folders.read(folder)
  for section, option, named in (
    ('cell', {'shared_gate': False}, r'cell\.shared_gate=False, not True'),
    ('cell', {'value_residual': False}, r'value_residual=False, not True'),
    ('cell', {'norm_epsilon': 1e-3}, r'norm_epsilon=0\.001, not 0\.0006'),
    ('cell', {'key_epsilon': 1e-3}, r'key_epsilon=0\.001, not 1e-06'),
    ('model', {'mlp': 'relu'}, "mlp='relu', not 'channel_mix'"),
    ('model', {'norm': 'rms'}, "norm='rms', not 'layer'"),
    ('model', {'biases': True}, 'biases=True, not False'),
  ):
    own = dataclasses.replace(getattr(bundle.config, section), **option)
    config = dataclasses.replace(bundle.config, **{section: own})
    with pytest.raises(errors.InputError, match=named):
      folders.export(
        dataclasses.replace(bundle, config=config), tmp_path / 'out'
      )


PERIOD = ('rg_lru', 'rg_lru', 'attention')


@pytest.mark.parametrize(
  ('kinds', 'block_types', 'pattern'),
  (
    ('rrarra', 'rra', PERIOD),
    ('rrar', 'rra', PERIOD + PERIOD[:1]),
    ('rara', 'rara', PERIOD[1:]),
    ('rr', 'rra', PERIOD[:1]),
    ('aaa', 'a', PERIOD[2:]),
  ),
)
def test_layers_of_recurrent_gemma_are_a_pattern_or_a_whole_list(
  kinds, block_types, pattern, tmp_path
):
  names = {'r': 'recurrent', 'a': 'attention'}
  keys = folders.RECURRENT_GEMMA | {
    'num_hidden_layers': len(kinds),
    'block_types': [names[kind] for kind in block_types],
  }
  if 'r' not in kinds:
    del keys['lru_width']
  state = folders.recurrent_gemma(kinds)
  folder = folders.write(tmp_path / 'in', keys, state)
  bundle = folders.read(folder)
  assert bundle.config.model.pattern == pattern
  out = folders.export(dataclasses.replace(bundle, kept={}), tmp_path / 'out')
  folders.assert_same(out, folder)
  bundles.assert_same(folders.read(out), bundle)


def test_what_recurrent_gemma_lacks_is_named(tmp_path):
  folder = folders.write(
    tmp_path / 'in', folders.RECURRENT_GEMMA, folders.recurrent_gemma()
  )
  bundle = folders.read(folder)
  cells = bundle.config.cell
  for name, option, named in (
    ('rg_lru', {'whole_start': False}, r'rg_lru\.whole_start=False, not True'),
    ('rg_lru', {'heads': 6, 'head_width': 2}, r'rg_lru\.heads=6, not 3'),
    ('attention', {'qk_norm': True}, r'attention\.qk_norm=True, not False'),
    ('attention', {'rotary': 0.0, 'rotary_width': 0}, 'rope_theta=0.0: give'),
  ):
    own = dataclasses.replace(cells.of(name), **option)
    config = dataclasses.replace(
      bundle.config, cell=dataclasses.replace(cells, **{name: own})
    )
    with pytest.raises(errors.InputError, match=named):
      folders.export(
        dataclasses.replace(bundle, config=config), tmp_path / 'out'
      )


@pytest.mark.parametrize(
  ('kinds', 'experts', 'changed', 'pattern'),
  (
    ('lllf', 0, {}, (*3 * ('gated_deltanet',), 'attention')),
    ('fff', 0, {'attention_bias': False}, ('attention',)),
    ('ll', 5, {'linear_num_key_heads': 4}, ('gated_deltanet',)),
  ),
)
def test_layers_of_qwen3_next(kinds, experts, changed, pattern, tmp_path):
  names = {'l': 'linear_attention', 'f': 'full_attention'}
  keys = folders.QWEN3_NEXT | changed
  keys |= {'num_hidden_layers': len(kinds), 'num_experts': experts}
  keys['layer_types'] = [names[kind] for kind in kinds]
  if kinds == 'lllf':  # an interval of 4
    del keys['layer_types']
  state = folders.qwen3_next(kinds, experts)
  if changed.get('linear_num_key_heads'):
    shapes = {'in_proj_qkvz': (88, 12), 'conv1d': (64, 1, 3)}
    names = {
      f'model.layers.{n}.linear_attn.{name}.weight': shape
      for n in range(len(kinds))
      for name, shape in shapes.items()
    }
    state |= folders.draw(names)
  folder = folders.write(tmp_path / 'in', keys, state)
  later = folders.draw({'mtp.layers.0.mlp.gate.weight': (5, 12)})
  bundle = folders.read(folders.write(tmp_path / 'mtp', keys, state | later))
  assert bundle.config.model.pattern == pattern
  folders.assert_comes_back(bundle, folder)


@pytest.mark.parametrize('case', ('qwen3_5', 'qwen3_5_moe'))
def test_the_text_part_of_a_model_that_reads_images(case, tmp_path):
  keys, state = make(case)
  text = folders.write(tmp_path / 'text', keys, state)
  both = folders.write(tmp_path / 'both', *folders.with_images(keys, state))
  bundle = folders.read(both)
  bundles.assert_same(folders.read(text), bundle)
  out = folders.export(bundle, tmp_path / 'out')
  folders.assert_same(out, text)
  after = json.loads((out / 'config.json').read_text())
  assert after['model_type'] == keys['model_type']
  assert 'vision_config' not in after


def test_tensors_of_experts_have_either_name_and_keep_their_dtypes(tmp_path):
  keys, state = make('granite')
  half = {name: x.astype(ml_dtypes.bfloat16) for name, x in state.items()}
  folder = folders.write(tmp_path / 'in', keys, half)
  bundle = folders.read(folder)
  out = folders.export(bundle, tmp_path / 'out')
  assert {*folders.dtypes(out).values()} == {'BF16'}
  names = {
    'input_linear.weight': 'experts.gate_up_proj',
    'output_linear.weight': 'experts.down_proj',
    'router.layer.weight': 'router.weight',
  }
  newer = dict(half)
  for name in half:
    for older, changed in names.items():
      if name.endswith(f'block_sparse_moe.{older}'):
        newer[name.replace(older, changed)] = newer.pop(name)
  assert newer.keys() != half.keys()
  again = folders.read(folders.write(tmp_path / 'newer', keys, newer))
  bundles.assert_same(again, bundle)
  folders.assert_same(folders.export(again, tmp_path / 'back'), folder)
  name = 'model.layers.0.block_sparse_moe.experts.gate_up_proj'
  folders.write(tmp_path / 'newer', keys, half | {name: newer[name]})
  with pytest.raises(errors.InputError, match='gate_up_proj.*expected none'):
    folders.read(tmp_path / 'newer')


@pytest.mark.parametrize('case', ('mixtral', 'qwen3_moe', 'qwen3_next'))
def test_experts_may_be_joined(case, tmp_path):
  keys, state = make(case)
  bundle = folders.read(folders.write(tmp_path / 'in', keys, state))
  newer = folders.joined(state)
  assert len(newer) < len(state)
  folder = folders.write(tmp_path / 'joined', keys, newer)
  bundles.assert_same(folders.read(folder), bundle)
  name = 'model.layers.1.mlp.experts.down_proj'
  folders.write(folder, keys, newer | {name: newer[name][:, 1:]})
  with pytest.raises(errors.InputError, match=rf'{name}: \(5, 11, '):
    folders.read(folder)
  both = newer | {name: x for name, x in state.items() if '.experts.0' in name}
  with pytest.raises(errors.InputError, match=r'experts\.0\..*expected none'):
    folders.read(folders.write(folder, keys, both))


@pytest.mark.parametrize(('kinds', 'dense'), (('llf', 1), ('ff', 2)))
def test_layers_of_kimi_linear(kinds, dense, tmp_path):
  listed = {'l': 'kda_layers', 'f': 'full_attn_layers'}
  given = {'head_dim': 5, 'num_heads': 2, 'short_conv_kernel_size': 3}
  for kind, name in listed.items():
    given[name] = [n + 1 for n, own in enumerate(kinds) if own == kind]
  keys = folders.KIMI_LINEAR | {'num_hidden_layers': len(kinds)}
  keys |= {'first_k_dense_replace': dense, 'linear_attn_config': given}
  keys['topk_group'] = keys['num_expert_group']  # no choice
  for name in ('layer_types', 'mlp_layer_types', 'linear_head_dim'):
    del keys[name]
  state = folders.kimi_linear(kinds, dense)
  folder = folders.write(tmp_path / 'in', keys, state)
  bundle = folders.read(folder)
  assert bundle.config.model.pattern == {
    'llf': ('kda', 'kda', 'latent_attention'),
    'ff': ('latent_attention',),
  }.get(kinds)
  made_here = dataclasses.replace(bundle, kept={})
  out = folders.export(made_here, tmp_path / 'made')
  folders.assert_same(out, folder)
  bundles.assert_same(folders.read(out), bundle)


def test_all_wrong_tensors_of_a_kimi_linear_are_named(tmp_path):
  state, name = folders.kimi_linear(), 'model.layers.{}.self_attn.o_proj.weight'
  state[name.format(0)] = np.zeros((3, 12), 'float32')
  del state[name.format(1)]
  state['model.layers.1.extra'] = np.zeros(2, 'float32')
  folder = folders.write(tmp_path / 'in', folders.KIMI_LINEAR, state)
  with pytest.raises(errors.InputError) as caught:
    folders.read(folder)
  for named in (name.format(0), name.format(1), 'model.layers.1.extra'):
    assert named in str(caught.value)


def test_a_model_of_configs_is_a_qwen3_next(tmp_path):
  config, own = config_lib.parse(hybrid.get_config()), tokenizer.Bytes()
  like = bundle_lib.flat(bundle_lib.like(config, own))
  params = {name: np.zeros(x.shape, np.float32) for name, x in like.items()}
  bundle = bundle_lib.make(config, own, bundle_lib.nested(params))
  out = folders.export(bundle, tmp_path / 'out')
  keys = json.loads((out / 'config.json').read_text())
  assert (keys['model_type'], keys['num_experts']) == ('qwen3_next', 8)
  back = folders.read(out).config
  assert (back.model, back.cell) == (config.model, config.cell)


def test_a_model_of_configs_is_a_kimi_linear():
  config = config_lib.parse(hybrid.get_config('kimi_linear'))
  keys = keys_lib.Keys(
    'config.json', kimi_linear.describe(config, 'kimi_linear')
  )
  raw = config_lib.default(config.model.cells)
  config_lib.override(raw, kimi_linear.options(keys))
  back = config_lib.parse(raw)
  assert (back.model, back.cell) == (config.model, config.cell)


@pytest.mark.parametrize(
  'case, keys, named',
  [
    ('mamba', {'use_bias': True}, r'use_bias=True: only \[False\]'),
    ('mamba', {'expand': 1.5}, 'expand=1.5: give a whole number'),
    ('mamba', {'hidden_act': 'gelu'}, "hidden_act='gelu': only"),
    ('mamba', {'time_step_rank': 'all'}, "time_step_rank='all': give a whole"),
    ('mamba2', {'use_bias': True}, r'use_bias=True: only \[False\]'),
    ('mamba2', {'time_step_limit': [0.1, 1.0]}, 'time_step_limit=.*only'),
    ('mamba2', {'expand': 3}, 'expand=3.0: hidden_size=12'),
    ('xlstm', {'use_bias': True}, r'use_bias=True: only \[False\]'),
    ('xlstm', {'weight_mode': 'fused'}, "weight_mode='fused': only"),
    ('xlstm', {'embedding_dim': 8}, r'embedding_dim=8: only \[12\]'),
    ('xlstm', {'gate_soft_cap': 0}, 'gate_soft_cap=0.0: give a number above'),
    ('xlstm', {'v_dim_factor': 0.3}, 'num_heads=2 must divide 3'),
    ('xlstm', {'ffn_proj_factor': 0}, 'ffn_proj_factor=0.0: give more than 0'),
    ('xlstm', {'ffn_round_up_to_multiple_of': 0}, 'multiple_of=0: give 1'),
    ('mistral', {'sliding_window': '5'}, "sliding_window='5': give a whole"),
    ('qwen2', {'use_sliding_window': True}, 'use_sliding_window=True'),
    (
      'llama3',
      {'rope_scaling': {'rope_type': 'llama3', 'factor': 8}},
      'low_freq_factor=None: give a number',
    ),
    (
      'llama3',
      {'rope_scaling': folders.LLAMA3 | {'factor': 0.5}},
      'rotary_scaling=.*a factor of 1 or more',
    ),
    ('qwen3', {'layer_types': ['sliding_attention']}, "layer_types='sliding"),
    ('delta_net', {'use_gate': True}, 'use_gate=True'),
    ('delta_net', {'expand_k': 0.7}, 'expand_k=0.7: heads would be'),
    ('gated_deltanet', {'attn': {'layers': [1]}}, 'attn=.*only null'),
    ('gated_deltanet', {'num_v_heads': 4}, r'num_v_heads=4: only \[2\]'),
    ('recurrent_gemma', {'block_types': ['x']}, "block_types='x': only"),
    ('recurrent_gemma', {'hidden_activation': 'silu'}, 'hidden_activation='),
    ('recurrent_gemma', {'lru_width': 13}, 'lru_width=13: 3 heads must'),
    ('recurrent_gemma', {'logits_soft_cap': 0.0}, 'logits_soft_cap=0.0: give'),
    ('recurrent_gemma', {'intermediate_size': 41}, 'intermediate_size=41: hal'),
    ('recurrent_gemma', {'head_dim': 9}, r'head_dim=9: only \[8\]'),
    ('recurrent_gemma', {'attention_window_size': 1}, 'size=1: give 2'),
    (
      'recurrent_gemma',
      {'rope_parameters': {'partial_rotary_factor': 0.4}},
      'partial_rotary_factor=0.4: 3 of 8 channels',
    ),
    ('rwkv7', {'hidden_act': 'relu'}, r"hidden_act='relu': only \['sqrelu'\]"),
    ('rwkv7', {'norm_bias': False}, r'norm_bias=False: only \[True\]'),
    ('rwkv7', {'attn': {'layers': [1]}}, 'attn=.*only null'),
    ('rwkv7', {'head_dim': 5}, 'head_dim=5: it must divide hidden_size=12'),
    ('rwkv7', {'num_heads': 3}, r'num_heads=3: only \[2\]'),
    ('rwkv7', {'head_dim': None}, 'num_heads=None: give a whole'),
    (
      'rwkv7',
      {'value_dim': [12, 24, 24]},
      r'value_dim=\[12, 24, 24\]: give on',
    ),
    ('rwkv7', {'value_dim': 18}, 'value_dim=18: give a multiple of hidden'),
    ('llama', {'rope_theta': 0.0}, 'rope_theta=0.0: give a number above 1'),
    ('mixtral', {'num_experts_per_tok': 1}, 'num_experts_per_tok=1: with one'),
    ('mixtral', {'num_local_experts': 1}, 'num_local_experts=1: give 2'),
    ('qwen3_moe', {'num_experts': 0}, 'num_experts=0: give 2'),
    ('qwen3_moe', {'decoder_sparse_step': 2}, 'decoder_sparse_step=2: only'),
    ('qwen3_moe', {'mlp_only_layers': [1]}, r'mlp_only_layers=\[1\]: only'),
    (
      'qwen3_moe',
      {'num_experts_per_tok': 1, 'norm_topk_prob': True},
      'norm_topk_prob=True: num_experts_per_tok=1: with one',
    ),
    ('qwen3_next', {'hidden_act': 'gelu'}, "hidden_act='gelu': only"),
    ('qwen3_next', {'layer_types': ['x'] * 4}, "layer_types='x': only"),
    (
      'qwen3_next',
      {'num_hidden_layers': 3},
      'num_hidden_layers=3: layer_types has 4',
    ),
    (
      'qwen3_next',
      {'layer_types': None, 'full_attention_interval': 0},
      'full_attention_interval=0: give 1 or more',
    ),
    (
      'qwen3_next',
      {'linear_num_value_heads': 3},
      'linear_num_value_heads=3: linear_num_key_heads=2 must divide it',
    ),
    (
      'qwen3_next',
      {'partial_rotary_factor': 0.1},
      'partial_rotary_factor=0.1: 0 of 8 channels',
    ),
    ('qwen3_next', {'num_experts': 1}, 'num_experts=1: give 2 or more, or 0'),
    (
      'qwen3_next',
      {'shared_expert_intermediate_size': 0},
      'shared_expert_intermediate_size=0: give 1 or more',
    ),
    ('qwen3_next', {'mlp_only_layers': [0]}, r'mlp_only_layers=\[0\]: only'),
    ('kimi_linear', {'mla_use_nope': False}, 'mla_use_nope=False: only'),
    ('kimi_linear', {'num_key_value_heads': 1}, r'heads=1: only \[3\]'),
    ('kimi_linear', {'tie_word_embeddings': True}, 'embeddings=True: only'),
    ('kimi_linear', {'num_hidden_layers': 3}, '=3: layer_types has 4'),
    ('kimi_linear', {'layer_types': ['x'] * 4}, "layer_types='x': only"),
    (
      'kimi_linear',
      {'mlp_layer_types': ['sparse', 'dense', 'sparse', 'sparse']},
      "mlp_layer_types=.*only the first layers can be 'dense', at most 2",
    ),
    (
      'kimi_linear',
      {'linear_attn_config': {'kda_layers': [1, 2], 'full_attn_layers': [4]}}
      | {'layer_types': None},
      'linear_attn_config=.*give each of num_hidden_layers=4 once',
    ),
    ('kimi_linear', {'n_group': 4}, 'num_expert_group=4: it must divide'),
    ('kimi_linear', {'num_experts_per_tok': 1}, 'moe_renormalize=True: num_ex'),
    ('kimi_linear', {'n_shared_experts': 0}, 'shared_experts=0: give 1'),
    ('qwen3_5', {'hidden_act': 'gelu'}, "hidden_act='gelu': only"),
    ('qwen3_5', {'model_type': 'qwen3_5'}, 'model_type=None: only'),
    (
      'qwen3_5_moe',
      {'num_experts_per_tok': 1},
      'norm_topk_prob=True: num_experts_per_tok=1: with one',
    ),
    ('granite', {'layer_types': ['x'] * 4}, "layer_types='x': only"),
    ('granite', {'mamba_n_heads': 5}, 'mamba_n_heads=5: it must divide 24'),
    ('granite', {'mamba_d_head': 5}, r'mamba_d_head=5: only \[6\]'),
    ('granite', {'mamba_proj_bias': True}, 'mamba_proj_bias=True: only'),
    ('granite', {'num_local_experts': 1}, 'num_local_experts=1: give 2 or'),
    ('granite', {'num_experts_per_tok': 1}, 'num_experts_per_tok=1: with one'),
    ('granite', {'logits_scaling': 0}, 'logits_scaling=0: give 1e-06 or more'),
    ('granite', {'attention_multiplier': 0}, 'attention_multiplier=0: give'),
    ('bamba', {'attn_layer_indices': [3]}, r'indices=\[3\]: give numbers from'),
    ('bamba', {'num_attention_heads': 5}, 'num_attention_heads=5: it must'),
    ('lfm2', {'layer_types': ['conv']}, 'num_hidden_layers=3: layer_types has'),
    ('lfm2', {'block_ffn_dim_multiplier': 0}, 'dim_multiplier=0.0: give more'),
    ('lfm2_moe', {'num_experts_per_tok': 1}, 'norm_topk_prob=True: num_exp'),
    ('falcon_h1', {'ssm_multipliers': [1.0]}, r'multipliers=\[1.0\]: give 5'),
    ('falcon_h1', {'mlp_multipliers': [1, 'x']}, "mlp_multipliers='x': give"),
    ('falcon_h1', {'mlp_bias': True}, 'mlp_bias=True: only'),
    ('jamba', {'attn_layer_offset': 4}, 'attn_layer_offset=4: give 3 or less'),
    ('jamba', {'expert_layer_period': 0}, 'expert_layer_period=0: give 1'),
    ('jamba', {'mamba_proj_bias': True}, 'mamba_proj_bias=True: only'),
    (
      'nemotron_h',
      {'hybrid_override_pattern': 'M--'},
      "layers_block_type='mlp': block 2 needs one of",
    ),
    ('nemotron_h', {'hybrid_override_pattern': 'MX'}, "pattern='MX': only let"),
    ('nemotron_h', {'n_group': 4}, 'n_group=4: it must divide n_routed_exp'),
    ('nemotron_h', {'moe_latent_size': 4}, 'moe_latent_size=4: only null'),
    ('zamba2', {'use_long_context': True}, 'use_long_context=True: only'),
    ('zamba2', {'add_bias_linear': True}, 'add_bias_linear=True: only'),
    ('zamba2', {'num_mem_blocks': 4}, 'num_mem_blocks=4: 3 layers use them'),
    ('zamba2', {'num_attention_heads': 5}, 'heads=5: it must divide 24'),
    ('zamba2', {'layers_block_type': ['moe']}, "layers_block_type='moe': only"),
    ('zamba2', {'num_hidden_layers': 7}, 'num_hidden_layers=7: layers_block'),
    ('gla', {'use_short_conv': True}, r'use_short_conv=True: only \[False\]'),
    ('gla', {'clamp_min': -1.0}, 'clamp_min=-1.0: only null'),
    ('gla', {'num_kv_heads': 1}, r'num_kv_heads=1: only \[2\]'),
    ('gla', {'expand_k': 0.7}, 'expand_k=0.7: heads would be'),
    ('gla', {'gate_low_rank_dim': 8}, 'gate_low_rank_dim=8: only'),
  ],
)
def test_variants_are_refused_by_name(case, keys, named, tmp_path):
  own, _ = make(case)
  with pytest.raises(errors.InputError, match=named):
    folders.read(folders.write(tmp_path / 'in', own | keys, {}))


# tests/launch/test_interop.py has a run that begins with a folder.
@pytest.mark.slow
def test_an_rwkv7_is_trained(tmp_path):
  folder = folders.write(tmp_path / 'in', folders.RWKV7, folders.rwkv7())
  bundle = folders.read(folder)
  task = bundle_lib.make_task(bundle.config, bundle.tokenizer)
  weights, starts = np.ones(TOKENS.shape, np.float32), np.zeros_like(TOKENS)
  batch = batch_lib.Batch(TOKENS, np.roll(TOKENS, -1, 1), weights, starts)
  before = task.init_state(len(TOKENS))
  slopes = jax.jit(jax.grad(lambda p: task.loss(p, before, batch)[0]))(
    bundle.params
  )
  params = jax.tree.map(
    lambda x, slope: x - 1e-3 * np.asarray(slope), bundle.params, slopes
  )
  trained = dataclasses.replace(bundle, params=params)
  state = folders.stored(folders.export(trained, tmp_path / 'out'))
  name = 'model.layers.0.ffn.x_k'
  assert not np.array_equal(state[name], folders.stored(folder)[name])
  want = oracles.rwkv7(state, TOKENS, folders.RWKV7)
  got = bundles.logits(trained, TOKENS)
  np.testing.assert_allclose(got, want, rtol=0, atol=1e-5)
