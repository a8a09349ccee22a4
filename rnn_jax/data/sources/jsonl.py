"""JSONL files: each line is an object, and a document is a text in it.

The columns and classes are those of rnn_jax/data/columns.py, what a row becomes
is in rnn_jax/data/tables/indexed.py.
"""

import dataclasses
import typing

from rnn_jax import config as config_lib
from rnn_jax.data.sources import base
from rnn_jax.data.sources import text
from rnn_jax.data.tables import indexed
from rnn_jax.data.tables import jsonl
from rnn_jax.data.text import documents


@dataclasses.dataclass(frozen=True)
class Config(base.Files, base.Columns):
  """Options of the source, of section `data` of the config."""

  def resolve(self, task: config_lib.Task) -> typing.Self:
    """Returns the options with the columns and the classes of the rows.

    Raises:
      InputError: a row can't be read, or they leave a choice.
    """
    return indexed.resolve(self, task.classifies, jsonl.Table)


raw_files = text.raw_files


def load(data: Config) -> dict[str, documents.Documents]:
  """Returns the documents of each split; rows with an empty text are skipped.

  Raises:
    InputError: no file matches, a file is empty or not UTF-8, or a line isn't
      an object with a text in `data.field` and a class in `data.label`.
  """
  return base.load_files(data, indexed.opener(data, jsonl.Table))
