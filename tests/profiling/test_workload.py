"""Random batches have the shape and the vocabulary that the config says."""

import jax
import numpy as np
import pytest

from rnn_jax import config as config_lib
from rnn_jax import errors
from rnn_jax.profiling import workload as workload_lib
from tests.support import tiny


def raw(**changes):
  made = tiny.with_blocks(tiny.raw_config('unused'))
  with made.unlocked():
    for key, value in changes.items():
      section, name = key.split('__')
      made[section][name] = value
  return made


def make(**changes):
  return workload_lib.make(config_lib.parse(raw(**changes)))


@pytest.mark.parametrize(
  ('changes', 'size', 'lossless'),
  (
    ({}, 257, True),
    ({'data__tokenizer': 'characters', 'data__vocabulary': 60}, 60, True),
    ({'data__tokenizer': 'bpe', 'data__vocabulary': 300}, 300, True),
    (
      {'data__tokenizer': 'bpe', 'data__pre_tokenizer': 'whitespace'},
      512,
      False,
    ),
  ),
)
def test_the_vocabulary_is_that_of_the_tokenizer_s_kind(
  changes, size, lossless
):
  workload = make(**changes)
  assert workload.tokenizer.size == size
  assert workload.tokenizer.lossless == lossless
  params = workload.programs.states.like().params
  assert params['embedding']['embedding'].shape[0] == size


def test_a_batch_is_random_tokens_that_predict_the_next():
  workload = make()
  batch = jax.device_get(workload.batch(6))
  assert batch.tokens_BxL.shape == (6, 32)
  assert batch.tokens_BxL.dtype == batch.starts_BxL.dtype == np.int32
  np.testing.assert_array_equal(
    batch.tokens_BxL[:, 1:], batch.targets_BxL[:, :-1]
  )
  assert 100 < len(np.unique(batch.tokens_BxL)) <= 257
  assert batch.tokens_BxL.max() < 257
  assert batch.weights_BxL.min() == 1
  assert batch.starts_BxL.sum() == batch.starts_BxL[:, 0].sum() == 6
  other = jax.device_get(workload.batch(6, seed=1))
  assert (other.tokens_BxL != batch.tokens_BxL).mean() > 0.9


def test_a_classified_row_has_its_class_at_the_end():
  workload = make(task__name='classification', data__classes=('a', 'b', 'c'))
  batch = jax.device_get(workload.batch(40))
  assert {*batch.targets_BxL[:, -1]} == {257, 258, 259}
  assert batch.targets_BxL[:, :-1].max() < 257


def test_rows_are_those_of_the_config_or_asked_for():
  assert make(data__batch_size=9).rows() == 9 // make().multiple
  assert make().rows(4) == 4
  many = make(data__tokens_per_batch=320, train__accumulate=4)
  assert many.rows() == 8
  with pytest.raises(errors.InputError, match='--rows=6: give a multiple of'):
    many.rows(6)


def test_a_budget_in_the_config_decides_the_rows(monkeypatch):
  result = workload_lib.batch_size
  monkeypatch.setattr(result, 'rows_for_budget', lambda *_: 12)
  assert make(data__memory_gib=1.0).rows() == 12


def test_length_takes_what_hangs_on_it_along():
  given = raw(data__boundaries=(16, 32), data__length_schedule=(8,))
  config = workload_lib.parse(given, 48)
  assert config.data.length == 48
  assert config.data.boundaries == config.data.length_schedule == ()
  assert given.data.length == 32
  assert workload_lib.parse(given, 0).data.boundaries == (16, 32)


def test_classes_that_a_config_leaves_to_its_data_are_read(tmp_path):
  path = tmp_path / 'a.csv'
  path.write_text('text,label\nx,b\ny,a\nz,c\n')
  raw_ = config_lib.default(task='classification', source='csv')
  raw_.data.path = str(path)
  config = workload_lib.parse(raw_, 0)
  assert config.data.classes == ('a', 'b', 'c')
  raw_.data.update(path='absent.csv', classes=('a', 'b'))
  assert workload_lib.parse(raw_, 0).data.classes == ('a', 'b')  # reads nothing
