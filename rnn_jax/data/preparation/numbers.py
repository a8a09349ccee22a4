"""Numbers in files that hold nothing but text, such as CSV.

A column is one of numbers if each of its values is: 12, -0.5 or 1e-3, but not
007, which is a name. What is called 'text' stays text, and so do labels.
"""

import math
import re

from rnn_jax.data.preparation import examples
from rnn_jax.data.preparation import schema as schema_lib

TEXT = 'text'
WHOLE = re.compile(r'-?(0|[1-9][0-9]{0,17})')  # fits 64 bits
OTHER = re.compile(r'-?(0|[1-9][0-9]*)(\.[0-9]+([eE][+-]?[0-9]+)?|[eE]-[0-9]+)')


def expect(schema: schema_lib.Schema) -> None:
  """Takes every column of text for one of numbers until `note` sees others."""
  for name, column in schema.columns.items():
    if column == schema_lib.Column(str) and name not in (schema.label, TEXT):
      schema.numbers[name] = int


def note(schema: schema_lib.Schema, example: examples.Example) -> None:
  """Notes what the values of an example are."""
  for name in [*schema.numbers]:
    value = example.values[name]
    if WHOLE.fullmatch(value):
      continue
    if OTHER.fullmatch(value) and math.isfinite(float(value)):
      schema.numbers[name] = float
    else:
      del schema.numbers[name]


def settle(schema: schema_lib.Schema) -> None:
  """Makes the columns that are left columns of numbers."""
  for name, kind in schema.numbers.items():
    schema.columns[name] = schema_lib.Column(kind)
