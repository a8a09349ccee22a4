"""Parameters inside a program of the mesh: a device's share of them, gathered
where they are used, and the sum of their gradients.

`logical_axes` is a tree like the parameters with the axes of each, see
shapes.py. Where devices share F, each of them adds its part of a 'D+F'.
"""

import fnmatch
from collections.abc import Mapping
from typing import Any

import jax
from jax import ad_checkpoint

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
    ValueError: a parameter without logical axes, or with too many or too few.
  """

  def find(path, x):
    told = '/'.join(key.key for key in path)
    for pattern, found in names.items():
      if fnmatch.fnmatchcase(told, pattern):
        rank = len(found.partition('+')[0].split('x'))
        if rank == len(x.shape):
          return found
        raise ValueError(f'{told} is {found!r} and has {len(x.shape)} axes')
    raise ValueError(
      f'{told} has no logical axes: add them to LOGICAL_AXES of its file'
    )

  return jax.tree.map_with_path(find, params)


def gather(
  params: PyTree, logical_axes: PyTree, rules: rules_lib.Rules
) -> PyTree:
  """Returns parameters as they are used, from what is kept on each device."""

  def arrive(x, logical_axes):
    own, addends = _read(logical_axes, rules)
    for axis, letter in enumerate(own):
      storage = _storage(rules, letter)
      if storage and rules.zero == rules_lib.STAGES['parameters']:
        x = jax.lax.all_gather(x, storage, axis=axis, tiled=True)
        x = ad_checkpoint.checkpoint_name(x, devices.GATHERED)
    return x / addends if addends > 1 else x

  return jax.tree.map(arrive, params, logical_axes)


def add_up(
  gradients: PyTree,
  logical_axes: PyTree,
  rules: rules_lib.Rules,
  rows: tuple[str, ...] = rules_lib.ROWS,
) -> PyTree:
  """Returns the sums of all devices' gradients, cut as gradients are kept.

  `rows` are the axes of rows to sum over.
  """

  def add(x, logical_axes):
    own, addends = _read(logical_axes, rules)
    summed = ['sequence', *rows]
    for axis, letter in enumerate(own):
      storage = _storage(rules, letter)
      if not storage or rules.zero < rules_lib.STAGES['gradients']:
        continue
      if rules.zero < rules_lib.STAGES['parameters']:
        x = jax.lax.psum_scatter(x, storage, scatter_dimension=axis, tiled=True)
      # Else the transpose of `gather` has done so.
      summed = [name for name in summed if name not in storage]
    summed += ['pipe'] * ('R' not in own) + ['tensor'] * (addends > 1)
    summed = tuple(name for name in summed if axes.size(name) > 1)
    return jax.lax.psum(x, summed) if summed else x

  return jax.tree.map(add, gradients, logical_axes)


def _storage(rules, letter):
  return tuple(a for a in rules.storage(letter) if axes.size(a) > 1)


def _read(logical_axes, rules):
  """The logical axes of a parameter, and among how many it is shared as an
  addend."""
  own, _, summed = logical_axes.partition('+')
  return own.split('x'), rules.shards(summed)
