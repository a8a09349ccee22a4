"""Which configs are of the same run: what may differ when it resumes."""

import fnmatch
from typing import Any

from rnn_jax import config as config_lib
from rnn_jax import errors
from rnn_jax.config import values

LENGTHS = 'steps', 'epochs'  # of a run, section `train`; they may grow
# A run may resume with other values of these: they don't change its result.
FREE = (
  'data.workers',
  'data.prefetch',
  'data.cache',
  'data.delimiter',
  'data.numbers_as_text',
  'mesh.*',
  'optimizer.offload',
  'train.log_every',
  'train.checkpoint_dir',
  'train.checkpoint_every',
  'train.keep_checkpoints',
  'metrics.*',
  'sample.*',
)
FIXED = ('mesh.compression', 'mesh.top_k_share')  # the exceptions
# A run that starts from such a model may have other values of these.
OF_TRAINING = (
  'model.dropout',
  'model.dropout_shape',
  'model.token_dropout',
  'model.embedding_scale',
  'model.kernel_scale',
  'model.branch_scale',
  'model.unroll',
  'cell.dropout',
  'cell.*.dropout',
  'cell.window',
  'cell.*.window',
  'cell.input_bias',
  'cell.*.input_bias',
  'cell.forget_biases',
  'cell.*.forget_biases',
)


def check(name: str, old: dict[str, Any], new: dict[str, Any]) -> None:
  """Checks that a config is that of a run which has begun.

  Args:
    name: of the run, for messages: 'workdir=...'.
    old: its config.
    new: the config.

  Raises:
    InputError: it names each key that differs, with both values.
  """
  old, new = config_lib.as_given(old), config_lib.as_given(new)
  _refuse_less(name, old, new)
  longer = old | {
    'train': old['train'] | {key: new['train'][key] for key in LENGTHS}
  }
  if fixed := differences(longer, new):
    listed = '\n  '.join(fixed)
    raise errors.InputError(
      f'{name} holds a run with another config '
      f'(its value -> the one given):\n  {listed}\n'
      f'restore these values, or use another --workdir'
    )


def _refuse_less(name, old, new):
  for key in LENGTHS:
    before, given = old['train'].get(key), new['train'][key]
    if type(before) in (int, float) and given < before:
      raise errors.InputError(
        f'train.{key}={given!r}: {name} holds a run of {before:,} {key}, which '
        'may become more, not fewer: give that or more, or use another '
        '--workdir'
      )


def differences(old: dict[str, Any], new: dict[str, Any]) -> list[str]:
  """Returns `key: old -> new` of the differences that make another run.

  Keys that were filled in are compared by what was given.
  A key that `old`, of an earlier version, lacks had its default.
  """
  before = config_lib.as_given(config_lib.completed(old))
  lines = values.differences(before, config_lib.as_given(new))
  return [
    line
    for line in lines
    if not _is_among(line, FREE) or _is_among(line, FIXED)
  ]


def check_model(name: str, old: dict[str, Any], new: dict[str, Any]) -> None:
  """Checks that a config is of a model which nobody has trained here.

  The arguments are those of `check`.

  Raises:
    InputError: it names each key that differs, with both values.
  """
  lines = []
  for section in ('model', 'cell'):
    changed = values.differences(
      {section: old.get(section, {})}, {section: new[section]}
    )
    lines += [line for line in changed if not _is_among(line, OF_TRAINING)]
  if lines:
    listed = '\n  '.join(lines)
    raise errors.InputError(
      f'{name} holds another model than the config '
      f'(its value -> the one given):\n  {listed}\n'
      'give these values, or use another --workdir'
    )


def _is_among(line, patterns):
  key = line.partition(':')[0]
  return any(fnmatch.fnmatchcase(key, pattern) for pattern in patterns)
