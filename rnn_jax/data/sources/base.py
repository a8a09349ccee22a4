"""Options and functions that several sources share.

A source is a file with `Config`, its options, which extends config.Data, and

    load(data) -> {split: documents.Documents}

for the splits 'train', 'validation' and 'test'. A source of many files has

    raw_files(data) -> {what they are for: the files that documents are in}

so that a large corpus is read once (rnn_jax/data/store). One whose data name
their classes says so, `names_classes`, and finds them in `Config.resolve`.
"""

import dataclasses
import typing
from collections.abc import Callable

from rnn_jax import config as config_lib
from rnn_jax import errors
from rnn_jax.data.tables import values
from rnn_jax.data.text import documents as documents_lib


@dataclasses.dataclass(frozen=True)
class Files(config_lib.Data):
  """Options of sources that read files."""

  path: str = ''  # a file or a glob
  validation_path: str = ''  # held-out files; empty: split off `path`
  test_path: str = ''


@dataclasses.dataclass(frozen=True)
class Columns(config_lib.Data):
  """Options of sources whose documents are rows of a table."""

  # Of the text, or of a list of turns; empty: 'text', or the only one.
  field: str = ''
  # Of the class, where there are classes; empty: 'label', or the only one.
  label: str = ''
  # What to do about a row without a class where there are classes.
  missing_labels: str = config_lib.option(
    values.ERROR, choices=(values.ERROR, values.SKIP)
  )
  # Whether a column of numbers may be read as text, digit by digit.
  numbers_as_text: bool = False

  names_classes: typing.ClassVar[bool] = True


@dataclasses.dataclass(frozen=True)
class FixedClasses(config_lib.Data):
  """Options of sources that always have the same classes."""

  names_classes: typing.ClassVar[bool] = True
  fixed_classes: typing.ClassVar[tuple[str, ...]] = ()

  def resolve(self, task: config_lib.Task) -> typing.Self:
    """Returns the options with the source's classes."""
    del task
    return dataclasses.replace(self, classes=self.classes or self.fixed_classes)

  def check_classes(self) -> None:
    """Checks that the classes are the source's.

    Raises:
      InputError: names the key, the value and the remedy.
    """
    if self.classes != self.fixed_classes:
      raise errors.InputError(
        f'data.classes={self.classes!r}: data.source={self.source!r} has '
        f'{self.fixed_classes}: give those'
      )


def name_of(data: config_lib.Data, example: str) -> str:
  """Returns NAME of `data.source='hf:NAME'`.

  Raises:
    InputError: it is empty; says that it is as in `example`.
  """
  name = data.source.partition(':')[2]
  if not name:
    errors.refuse(
      'data.source', data.source, f'name the dataset, as in {example!r}'
    )
  return name


def complete(
  given: dict[str, documents_lib.Documents], data: config_lib.Data
) -> dict[str, documents_lib.Documents]:
  """Returns all splits of a dataset, without a test split of secret classes.

  Raises:
    InputError: as documents.complete.
  """
  if 'test' in given and values.is_unlabelled('test', given['test'].labels):
    del given['test']
  return documents_lib.complete(given, data)


def load_files(
  data: Files, open_reader: Callable[[str, str], documents_lib.Reader]
) -> dict[str, documents_lib.Documents]:
  """Returns the splits of a source of files.

  A split with its own path takes nothing from `data.path`; its percentage of
  `data.splits` stays in training.

  Args:
    data: section `data` of the config.
    open_reader: returns the Reader of (path, config key to name in messages),
      or raises InputError.

  Raises:
    InputError: as `open_reader`; a file is in two splits; or there are fewer
      documents than splits.
  """
  documents = documents_lib.whole(open_reader(data.path, 'data.path'))
  held_out = {}
  for name in documents_lib.SPLITS[1:]:
    key = f'{name}_path'
    if path := getattr(data, key):
      held_out[name] = documents_lib.whole(open_reader(path, f'data.{key}'))
      documents_lib.check_disjoint(
        documents, held_out[name], f'data.{key}={path!r}'
      )
  percentages = [
    0 if name in held_out else percentage
    for name, percentage in zip(documents_lib.SPLITS, data.splits, strict=True)
  ]
  percentages[0] = 100 - sum(percentages[1:])
  return documents_lib.split(documents, percentages, data.split_by) | held_out
