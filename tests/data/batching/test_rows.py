"""Rows: consecutive rows overlap by one token."""

import numpy as np
import pytest

from rnn_jax.data.batching import rows


@pytest.mark.parametrize(
  ('count', 'expected'),
  ((0, []), (1, []), (2, [[0, 1]]), (5, [[0, 1, 2, 3, 4]])),
)
def test_a_short_example_is_one_row_or_none(count, expected):
  assert [row.tolist() for row in rows.cut(np.arange(count), 4)] == expected


def test_a_long_example_predicts_each_token_once():
  cut = [row.tolist() for row in rows.cut(np.arange(8), 3)]
  assert cut == [[0, 1, 2, 3], [3, 4, 5, 6], [6, 7]]


def test_written_ids_are_inputs_targets_and_weights():
  batch = rows.blank(2, 4)
  assert rows.write(batch, 1, 1, np.array([7, 8, 9])) == 3
  rows.start_padding(batch)
  assert batch.tokens_BxL.tolist() == [[0] * 4, [0, 7, 8, 0]]
  assert batch.targets_BxL.tolist() == [[0] * 4, [0, 8, 9, 0]]
  assert batch.weights_BxL.tolist() == [[0] * 4, [0, 1, 1, 0]]
  assert batch.starts_BxL.tolist() == [[1, 0, 0, 0], [0] * 4]
  dtypes = [array.dtype.name for array in batch[:4]]
  assert dtypes == ['int32', 'int32', 'float32', 'int32']
