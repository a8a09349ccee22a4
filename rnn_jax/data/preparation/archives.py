"""Limits of what is read from an archive that a stranger packed.

Members are read one at a time and never written to disk under their own names.
"""

from rnn_jax import errors

LARGEST = 256 * 2**20  # bytes of one member, unpacked


def check_size(size: int, where: str) -> None:
  """Checks the unpacked size of a member before it is read.

  Args:
    size: bytes.
    where: the archive and the member, for the message.

  Raises:
    InputError: it is larger than any image or batch should be.
  """
  if size > LARGEST:
    raise errors.InputError(
      f'{where}: {size:,} bytes unpacked, and {LARGEST:,} are allowed: unpack '
      'it yourself, and give the folder'
    )
