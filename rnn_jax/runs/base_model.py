"""The model that a run's adapters change: another run's, named in init.json."""

import os
import pathlib
from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Mapping
from typing import Any

import jax

from rnn_jax import errors
from rnn_jax.config import adapters as config_adapters
from rnn_jax.models import adapters
from rnn_jax.models import language_model
from rnn_jax.runs import origin

BODY = f'{language_model.BODY}/'
PyTree = Any
# (run, step, runs that change it) -> (parameters by name, digest of the seal)
ReadRun = Callable[[str, int, tuple[str, ...]], tuple[dict[str, Any], str]]


def read(
  workdir: str | os.PathLike,
  options: config_adapters.Adapters,
  shapes: Mapping[str, Any],
  read_run: ReadRun,
  seen: tuple[str, ...] = (),
) -> dict[str, Any]:
  """Returns what a run with adapters took of the model that they change.

  Args:
    workdir: the run's folder.
    options: section `adapters` of its config.
    shapes: of the run's parameters by name, as 'stack/blocks/mlp/up/kernel'.
    read_run: reads a run's parameters.
    seen: runs with adapters that change the model of this one.

  Returns:
    Arrays by name.

  Raises:
    InputError: the model's run doesn't exist or has changed.
  """
  path = pathlib.Path(workdir) / origin.NAME
  record = origin.read(workdir)
  if not record:
    raise errors.InputError(
      f'{path} is missing: it names the run whose model the adapters change; '
      'put it back'
    )
  theirs = _unchanged(workdir, record, read_run, seen)
  taken = {name: name_in(name, shapes, theirs) for name in record['taken']}
  for name, other in taken.items():
    if name not in shapes or other not in theirs:
      raise errors.InputError(
        f'{path} is damaged (taken={name!r:.80} is not a parameter of both): '
        'restore a copy'
      )
  for name, x in shapes.items():
    if name in taken:
      fits = theirs[taken[name]].shape == x.shape
    else:
      fits = adapters.is_trained(name, options)
    if not fits:
      raise errors.InputError(
        f'{path} names a model in which {name} is missing or another than '
        f'{x.shape}: restore a copy'
      )
  return {name: theirs[other] for name, other in taken.items()}


def _unchanged(workdir, record, read_run, seen):
  """Returns the parameters that adapters change, if they are what they were."""
  run, step = record['run'], record['step']
  remedy = f'the adapters of {workdir} change step {step} of {run}'
  seen = (*seen, os.path.realpath(workdir))
  if os.path.realpath(run) in seen:
    raise errors.InputError(
      f'{remedy}, which leads back to itself: restore its {origin.NAME}'
    )
  try:
    params, seal = read_run(run, step, seen)
  except (errors.InputError, OSError) as error:
    raise errors.InputError(
      f"{remedy}, which can't be read: {errors.explain(error) or error}"
    ) from error
  if seal != record['sha256']:
    raise errors.InputError(f'{remedy}, which is another checkpoint now')
  return params


def changes_like(params: PyTree, options: config_adapters.Adapters) -> PyTree:
  """Returns the shapes of the changes of a model's parameters."""
  return jax.eval_shape(
    lambda: adapters.init(jax.random.key(0), params, options)
  )


def name_in(name: str, ours: Iterable[str], theirs: Iterable[str]) -> str:
  """Returns the name in another model of one of our parameters, '' for none.

  A language model within another model, as in a classifier, is its `body`: its
  parameters match those of a plain language model.
  """
  inner, outer = (any(n.startswith(BODY) for n in x) for x in (ours, theirs))
  if inner and not outer:
    return name.removeprefix(BODY) if name.startswith(BODY) else ''
  return BODY + name if outer and not inner else name
