"""Models that transformers makes: its logits, and the same folder back."""

import dataclasses
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tokenizers

from benchmarks.workloads import pretrained
from rnn_jax import config as config_lib
from rnn_jax.data.text import turns
from rnn_jax.data.text.examples import base
from rnn_jax.data.text.examples import dialogue
from rnn_jax.runs import bundle as bundle_lib
from rnn_jax.training import loop
from tests.interop.formats.hf import folders
from tests.support import bundles
from tests.support import chats
from tests.support import corpora
from tests.support import launchers

pytestmark = pytest.mark.peers
V, L, WRITTEN = 61, 20, 4
TOKENS = np.random.default_rng(1).integers(0, V, (2, L))
LLAMA = {
  'hidden_size': 16,
  'intermediate_size': 24,
  'num_hidden_layers': 3,
  'num_attention_heads': 4,
  'num_key_value_heads': 2,
  'max_position_embeddings': 32,
}
MAMBA2 = {  # beside attention
  'max_position_embeddings': 32,
  'hidden_size': 16,
  'num_attention_heads': 4,
  'num_key_value_heads': 2,
  'mamba_n_heads': 4,
  'mamba_n_groups': 2,
  'mamba_d_state': 6,
  'mamba_d_head': 8,
  'mamba_chunk_size': 8,
}
FALCON = MAMBA2 | {
  'intermediate_size': 20,
  'num_hidden_layers': 3,
  'mamba_d_ssm': 24,
  'mamba_d_head': 6,
  'embedding_multiplier': 1.7,
  'lm_head_multiplier': 0.4,
  'mlp_multipliers': [0.8, 1.3],
  'key_multiplier': 0.7,
  'attention_in_multiplier': 1.2,
  'attention_out_multiplier': 0.9,
  'ssm_in_multiplier': 1.1,
  'ssm_multipliers': [0.7, 1.2, 0.9, 1.4, 0.6],
  'ssm_out_multiplier': 0.8,
}
NEMOTRON = {
  'max_position_embeddings': 32,
  'hidden_size': 16,
  'intermediate_size': 20,
  'num_attention_heads': 4,
  'num_key_value_heads': 2,
  'head_dim': 6,
  'mamba_num_heads': 4,
  'mamba_head_dim': 5,
  'ssm_state_size': 6,
  'n_groups': 2,
  'chunk_size': 8,
  'time_step_min': 0.5,
}
ZAMBA = {
  'max_position_embeddings': 32,
  'hidden_size': 16,
  'intermediate_size': 12,
  'num_hidden_layers': 5,
  'layers_block_type': ['linear_attention', 'hybrid', 'hybrid']
  + ['linear_attention', 'hybrid'],
  'num_attention_heads': 4,
  'adapter_rank': 3,
  'n_mamba_heads': 4,
  'mamba_ngroups': 2,
  'mamba_d_state': 6,
  'chunk_size': 8,
}
CASES = {
  'Llama': LLAMA | {'head_dim': 6, 'rms_norm_eps': 1e-5},
  'Llama, scaled': LLAMA
  | {
    'head_dim': 6,
    'max_position_embeddings': 320,
    'rope_parameters': folders.LLAMA3 | {'rope_theta': 100.0},
  },
  'Llama, YaRN': LLAMA
  | {
    'head_dim': 6,
    'max_position_embeddings': 320,
    'rope_parameters': folders.YARN
    | {'rope_theta': 100.0, 'mscale': 1.0, 'mscale_all_dim': 0.5},
  },
  'Llama, linear': LLAMA
  | {
    'attention_bias': True,
    'mlp_bias': True,
    'rope_parameters': {'rope_type': 'linear', 'factor': 2.0}
    | {'rope_theta': 100.0},
  },
  'Qwen2': LLAMA | {'tie_word_embeddings': True},
  'Qwen3': LLAMA
  | {'head_dim': 6, 'rms_norm_eps': 1e-5, 'attention_bias': True},
  'Mistral': LLAMA | {'sliding_window': 4},
  'Mixtral': LLAMA
  | {'num_local_experts': 4, 'sliding_window': 4, 'head_dim': 6},
  'Qwen3Moe': LLAMA
  | {'moe_intermediate_size': 12, 'num_experts': 5, 'num_experts_per_tok': 3},
  'RecurrentGemma': {
    'hidden_size': 24,
    'intermediate_size': 40,
    'num_hidden_layers': 5,
    'num_attention_heads': 3,
    'num_key_value_heads': 1,
    'lru_width': 12,
    'attention_window_size': 4,
    'logits_soft_cap': 4.0,
  },
  'Mamba': {
    'hidden_size': 16,
    'num_hidden_layers': 3,
    'state_size': 6,
    'time_step_rank': 3,
  },
  'Mamba, plain': {
    'hidden_size': 16,
    'num_hidden_layers': 2,
    'state_size': 6,
    'time_step_rank': 'auto',
    'use_conv_bias': False,
    'tie_word_embeddings': False,
  },
  'Qwen3Next': {
    'hidden_size': 16,
    'moe_intermediate_size': 12,
    'shared_expert_intermediate_size': 10,
    'num_hidden_layers': 4,
    'num_attention_heads': 4,
    'num_key_value_heads': 2,
    'head_dim': 8,
    'num_experts': 5,
    'num_experts_per_tok': 3,
    'linear_num_key_heads': 2,
    'linear_num_value_heads': 6,
    'linear_key_head_dim': 4,
    'linear_value_head_dim': 5,
    'max_position_embeddings': 320,
    'rope_parameters': folders.YARN
    | {'rope_theta': 100.0, 'partial_rotary_factor': 0.75},
  },
  'KimiLinear': {
    'hidden_size': 16,
    'intermediate_size': 20,
    'moe_intermediate_size': 12,
    'num_hidden_layers': 4,
    'layer_types': ['linear_attention', 'full_attention'] * 2,
    'num_attention_heads': 3,
    'num_key_value_heads': 3,
    'kv_lora_rank': 10,
    'q_lora_rank': 7,
    'attention_bias': True,
    'qk_rope_head_dim': 4,
    'qk_nope_head_dim': 6,
    'v_head_dim': 5,
    'linear_head_dim': 5,
    'linear_num_heads': 2,
    'num_local_experts': 6,
    'num_experts_per_tok': 3,
    'n_group': 3,
    'topk_group': 2,
    'bos_token_id': 0,
    'eos_token_id': 1,
    'pad_token_id': 2,
  },
  'Mamba2': {
    'hidden_size': 16,
    'num_hidden_layers': 3,
    'num_heads': 8,
    'head_dim': 4,
    'state_size': 6,
    'n_groups': 2,
    'chunk_size': 8,
  },
}

CASES['xLSTM'] = {
  'hidden_size': 16,
  'num_hidden_layers': 3,
  'num_heads': 4,
  'v_dim_factor': 1.5,
  'ffn_round_up_to_multiple_of': 8,
  'use_cache': False,  # which can't hold states this small
}


CASES |= {
  'Qwen3_5Text': {
    'max_position_embeddings': 32,
    'hidden_size': 16,
    'intermediate_size': 24,
    'num_hidden_layers': 4,
    'layer_types': ['linear_attention', 'full_attention'] * 2,
    'num_attention_heads': 4,
    'num_key_value_heads': 2,
    'head_dim': 8,
    'linear_num_key_heads': 2,
    'linear_num_value_heads': 6,
    'linear_key_head_dim': 4,
    'linear_value_head_dim': 5,
    'tie_word_embeddings': True,
    'rope_parameters': {
      'rope_type': 'default',
      'rope_theta': 100.0,
      'partial_rotary_factor': 0.5,
      'mrope_section': [1, 1, 0],
      'mrope_interleaved': True,
    },
  },
  'Qwen3_5MoeText': {
    'max_position_embeddings': 32,
    'hidden_size': 16,
    'moe_intermediate_size': 12,
    'shared_expert_intermediate_size': 10,
    'num_hidden_layers': 4,
    'num_attention_heads': 4,
    'num_key_value_heads': 2,
    'head_dim': 8,
    'num_experts': 5,
    'num_experts_per_tok': 3,
    'linear_num_key_heads': 2,
    'linear_num_value_heads': 2,
    'linear_key_head_dim': 4,
    'linear_value_head_dim': 5,
  },
  'GraniteMoeHybrid': MAMBA2
  | {
    'intermediate_size': 12,
    'shared_intermediate_size': 10,
    'num_hidden_layers': 4,
    'layer_types': ['linear_attention', 'full_attention'] * 2,
    'num_local_experts': 5,
    'num_experts_per_tok': 3,
    'position_embedding_type': 'rope',
    'embedding_multiplier': 1.7,
    'residual_multiplier': 0.6,
    'attention_multiplier': 0.3,
    'logits_scaling': 3.0,
  },
  'GraniteMoeHybrid, an MLP': MAMBA2
  | {
    'shared_intermediate_size': 20,
    'num_hidden_layers': 3,
    'layer_types': ['linear_attention', 'linear_attention', 'full_attention'],
    'num_local_experts': 0,
    'attention_bias': True,
    'tie_word_embeddings': True,
    'logits_scaling': 6,
  },
  'Bamba': MAMBA2
  | {
    'intermediate_size': 20,
    'num_hidden_layers': 4,
    'attn_layer_indices': [1, 3],
    'attention_bias': True,
    'mlp_bias': True,
  },
  'Lfm2': LLAMA
  | {
    'num_hidden_layers': 4,
    'layer_types': ['conv', 'full_attention', 'conv', 'conv'],
    'block_multiple_of': 8,
  },
  'Lfm2, biased': LLAMA
  | {
    'num_hidden_layers': 2,
    'full_attn_idxs': [1],
    'block_auto_adjust_ff_dim': False,
    'conv_bias': True,
    'conv_L_cache': 4,
    'tie_word_embeddings': False,
  },
  'Lfm2Moe': LLAMA
  | {
    'num_hidden_layers': 4,
    'layer_types': ['conv', 'full_attention'] * 2,
    'num_dense_layers': 1,
    'moe_intermediate_size': 12,
    'num_experts': 5,
    'num_experts_per_tok': 3,
    'routed_scaling_factor': 1.5,
  },
  'FalconH1': FALCON,
  'FalconH1, normed': FALCON
  | {
    'mamba_rms_norm': True,
    'mamba_norm_before_gate': True,
    'tie_word_embeddings': True,
  },
  'Jamba': {
    'max_position_embeddings': 32,
    'hidden_size': 16,
    'intermediate_size': 20,
    'num_hidden_layers': 4,
    'num_attention_heads': 4,
    'num_key_value_heads': 2,
    'attn_layer_period': 2,
    'attn_layer_offset': 1,
    'expert_layer_period': 4,
    'expert_layer_offset': 1,
    'num_experts': 5,
    'num_experts_per_tok': 3,
    'mamba_d_state': 6,
    'mamba_dt_rank': 3,
  },
  'Jamba, an MLP': {
    'max_position_embeddings': 32,
    'hidden_size': 16,
    'intermediate_size': 20,
    'num_hidden_layers': 3,
    'num_attention_heads': 4,
    'num_key_value_heads': 2,
    'attn_layer_period': 3,
    'attn_layer_offset': 2,
    'num_experts': 1,
    'mamba_d_state': 6,
    'mamba_conv_bias': False,
  },
  'NemotronH': NEMOTRON
  | {
    'layers_block_type': ['linear_attention', 'linear_attention', 'mlp']
    + ['full_attention', 'mlp'],
    'mlp_bias': True,
  },
  'NemotronH, experts': NEMOTRON
  | {
    'layers_block_type': ['linear_attention', 'moe', 'full_attention', 'mlp']
    * 2,
    'n_routed_experts': 6,
    'num_experts_per_tok': 3,
    'n_group': 3,
    'topk_group': 2,
    'moe_intermediate_size': 12,
    'moe_shared_expert_intermediate_size': 10,
    'routed_scaling_factor': 1.5,
  },
  'Zamba2': ZAMBA
  | {
    'use_mem_rope': True,
    'use_shared_attention_adapter': True,
    'rope_parameters': {'rope_type': 'default', 'rope_theta': 100.0},
  },
  'Zamba2, two blocks': ZAMBA | {'num_mem_blocks': 2},
}


@pytest.fixture(scope='module', name='made', params=CASES)
def _made(request, tmp_path_factory):
  """(Folder of transformers, logits in float64, our bundle, what it writes)."""
  kind = request.param
  name = kind.partition(',')[0]
  folder = tmp_path_factory.mktemp(kind)
  sizes = {'vocab_size': V} | CASES[kind]
  model = pretrained.write(name, sizes, folder, noise=0.2, max_shard_size='8KB')
  bundle = folders.read(folder)
  if kind == 'KimiLinear':  # either name of its dense MLP is read
    pretrained.publish(folder)
    bundles.assert_same(folders.read(folder), bundle)
  written = pretrained.greedy(model, TOKENS, WRITTEN)
  return folder, pretrained.logits(model, TOKENS), bundle, written


def test_the_same_logits(made):
  _, want, bundle, _ = made
  got = bundles.logits(bundle, TOKENS)
  np.testing.assert_allclose(got, want, rtol=0, atol=1e-4)


def test_steps_and_packed_rows_are_the_row(made):
  _, want, bundle, _ = made
  model = bundles.model(bundle)

  @jax.jit
  def run(params, tokens):
    state = model.apply({}, 2, method='init_state')
    row = []
    for n in range(6):
      state, y = model.apply(params, state, tokens[:, n : n + 1])
      row.append(y[:, 0])
    packed = tokens.reshape(1, -1)
    starts = jnp.zeros(packed.shape, jnp.int32).at[:, L].set(1)
    fresh = model.apply({}, 1, method='init_state')
    _, y = model.apply(params, fresh, packed, starts)
    return jnp.stack(row, 1), y.reshape(2, L, V)

  steps, packed = run({'params': bundle.params}, jnp.array(TOKENS))
  np.testing.assert_allclose(steps, want[:, :6], rtol=0, atol=1e-4)
  np.testing.assert_allclose(packed, want, rtol=0, atol=1e-4)


def test_the_same_tokens_are_written(made):
  *_, bundle, want = made
  model = bundles.model(bundle)

  @jax.jit
  def step(params, state, tokens):
    state, y = model.apply(params, state, tokens)
    return state, jnp.argmax(y[:, -1:], -1)

  params = {'params': bundle.params}
  state = model.apply({}, 2, method='init_state')
  # A row, and steps after it.
  state, token = step(params, state, jnp.array(TOKENS))
  tokens = [token]
  for _ in range(WRITTEN - 1):
    state, token = step(params, state, token)
    tokens.append(token)
  np.testing.assert_array_equal(np.concatenate(tokens, 1), want)


def test_the_same_folder_back(made, tmp_path):
  import transformers

  folder, _, bundle, _ = made
  out = folders.export(bundle, tmp_path / 'out')
  folders.assert_same(out, folder)
  before, after = (
    json.loads((x / 'config.json').read_text()) for x in (folder, out)
  )
  assert {k: after[k] for k in before} == before
  theirs, model = (
    transformers.AutoModelForCausalLM.from_pretrained(path)
    for path in (folder, out)
  )
  newer = tmp_path / 'newer'
  theirs.save_pretrained(newer, save_original_format=False)
  bundles.assert_same(folders.read(newer), bundle)
  theirs, ours = theirs.state_dict(), model.state_dict()
  assert theirs.keys() == ours.keys()
  for name, x in theirs.items():
    np.testing.assert_array_equal(ours[name], x)


@pytest.mark.slow
def test_a_llama_is_converted_trained_and_exported(tmp_path):
  import torch
  import transformers

  def run(*arguments):
    code, out, err = launchers.run(*arguments)
    assert code == 0, err
    return out

  torch.manual_seed(0)
  config = transformers.LlamaConfig(vocab_size=257, **CASES['Llama'])
  model = transformers.LlamaForCausalLM(config)
  model.save_pretrained(tmp_path / 'in')
  form, folder = '--format=hf', f'--workdir={tmp_path / "run"}'
  run('convert', f'--input={tmp_path / "in"}', form, folder)
  run('generate', folder, '--prompt=1 2 3', '--max_new_tokens=4')
  (tmp_path / 'a.txt').write_text('3 5 8 13 21 34 55 89 144 ' * 30)
  bundle = bundle_lib.read(tmp_path / 'run', 'latest')
  own = config_lib.to_dict(bundle.config)
  raw = config_lib.default('attention', source='text', layout='packed')
  for name in ('model', 'cell'):
    raw[name].update(own[name])
  raw.data.update(
    path=str(tmp_path / 'a.txt'), tokenizer='numbers', vocabulary=257
  )
  raw.data.update(length=32, batch_size=2, workers=0, splits=(100, 0, 0))
  raw.data.split_by = 'position'
  raw.optimizer.learning_rate, raw.schedule.warmup_steps = 1e-2, 0
  raw.train.steps = 2
  raw.sample.new_tokens = 0
  raw.evaluate.every = 0
  loop.train(config_lib.parse(raw), str(tmp_path / 'run'))
  out = tmp_path / 'out'
  run('export', folder, form, f'--output={out}', '--checkpoint=latest')
  after = transformers.AutoModelForCausalLM.from_pretrained(out).double()
  assert after.config.model_type == 'llama'
  with torch.no_grad():
    want = after(torch.from_numpy(TOKENS)).logits.numpy()
    before = model.double()(torch.from_numpy(TOKENS)).logits.numpy()
  trained = bundle_lib.read(tmp_path / 'run', 'latest')
  assert trained.step == 2
  got = bundles.logits(trained, TOKENS)
  np.testing.assert_allclose(got, want, rtol=0, atol=1e-4)
  assert np.abs(want - before).max() > 1e-3


def write_chats(folder, template):
  """Writes a model with a tokenizer as transformers does; returns that."""
  import transformers

  config = transformers.LlamaConfig(vocab_size=chats.SIZE, **CASES['Llama'])
  transformers.LlamaForCausalLM(config).save_pretrained(folder)
  made = transformers.PreTrainedTokenizerFast(
    tokenizer_object=tokenizers.Tokenizer.from_str(json.dumps(chats.spec())),
    chat_template=template,
    **chats.TOKENS,
  )
  made.save_pretrained(folder)
  return made


@pytest.mark.parametrize('template', ('CHATML', 'LLAMA3', 'INST'))
def test_turns_are_those_of_apply_chat_template(template, tmp_path):
  import transformers

  source = getattr(chats, template)
  theirs = write_chats(tmp_path / 'a', source)
  bundle = folders.read(tmp_path / 'a')
  said = turns.alternate([' hi\n', 'hello', '<s> how?', '\nwell ', 'so'])
  if template != 'INST':
    said = [turns.Message('system', 'Be "brief".'), *said]
  messages = [message._asdict() for message in said]
  ours = turns.of(bundle.tokenizer)
  for count in range(len(said) - 4, len(said) + 1, 2):
    want = theirs.apply_chat_template(
      messages[:count], add_generation_prompt=True, return_dict=False
    )
    assert ours.prompt(said[:count]).tolist() == want
  if template == 'CHATML':  # which marks what is written
    want = theirs.apply_chat_template(
      messages, return_dict=True, return_assistant_tokens_mask=True
    )
    task = config_lib.section('task', name='dialogue')
    options = base.Options(task, bundle.config.data, 500, None)
    document = corpora.in_memory(turns.dump(said))
    ids = dialogue.Dialogues(document, bundle.tokenizer, options).read(0)
    count = len(ids)
    assert np.maximum(ids, ~ids).tolist() == want['input_ids'][:count]
    assert (ids >= 0).tolist() == [x == 1 for x in want['assistant_masks']][
      :count
    ]
    assert not any(want['assistant_masks'][count:])
  tuned = dataclasses.replace(bundle, kept={})
  for name, one in (('b', bundle), ('c', tuned)):
    out = folders.export(one, tmp_path / name)
    back = transformers.AutoTokenizer.from_pretrained(out)
    for reply in (False, True):
      assert back.apply_chat_template(
        messages, add_generation_prompt=reply, return_dict=False
      ) == theirs.apply_chat_template(
        messages, add_generation_prompt=reply, return_dict=False
      )
    assert back.eos_token_id == bundle.tokenizer.boundary or name == 'b'
