"""Rows: ids become inputs, targets and weights."""

import numpy as np

from rnn_jax.data.batching import rows


def test_written_ids_are_inputs_targets_and_weights():
  batch = rows.blank(2, 4)
  assert rows.write(batch, 1, 1, np.array([7, 8, ~9])) == 3
  assert batch.tokens_BxL.tolist() == [[0] * 4, [0, 7, 8, 0]]
  assert batch.targets_BxL.tolist() == [[0] * 4, [0, 8, 9, 0]]
  assert batch.weights_BxL.tolist() == [[0] * 4, [0, 1, 0, 0]]
  dtypes = [array.dtype.name for array in batch[:4]]
  assert dtypes == ['int32', 'int32', 'float32', 'int32']
