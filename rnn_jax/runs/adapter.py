"""What a run with adapters has trained, for a server that has their model."""

import dataclasses
import os
from typing import Any

import flax.traverse_util
import jax

from rnn_jax import config as config_lib
from rnn_jax import errors
from rnn_jax.data.text import tokenizer as tokenizer_lib
from rnn_jax.models import adapters
from rnn_jax.runs import base_model
from rnn_jax.runs import bundle
from rnn_jax.runs import origin

PyTree = Any


@dataclasses.dataclass(frozen=True, eq=False)
class Adapter:
  """What a run with adapters has trained, without the model that it changes.

  Attributes:
    config: of the run.
    tokenizer: of the run, which is the model's.
    changes: a tree of NumPy arrays, as models/adapters.py has it.
    step: of the checkpoint that it was read from.
  """

  config: config_lib.Config
  tokenizer: tokenizer_lib.Tokenizer
  changes: PyTree
  step: int


def read(
  workdir: str | os.PathLike,
  which: str | int,
  base: str | os.PathLike,
  model: bundle.Bundle,
) -> Adapter:
  """Returns the changes of a run with adapters, for the model of another run.

  Args:
    workdir: the folder of the run with adapters.
    which: 'best', 'latest' or a step of it.
    base: the folder of the model's run, wherever it is now.
    model: a bundle that was read from there.

  Raises:
    InputError: no such run or checkpoint; the run has no adapters, trains more
      than them, or changes another model or checkpoint.
  """
  config, tokenizer = bundle.open_folder(workdir)
  if not config.adapters.rank:
    raise errors.InputError(
      f'{workdir}: adapters.rank=0: the run has no adapters; give one that '
      'launch.train made with adapters.rank and --init_from'
    )
  if config.adapters.trained:
    raise errors.InputError(
      f'{workdir}: adapters.trained={config.adapters.trained!r}: parameters '
      "that it trains whole can't be held beside the model's: give the run as "
      'one of its own'
    )
  _check_base(workdir, config, tokenizer, base, model)
  changes = base_model.changes_like(
    bundle.like(config, tokenizer), config.adapters
  )
  saved = {'adapters': {adapters.KEY: changes}}
  step, state = bundle.restore(workdir, config, saved, which)
  changes = jax.device_get(state['adapters'][adapters.KEY])
  return Adapter(config, tokenizer, changes, step)


def _check_base(workdir, config, tokenizer, base, model):
  """Checks that a run with adapters changes this model."""
  record = origin.read(workdir)
  if record.get('sha256') != bundle.digest(base, model.config, model.step):
    known = f'step {record["step"]} of {record["run"]}' if record else 'nothing'
    raise errors.InputError(
      f'the adapters of {workdir} change {known}, which is not step '
      f'{model.step} of {base}: give that run and that checkpoint'
    )
  ours, theirs = (
    _lasting(x.model) | _lasting(x.cell, 'cell') for x in (config, model.config)
  )
  for name in ours:
    if ours[name] != theirs.get(name):
      raise errors.InputError(
        f'{workdir}: {name}={ours[name]!r}, and {theirs.get(name)!r} in '
        f'{base}: it was trained as another model; give the run as one of its '
        'own'
      )
  if tokenizer.spec() != model.tokenizer.spec():
    raise errors.InputError(
      f'{workdir} and {base} have different tokenizers: give the run as one of '
      'its own'
    )


def _lasting(options, section='model'):
  """Returns the options of a section that training and inference share."""
  values = flax.traverse_util.flatten_dict(dataclasses.asdict(options), sep='.')
  return {
    f'{section}.{name}': value
    for name, value in values.items()
    if 'dropout' not in name
  }
