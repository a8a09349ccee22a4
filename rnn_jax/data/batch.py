"""The contract between data and everything behind it."""

from typing import Any
from typing import NamedTuple


class Batch(NamedTuple):
  """Rows of token sequences, as NumPy or JAX arrays; a pytree.

  tokens_BxL: int32, what the model reads.
  targets_BxL: int32, what it should predict at each step.
  weights_BxL: float32, 0 on padding.
  starts_BxL: int32, 1 where a document begins: the state is zeroed before it.
  label_B: int32 class of a row, for classification.
  image_BxHxWxC: pixels, for vision.
  """

  tokens_BxL: Any
  targets_BxL: Any
  weights_BxL: Any
  starts_BxL: Any
  label_B: Any = None
  image_BxHxWxC: Any = None
