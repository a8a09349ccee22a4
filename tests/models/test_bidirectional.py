"""Blocks that read a text in both directions, against PyTorch's and alone."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rnn_jax import config as config_lib
from rnn_jax.cells import base
from rnn_jax.data.text import tokenizer as tokenizer_lib
from rnn_jax.inference import classify
from rnn_jax.interop import torch_cells
from rnn_jax.models import classifier
from rnn_jax.models import language_model
from rnn_jax.models import stack as stack_lib
from rnn_jax.ops import precision
from tests.support import draws

D, F = 5, 4
LENGTHS = (7, 4, 1)
CLOSE = 2e-6  # measured: 2.3e-7, of the largest number of each array
# The texts in a row each with padding, and in one row.
ROWS = {'padded': (3, 7, (0, 7, 14)), 'packed': (1, 14, (0, 7, 11))}


def assert_close(got, want):
  want = np.asarray(want)
  np.testing.assert_allclose(got, want, rtol=0, atol=CLOSE * abs(want).max())


def build(kind, layers):
  """A stack whose blocks are PyTorch's, of texts of width D."""
  cell = kind.lower()
  module = config_lib.load('cells', cell, 'model.cell')
  model = config_lib.Model(
    cell=cell,
    block='plain',
    layers=layers,
    width=2 * F,
    embedding_width=D,
    bidirectional=True,
  )
  return stack_lib.Stack(
    model, module.Config(), base.Plan(), precision.POLICIES['float32']
  )


def of_blocks(both):
  """PyTorch's layers as the parameters of a stack."""
  first, *rest = (
    {'cell': one.forward, 'backward_cell': one.backward} for one in both
  )
  params = {'first': first}
  if rest:
    params['blocks'] = jax.tree.map(lambda *x: np.stack(x), *rest)
  return params


def layers_of(params):
  """The inverse of `of_blocks`."""
  count = 0
  if 'blocks' in params:
    count = len(jax.tree.leaves(params['blocks'])[0])
  blocks = [params['first']] + [
    jax.tree.map(lambda x, n=n: np.asarray(x[n]), params['blocks'])
    for n in range(count)
  ]
  return [torch_cells.Both(x['cell'], x['backward_cell']) for x in blocks]


def laid(texts, rows):
  """Texts in rows: (x_BxLx_, starts_BxL, where each text is)."""
  B, L, at = ROWS[rows]
  x = np.zeros((B * L, texts[0].shape[-1]), np.float32)
  starts = np.zeros(B * L, np.int32)
  where = [np.arange(n) + begin for n, begin in zip(LENGTHS, at, strict=True)]
  for text, steps in zip(texts, where, strict=True):
    x[steps] = text
    starts[steps[0]] = 1
    if steps[-1] + 1 < B * L:
      starts[steps[-1] + 1] = -1
  # A text that follows at once begins there.
  starts[[*at]] = 1
  return x.reshape(B, L, -1), starts.reshape(B, L), np.concatenate(where)


@pytest.mark.peers
@pytest.mark.parametrize(('kind', 'layers'), (('LSTM', 3), ('GRU', 1)))
def test_texts_of_any_rows_are_pytorch_s(kind, layers):
  import torch

  torch.manual_seed(0)
  module = getattr(torch.nn, kind)(
    D, F, layers, batch_first=True, bidirectional=True
  )
  both = torch_cells.both_from_torch(kind.lower(), module.state_dict())
  stack, params = build(kind, layers), of_blocks(both)
  texts = [draws.normal(n, D, seed=n) for n in LENGTHS]

  given = [torch.tensor(x, requires_grad=True) for x in texts]
  utils = torch.nn.utils.rnn
  packed = utils.pack_sequence(given, enforce_sorted=True)
  want = utils.unpack_sequence(module(packed)[0])
  # Its gradient is the cosine that is given to ours.
  sum(torch.sin(y).sum() for y in want).backward()
  want = np.concatenate([y.detach().numpy() for y in want])
  wanted_x = np.concatenate([x.grad.numpy() for x in given])
  gradients = {n: p.grad.numpy() for n, p in module.named_parameters()}

  for rows in ROWS:
    x, starts, where = laid(texts, rows)

    @jax.jit
    def both_ways(params, x, starts=starts, where=where):
      def run(params, x):
        state = stack.init_state(len(x))
        _, y = stack.apply({'params': params}, state, x, starts)
        return y.reshape(-1, 2 * F)[where]

      y, pull = jax.vjp(run, params, x)
      return y, pull(jnp.cos(y))

    y, (d_params, d_x) = both_ways(params, x)
    assert_close(y, want)
    assert_close(d_x.reshape(-1, D)[where], wanted_x)
    for n, layer in enumerate(layers_of(d_params)):
      for own, end in ((layer.forward, ''), (layer.backward, '_reverse')):
        for ours, theirs in (('projection', 'ih'), ('recurrent', 'hh')):
          kernel = gradients[f'weight_{theirs}_l{n}{end}']
          assert_close(own[ours]['kernel'].T, kernel)
        bias = gradients[f'bias_ih_l{n}{end}']
        assert_close(own['projection']['bias'], bias)
  written = torch_cells.both_to_torch(kind.lower(), layers_of(params))
  for name, tensor in module.state_dict().items():
    if name.startswith('weight'):
      assert np.array_equal(written[name], tensor.numpy())
  again = torch_cells.both_from_torch(kind.lower(), written)
  assert jax.tree.all(jax.tree.map(np.array_equal, again, both))


@functools.cache
def classify_with(cell):
  """A classifier with all pools, norms and an MLP, and its parameters."""
  raw = config_lib.default(cell)
  raw.task.update(name='classification', pooling='concat')
  raw.data.classes = ('bad', 'good')
  raw.model.update(width=8, layers=2, mlp_width=8, bidirectional=True)
  if cell == 'rwkv7':  # whose first layer's values go from layer to layer
    raw.cell.update(heads=2, key_width=4, value_width=4, rank=2)
    raw.cell.value_residual = True
  model = classifier.from_config(
    config_lib.parse(raw), tokenizer_lib.Numbers(11)
  )
  state = model.apply({}, 1, method='init_state')
  tokens = np.zeros((1, 2), np.int32)
  return model, draws.parameters(model.init, state, tokens)


@pytest.mark.parametrize('cell', ('gru', 'rwkv7'))
def test_a_text_s_logits_depend_on_all_of_it_and_on_nothing_else(cell):
  model, variables = classify_with(cell)
  rng = np.random.default_rng(0)
  texts = [rng.integers(1, 11, (n, 1)).astype(np.float32) for n in LENGTHS]

  @jax.jit
  def run(tokens, starts):
    state = model.apply({}, len(tokens), method='init_state')
    return model.apply(variables, state, tokens, starts)[1]

  ends, answers = np.cumsum(LENGTHS) - 1, {}
  for rows in ROWS:
    x, starts, where = laid(texts, rows)
    logits = run(x[..., 0].astype(np.int32), starts)
    answers[rows] = np.asarray(logits).reshape(-1, 2)[where][ends]
  served = classify.logits(
    model,
    variables['params'],
    [text[:, 0].astype(np.int32) for text in texts],
  )
  assert_close(answers['packed'], answers['padded'])
  assert_close(served, answers['padded'])
  # Each step of a text matters, to its own answer.
  x, starts, where = laid(texts, 'packed')
  for t in range(LENGTHS[0]):
    changed = x[..., 0].astype(np.int32)
    changed[0, t] = 1 + changed[0, t] % 10
    logits = np.asarray(run(changed, starts)).reshape(-1, 2)[where][ends]
    assert abs(logits[0] - answers['packed'][0]).max() > 1e-3
    assert_close(logits[1:], answers['packed'][1:])


def test_a_block_has_no_state():
  model, _ = classify_with('simple_rnn')
  body = language_model.LanguageModel(
    model.body.config, model.body.cell_config, 11
  )
  assert not jax.tree.leaves(body.bind({}).init_state(3))
