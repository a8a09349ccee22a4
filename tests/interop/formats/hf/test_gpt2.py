"""GPT-2 checkpoints, with the logits of transformers."""

import json

import numpy as np
import pytest
import tokenizers

from rnn_jax import config as config_lib
from rnn_jax import errors
from rnn_jax.interop import standard_tokenizer
from rnn_jax.interop import tensors
from tests.interop import oracles
from tests.interop.formats.hf import folders
from tests.support import bundles

TOKENS = np.random.default_rng(1).integers(0, 61, (2, 24))


def write(folder, state, **changes):
  folder.mkdir(exist_ok=True)
  (folder / 'config.json').write_text(json.dumps(oracles.GPT2 | changes))
  tensors.write(folder / 'model.safetensors', state)
  return folder


read = folders.read


def test_prefixes_masks_and_a_copy_of_the_head_are_known(tmp_path):
  state = oracles.draw_gpt2()
  plain = read(write(tmp_path / 'plain', state))
  assert plain.config.cell.window == 24  # all that there are positions for
  assert plain.tokenizer.spec() == {'kind': 'numbers', 'size': 61}
  named = {f'transformer.{name}': x for name, x in state.items()}
  named['lm_head.weight'] = state['wte.weight'].copy()
  named['transformer.h.0.attn.bias'] = np.ones((1, 1, 24, 24), np.float32)
  named['transformer.h.0.attn.masked_bias'] = np.array(-1e4, np.float32)
  bundles.assert_same(read(write(tmp_path / 'named', named)), plain)


def test_the_end_of_texts_may_be_that_of_a_larger_vocabulary(tmp_path):
  state = oracles.draw_gpt2()
  plain = read(write(tmp_path / 'plain', state))
  ends = {'eos_token_id': 50256, 'bos_token_id': 50256}
  bundles.assert_same(read(write(tmp_path / 'end', state, **ends)), plain)
  with pytest.raises(errors.InputError, match='eos_token_id=61: give 60 or le'):
    read(write(tmp_path / 'other', state, eos_token_id=61))


def test_the_same_folder_comes_back(tmp_path):
  state = {f'transformer.{k}': x for k, x in oracles.draw_gpt2().items()}
  folder = write(tmp_path / 'in', state, resid_pdrop=0.0)
  folders.assert_comes_back(read(folder), folder)


@pytest.mark.peers
@pytest.mark.parametrize('tied', (True, False))
def test_the_checkpoint_of_transformers(tied, tmp_path):
  import torch
  import transformers

  torch.manual_seed(0)
  config = transformers.GPT2Config(**oracles.GPT2, tie_word_embeddings=tied)
  model = transformers.GPT2LMHeadModel(config).eval()
  with torch.no_grad():
    for parameter in model.parameters():
      parameter.normal_(0, 0.3)
    model.save_pretrained(tmp_path)
    # In float64: of float32 it has an error of its own, 3e-5 here.
    want = model.double()(torch.from_numpy(TOKENS)).logits.numpy()
  got = bundles.logits(read(tmp_path), TOKENS)
  np.testing.assert_allclose(got, want, rtol=0, atol=1e-5)
  state = model.float().state_dict()
  (tmp_path / 'model.safetensors').unlink()
  torch.save(state, tmp_path / 'pytorch_model.bin')
  np.testing.assert_array_equal(bundles.logits(read(tmp_path), TOKENS), got)


def test_its_own_tokenizer(tmp_path):
  theirs = tokenizers.ByteLevelBPETokenizer()
  text = 'low lower lowest, new newer newest; wide wider widest — naïve'
  theirs.train_from_iterator([text] * 4, vocab_size=300, min_frequency=2)
  theirs.add_tokens([standard_tokenizer.BOUNDARY])
  vocabulary = theirs.get_vocab()
  V = len(vocabulary)
  rng = np.random.default_rng(0)
  state = oracles.draw_gpt2()
  state['wte.weight'] = rng.normal(size=(V, 12)).astype(np.float32)
  folder = write(tmp_path / 'model', state, vocab_size=V)
  theirs.save_model(str(folder))
  (folder / 'vocab.json').write_text(json.dumps(vocabulary))
  bundle = read(folder)
  for words in (text, '  two  spaces\n\n12345 déjà vu', ''):
    ids = bundle.tokenizer.encode(words)
    assert ids.tolist() == theirs.encode(words).ids
    assert bundle.tokenizer.decode(ids) == words
  assert bundle.tokenizer.boundary == vocabulary[standard_tokenizer.BOUNDARY]
  assert bundle.config.data.tokenizer == 'bpe'
  with pytest.raises(errors.InputError, match='vocab_size=61, and the .* 2'):
    read(write(folder, oracles.draw_gpt2()))
  (folder / 'vocab.json').write_text('{"a": 0}')
  with pytest.raises(errors.InputError, match='endoftext.*=None is not the l'):
    read(folder)


def test_another_model_is_refused_by_name(tmp_path):
  state = oracles.draw_gpt2()
  for key, value in (
    ('n_head', 5),
    ('scale_attn_by_inverse_layer_idx', True),
    ('activation_function', 'silu'),
    ('n_layer', None),
  ):
    with pytest.raises(errors.InputError, match=f'{key}={value!r}'):
      read(write(tmp_path / 'model', state, **{key: value}))
  folder = tmp_path / 'model'
  (folder / 'config.json').write_text('{')
  with pytest.raises(errors.InputError, match='config.json is damaged'):
    read(folder)
  (folder / 'config.json').unlink()
  with pytest.raises(errors.InputError, match='config.json: No such file'):
    read(folder)


def test_tensors_that_do_not_fit_are_named(tmp_path):
  state = oracles.draw_gpt2()
  del state['wte.weight']
  state['h.1.mlp.c_fc.weight'] = state['h.1.mlp.c_fc.weight'].T
  with pytest.raises(errors.InputError) as caught:
    read(write(tmp_path / 'model', state))
  message = str(caught.value)
  assert 'h.1.mlp.c_fc.weight: (48, 12), expected (12, 48)' in message
  assert 'transformer.wte.weight: missing, expected (61, 12)' in message
  (tmp_path / 'model' / 'model.safetensors').unlink()
  with pytest.raises(errors.InputError, match='it has no model.safetensors'):
    read(tmp_path / 'model')


def test_a_config_adds_data_and_training(tmp_path):
  raw = config_lib.default()
  raw.data.length = 16
  raw.optimizer.learning_rate = 0.5
  folder = write(tmp_path / 'model', oracles.draw_gpt2())
  raw.sample.new_tokens = 4
  bundle = read(folder, config=config_lib.parse(raw))
  assert bundle.config.optimizer.learning_rate == 0.5
  assert (
    bundle.config.cell.window == 16 and bundle.config.model.max_positions == 24
  )
