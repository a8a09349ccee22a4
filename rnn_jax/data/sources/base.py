"""Options and functions that several sources share.

A source is a file with `Config`, its options, which extends config.Data, and

    load(data) -> {split: documents.Documents}

for the splits 'train', 'validation' and 'test'. A source of many files has

    raw_files(data) -> {what they are for: the files that documents are in}

so that a large corpus is read once (rnn_jax/data/store). One whose data name
their classes says so, `names_classes`, and finds them in `Config.resolve`.
"""

import dataclasses
import os
import typing
from collections.abc import Callable

import numpy as np
from absl import logging

from rnn_jax import config as config_lib
from rnn_jax import errors
from rnn_jax.data.text import documents as documents_lib

ERROR, SKIP = 'error', 'skip'  # what to do about a row without a class
UNLABELLED = -1  # the class of such a row


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
  missing_labels: str = config_lib.option('error', choices=(ERROR, SKIP))
  # Whether a column of numbers may be read as text, digit by digit.
  numbers_as_text: bool = False

  names_classes: typing.ClassVar[bool] = True


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


def files_in(folder: str) -> list[str]:
  """Returns the files of a folder and those below it, sorted."""
  return sorted(
    os.path.join(above, name)
    for above, _, names in os.walk(folder)
    for name in names
  )


def is_unlabelled(split: str, labels: np.ndarray | None) -> bool:
  """Returns whether it's a test split whose classes are kept secret."""
  if split != 'test' or labels is None:
    return False
  return bool(np.all(labels == UNLABELLED))


def unlabelled(where: str, label: str) -> errors.InputError:
  """Returns the error about a row without a class in column `label`."""
  return errors.InputError(
    f'{where}: data.label={label!r} is missing: fill it, or leave out '
    f'such rows with data.missing_labels={SKIP!r}'
  )


def labelled(
  sizes: np.ndarray, labels: np.ndarray, name: str, column: str, missing: str
) -> np.ndarray:
  """Returns labels, after what is to be done about those that are missing.

  A test split may have none at all. Else rows without one are refused, or they
  become empty, so that they are no documents, and a warning counts them.

  Args:
    sizes: bytes of each row's text; changed.
    labels: the class of each row, UNLABELLED where there is none.
    name: of the rows, as 'reviews/test'.
    column: of the labels.
    missing: what to do, ERROR or SKIP.

  Raises:
    InputError: rows have no class.
  """
  lacks = labels == UNLABELLED
  if not lacks.any() or is_unlabelled(name.rpartition('/')[2], labels):
    return labels
  if missing != SKIP:
    raise unlabelled(f'{name}:{int(np.argmax(lacks))}', column)
  if lacks.all():
    errors.refuse(
      'data.label', column, f'no row of {name} has a class: name another'
    )
  sizes[lacks] = 0
  logging.warning(
    '%s: %s of %s rows have no %r and are left out',
    name,
    f'{lacks.sum():,}',
    f'{len(labels):,}',
    column,
  )
  return labels


def image_options(data: config_lib.Data) -> config_lib.Image:
  """Returns `data.image`, which layout 'images' adds to section `data`."""
  return typing.cast(typing.Any, data).image


def check_image_layout(data: config_lib.Data) -> None:
  """Checks that the layout of a source of images is for images.

  Raises:
    InputError: it isn't; names both.
  """
  if not data.holds_images:
    errors.refuse(
      'data.source',
      data.source,
      f'it has images, and data.layout={data.layout!r} is for tokens: give '
      "data.layout='images'",
    )
