"""CSV and TSV files: a header of column names, and a document in each row.

    python -m launch.train --config=configs/text_classification.py \\
        --config.data.path=tickets.csv --workdir=runs/tickets

How rows are separated is in rnn_jax/data/tables/csv.py, the columns and classes
are those of rnn_jax/data/columns.py, and what a row becomes is in
rnn_jax/data/tables/indexed.py. A difficulty is a number as text.
"""

import dataclasses
import functools
import typing
from collections.abc import Callable

from rnn_jax import config as config_lib
from rnn_jax.data.sources import base
from rnn_jax.data.sources import text
from rnn_jax.data.tables import csv
from rnn_jax.data.tables import indexed
from rnn_jax.data.text import documents

FLAG = 'data.delimiter'


@dataclasses.dataclass(frozen=True)
class Config(base.Files, base.Columns):
  """Options of the source, of section `data` of the config."""

  # Between values; empty: comma, semicolon or tab, by the header.
  delimiter: str = ''

  def check(self, config: config_lib.Config) -> None:
    super().check(config)
    csv.check_delimiter(self.delimiter, FLAG)

  def resolve(self, task: config_lib.Task) -> typing.Self:
    """Returns the options with the columns and the classes of the rows.

    Raises:
      InputError: a row can't be read, or they leave a choice.
    """
    return indexed.resolve(self, task.classifies, _opener(self))


raw_files = text.raw_files


def load(data: Config) -> dict[str, documents.Documents]:
  """Returns the documents of each split; rows with an empty text are skipped.

  Raises:
    InputError: no file matches, a file is empty or not UTF-8, its header or a
      row is malformed, or a row lacks a text or a class.
  """
  return base.load_files(data, indexed.opener(data, _opener(data)))


def _opener(data) -> Callable[[str], csv.Table]:
  return functools.partial(csv.open_table, delimiter=data.delimiter, flag=FLAG)
