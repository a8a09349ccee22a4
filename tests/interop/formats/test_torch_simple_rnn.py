"""The published PyTorch model, in and out."""

import pathlib

import numpy as np
import pytest

from rnn_jax import config as config_lib
from rnn_jax import errors
from rnn_jax.data.text import tokenizer as tokenizer_lib
from rnn_jax.interop import request
from rnn_jax.interop import tensors
from rnn_jax.interop.formats import torch_simple_rnn
from tests.interop import oracles
from tests.support import bundles

TOKENS = np.random.default_rng(1).integers(0, 21, (2, 9))


def read(path, raw, tokenizer=None):
  config = config_lib.parse(raw)
  return torch_simple_rnn.read(request.Source(path, config, tokenizer))


@pytest.mark.parametrize(('heads', 'fused'), ((1, True), (2, False)))
def test_a_state_dict_has_the_logits_of_the_equations(tmp_path, heads, fused):
  state = oracles.draw_simple_rnn(21, 10, 4 * heads, 6 * heads, fused=fused)
  path = tmp_path / 'model.safetensors'
  tensors.write(path, state)
  bundle = read(path, bundles.raw_published(heads, preset='modified'))
  want = oracles.simple_rnn(state, TOKENS, heads, 'modified')
  # Measured: 2.8e-7 of logits up to 1.2.
  np.testing.assert_allclose(
    bundles.logits(bundle, TOKENS), want, rtol=0, atol=1e-5
  )
  assert bundle.tokenizer.size == 21


@pytest.mark.parametrize(('heads', 'fused'), ((1, False), (2, True)))
def test_what_is_written_is_read_by_the_equations_and_comes_back(
  tmp_path, heads, fused
):
  raw = bundles.raw_published(heads, fused)
  bundle = bundles.make(raw)
  path = tmp_path / 'model.safetensors'
  torch_simple_rnn.write(bundle, request.Target(path))
  state = tensors.read(path)
  assert ('layers.1.proj.weight' in state) == fused
  assert ('layers.1.gate_proj.bias' in state) != fused
  want = oracles.simple_rnn(state, TOKENS, heads)
  got = bundles.logits(bundle, TOKENS)
  # Measured: 2.5e-7 of logits up to 3.2.
  np.testing.assert_allclose(got, want, rtol=0, atol=1e-5)
  bundles.assert_same(read(path, raw), bundle)
  # The other naming of the same model is read as well.
  raw.cell.fused = not fused
  torch_simple_rnn.write(read(path, raw), request.Target(path))
  renamed = tensors.read(path)
  assert {*renamed} != {*state}
  np.testing.assert_allclose(
    oracles.simple_rnn(renamed, TOKENS, heads), want, rtol=0, atol=1e-12
  )


def test_a_first_layer_of_another_width(tmp_path):
  raw = bundles.raw_published()
  raw.model.embedding_width = 7
  bundle = bundles.make(raw)
  path = tmp_path / 'model.safetensors'
  torch_simple_rnn.write(bundle, request.Target(path))
  state = tensors.read(path)
  assert state['layers.0.proj.weight'].shape == (18, 7)
  np.testing.assert_allclose(
    bundles.logits(bundle, TOKENS),
    oracles.simple_rnn(state, TOKENS),
    rtol=0,
    atol=1e-5,
  )
  bundles.assert_same(read(path, raw), bundle)


@pytest.mark.peers
def test_the_tensors_of_pytorch_itself(tmp_path):
  import torch

  state = oracles.draw_simple_rnn(21, 10, 4, 6)
  theirs = {name: torch.from_numpy(x) for name, x in state.items()}
  torch.save({'model_state_dict': theirs, 'epoch': 3}, tmp_path / 'a.pt')
  raw = bundles.raw_published(fused=False)
  bundle = read(tmp_path / 'a.pt', raw)
  torch_simple_rnn.write(bundle, request.Target(tmp_path / 'b.pt'))
  back = torch.load(tmp_path / 'b.pt', weights_only=True)
  assert {*back} == {*theirs}
  assert all(torch.equal(back[name], theirs[name]) for name in back)


@pytest.mark.peers
def test_the_logits_of_modules_of_pytorch(tmp_path):
  import torch

  from benchmarks.workloads import torch_simple_rnn as peer

  torch.manual_seed(0)
  sizes = {'vocabulary': 21, 'width': 10, 'key_width': 4, 'value_width': 6}
  model = peer.LanguageModel(peer.Options(fused=True, **sizes))
  renamed = {
    name.replace('projections.0', 'proj')
    .replace('output', 'out_proj')
    .replace('head', 'lm_head'): x
    for name, x in model.state_dict().items()
  }
  torch.save(renamed, tmp_path / 'model.pt')
  bundle = read(tmp_path / 'model.pt', bundles.raw_published())
  with torch.no_grad():
    want, _ = model(torch.from_numpy(TOKENS), model.init_state(2))
  np.testing.assert_allclose(
    bundles.logits(bundle, TOKENS), want.numpy(), rtol=0, atol=1e-5
  )


@pytest.mark.peers
def test_a_pickle_of_other_things_is_refused_and_not_run(tmp_path):
  import torch

  path = tmp_path / 'model.pt'
  torch.save({'path': pathlib.Path('x')}, path)
  with pytest.raises(errors.InputError, match="t a file of PyTorch's tensors"):
    read(path, bundles.raw_published())
  torch.save({'epoch': 3}, path)
  with pytest.raises(errors.InputError, match='things than named tensors'):
    read(path, bundles.raw_published())


def test_tensors_that_do_not_fit_are_named_with_both_shapes(tmp_path):
  state = oracles.draw_simple_rnn(21, 10, 4, 6)
  del state['layers.1.out_proj.bias']
  state['layers.0.gate_proj.weight'] = np.zeros((5, 10), np.float32)
  state['strange'] = np.zeros((2, 3), np.float32)
  path = tmp_path / 'model.safetensors'
  tensors.write(path, state)
  with pytest.raises(errors.InputError) as caught:
    read(path, bundles.raw_published())
  message = str(caught.value)
  assert 'layers.1.out_proj.bias: missing, expected (10,)' in message
  assert 'layers.0.gate_proj.weight: (5, 10), expected (4, 10)' in message
  assert 'strange: (2, 3), expected none' in message
  assert message.count('expected') == 3


@pytest.mark.parametrize(
  ('changes', 'message'),
  (
    ({'model.block': 'residual'}, "model.block='residual': .* has 'plain'"),
    ({'cell.preset': 'improved'}, "cell.preset='improved': .*'simple' or 'mod"),
    ({'cell.attention': 'dot'}, "cell.attention='dot'"),
    ({'model.tied': True}, 'model.tied=True'),
  ),
)
def test_another_model_is_refused_both_ways(tmp_path, changes, message):
  raw = bundles.raw_published()
  raw.update_from_flattened_dict(changes)
  path = tmp_path / 'model.safetensors'
  with pytest.raises(errors.InputError, match=message):
    read(path, raw)
  with pytest.raises(errors.InputError, match=message):
    torch_simple_rnn.write(bundles.make(raw), request.Target(path))
  assert not path.exists()


def test_a_config_and_a_matching_tokenizer_are_required(tmp_path):
  state = oracles.draw_simple_rnn(21, 10, 4, 6)
  path = tmp_path / 'model.safetensors'
  tensors.write(path, state)
  with pytest.raises(errors.InputError, match='--config is missing'):
    torch_simple_rnn.read(request.Source(path))
  letters = tokenizer_lib.Characters('abc')
  with pytest.raises(
    errors.InputError, match=r'embedding.weight: \(21, 10\), expected \(5, 10\)'
  ):
    read(path, bundles.raw_published(), letters)
  fitting = tokenizer_lib.Characters('abcdefghijklmnopqrs')
  bundle = read(path, bundles.raw_published(), fitting)
  assert bundle.config.data.tokenizer == 'characters'
