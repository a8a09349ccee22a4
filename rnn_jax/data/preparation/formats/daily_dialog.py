"""The original DailyDialog text: a dialogue per line, __eou__ after each turn.

Source: Li et al., "DailyDialog: A Manually Labelled Multi-turn Dialogue
Dataset", 2017.
"""

from collections.abc import Iterator

from rnn_jax import errors
from rnn_jax.data.tables import lines
from rnn_jax.data.tables import values

SUFFIXES = ()  # .txt is plain text unless --format names this one
END_OF_TURN = '__eou__'


def read(path: str, options: lines.Options) -> Iterator[values.Row]:
  """Yields {'turns': [...]} for each line that is not blank.

  Raises:
    InputError: a line has no __eou__.
  """
  for where, line in lines.read(path, options.encoding):
    if not line.strip():
      continue
    if END_OF_TURN not in line:
      raise errors.InputError(
        f'{where}: no {END_OF_TURN}: this format has it after each turn'
      )
    turns = [turn.strip() for turn in line.split(END_OF_TURN)]
    if not turns[-1]:
      turns.pop()
    yield values.Row(where, {'turns': turns})
