"""torch.nn.LSTM and torch.nn.GRU: outputs, states and gradients, both ways."""

import importlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rnn_jax.cells import base
from rnn_jax.interop import torch_cells
from rnn_jax.native import library
from tests.support import draws

B, L, D = 2, 9, 5
LAYERS = 2
CLOSE = 2e-6  # measured: 4e-7, of the largest number of each array
CELLS = tuple(torch_cells.GATES)


def theirs(cell, **options):
  """A module of PyTorch with biases that are not zero."""
  import torch

  torch.manual_seed(0)
  return {'lstm': torch.nn.LSTM, 'gru': torch.nn.GRU}[cell](
    D, D, LAYERS, batch_first=True, **options
  )


def ours(cell, impl, layers, states, x):
  """The layers in sequence: (the last states, y)."""
  module = importlib.import_module(f'rnn_jax.cells.{cell}')
  made, last = module.Cell(module.Config(), D, base.Plan(impl)), []
  for params, state in zip(layers, states, strict=True):
    end, x = made.apply({'params': params}, state, x)
    last.append(end)
  return last, x


def first_states(cell):
  """States of each layer that are not zero, as ours."""
  module = importlib.import_module(f'rnn_jax.cells.{cell}')
  fields = len(module.State._fields)
  return [
    module.State(*draws.normal(fields, B, D, seed=n)) for n in range(LAYERS)
  ]


def as_torch(states):
  """Ours as PyTorch's: h, or (h, c), stacked over layers."""
  import torch

  stacked = [torch.tensor(np.stack(x)) for x in zip(*states, strict=True)]
  for x in stacked:
    x.requires_grad_()
  return stacked


def assert_close(got, want):
  want = np.asarray(want.detach() if hasattr(want, 'detach') else want)
  atol = CLOSE * abs(want).max()
  np.testing.assert_allclose(got, want, rtol=0, atol=atol)


@pytest.mark.peers
@pytest.mark.parametrize('cell', CELLS)
@pytest.mark.parametrize('impl', ('scan', 'native'))
def test_outputs_states_and_gradients_are_pytorch_s(cell, impl):
  if impl == 'native' and (why := library.lacking()):
    pytest.skip(why)
  import torch

  module, x, states = theirs(cell), draws.normal(B, L, D), first_states(cell)
  layers = torch_cells.from_torch(cell, module.state_dict())

  @jax.jit
  def both_ways(*inputs):
    (last, y), back = jax.vjp(lambda *z: ours(cell, impl, *z), *inputs)
    return (last, y), back(jax.tree.map(jnp.cos, (last, y)))

  (last, y), (d_layers, d_states, d_x) = both_ways(layers, states, x)
  given, x = as_torch(states), torch.tensor(np.asarray(x), requires_grad=True)
  wanted_y, ends = module(x, tuple(given) if len(given) > 1 else given[0])
  ends = ends if isinstance(ends, tuple) else (ends,)
  # Its gradient is the cosine that was given to ours.
  sum(torch.sin(out).sum() for out in (wanted_y, *ends)).backward()

  assert_close(y, wanted_y)
  assert_close(d_x, x.grad)
  for n, end in enumerate(ends):
    assert_close(np.stack([state[n] for state in last]), end)
    assert_close(np.stack([state[n] for state in d_states]), given[n].grad)
  gradients = {n: p.grad.numpy() for n, p in module.named_parameters()}
  for n, result in enumerate(d_layers):
    own = {key.removesuffix(f'_l{n}'): x for key, x in gradients.items()}
    assert_close(result['projection']['kernel'].T, own['weight_ih'])
    assert_close(result['recurrent']['kernel'].T, own['weight_hh'])
    assert_close(result['projection']['bias'], own['bias_ih'])
    if cell == 'gru':
      assert_close(result['candidate_bias'], own['bias_hh'][2 * D :])


@pytest.mark.peers
@pytest.mark.parametrize('cell', CELLS)
def test_weights_survive_a_round_trip_through_pytorch(cell):
  import torch

  module, other = theirs(cell), theirs(cell)
  layers = torch_cells.from_torch(cell, module.state_dict())
  written = torch_cells.to_torch(cell, layers)
  other.load_state_dict({n: torch.tensor(x) for n, x in written.items()})
  x = torch.tensor(np.asarray(draws.normal(B, L, D)))
  assert_close(other(x)[0].detach().numpy(), module(x)[0])
  for name, tensor in module.state_dict().items():
    if name.startswith('weight'):
      assert np.array_equal(written[name], tensor.numpy())
  again = torch_cells.from_torch(cell, written)
  for a, b in zip(*map(jax.tree.leaves, (again, layers)), strict=True):
    assert np.array_equal(a, b)


def tensors(cell='lstm', S=3, **changes):
  gates = torch_cells.GATES[cell]
  made = {
    'weight_ih_l0': np.ones((gates * S, 2)),
    'weight_hh_l0': np.ones((gates * S, S)),
  }
  return made | changes


def test_without_biases_they_are_zeros():
  (params,) = torch_cells.from_torch('gru', tensors('gru'))
  assert not params['projection']['bias'].any()
  assert params['projection']['kernel'].shape == (2, 9)
  assert not params['candidate_bias'].any()


@pytest.mark.parametrize(
  ('cell', 'given', 'message'),
  (
    ('rnn', tensors(), r"cell='rnn': PyTorch has \['lstm', 'gru'\]"),
    ('lstm', {}, "no 'weight_ih_l0'"),
    (
      'lstm',
      tensors(weight_ih_l0_reverse=np.ones((12, 2))),
      'a lstm of two directions: call both_from_torch',
    ),
    (
      'lstm',
      tensors(weight_hr_l0=np.ones((1, 3))),
      "'weight_hr_l0' is unknown",
    ),
    ('gru', tensors(), r'weight_hh_l0 has shape \(12, 3\), not \(9, 3\)'),
    ('lstm', tensors(bias_ih_l0=np.ones(3)), r'bias_ih_l0 has shape \(3,\)'),
  ),
)
def test_another_module_is_refused_by_name(cell, given, message):
  with pytest.raises(ValueError, match=message):
    torch_cells.from_torch(cell, given)


def test_a_missing_direction_is_refused_by_name():
  with pytest.raises(ValueError, match="'weight_hh_l0' is there in one"):
    torch_cells.both_from_torch(
      'lstm', tensors(weight_ih_l0_reverse=np.ones((12, 2)))
    )


def test_a_cell_that_pytorch_lacks_is_refused():
  (params,) = torch_cells.from_torch('lstm', tensors())
  params['output'] = {'kernel': np.ones((3, 2))}
  with pytest.raises(
    ValueError, match=r"layers\[0\].*no 'output'.*state_width"
  ):
    torch_cells.to_torch('lstm', [params])
