"""What tasks share: a model that reads rows of tokens, segment by segment."""

import functools
from typing import Any
from typing import Self

import jax

from rnn_jax.data import corpus as corpus_lib
from rnn_jax.data.batching import batch as batch_lib
from rnn_jax.data.batching import rows as rows_lib
from rnn_jax.models import blocks
from rnn_jax.models import segments

Sums = dict[str, jax.Array]
PyTree = Any
Rngs = dict[str, jax.Array]


class Task:
  """The model of a config and its loss; a subclass sets what is declared here.

  Attributes:
    model: a linen module.
  """

  model: Any
  # Whether the loss reads what adapters change: models/adapters.py, UNCHANGED.
  reads_unchanged: bool = False
  _drops: bool = False  # whether the model has dropout
  _steps: int  # of a segment, remat.segment; 0: the whole row

  def _segment(
    self,
    params: PyTree,
    key: jax.Array | None,
    state: PyTree,
    batch: batch_lib.Batch,
    n: jax.Array | int,
  ) -> tuple[PyTree, Sums]:
    """Returns (state, sums) of segment number `n` of the rows."""
    raise NotImplementedError

  def opened(self) -> Self:
    """Returns the task with what its loss reads but its model doesn't: itself.

    Training and evaluation call it; a run's model opens without it.
    """
    return self

  def init_from_data(self, params: PyTree, corpus: corpus_lib.Corpus) -> PyTree:
    """Returns initial parameters for a corpus: here they don't depend on it."""
    del corpus
    return params

  def init_state(self, B: int) -> PyTree:
    """Returns the recurrent state before a text, for B rows."""
    return self.model.bind({}).init_state(B)

  def state_axes(self) -> PyTree:
    """Returns the logical axes of the recurrent state, a tree like it."""
    return self.model.bind({}).state_axes()

  def blank_batch(self, rows: int, length: int) -> batch_lib.Batch:
    """Returns a batch of padding."""
    return rows_lib.blank(rows, length)

  def logical_axes(self) -> dict[str, str]:
    """Returns the logical axes of the parameters by path, see shapes.py."""
    return self.model.logical_axes()

  def _rngs(self, key: jax.Array | None, n: jax.Array | int = 0) -> Rngs:
    """Returns the keys of dropout of segment `n`; none if nothing drops."""
    if key is None or not self._drops:
      return {}
    return blocks.dropout_keys(key, n)

  def loss(
    self,
    params: PyTree,
    state: PyTree,
    batch: batch_lib.Batch,
    key: jax.Array | None = None,
  ) -> tuple[jax.Array, tuple[Sums, PyTree]]:
    """Runs the model on a batch, with dropout if a `key` is given.

    Args:
      params: the parameters.
      state: the recurrent state before the batch, B rows of it.
      batch: Batch.
      key: PRNG key of dropout, or None.

    Returns:
      (objective, (sums, state)): training minimizes the objective, a sum with
      label smoothing and the like. `sums` is a dict of scalars: 'objective',
      'loss' in nats, 'weight', the number of what is predicted, 'hits' and
      others.
    """
    run = functools.partial(self._segment, params, key)
    state, sums = segments.add_up(run, self._steps, state, batch)
    return sums['objective'], (sums, state)
