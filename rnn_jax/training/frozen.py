"""Parameters that never change: those that a pattern or adapters freeze.

`optimizer.frozen` has patterns of names. A run with adapters trains these, what
`adapters.trained` names, and nothing else.
"""

from typing import Any

import flax.traverse_util
import jax

from rnn_jax.config import adapters as config_adapters
from rnn_jax.config import name_patterns
from rnn_jax.models import adapters
from rnn_jax.models import rounded_weights

PyTree = Any


def mask(
  patterns: tuple[str, ...], options: config_adapters.Adapters, params: PyTree
) -> PyTree:
  """Returns a tree like `params`: True for those that never change.

  Args:
    patterns: `optimizer.frozen` of a config.
    options: its section `adapters`.
    params: a tree of dicts.
  """

  def is_frozen(path, _):
    name = '/'.join(path)
    if options.rank:
      return not adapters.is_trained(name, options)
    return name_patterns.first_match(patterns, name) is not None

  return flax.traverse_util.path_aware_map(is_frozen, params)


def describe(
  patterns: tuple[str, ...], options: config_adapters.Adapters, params: PyTree
) -> str:
  """Returns lines about the parameters that never change, '' without any.

  The arguments are those of `mask`.
  """
  if options.rank:
    return _describe_adapters(options, params)
  if not patterns:
    return ''
  matched: dict[int, list[str]] = {n: [] for n in range(len(patterns))}
  total = frozen = 0
  for name, leaf in flax.traverse_util.flatten_dict(params, sep='/').items():
    total += leaf.size
    if (n := name_patterns.first_match(patterns, name)) is not None:
      matched[n].append(f'{name} ({leaf.size:,})')
      frozen += leaf.size
  lines = [f'frozen: {frozen:,} of {total:,} parameters']
  for n, names in matched.items():
    listed = ', '.join(names) or 'only what an earlier pattern matches'
    lines.append(f'  {patterns[n]!r}: {listed}')
  return '\n'.join(lines)


def _describe_adapters(options, params):
  shapes = jax.eval_shape(rounded_weights.unpack, params)
  sizes = {
    name: leaf.size
    for name, leaf in flax.traverse_util.flatten_dict(shapes, sep='/').items()
  }
  trained = {x: n for x, n in sizes.items() if adapters.is_trained(x, options)}
  changed = sum(name.endswith('/a') for name in trained)
  return (
    f'adapters of rank {options.rank} for {changed} matrices: '
    f'{sum(trained.values()):,} of {sum(sizes.values()):,} parameters are '
    f'trained and saved; the frozen matrices are in {options.base}'
  )
