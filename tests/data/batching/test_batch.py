"""A batch is a pytree that passes through jit; absent fields aren't leaves."""

import jax
import numpy as np

from rnn_jax.data.batching import batch


def test_a_batch_passes_through_jit_without_absent_fields():
  rows = np.arange(6, dtype=np.int32).reshape(2, 3)
  given = batch.Batch(rows, rows + 1, np.ones((2, 3), np.float32), 0 * rows)
  assert len(jax.tree.leaves(given)) == 4
  got = jax.jit(lambda batch: batch._replace(label_B=batch.starts_BxL[:, 0]))(
    given
  )
  np.testing.assert_array_equal(got.targets_BxL, rows + 1)
  np.testing.assert_array_equal(got.label_B, [0, 0])
  assert got.image_BxHxWxC is None
