"""Checks that all processes of a run have the same config and software."""

import collections
import hashlib
import json
from typing import Any

import jax

from rnn_jax import errors
from rnn_jax.config import values
from rnn_jax.parallel import hosts

# Hosts may differ in these.
HOST_KEYS = ('data.workers', 'data.prefetch', 'data.cache')


def check(config: dict[str, Any]) -> None:
  """Checks that all processes have the same config, jax and device count.

  Raises:
    InputError: they don't; every process raises the same message, which names
      the keys.
  """
  if hosts.count() == 1:
    return
  devices = collections.Counter(d.process_index for d in jax.devices())
  if len(set(devices.values())) > 1:
    raise errors.InputError(
      'the processes have different numbers of devices (process: devices): '
      f'{dict(sorted(devices.items()))}: give all hosts the same number'
    )
  digest = hashlib.sha256(json.dumps(_comparable(config)).encode()).hexdigest()
  if len(set(hosts.gather(digest))) == 1:
    return
  lines = []
  own = json.dumps(_comparable(config))
  everyone = [json.loads(text) for text in hosts.gather(own)]
  for number, other in enumerate(everyone):
    for line in values.differences(everyone[0], other):
      lines.append(f'process {number}: {line}')
  listed = '\n  '.join(lines[:10] + ['...'] * (len(lines) > 10))
  raise errors.InputError(
    'the processes were started with different configs (value of process 0 -> '
    f'that of another):\n  {listed}\ngive all hosts the same command, except '
    'for --process'
  )


def _comparable(config):
  """Returns what must be the same on all hosts, flat, with JSON's types."""
  flat = {'software.jax': jax.__version__}
  for section, keys in json.loads(json.dumps(config)).items():
    for key, value in keys.items():
      name = f'{section}.{key}'
      if name not in HOST_KEYS:
        flat[name] = value
  return flat
