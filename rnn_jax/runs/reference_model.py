"""A trained model that another run's training reads and doesn't change.

Such are the teacher of distillation and the reference of preferences. Their
parameters are constants of the training program, copied to each device.
"""

from rnn_jax import config as config_lib
from rnn_jax import errors
from rnn_jax.data.text import tokenizer as tokenizer_lib
from rnn_jax.runs import bundle as bundle_lib


def read(
  key: str,
  workdir: str,
  checkpoint: str,
  config: config_lib.Config,
  tokenizer: tokenizer_lib.Tokenizer,
) -> bundle_lib.Bundle:
  """Returns the language model that a key of a config names.

  Args:
    key: for messages, as 'distillation.teacher'.
    workdir: the run's folder.
    checkpoint: 'best', 'latest' or a step.
    config: of the run that reads it.
    tokenizer: of that run.

  Raises:
    InputError: the named run doesn't exist, predicts no tokens, has another
      vocabulary, or has learned positions for fewer tokens.
  """
  named = f'{key}={workdir!r}'
  try:
    bundle = bundle_lib.read(workdir, checkpoint)
  except (errors.InputError, OSError) as error:
    raise errors.InputError(
      f'{named}: {errors.explain(error) or error}'
    ) from error
  if not bundle.config.task.writes_text:
    raise errors.InputError(
      f'{named} predicts no text, its task is '
      f'{bundle.config.task.name!r}: give a language model'
    )
  if bundle.tokenizer.spec() != tokenizer.spec():
    raise errors.InputError(
      f'{named} has another vocabulary, of {bundle.tokenizer.size} entries, '
      f'and this run has one of {tokenizer.size}: give a run with the same '
      'tokenizer.json'
    )
  _check_length(named, config, bundle.config)
  return bundle


def _check_length(named, config, other):
  if other.model.positions != 'learned':
    return
  longest = other.model.max_positions or other.data.length
  if config.data.carry_state or config.data.length > longest:
    raise errors.InputError(
      f'{named} has learned positions for {longest} tokens: give '
      f'data.length={longest} at most, not {config.data.length}, and '
      'data.carry_state=False'
    )
