"""What sources share."""

from rnn_jax import config
from rnn_jax import errors

PATHS = ('path', 'validation_path', 'test_path')


def check_no_path(data: config.Data) -> None:
  """Checks that a source which reads no files of the user's is given none.

  Raises:
    InputError: it is, and would leave them aside.
  """
  for name in PATHS:
    if path := getattr(data, name):
      raise errors.InputError(
        f'data.{name}={path!r}: data.source={data.source!r} reads no files of '
        f"yours: give data.source='text', 'jsonl' or 'images', or leave it out"
      )
