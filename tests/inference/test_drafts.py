"""Texts with drafts are those without, to the bit."""

import jax
import numpy as np
import pytest

from rnn_jax import errors
from rnn_jax.inference import decode
from rnn_jax.inference import drafts
from rnn_jax.inference import generate
from rnn_jax.inference import prompt_lookup
from rnn_jax.inference import sampling
from tests.inference import tables
from tests.inference import test_rows as rows
from tests.models import test_packed_weights as models
from tests.serving import models as served

pytestmark = pytest.mark.native
COUNT = 24
DRAFTED = 3
ROWS = 3
PROMPT = np.array([1, 2, 3, 1, 2, 3, 1], np.int32)


def start(model, weights):
  """Rows that have read PROMPT, token by token."""
  carry = decode.empty(model, ROWS)._replace(memory=None)
  step = jax.jit(decode.stepping(model, weights))
  state, logits = carry.state, carry.logits_BxV
  for token in PROMPT:
    state, logits = step(state, np.full(ROWS, token, np.int32))
  return carry._replace(state=state, logits_BxV=logits)


@pytest.mark.parametrize(
  ('name', 'temperature', 'states'),
  (
    ('simple_rnn improved', 0.4, 'float32'),
    ('simple_rnn coupled', 0.0, 'float32'),
    ('mamba2', 0.0, 'bfloat16'),
    ('lstm', 0.4, 'float32'),
    ('rwkv7', 0.4, 'bfloat16'),
    ('hybrid', 0.4, 'float32'),
    ('experts', 0.4, 'float32'),
    ('latent_attention', 0.4, 'float32'),
    ('attention of 8 steps', 0.4, 'float32'),
  ),
)
def test_drafts_change_no_bit(name, temperature, states):
  model, params = rows.build(name, 'float32', states, models.initial)
  weights, count = decode.Weights(params), np.int32(COUNT)
  settings = sampling.Sampling(temperature=temperature)
  options = decode.Options(settings.kind(models.V), COUNT)
  table = tables.packed(settings, range(ROWS), seed=1)
  carry = start(model, weights)
  _, wanted = decode.decode(model, options, weights, carry, table, count)
  past = prompt_lookup.history([PROMPT] * ROWS, COUNT + DRAFTED + 1)
  _, past, runs, got = drafts.decode(
    model,
    options,
    prompt_lookup.Lookup(DRAFTED),
    weights,
    start(model, weights),
    jax.device_put(past),
    table,
    drafts.Limits(count, count),
  )
  for x, y in zip(got, wanted, strict=True):
    np.testing.assert_array_equal(x, y)
  if not temperature and states == 'float32':  # texts repeat
    assert runs.checks <= runs.all < COUNT - 3
  for tokens_H, length, made in zip(*past, got.tokens_BxN, strict=True):
    np.testing.assert_array_equal(tokens_H[: len(PROMPT)], PROMPT)
    np.testing.assert_array_equal(tokens_H[len(PROMPT) : length], made)


def test_a_generator_drafts_with_the_same_bits():
  """Rows end at boundaries, limits and stop strings of their own."""
  made = served.generator(weights='int8')
  prompts = ['abcabcab', 'a', 'ghghgh']
  for settings in (sampling.Sampling(0.0), sampling.Sampling(0.3, top_k=5)):
    given = {'max_new_tokens': 30, 'sampling': settings, 'stop': ('aa', '9')}
    wanted = made.generate(prompts, generate.Options(**given))
    drafted = made.generate(prompts, generate.Options(draft_tokens=4, **given))
    assert drafted.completions == wanted.completions
    assert drafted.timing.draft_calls > 0 == wanted.timing.draft_calls


@pytest.mark.parametrize(
  ('changes', 'message'),
  (
    ({}, 'draft_tokens=4: .*batch_invariant=True'),
    ({'min_new_tokens': 2}, 'draft_tokens=4: .*: give 0'),
    ({'draft_tokens': 17}, 'draft_tokens=17: give 0 to 16'),
  ),
)
def test_what_cannot_be_drafted_is_refused(changes, message):
  with pytest.raises(errors.InputError, match=message):
    options = generate.Options(**{'draft_tokens': 4} | changes)
    served.generator().generate(['ab'], options)
