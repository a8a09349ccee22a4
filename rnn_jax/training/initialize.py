"""A new run that begins with the parameters of another one: fine-tuning.

A parameter is taken from the other run if that has one of the same name and
shape. A language model within another model, as in a classifier, is its `body`:
its parameters match those of a plain language model. Everything else is new:
heads of other classes, and what counts tokens of another vocabulary.
"""

import dataclasses
import os
from collections.abc import Mapping
from typing import Any

import flax.traverse_util
import jax
import numpy as np
import optax

from rnn_jax import config as config_lib
from rnn_jax import errors
from rnn_jax.config import adapters as config_adapters
from rnn_jax.data.text import tokenizer as tokenizer_lib
from rnn_jax.models import adapters
from rnn_jax.models import rounded_weights
from rnn_jax.runs import base_model
from rnn_jax.runs import bundle as bundle_lib
from rnn_jax.runs import origin
from rnn_jax.runs import workdir as workdir_lib
from rnn_jax.training import states as states_lib
from rnn_jax.training import train_state

PyTree = Any
SHOWN = 20  # names that a list has, at most


@dataclasses.dataclass(frozen=True, eq=False)
class Source:
  """A run to begin with, opened: what was asked for, and its model."""

  init: origin.Init
  bundle: bundle_lib.Bundle


def open_source(
  init: origin.Init | None,
  workdir: str | os.PathLike,
  config: config_lib.Config,
) -> Source | None:
  """Reads the run that a new run begins with.

  Returns:
    It; None without an `init`, or if the run in `workdir` has begun.

  Raises:
    InputError: no such run or checkpoint, it names modules that aren't
      imported, `workdir` is of a run that began with something else, or a new
      run has adapters and no model that they change.
  """
  folder = config.train.checkpoint_dir
  if init is None:
    _check_adapters(workdir, config)
  if init is None or not origin.is_new(init, workdir, folder):
    return None
  if init.optimizer and (elsewhere := config.optimizer.elsewhere):
    errors.refuse(
      '--init_optimizer',
      True,
      f'{elsewhere[0]}={elsewhere[1]!r} averages over the steps of '
      'its own run: leave out the flag',
    )
  try:
    return Source(init, bundle_lib.read(init.run, init.checkpoint))
  except (errors.InputError, OSError) as error:
    raise errors.InputError(
      f'--init_from={init.run!r}: {errors.explain(error) or error}'
    ) from error


def tokenizer_of(
  source: Source, config: config_lib.Config
) -> tuple[tokenizer_lib.Tokenizer | None, str]:
  """Returns the tokenizer that a new run takes, and a line about it.

  None: it is of another kind than the config's.
  """
  theirs, run = source.bundle.tokenizer, source.init.run
  kind = theirs.spec()['kind']
  if kind != config.data.tokenizer:
    return None, (
      f'data.tokenizer={config.data.tokenizer!r}, and {run} has {kind!r}: the '
      'vocabulary is new, and with it the embeddings'
    )
  return theirs, f'tokenizer: {kind}, {theirs.size:,} entries, of {run}'


def match(
  source: Source,
  states: states_lib.States,
  config: config_lib.Config,
  tokenizer: tokenizer_lib.Tokenizer,
) -> '_Report':
  """Returns what a new run takes of another one; computes nothing.

  Raises:
    InputError: no parameter matches, or one that isn't taken isn't trained.
  """
  theirs = _flat(source.bundle.params)
  ours = {
    name: x
    for name, x in _flat(
      jax.eval_shape(rounded_weights.unpack, states.like().params)
    ).items()
    if not name.startswith(f'{adapters.KEY}/')
  }
  report = _match(source, ours, theirs, _renewed(source, config, tokenizer))
  if not report.taken:
    listed = '\n  '.join(f'{name}: {why}' for name, why in _first(report.new))
    raise errors.InputError(
      f'--init_from={source.init.run!r}: no parameter of it fits this model:\n'
      f'  {listed}\ngive --init_model, or the sections model and cell of its '
      'config.json'
    )
  _check_trained(report, config.adapters)
  return report


def apply(
  report: '_Report',
  states: states_lib.States,
  options: config_adapters.Adapters,
  state: train_state.TrainState,
) -> train_state.TrainState:
  """Returns a new train state with what it takes of a run.

  Args:
    report: of `match`.
    states: of the new run.
    options: section `adapters` of its config.
    state: its initial one.

  Raises:
    InputError: the state of the optimizer doesn't match.
  """
  source, theirs = report.source, _flat(report.source.bundle.params)
  taken = {name: theirs[found] for name, found in report.taken.items()}
  taken = flax.traverse_util.unflatten_dict(taken, sep='/')
  shardings = _flat(states.placement.shardings('parameters'))
  held = {
    name: jax.device_put(x, shardings[name])
    for name, x in _flat(adapters.hold(taken, options)).items()
  }
  params = adapters.completed(state.params, held)
  state = states.init_from(state, params)
  if source.init.optimizer:
    state = state.replace(opt_state=_optimizer_state(source, states, report))
  return state


def _check_adapters(workdir, config):
  """Checks that a run with adapters but without a source has begun."""
  folder = workdir_lib.checkpoint_folder(workdir, config.train.checkpoint_dir)
  if config.adapters.rank and not workdir_lib.has_checkpoints(folder):
    errors.refuse(
      'adapters.rank',
      config.adapters.rank,
      'adapters change the model of another run: name it with --init_from',
    )


def _check_trained(report, options):
  """Checks that what a run doesn't take of its source is trained."""
  if not options.rank:
    return
  for name, why in report.new.items():
    if not adapters.is_trained(name, options):
      errors.refuse(
        'adapters.trained',
        options.trained,
        f'{name} would stay random ({why}): give --init_model for a model of '
        'the same sizes, or add a pattern of its name',
      )


def record(report: '_Report', workdir: str | os.PathLike) -> None:
  """Writes the origin of a run into its folder, and the files that it keeps."""
  source = report.source
  step = source.bundle.step
  digest = bundle_lib.digest(source.init.run, source.bundle.config, step)
  names = [*report.taken], [*report.new]
  kept = dict(source.bundle.kept)
  kept.pop(bundle_lib.DTYPES, None)
  bundle_lib.keep(kept, workdir)
  origin.write(source.init, workdir, step, digest, names)


@dataclasses.dataclass(frozen=True)
class _Report:
  """What a run takes: {its name: the source's}, {new name: why}, unused."""

  source: Source
  taken: Mapping[str, str]
  new: Mapping[str, str]
  unused: tuple[str, ...]
  sizes: tuple[int, int]  # parameters taken, and all

  def __str__(self) -> str:
    init, (taken, total) = self.source.init, self.sizes
    also = ', and the state of its optimizer' * init.optimizer
    lines = [
      f'begins with step {self.source.bundle.step} ({init.checkpoint}) of '
      f'{init.run}: {taken:,} of {total:,} parameters{also}',
      *(f'  new: {name}: {why}' for name, why in _first(self.new)),
    ]
    if self.unused:
      names = ', '.join(name for name, _ in _first(dict.fromkeys(self.unused)))
      lines.append(f'  not taken of it: {names}')
    return '\n'.join(lines)


def _match(source, ours, theirs, renewed):
  taken, new = {}, {}
  for name, leaf in ours.items():
    found = base_model.name_in(name, ours, theirs)
    if found not in theirs:
      new[name] = f'{source.init.run} has none'
    elif theirs[found].shape != leaf.shape:
      new[name] = f'{_by(leaf.shape)}, there {_by(theirs[found].shape)}'
    elif name in renewed:
      new[name] = renewed[name]
    else:
      taken[name] = found
  unused = tuple(name for name in theirs if name not in taken.values())
  sizes = sum(ours[n].size for n in taken), sum(x.size for x in ours.values())
  return _Report(source, taken, new, unused, sizes)


def _renewed(source, config, tokenizer):
  """Returns {name: why} of what fits by its shape only."""
  renewed = config.task.renewed(source.bundle.config.task)
  theirs = source.bundle.config.data.classes
  if config.data.classes != theirs:
    data = dataclasses.replace(config.data, classes=(*config.data.classes, ''))
    wider = dataclasses.replace(config, data=data)
    names = _changed(config, tokenizer, wider, tokenizer)
    renewed |= dict.fromkeys(names, f'other classes, there {theirs}')
  if source.bundle.tokenizer.spec() != tokenizer.spec():
    larger = tokenizer_lib.Numbers(tokenizer.size + 1)
    names = _changed(config, tokenizer, config, larger)
    renewed |= dict.fromkeys(names, 'another vocabulary')
  return renewed


def _changed(config, tokenizer, other_config, other_tokenizer):
  """Returns the names whose shapes differ between two models."""
  one = _flat(bundle_lib.like(config, tokenizer))
  other = _flat(bundle_lib.like(other_config, other_tokenizer))
  return [name for name in one if one[name].shape != other[name].shape]


def _optimizer_state(source, states, report):
  """Returns the state of the source's optimizer, at the schedule's start."""
  flag = f'--init_optimizer: {source.init.run}'
  if report.new:
    raise errors.InputError(
      f'{flag} lacks parameters of this model ({next(iter(report.new))}), and '
      'with them the state of their optimizer: leave out the flag'
    )
  like = {'opt_state': states.like().opt_state}
  theirs = source.bundle
  try:
    _, parts = bundle_lib.restore(
      source.init.run, theirs.config, like, theirs.step
    )
  except errors.InputError as error:
    raise errors.InputError(
      f'{flag} has the state of another optimizer: give its section optimizer, '
      f'or leave out the flag: {error}'
    ) from error
  return jax.tree.map(
    _at_start, parts['opt_state'], is_leaf=_counts_steps_of_schedule
  )


def _counts_steps_of_schedule(x):
  return isinstance(x, optax.ScaleByScheduleState)


def _at_start(x):
  if not _counts_steps_of_schedule(x):
    return x
  return jax.tree.map(
    lambda n: jax.device_put(np.zeros(n.shape, n.dtype), n.sharding), x
  )


def _flat(params):
  return flax.traverse_util.flatten_dict(params, sep='/')


def _by(shape):
  return 'x'.join(map(str, shape)) or 'a number'


def _first(items):
  """Returns the first items of a dict, then '...'."""
  shown = [*items.items()]
  return shown[:SHOWN] + [('...', f'{len(shown):,} in all')] * (
    len(shown) > SHOWN
  )
