"""The contract between data and everything behind it."""

from typing import Any
from typing import NamedTuple


class Batch(NamedTuple):
  """Rows of token sequences, or pictures, as arrays; a pytree.

  What a kind of batch has not is None. Each name ends with its logical axes:
  the first is the row's.

  tokens_BxL: int32, what the model reads.
  targets_BxL: int32, what it should predict at each step.
  weights_BxL: float32, 0 on padding; a picture is a row of one step.
  starts_BxL: int32, 1 where a document begins: the state is zeroed before it.
  label_B: int32 class of a picture.
  image_BxHxWxC: uint8 pixels.
  """

  tokens_BxL: Any
  targets_BxL: Any
  weights_BxL: Any
  starts_BxL: Any
  label_B: Any = None
  image_BxHxWxC: Any = None


LOGICAL_AXES = Batch(*(name.rpartition('_')[2] for name in Batch._fields))
