"""Conversations step back and fork from stored states: what is read then."""

import numpy as np
import pytest

from rnn_jax.data.text import turns
from tests.serving import models

TURNS = 20
END = models.CHARACTERS.boundary


@pytest.fixture(name='served')
def _served():
  return models.make(models.generator(asks=True))


def say(served, ids, text):
  """The ids of a conversation with another turn."""
  said = turns.alternate([text])
  more = served.model().prompts.encode_turns(said, True if len(ids) else None)
  return np.concatenate([ids, more]).astype(np.int32)


def answer(served, ids, **changes):
  """(the ids with an answer, the tokens read before its first token)."""
  asked = models.ask(ids, **{'max_new_tokens': 8} | changes)
  handle = models.submit(served, asked)
  models.finish(served, [handle])
  reply = handle.result()
  made = np.array(reply.completions[0].tokens, np.int32)
  if made[-1] != END:
    made = np.append(made, np.int32(END))
  read = reply.prompt_tokens - reply.cached_tokens
  return np.concatenate([ids, made]), read


def idle(served):
  while served.step():
    pass


def test_an_edit_of_the_last_turn_reads_that_turn_only(served):
  ids, before = np.zeros(0, np.int32), None
  for n in range(TURNS):
    before = ids
    asked = say(served, ids, 'abcdefgh'[: 2 + n % 6] * 2)
    ids, _ = answer(served, asked, seed=n)
    idle(served)  # the answer is read
  edited = say(served, before, 'hgfed')
  cold = models.make(models.generator(asks=True), prefix_bytes=0)
  again, read = answer(served, edited)
  wanted, whole = answer(cold, edited)
  np.testing.assert_array_equal(again, wanted)
  assert whole == len(edited)
  assert read == len(edited) - len(before)
  assert read <= 0.05 * whole
  # Another answer to the turn, as it was and as it is now.
  for turn in (asked, edited):
    regenerated, read = answer(served, turn, seed=77)
    assert read == 0
    np.testing.assert_array_equal(regenerated, answer(cold, turn, seed=77)[0])


def test_choices_read_their_prompt_once(served):
  ids = say(served, np.zeros(0, np.int32), 'abcdefgh' * 4)
  before = served.stats().read_tokens
  (reply,) = served.generate([ids], models.ask(n=7, max_new_tokens=5)[1])
  assert len(reply.completions) == 7
  assert served.stats().read_tokens - before == len(ids)
  # Each of them may be continued: all are read from the prompt's end on.
  idle(served)
  for completion, letter in zip(reply.completions, 'abcdefg', strict=True):
    said = np.array(completion.tokens, np.int32)
    if said[-1] != END:
      said = np.append(said, np.int32(END))
    turn = say(served, np.concatenate([ids, said]), letter)
    _, read = answer(served, turn)
    assert read == len(turn) - len(ids) - len(said)
