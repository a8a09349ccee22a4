"""Answers are predicted, the rest is only read."""

import pytest

from rnn_jax import config
from rnn_jax import errors
from rnn_jax.data.batching import rows
from rnn_jax.data.text import tokenizer
from rnn_jax.data.text.examples import recall
from tests.support import corpora

BYTES = tokenizer.Bytes()


def predicted(text, kind=BYTES):
  """Returns the text with '_' for what is only read."""
  examples = recall.Questions(corpora.in_memory(text), kind, None)
  made = examples.read(0)
  assert examples.lengths.tolist() == [len(made)]
  batch = rows.blank(1, 40)
  stop = rows.write(batch, 0, 0, made)
  assert kind.decode(batch.tokens_BxL[0, 1:stop]) == text[: stop - 1]
  assert batch.tokens_BxL[0, 0] == kind.boundary
  targets = kind.decode(batch.targets_BxL[0, :stop])
  return ''.join(
    character if weight else '_'
    for character, weight in zip(targets, batch.weights_BxL[0], strict=False)
  )


@pytest.mark.parametrize(
  ('text', 'shown'),
  (
    ('aBcD..?c=D?a=B', '_________D___B'),
    ('abc..=abc', '______abc'),
    ('a=bc?d=?=e, end', '__bc_____e, end'),
    ('=a=b', '_a=b'),
  ),
)
def test_an_answer_goes_from_its_mark_to_the_next_question(text, shown):
  assert predicted(text) == shown


def test_any_tokenizer_will_do():
  characters = tokenizer.Characters('.=?ab')
  assert predicted('ab..=ab?a=b', characters) == '_____ab___b'


def test_documents_that_cannot_be_learned_are_refused():
  good, bare = corpora.in_memory('a=b'), corpora.in_memory('a=b', 'ab=')
  cfg = config.parse({'task': {'name': 'recall'}, 'data': {'length': 3}})
  recall.check({'train': good}, cfg)
  with pytest.raises(errors.InputError, match="'1' has no answer.*after '='"):
    recall.check({'train': good, 'test': bare}, cfg)
  with pytest.raises(errors.InputError, match="=3: document '0' has 4 char"):
    recall.check({'train': corpora.in_memory('ab=c')}, cfg)
