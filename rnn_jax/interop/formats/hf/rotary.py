"""Rotary positions in a config.json, named in either of two ways.

rope_parameters   {rope_type, rope_theta, factor, ...}, or
rope_theta        and rope_scaling {type, factor, ...}, of older folders
"""

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

from rnn_jax.cells import attention
from rnn_jax.interop import keys as keys_lib

LENGTH = 'original_max_position_embeddings'
SCALINGS: dict[str, tuple[str, ...]] = {  # rope_type and what it needs
  'default': (),
  'linear': ('factor',),
  'llama3': (
    'factor',
    'low_freq_factor',
    'high_freq_factor',
    LENGTH,
  ),
  'yarn': (
    'factor',
    'beta_slow',
    'beta_fast',
    LENGTH,
    'attention_factor',
  ),
}
SHARE = 'partial_rotary_factor'
POSITIVE = 1e-6  # the least of what divides


def base(
  keys: keys_lib.Keys,
  kinds: Sequence[str] = ('default',),
  default: float = 10_000.0,
) -> float:
  """Returns the base of rotary positions.

  Args:
    keys: of config.json.
    kinds: values of rope_type that are supported.
    default: the base, unless the keys say.
  """
  given = _given(keys)
  given.one_of('rope_type', kinds, 'default')
  value = given.number('rope_theta', default)
  if value <= 1:
    given.refuse('rope_theta', value, 'give a number above 1')
  return value


def scaling(keys: keys_lib.Keys) -> tuple[float, ...]:
  """Returns the scaling of rotary positions of a kind of SCALINGS."""
  given = _given(keys)
  kind = given.one_of('rope_type', SCALINGS, 'default')
  defaults = _yarn(keys, given) if kind == 'yarn' else {}
  values = {
    name: given.number(name, defaults.get(name), POSITIVE)
    for name in SCALINGS[kind]
  }
  for low, high in (
    ('low_freq_factor', 'high_freq_factor'),
    ('beta_slow', 'beta_fast'),
  ):
    if low in values and not values[low] < values[high]:
      given.refuse(low, values[low], f'give less than {high}={values[high]}')
  return tuple(values.values())


def _yarn(keys, given):
  """Returns what transformers takes for keys of YaRN that aren't given."""
  given.one_of('truncate', (True,), True)
  log = 0.1 * math.log(max(1, given.number('factor')))
  scale, share = given.number('mscale', 0), given.number('mscale_all_dim', 0)
  return {
    'beta_slow': 1,
    'beta_fast': 32,
    LENGTH: keys.get(LENGTH, keys.get('max_position_embeddings')),
    'attention_factor': (1 + scale * log) / (1 + share * log)
    if scale and share
    else 1 + log,
  }


def _given(keys):
  old = {'rope_theta': keys.values.get('rope_theta')}
  newer = keys.section('rope_parameters').values
  given = newer or {**old, **keys.section('rope_scaling').values}
  kind = given.get('rope_type', given.get('type', 'default'))
  return dataclasses.replace(keys, values=old | given | {'rope_type': kind})


def rotated(keys: keys_lib.Keys, head: int, default: float) -> int:
  """Returns how many of a head's channels rotate; 0: all.

  Args:
    keys: of config.json.
    head: its channels.
    default: the share that rotates, unless the keys say.
  """
  older = keys.number(SHARE, default, most=1)
  share = keys.section('rope_parameters').number(SHARE, older, most=1)
  channels = int(head * share)
  if channels % 2 or not 0 < channels <= head:
    keys.refuse(SHARE, share, f'{channels} of {head} channels would be rotated')
  return channels % head


def described(base: float, scaling: tuple[float, ...]) -> dict[str, Any]:
  """Returns rope_parameters, the inverse of `base` and `scaling`."""
  kinds = {len(names): kind for kind, names in SCALINGS.items()}
  kind = kinds[len(scaling)]
  values: dict[str, Any] = dict(zip(SCALINGS[kind], scaling, strict=True))
  if LENGTH in values:
    values[LENGTH] = int(values[LENGTH])
  return {'rope_type': kind, 'rope_theta': base} | values


def described_share(cell: attention.Config) -> dict[str, Any]:
  """Returns rope_parameters with the share of channels that rotate."""
  channels = cell.rotary_width or cell.head_width
  share = {SHARE: channels / cell.head_width}
  return described(cell.rotary, cell.rotary_scaling) | share
