"""Numbers in files without types, such as CSV.

A column is numeric if each of its values is a number: 12, -0.5 or 1e-3, but not
007, which is a name. A column named 'text' stays text, and so do labels.
"""

import math
import re

from rnn_jax.data.preparation import examples
from rnn_jax.data.preparation import schema as schema_lib

TEXT = 'text'
INTEGER = re.compile(r'-?(0|[1-9][0-9]{0,17})')  # fits 64 bits
FLOAT = re.compile(r'-?(0|[1-9][0-9]*)(\.[0-9]+([eE][+-]?[0-9]+)?|[eE]-[0-9]+)')


def assume(schema: schema_lib.Schema) -> None:
  """Assumes that text columns are integers until `observe` sees others."""
  for name, column in schema.columns.items():
    if column == schema_lib.Column(str) and name not in (schema.label, TEXT):
      schema.numbers[name] = int


def observe(schema: schema_lib.Schema, example: examples.Example) -> None:
  """Updates the kinds of the columns by the values of an example."""
  for name in [*schema.numbers]:
    value = example.values[name]
    if INTEGER.fullmatch(value):
      continue
    if FLOAT.fullmatch(value) and math.isfinite(float(value)):
      schema.numbers[name] = float
    else:
      del schema.numbers[name]


def is_number(value: str) -> bool:
  """Returns whether a value is spelled as a number."""
  return bool(INTEGER.fullmatch(value) or FLOAT.fullmatch(value))


def finish(schema: schema_lib.Schema) -> None:
  """Makes the remaining columns numeric."""
  for name, kind in schema.numbers.items():
    schema.columns[name] = schema_lib.Column(kind)
