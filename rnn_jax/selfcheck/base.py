"""What a check is of, and what it says."""

from typing import NamedTuple


class Case(NamedTuple):
  """An implementation at one shape.

  Of a product, L is the number of rows, P that of columns, and `dtype` the
  format of the matrix.
  """

  impl: str
  L: int
  K: int
  P: int
  decay: str = 'key'
  read: str = 'after'
  dtype: str = 'float32'
  operands: str = 'float32'
  op: str = 'gla'  # or 'delta', its 'general' form, or 'product'


class Result(NamedTuple):
  """The worst tensor of a case, relative to its bound."""

  case: Case
  error: float
  bound: float
  where: str

  @property
  def passed(self) -> bool:
    """Whether the error is within its bound."""
    return bool(self.error <= self.bound)
