"""Decoding against the naive loop: a full pass over all tokens so far."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rnn_jax.inference import decode
from rnn_jax.inference import sampling
from tests.inference import models
from tests.inference import tables

GREEDY = sampling.Sampling(temperature=0)
LENGTHS = (1, 5, 70, 2)
WARM = sampling.Sampling(temperature=1.3, top_k=99)
VARIANTS = (
  {},
  {
    'model_block': 'plain',
    'model_layers': 1,
    'cell_preset': 'simple',
    'cell_heads': 1,
    'cell_attention': 'dot',
    'cell_attention_window': 7,
  },
)
TOLERANCE = {'rtol': 0, 'atol': 5e-5}  # measured: 1.3e-5 of logits up to 15


def prompts():
  draw = np.random.default_rng(0).integers
  return [draw(0, models.VOCABULARY, n).astype(np.int32) for n in LENGTHS]


def naive(model, params, prompt, count):
  """Returns count greedy tokens and the logits that each came from."""
  tokens, logits = list(prompt), []
  for _ in range(count):
    logits.append(models.full_pass(model, params, tokens)[-1])
    tokens.append(int(jnp.argmax(logits[-1])))
  return tokens[len(prompt) :], np.stack(logits)


def prefill(model, params, batch=None):
  batch = prompts() if batch is None else batch
  return decode.prefill(model, decode.Weights(params), *decode.pad(batch))


def loop(model, params, settings, carry, count, first=0, **columns):
  """Returns (carry, the tokens made) of one call."""
  rows = range(first, first + len(carry.position_B))
  options = decode.Options(settings.kind(models.VOCABULARY))
  packed = tables.packed(settings, rows, seed=3, **columns)
  weights = decode.Weights(params)
  return decode.decode(model, options, weights, carry, packed, count)


def run(model, params, settings, count, slices=1):
  """Returns the tokens of `prompts()`, made in equal slices."""
  carry = prefill(model, params)
  parts = []
  for _ in range(slices):
    carry, made = loop(model, params, settings, carry, count // slices)
    assert made.made_B.tolist() == [count // slices] * len(LENGTHS)
    parts.append(made.tokens_BxN[:, : count // slices])
  return np.concatenate(parts, 1)


@pytest.mark.parametrize('changes', VARIANTS, ids=str)
def test_padding_leaves_no_trace(changes):
  model, params = models.build(**changes)
  carry = prefill(model, params)
  for row, prompt in enumerate(prompts()):
    whole = models.full_pass(model, params, prompt)[-1]
    np.testing.assert_allclose(carry.logits_BxV[row], whole, **TOLERANCE)


@pytest.mark.parametrize('changes', VARIANTS, ids=str)
def test_greedy_tokens_and_logits_are_those_of_full_passes(changes):
  model, params = models.build(**changes)
  tokens = run(model, params, GREEDY, 12)
  carry = prefill(model, params)
  state, stepped = carry.state, [carry.logits_BxV]
  for t in range(11):
    state, logits = decode.step(model, params, state, jnp.asarray(tokens[:, t]))
    stepped.append(logits)
  for row, prompt in enumerate(prompts()):
    wanted, logits = naive(model, params, prompt, 12)
    assert tokens[row].tolist() == wanted
    np.testing.assert_allclose(np.stack(stepped)[:, row], logits, **TOLERANCE)
  assert len(np.unique(tokens)) > 8


def test_slices_make_the_tokens_of_one_call():
  model, params = models.build()
  whole = run(model, params, WARM, 12)
  np.testing.assert_array_equal(run(model, params, WARM, 12, 3), whole)
  assert len(np.unique(whole)) > 20


def test_a_row_does_not_depend_on_its_neighbours():
  model, params = models.build()
  together = run(model, params, WARM, 12)
  for row in (1, 3):  # padded less than together
    carry = prefill(model, params, prompts()[row : row + 1])
    _, single = loop(model, params, WARM, carry, 12, row)
    np.testing.assert_array_equal(single.tokens_BxN[0, :12], together[row])


def test_log_probabilities_are_the_model_s():
  model, params = models.build()
  _, made = loop(model, params, WARM, prefill(model, params), 9)
  for row, prompt in enumerate(prompts()):
    new = np.asarray(made.tokens_BxN[row, :9])
    logits = models.full_pass(model, params, [*prompt, *new])
    wanted = jax.nn.log_softmax(logits[len(prompt) - 1 : -1])
    wanted = wanted[np.arange(9), new]
    np.testing.assert_allclose(made.logprobs_BxN[row, :9], wanted, atol=1e-4)


def test_the_loop_ends_when_all_rows_are_done():
  model, params = models.build()
  tokens = run(model, params, GREEDY, 16)
  # A row ends with its own boundary or at its limit, or isn't active.
  boundary_B = [-1, -1, tokens[2, 3], -1]
  first = tokens[2].tolist().index(tokens[2, 3]) + 1
  for active_B, limit_B, made_B in (
    ([0, 0, 1, 0], 99, [0, 0, first, 0]),
    ([0, 0, 0, 0], 99, [0, 0, 0, 0]),
    ([1, 1, 1, 0], [5, 99, 99, 99], [5, 16, first, 0]),
  ):
    columns = {'active': active_B, 'limit': limit_B, 'boundary': boundary_B}
    carry = prefill(model, params)
    after, out = loop(model, params, GREEDY, carry, 16, **columns)
    assert out.made_B.tolist() == made_B
    assert after.position_B.tolist() == [max(made_B)] * 4
    np.testing.assert_array_equal(
      out.tokens_BxN[2, : made_B[2]], tokens[2, : made_B[2]]
    )


def test_the_old_state_is_donated():
  model, params = models.build()
  carry = prefill(model, params)
  after, _ = loop(model, params, GREEDY, carry, 3)
  assert all(x.is_deleted() for x in jax.tree.leaves(carry.state))
  decode.step(model, params, after.state, jnp.zeros(4, jnp.int32))
  assert all(x.is_deleted() for x in jax.tree.leaves(after.state))


def test_pad_right_aligns_prompts():
  tokens, starts = decode.pad([np.array([7, 8, 9]), np.arange(1, 67)])
  assert tokens.shape == (2, 129)
  assert tokens[0].tolist() == [0] * 126 + [7, 8, 9]
  assert tokens[1].tolist() == [0] * 63 + [*range(1, 67)]
  # Only steps of padding, and the first of the prompt, reset the state.
  assert [row.sum() for row in starts] == [127, 64]
  assert starts[0, :127].all() and starts[1, :64].all()


def test_lengths_are_few():
  lengths = [decode.pad([np.ones(n)])[0].shape[1] for n in range(1, 5000)]
  assert all(n < padded < max(n * 1.13, n + 65)
             for n, padded in enumerate(lengths))  # fmt: skip
  assert len(set(lengths)) < 40


@pytest.mark.parametrize('bad', ([], [np.array([1]), np.array([], np.int32)]))
def test_pad_refuses_nothing(bad):
  with pytest.raises(ValueError, match='one or more'):
    decode.pad(bad)
