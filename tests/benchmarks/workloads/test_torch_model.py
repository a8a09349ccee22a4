"""PyTorch's SimpleRNN has our numbers, and both have those of float64 NumPy."""

import jax
import numpy as np
import pytest

from benchmarks.workloads import inputs
from benchmarks.workloads import published_model

ROWS, LENGTH = 2, 9


@pytest.fixture(scope='module', name='ours')
def _ours():
  """Our parameters, tokens and logits, and the gradients of a mean loss."""
  task = published_model.make_task(ROWS, LENGTH)
  params = published_model.init(task)
  batch = published_model.make_batch(ROWS, LENGTH)

  def loss(params):
    objective, (sums, _) = task.loss(params, task.init_state(ROWS), batch)
    return objective / sums['weight']

  _, logits = task.model.apply(
    {'params': params}, task.init_state(ROWS), batch.tokens_BxL
  )
  gradients = jax.jit(jax.grad(loss))(params)
  return jax.device_get((params, logits, gradients))


def test_the_model_has_the_published_size(ours):
  params, *_ = ours
  assert published_model.count(params, 189_504) == 189_504
  with pytest.raises(RuntimeError, match='189,504 weights, not 3'):
    published_model.count(params, 3)


def test_our_logits_are_those_of_the_equations(ours):
  params, logits, _ = ours
  want = equations(params, inputs.tokens(ROWS, LENGTH)[:, :-1])
  assert relative(logits, want) < 2e-6  # measured: 3e-7


@pytest.mark.peers
@pytest.mark.parametrize('checkpointed', (False, True))
@pytest.mark.parametrize('loop', ('indexed', 'history', 'careful', 'compiled'))
def test_their_logits_and_gradients_are_ours(ours, loop, checkpointed):
  import torch

  from benchmarks.workloads import torch_simple_rnn

  params, want, gradients = ours
  options = torch_simple_rnn.Options(
    loop=loop, fused=True, checkpointed=checkpointed
  )
  network = torch_simple_rnn.LanguageModel(options)
  load(network, params)
  drawn = torch.from_numpy(inputs.tokens(ROWS, LENGTH)).long()
  got, _ = network(drawn[:, :-1], network.init_state(ROWS))
  assert relative(got.detach().numpy(), want) < 2e-6
  torch.nn.functional.cross_entropy(
    got.flatten(0, 1), drawn[:, 1:].flatten()
  ).backward()
  theirs = torch_simple_rnn.LanguageModel(options)
  load(theirs, gradients)
  pairs = zip(network.parameters(), theirs.parameters(), strict=True)
  for parameter, gradient in pairs:
    assert relative(parameter.grad.numpy(), gradient.detach().numpy()) < 2e-5


@pytest.mark.peers
@pytest.mark.parametrize('fused', (False, True))
@pytest.mark.parametrize('loop', ('indexed', 'history', 'careful'))
def test_stepwise_generation_is_that_of_a_full_rerun(loop, fused):
  import torch

  from benchmarks.workloads import torch_model
  from benchmarks.workloads import torch_simple_rnn

  torch.manual_seed(0)
  options = torch_simple_rnn.Options(loop=loop, fused=fused)
  network = torch_simple_rnn.LanguageModel(options)
  assert sum(x.numel() for x in network.parameters()) == 189_504
  prompt = torch.from_numpy(inputs.tokens(1, LENGTH)[:, :-1]).long()
  made = [
    way(network, prompt, 6) for way in (torch_model.rerun, torch_model.stepwise)
  ]
  assert made[0].shape == (1, LENGTH + 6)
  assert torch.equal(*made)


def load(network, params):
  """Copies our parameters into a network whose projections are fused."""
  import torch

  state = {'embedding.weight': params['embedding']['embedding']}
  _put(state, 'head', params['head'])
  cell = params['stack']['blocks']['cell']
  for n in range(network.options.layers):
    for theirs, ours in (('projections.0', 'projection'), ('output', 'output')):
      one = {leaf: x[n] for leaf, x in cell[ours].items()}
      _put(state, f'layers.{n}.{theirs}', one)
  network.load_state_dict(
    {k: torch.from_numpy(v.copy()) for k, v in state.items()}
  )


def _put(state, name, dense):
  state[f'{name}.weight'] = dense['kernel'].T
  state[f'{name}.bias'] = dense['bias']


def relative(got, want):
  return np.max(np.abs(np.float64(got) - want)) / np.max(np.abs(want))


def equations(params, tokens):
  """Logits of the published equations, a loop in float64."""
  params = jax.tree.map(np.float64, params)
  cell = params['stack']['blocks']['cell']
  x = params['embedding']['embedding'][tokens]
  for n in range(2):
    weights = {
      name: (dense['kernel'][n], dense['bias'][n])
      for name, dense in cell.items()
    }
    projected = x @ weights['projection'][0] + weights['projection'][1]
    q, k, g, v = np.split(projected, [32, 64, 96], -1)
    k, g = 1 / (1 + np.exp(-k)), 1 / (1 + np.exp(-g))
    state, y = np.zeros((len(tokens), 32, 64)), []
    for t in range(tokens.shape[1]):
      state = g[:, t, :, None] * state + k[:, t, :, None] * v[:, t, None]
      y.append(np.einsum('bkp,bk->bp', state, q[:, t]))
    x = np.stack(y, 1) @ weights['output'][0] + weights['output'][1]
  return x @ params['head']['kernel'] + params['head']['bias']
