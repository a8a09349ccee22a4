"""The sections of a checkpoint: what is written of each, and read again.

    adapters        in place of params, what a run with adapters trains: the
                    rest is its model's
    error_feedback  a row for each device along `data`, read by any number
    data, progress  JSON: the position in the data, training's Progress
    the others      the fields of a train state as they are: opt_state (an
                    average has the optimizer's own point there), carry, ...

A reader names the sections that it wants, and gives each the shapes, dtypes
and shardings of its result.
"""

import json
from collections.abc import Callable
from collections.abc import Mapping
from typing import Any

import flax.traverse_util
import jax
import numpy as np

from rnn_jax.config import values
from rnn_jax.models import adapters
from rnn_jax.models import rounded_weights
from rnn_jax.parallel import compression
from rnn_jax.parallel import rules

PyTree = Any


class Section:
  """A part of a train state: on disk as in memory.

  Attributes:
    name: of it, in a table of values.
    like: arrays, or jax.ShapeDtypeStructs with shardings, of what is read.
    on_disk: its name in a checkpoint.
  """

  def __init__(self, name: str, like: PyTree, on_disk: str = '') -> None:
    self.name, self.like, self.on_disk = name, like, on_disk or name

  def to_disk(self, value: PyTree) -> PyTree:
    """Returns the arrays that are written."""
    return value

  def shapes(self, stored: PyTree) -> PyTree:
    """Returns what is read from disk, as shapes like `like`.

    Args:
      stored: the saved arrays' shapes and dtypes; None: there are none.
    """
    del stored
    return self.like

  def fits(self, stored: PyTree) -> list[str]:
    """Returns how the saved arrays differ from those that are read.

    Orbax silently casts another dtype and fills in what is missing.
    """
    wanted = {self.on_disk: self.shapes(stored)}
    return values.differences(
      _described({self.on_disk: stored}), _described(wanted)
    )

  def from_disk(self, arrays: PyTree) -> PyTree:
    """Returns the value of the arrays that were read."""
    return arrays


class Adapters(Section):
  """Parameters of a run with adapters: it saves only those that it trains.

  The others are those of the model that the adapters change.
  """

  def __init__(
    self,
    like: PyTree,
    options: adapters.Options,
    read_model: Callable[[Mapping[str, Any]], dict[str, Any]],
  ) -> None:
    """Args: `read_model` returns the frozen arrays for shapes, all by name."""
    super().__init__('params', like, on_disk='adapters')
    self._options, self._read_model = options, read_model

  def to_disk(self, value: PyTree) -> PyTree:
    return adapters.trained(value, self._options)

  def shapes(self, stored: PyTree) -> PyTree:
    return adapters.trained(self.like, self._options)

  def from_disk(self, arrays: PyTree) -> PyTree:
    model, _ = adapters.split(self.like)
    frozen = self._read_model(
      _flat(jax.eval_shape(rounded_weights.unpack, model))
    )
    held = adapters.hold(_nested(frozen), self._options)
    where = _flat(self.like)
    placed = {
      name: jax.device_put(x, getattr(where.get(name), 'sharding', None))
      for name, x in _flat(held).items()
    }
    return adapters.completed(_nested(placed), arrays)


class ErrorFeedback(Section):
  """What each device hasn't sent yet of its gradients.

  A run with another `mesh.data` reads the rows as they were saved, sharded over
  `data` if its size divides them, and gives each of its own devices an equal
  part of their sum, so that what is still to be sent stays the same.
  """

  def shapes(self, stored: PyTree) -> PyTree:
    if self._has_same_rows(stored):
      return self.like
    return jax.tree.map(_rows_of, stored, self.like)

  def from_disk(self, arrays: PyTree) -> PyTree:
    if self._has_same_rows(arrays):
      return arrays
    rows = _rows(self.like)
    shardings = jax.tree.map(lambda x: x.sharding, self.like)
    return jax.jit(
      lambda saved: compression.resize(saved, rows), out_shardings=shardings
    )(arrays)

  def _has_same_rows(self, stored):
    if jax.tree.structure(stored) != jax.tree.structure(self.like):
      return True  # which `fits` refuses, unless both have none
    return not self.like or _rows(stored) == _rows(self.like)


class Record(Section):
  """A value of JSON's types, in a file of its own."""

  def __init__(self, name: str) -> None:
    super().__init__(name, None)

  def to_disk(self, value: Any) -> Any:
    return json.loads(json.dumps(value))  # later changes don't count


KINDS: dict[str, type[Section]] = {'error_feedback': ErrorFeedback}
RECORDS = Record('data'), Record('progress')


def of_state(like: Mapping[str, PyTree]) -> tuple[Section, ...]:
  """Returns the sections of fields of a train state, by their names.

  Args:
    like: {name: what is read}, see Section.
  """
  return tuple(KINDS.get(name, Section)(name, x) for name, x in like.items())


def _described(tree):
  """Returns {path: dtype(shape)}, whatever the kinds of containers."""
  leaves, _ = jax.tree_util.tree_flatten_with_path(tree)
  return {
    jax.tree_util.keystr(path, simple=True, separator='/'): (
      f'{np.dtype(leaf.dtype)}{tuple(leaf.shape)}'
    )
    for path, leaf in leaves
  }


def _rows(tree):
  return jax.tree.leaves(tree)[0].shape[0]


def _rows_of(stored, leaf):
  """Returns the shape of `leaf` with the rows of `stored`, and a sharding."""
  sharding, rows = leaf.sharding, stored.shape[0]
  if rows % sharding.mesh.shape['data']:
    whole = jax.sharding.PartitionSpec(None, *sharding.spec[1:])
    sharding = rules.sharding(sharding.mesh, whole)
  return jax.ShapeDtypeStruct(
    (rows, *leaf.shape[1:]), leaf.dtype, sharding=sharding
  )


def _flat(tree):
  return flax.traverse_util.flatten_dict(tree, sep='/')


def _nested(leaves):
  return flax.traverse_util.unflatten_dict(leaves, sep='/')
