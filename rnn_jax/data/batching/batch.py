"""The contract between the data and its users."""

from typing import Any
from typing import NamedTuple


class Batch(NamedTuple):
  """Rows of tokens, of readings, or images, as arrays; a pytree.

  Each name ends with its logical axes, the row's first. The fields are NumPy or
  JAX arrays, or a tree of what belongs to each, such as shardings; None where
  a kind of batch lacks one.

  Attributes:
    tokens_BxL: int32, what the model reads.
    targets_BxL: int32, what it should predict at each step.
    weights_BxL: float32, 0 on padding; an image is a row of one step.
    starts_BxL: int32, 1 where a document begins, -1 where padding does, after
      one: the state is zeroed before it.
    label_B: int32, class of an image.
    image_BxHxWxC: uint8 pixels.
    readings_BxLxW: float32, of a series the scaled readings that each step
      sees, the latest last, of several targets one after the other; NaN is a
      missing one. Tokens and targets are None.
    calendar_BxLxF: float32, the calendar features of the next reading.
    future_BxLxH: float32, the readings that each step forecasts, of several
      targets one after the other; NaN is none.
    known_BxLxHxK: float32, what is known of these, see data/series/
      covariates.py; NaN is missing.
    inputs_BxLxC: float32, the covariates of each step, the same.
    categories_BxLxS: int32, entries of the series' categories.
  """

  tokens_BxL: Any
  targets_BxL: Any
  weights_BxL: Any
  starts_BxL: Any
  label_B: Any = None
  image_BxHxWxC: Any = None
  readings_BxLxW: Any = None
  calendar_BxLxF: Any = None
  future_BxLxH: Any = None
  known_BxLxHxK: Any = None
  inputs_BxLxC: Any = None
  categories_BxLxS: Any = None


LOGICAL_AXES = Batch(*(name.rpartition('_')[2] for name in Batch._fields))
