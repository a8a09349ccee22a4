"""Fills in what a config leaves open: once, before a run's folder is opened.

A `Resolver` says which keys it needs and which it fills; a list of them is run
in order. `Config.given` keeps what a filled key had before, {'train.steps': 0}:
so a run's config.json has both, a run that resumes takes the values that it
began with, and it is compared by what was given.

`of_config` needs nothing but the config, and `config.parse` calls it. What
needs the data, or a compiled step, is in training/resolve.py.
"""

import dataclasses
import fnmatch
from collections.abc import Callable
from collections.abc import Sequence
from typing import Any
from typing import NamedTuple

from rnn_jax.config import values

SHOWN = 200  # characters of a value in `describe`


class Resolver(NamedTuple):
  """What fills in some keys.

  Attributes:
    needs: the keys, or words such as 'the data', that decide the values.
    fills: the keys, or patterns of them.
    fill: (config, what is known besides) -> config; itself: nothing is open.
  """

  needs: tuple[str, ...]
  fills: tuple[str, ...]
  fill: Callable[[Any, Any], Any]

  def keys(self, config: Any) -> list[str]:
    """Returns the keys of a config that it may fill."""
    return [
      key
      for key in values.flat(config)
      if any(fnmatch.fnmatchcase(key, pattern) for pattern in self.fills)
    ]


def of_config(config: Any) -> Any:
  """Returns a Config with what follows from its own keys."""
  return run(config, OF_CONFIG)


def run(
  config: Any,
  resolvers: Sequence[Resolver],
  known: Any = None,
  before: Any = None,
) -> Any:
  """Returns a Config with all that the resolvers fill in.

  Args:
    config: a checked Config.
    resolvers: in their order.
    known: what they read besides the config.
    before: the Config of the run that resumes; its values are taken where what
      they need and what was given are the same.
  """
  for resolver in resolvers:
    if before is not None and _is_same(resolver, config, before):
      taken = values.flat(before)
      filled = values.replaced(
        config, {key: taken[key] for key in resolver.keys(config)}
      )
    else:
      filled = resolver.fill(config, known)
    config = recorded(config, filled)
  return config


def describe(config: Any, resolvers: Sequence[Resolver]) -> str:
  """Returns a line for each resolver that has filled keys of a Config."""
  flat, lines = values.flat(config), []
  for resolver in resolvers:
    filled = [key for key in resolver.keys(config) if key in config.given]
    if filled:
      found = ', '.join(f'{key}={flat[key]!r:.{SHOWN}}' for key in filled)
      needs = ', '.join(
        f'{key}={flat[key]!r:.{SHOWN}}' if key in flat else key
        for key in resolver.needs
      )
      lines.append(f'resolved {found} (from {needs})')
  return '\n'.join(lines)


def as_given(config: Any) -> Any:
  """Returns a Config with the values that its filled keys had."""
  return dataclasses.replace(values.replaced(config, config.given), given={})


def recorded(config: Any, filled: Any) -> Any:
  """Returns `filled` with what its changed keys had in `config`."""
  old, new = values.flat(config), values.flat(filled)
  given = {key: old[key] for key in old if old[key] != new[key]}
  return dataclasses.replace(filled, given=given | config.given)


def _is_same(resolver, config, before):
  """Whether a run that resumes asks for what it asked for at its start."""
  now, then = values.flat(config), values.flat(before)
  needed = all(now.get(key) == then.get(key) for key in resolver.needs)
  return needed and all(
    key in then
    and config.given.get(key, now[key]) == before.given.get(key, then[key])
    for key in resolver.keys(config)
  )


def _cells(config, known):
  del known
  return dataclasses.replace(config, cell=config.cell.resolve(config))


def _shared_window(config, known):
  """All of a row, as that of attention."""
  del known
  own = config.model.shared_block
  if own.window or not own.count:
    return config
  return values.replaced(
    config, {'model.shared_block.window': config.data.length}
  )


def _warmup(config, known):
  """One longer than the run, as in a short trial, takes half of the steps."""
  del known
  given, steps = config.schedule.warmup_steps, config.train.steps
  if not 0 < steps < given:  # 0: not known yet
    return config
  return values.replaced(config, {'schedule.warmup_steps': steps // 2})


CELLS = Resolver(
  ('data.length', 'model.width', 'model.bidirectional'), ('cell.*',), _cells
)
WARMUP = Resolver(('train.steps',), ('schedule.warmup_steps',), _warmup)
SHARED_WINDOW = Resolver(
  ('data.length',), ('model.shared_block.window',), _shared_window
)
OF_CONFIG = (CELLS, SHARED_WINDOW, WARMUP)
