"""Llama, Mistral and Qwen2: the logits of the equations."""

import numpy as np
import pytest

from tests.interop import oracles
from tests.interop.formats.hf import folders
from tests.support import bundles

TOKENS = np.random.default_rng(1).integers(0, folders.V, (2, 24))
QKV = ('q_proj', 'k_proj', 'v_proj')
ALL = (*QKV, 'o_proj', 'gate_proj', 'up_proj', 'down_proj')
CASES = {
  'llama': ({}, ()),
  'biased': ({'attention_bias': True, 'mlp_bias': True}, ALL),
  'qwen2': ({'model_type': 'qwen2', 'tie_word_embeddings': True}, QKV),
  'mistral': ({'model_type': 'mistral', 'sliding_window': 5}, ()),
}


@pytest.mark.parametrize('case', CASES)
def test_the_logits_of_the_equations(case, tmp_path):
  keys, biases = CASES[case]
  keys = folders.LLAMA | keys
  state = folders.llama(biases=biases)
  if keys['tie_word_embeddings']:
    del state['lm_head.weight']
  folder = folders.write(tmp_path / 'in', keys, state)
  bundle = folders.read(folder)
  want = oracles.llama(state, TOKENS, keys)
  np.testing.assert_allclose(
    bundles.logits(bundle, TOKENS), want, rtol=0, atol=1e-5
  )
  folders.assert_same(folders.export(bundle, tmp_path / 'out'), folder)
