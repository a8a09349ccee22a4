"""A file to evaluate a trained run on: the documents of one more split.

    name, documents = open_documents('new.csv', '', config)

| input | documents |
|---|---|
| .jsonl, .csv, .tsv, .parquet | its rows: data.field, data.label |
| a file of text, or a glob | whole files |
| prepared:NAME, or its folder | the examples of a split, see launch.prepare |
| of series of numbers: a table | of each series the last horizon, or label |
| of images: a folder, a zip, CIFAR-10's tarball | its images by class |

Columns that the run's config doesn't name are 'text' and 'label'.
"""

import dataclasses
import os
import re
from typing import Any

from absl import logging

from rnn_jax import config as config_lib
from rnn_jax import errors
from rnn_jax.config import parts
from rnn_jax.data import columns
from rnn_jax.data.preparation import prepared
from rnn_jax.data.sources import images
from rnn_jax.data.sources import text
from rnn_jax.data.sources import tfds
from rnn_jax.data.tables import rows
from rnn_jax.data.tables import values
from rnn_jax.data.text import documents as documents_lib
from rnn_jax.system import bounds

FLAG = '--input'
PREPARED = 'prepared:'


@dataclasses.dataclass(frozen=True)
class Options:
  """How rows are read.

  Attributes:
    delimiter: between the values of a CSV file; '': its header shows it.
    missing_labels: what to do about a row without a class, 'error' or 'skip';
      '': what the run's config says.
  """

  delimiter: str = ''
  missing_labels: str = ''


BY_CONFIG = Options()


def open_documents(
  given: str,
  split: str,
  config: config_lib.Config,
  options: Options = BY_CONFIG,
) -> tuple[str, documents_lib.Documents]:
  """Returns the name of an input, for a folder, and its documents.

  Args:
    given: a file, a glob, a folder, or 'prepared:NAME'.
    split: of a prepared dataset; '': its test split, or the last that it has.
    config: of the run.
    options: of rows.

  Raises:
    InputError: there is no such input, a row lacks a text or a class of the
      run, or `split` or an option has no effect.
  """
  dataset = _dataset(given, config.data)
  if dataset is not None:
    _check_no_rows(given, options)
    try:
      return _of_dataset(dataset[0], dataset[1], split, config.data)
    except errors.InputError as error:  # it names keys of the config
      raise errors.InputError(f'{FLAG}={given!r}: {error}') from None
  if split:
    errors.refuse('--split', split, f'only {PREPARED}NAME has splits: omit it')
  documents: documents_lib.Documents
  if config.task.reads_series:
    _check_no_rows(given, options)
    source = config_lib.load('data/sources', config.data.source, 'data.source')
    documents = source.open_file(given, FLAG, config.data)
  elif config.task.reads_images:
    _check_no_rows(given, options)
    documents = _of_images(given, config.data)
  elif rows.format_of(given) == 'text' or not os.path.exists(given):
    _check_no_rows(given, options)
    documents = _of_text(given, config)
  else:
    documents = _of_rows(given, config, options)
  return _name(os.path.basename(os.path.normpath(given))), documents


def _dataset(given, data):
  """Returns (NAME, DATA_DIR) of a prepared dataset; None: it isn't one."""
  if given.startswith(PREPARED):
    name = given.removeprefix(PREPARED)
    if not name:
      errors.refuse(FLAG, given, f'name the dataset, as in {PREPARED}reviews')
    return name, getattr(data, 'data_dir', 'data')
  folder = os.path.normpath(given)
  parent, name = os.path.split(folder)
  if os.path.isfile(os.path.join(folder, prepared.FEATURES)):
    above, own = os.path.split(parent)
    return f'{own}:{name}', above or '.'
  versions = filter(prepared.VERSION.fullmatch, _names_in(folder))
  if any(
    os.path.isfile(os.path.join(folder, version, prepared.FEATURES))
    for version in versions
  ):
    return name, parent or '.'
  return None


def _names_in(folder):
  return os.listdir(folder) if os.path.isdir(folder) else []


def _of_dataset(name, data_dir, split, data):
  changed = _with_source(data, f'tfds:{name}', data_dir=data_dir)
  split, documents = tfds.open_split(changed, split)
  return _name(f'{re.sub("[/:]", "-", name)}.{split}'), documents


def _of_images(given, data):
  rows.check_exists(given, FLAG)
  reader, _ = images.read(given, FLAG, _with_source(data, 'images'))
  return documents_lib.whole(reader)


def _of_text(given, config):
  if config.task.classifies:
    rows.check_exists(given, FLAG)
    errors.refuse(
      FLAG, given, 'a file of text has no classes: give a .jsonl or .csv'
    )
  return documents_lib.whole(text.open_files(given, FLAG))


def _check_no_rows(given, options):
  """Raises InputError if an option of rows is given."""
  for field in dataclasses.fields(options):
    if value := getattr(options, field.name):
      errors.refuse(
        f'--{field.name}', value, f'{given} is no table of rows: leave it out'
      )


def _of_rows(given, config, options):
  source = rows.Source(given, delimiter=options.delimiter)
  source.check()
  bounds.check(os.path.getsize(given), f'{FLAG}={given}', 'split the file')
  data = config.data
  field = getattr(data, 'field', '') or columns.TEXT
  label = getattr(data, 'label', '') or columns.LABEL
  skips = _skips(data, options)
  names, texts, labels, skipped = [], [], [], 0
  folder = os.path.join(os.path.dirname(given), '')
  for where, row, _ in source.rows():
    if config.task.classifies:
      given_label = values.value_of(row, label, where)
      number = values.class_of(given_label, label, data.classes, where)
      if number == values.UNLABELLED and skips:
        skipped += 1
        continue
      _check_labelled(number, label, where)
      labels.append(number)
    names.append(where.removeprefix(folder))
    classifies = config.task.classifies
    texts.append(values.filled_text(row, field, where, '', classifies))
  if skipped and not texts:
    errors.refuse(FLAG, given, f'no row has a class in {label!r}: use predict')
  if skipped:
    logging.warning(
      '%s: %s of %s rows have no %r and are left out',
      given,
      f'{skipped:,}',
      f'{skipped + len(texts):,}',
      label,
    )
  if not any(texts):
    errors.refuse(FLAG, given, 'no row has any text: fill it')
  reader = documents_lib.InMemory(texts, labels or None, names, (given,))
  return documents_lib.whole(reader)


def _skips(data, options):
  own = getattr(data, 'missing_labels', values.ERROR)
  return (options.missing_labels or own) == values.SKIP


def _check_labelled(number, label, where):
  if number == values.UNLABELLED:
    raise errors.InputError(
      f'{where}: {label!r} is empty, and an evaluation needs the class: fill '
      f'it, or leave out such rows with --missing_labels={values.SKIP}'
    )


def _with_source(data: config_lib.Data, source: str, **changes: str) -> Any:
  """Returns section `data` with another source, and its layout's options."""
  given = dataclasses.asdict(data) | changes
  given |= {'source': source, 'difficulty': ''}
  named = parts.chosen({'data': given})
  cls: Any = parts.section_class('data', named)
  known = {field.name for field in dataclasses.fields(cls)}
  return config_lib.section(
    'data', **{key: value for key, value in given.items() if key in known}
  )


def _name(name):
  """Returns the name of a folder that no split of the run has."""
  return f'{name}.input' if name in documents_lib.SPLITS else name
