"""Sharded parameters, inside a program of the mesh.

Each device keeps a shard of the parameters. They are gathered where they are
used, and their gradients are summed over devices, but not over those that share
the work on an axis: experts see the rows of all of these.

`logical_axes` is a tree like the parameters with the axes of each, see
shapes.py. Where F is sharded, each device adds its part of a 'D+F'.
"""

import fnmatch
from collections.abc import Mapping
from typing import Any

import jax
from jax import ad_checkpoint

from rnn_jax import errors
from rnn_jax.ops import devices
from rnn_jax.parallel import axes
from rnn_jax.parallel import rules as rules_lib

PyTree = Any


def logical_axes(params: PyTree, names: Mapping[str, str]) -> PyTree:
  """Returns the logical axes of each parameter.

  Args:
    params: nested dicts of arrays.
    names: logical axes by path, as {'mlp/*/kernel': 'DxF'}; the first match.

  Raises:
    InputError: a parameter without logical axes, or with too many or too few.
  """

  def find(path, x):
    name = '/'.join(key.key for key in path)
    for pattern, own in names.items():
      if fnmatch.fnmatchcase(name, pattern):
        rank = len(own.partition('+')[0].split('x'))
        if rank == len(x.shape):
          return own
        raise errors.InputError(_wrong_rank(name, own, rank, x.shape))
    raise errors.InputError(
      f'{name} has no logical axes: add them to LOGICAL_AXES of its file'
    )

  return jax.tree.map_with_path(find, params)


def _wrong_rank(name, own, rank, shape):
  stacked = own.startswith('Rx')  # over layers, which its file doesn't see
  own, rank, shape = own[2 * stacked :], rank - stacked, shape[stacked:]
  return (
    f'{name} has {len(shape)} axes, of shape {tuple(shape)}, and {own!r} in '
    f'LOGICAL_AXES of its file names {rank}: name each, joined by x, '
    f'as {"x".join("DSFV"[: len(shape)])!r}, an axis without a name as _'
  )


def gather(
  params: PyTree, logical_axes: PyTree, rules: rules_lib.Rules
) -> PyTree:
  """Returns parameters as they are used, from the shards of each device."""

  def gather_one(x, logical_axes):
    own, addends = _read(logical_axes, rules)
    for dimension, axis in enumerate(own):
      storage = _storage(rules, axis)
      if storage and rules.zero == rules_lib.STAGES['parameters']:
        x = jax.lax.all_gather(x, storage, axis=dimension, tiled=True)
        x = ad_checkpoint.checkpoint_name(x, devices.GATHERED)
    return x / addends if addends > 1 else x

  return jax.tree.map(gather_one, params, logical_axes)


def sum_gradients(
  gradients: PyTree,
  logical_axes: PyTree,
  rules: rules_lib.Rules,
  rows: tuple[str, ...] = rules_lib.ROWS,
) -> PyTree:
  """Returns the sums of all devices' gradients, sharded as they are kept.

  Args:
    gradients: a tree like the parameters.
    logical_axes: of the parameters.
    rules: how they are sharded.
    rows: the axes of rows to sum over.
  """

  def sum_one(x, logical_axes):
    own, addends = _read(logical_axes, rules)
    whole = {name for axis in own for name in rules.work(axis)}
    summed = [name for name in ('sequence', *rows) if name not in whole]
    for dimension, axis in enumerate(own):
      storage = _storage(rules, axis)
      if not storage or rules.zero < rules_lib.STAGES['gradients']:
        continue
      if rules.zero < rules_lib.STAGES['parameters']:
        x = jax.lax.psum_scatter(
          x, storage, scatter_dimension=dimension, tiled=True
        )
      # Else the transpose of `gather` has done so.
      summed = [name for name in summed if name not in storage]
    summed += ['pipe'] * ('R' not in own) + ['tensor'] * (addends > 1)
    names = tuple(name for name in summed if axes.size(name) > 1)
    return jax.lax.psum(x, names) if names else x

  return jax.tree.map(sum_one, gradients, logical_axes)


def _storage(rules, axis):
  return tuple(name for name in rules.storage(axis) if axes.size(name) > 1)


def _read(logical_axes, rules):
  """A parameter's logical axes, and how many devices add a part of it."""
  own, _, summed = logical_axes.partition('+')
  return own.split('x'), rules.shards(summed)
