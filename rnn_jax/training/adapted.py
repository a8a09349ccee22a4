"""A task of a frozen model with low-rank changes, see models/adapters.py.

Its parameters are the model's, as a run holds them, and `adapters.KEY` among
them the changes; the loss is that of another task for their sum.
"""

from typing import Any

import jax

from rnn_jax.config import adapters as config_adapters
from rnn_jax.data.batching import batch as batch_lib
from rnn_jax.models import adapters
from rnn_jax.models import rounded_weights
from rnn_jax.parallel import fsdp

OWN = 2**31 - 1  # folded into a key for that of the changes
PyTree = Any


class Task:
  """What another task is, but for its parameters and their loss."""

  def __init__(self, task: Any, options: config_adapters.Adapters) -> None:
    self._task, self._options = task, options

  def __getattr__(self, name: str) -> Any:
    return getattr(self._task, name)

  def init_parameters(self, key: jax.Array) -> PyTree:
    """Returns new parameters: of the model, and changes of zero."""
    params, own = self._task.init_parameters(key), jax.random.fold_in(key, OWN)
    changes = adapters.init(own, params, self._options)
    return {**adapters.hold(params, self._options), adapters.KEY: changes}

  def logical_axes(self) -> dict[str, str]:
    """Returns the logical axes of the parameters by path, see shapes.py."""
    shapes = jax.eval_shape(lambda: self.init_parameters(jax.random.key(0)))
    model, _ = adapters.split(shapes)
    model = jax.eval_shape(rounded_weights.unpack, model)
    axes = fsdp.logical_axes(model, self._task.logical_axes())
    return adapters.logical_axes(shapes, axes)

  def loss(
    self,
    params: PyTree,
    state: PyTree,
    batch: batch_lib.Batch,
    key: jax.Array | None = None,
  ) -> tuple[jax.Array, tuple[dict[str, jax.Array], PyTree]]:
    """Returns (objective, (sums, state)) of the task, see tasks/base.py."""
    model, changes = adapters.split(params)
    own = None if key is None else jax.random.fold_in(key, OWN)
    params, summing = adapters.by_layer(model, changes, self._options, own)
    if self._task.reads_unchanged:
      fixed, _ = adapters.by_layer(model, {}, self._options)
      params = {**params, adapters.UNCHANGED: fixed}
    with summing:
      return self._task.loss(params, state, batch, key)
