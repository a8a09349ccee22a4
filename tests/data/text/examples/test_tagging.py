"""Labels are predicted where they stand, and never read."""

import numpy as np
import pytest

from rnn_jax import config
from rnn_jax import errors
from rnn_jax.data.batching import rows
from rnn_jax.data.text import tokenizer
from rnn_jax.data.text.examples import tagging
from tests.support import corpora

KIND = tokenizer.Characters('.=XYZabc')


def batch_of(*texts):
  """A batch with a row for each text."""
  maker = tagging.Tagged(corpora.in_memory(*texts), KIND, None)
  lengths = [len(maker.read(n)) for n in range(len(texts))]
  assert maker.lengths.tolist() == lengths
  batch = rows.blank(len(texts), 6)
  for n in range(len(texts)):
    rows.write(batch, n, 0, maker.read(n))
  return tagging.unpack(KIND, batch)


def test_each_character_is_read_when_its_label_is_predicted():
  batch = batch_of('abca=XYZX', 'cba=.Z.')
  assert KIND.decode(batch.tokens_BxL[0, :4]) == 'abca'
  assert KIND.decode(batch.targets_BxL[0, :4]) == 'XYZX'
  assert KIND.decode(batch.tokens_BxL[1, :3]) == 'cba'
  assert KIND.decode(batch.targets_BxL[1, 1:2]) == 'Z'
  np.testing.assert_array_equal(
    batch.weights_BxL, [[1, 1, 1, 1, 0, 0], [0, 1, 0, 0, 0, 0]]
  )


@pytest.mark.parametrize('text', ('abc', 'ab=X', 'a=bXY', '=', 'ab==XY'))
def test_documents_without_a_label_for_each_character_are_refused(text):
  good, bad = corpora.in_memory('ab=XY'), corpora.in_memory(text)
  cfg = config.parse(tagging_config())
  tagging.check({'train': good}, cfg)
  with pytest.raises(errors.InputError, match="'0' has no label for each"):
    tagging.check({'train': good, 'test': bad}, cfg)


def test_documents_longer_than_their_rows_are_refused():
  long = corpora.in_memory('abcab=XYXYX')
  cfg = config.parse(tagging_config(evaluate={'length': 5}))
  tagging.check({'test': long}, cfg)
  with pytest.raises(errors.InputError, match="data.length=4: document '0' "):
    tagging.check({'train': long}, cfg)
  cfg = config.parse(tagging_config())
  with pytest.raises(errors.InputError, match='data.length=4: .* has 5 char'):
    tagging.check({'validation': long}, cfg)


def test_a_vocabulary_whose_pairs_are_no_int32_is_refused(monkeypatch):
  monkeypatch.setattr(tagging, 'LARGEST', 5)
  with pytest.raises(errors.InputError, match='texts have 10 characters, more'):
    tagging.Tagged(corpora.in_memory('a=b'), KIND, None)


def tagging_config(**sections):
  return {
    'task': {'name': 'tagging'},
    'data': {'length': 4, 'tokenizer': 'characters'},
    **sections,
  }
