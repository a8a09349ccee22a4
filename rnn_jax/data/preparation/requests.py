"""What to prepare, and the record of what was: preparation.json.

The record lies next to the data. A second request that asks for the same, of
files with the same content, finds there that nothing is left to do.
"""

import dataclasses
import json
import os
import re
from collections.abc import Iterable
from typing import Any
from typing import Protocol
from typing import TypeVar

from rnn_jax import errors
from rnn_jax.data.tables import lines
from rnn_jax.data.tables import values
from rnn_jax.system import files

RECORD = 'preparation.json'
LAYOUT = 1  # version of what is written; others aren't read
VERSION = '1.0.0'  # of a dataset
DUPLICATES = ('report', 'refuse')

T = TypeVar('T')


@dataclasses.dataclass(frozen=True)
class Request:
  """What to prepare; the names of the fields are keys of preparation.json.

  Attributes:
    name: of the dataset.
    data_dir: folder of datasets.
    inputs: `[split=]path` each.
    format: of all inputs; '': by the name of each file.
    shares: percentages of train, validation and test; () if inputs have splits.
    seed: of the assignment to splits.
    label: the column of classes; None: 'label' if it exists; '': no classes.
    classes: names of the classes; (): those that occur.
    skip_empty: whether to skip examples with an empty text, turn or list.
    duplicates: one of DUPLICATES.
    options: how files are read.
    text: the column that must not be empty; '': 'text' if it exists, else all
      columns of texts that aren't empty everywhere.
    missing_labels: what to do about examples without a class, 'error' or
      'skip'; a test split may have none at all.
  """

  name: str
  data_dir: str
  inputs: tuple[str, ...]
  format: str = ''
  shares: tuple[float, ...] = ()
  seed: int = 0
  label: str | None = None
  classes: tuple[str, ...] = ()
  skip_empty: bool = False
  duplicates: str = 'report'
  options: lines.Options = lines.Options()
  text: str = ''
  missing_labels: str = values.ERROR

  @property
  def folder(self) -> str:
    """The folder of the dataset."""
    return os.path.join(self.data_dir, self.name, VERSION)

  def check(self) -> None:
    """Raises InputError if the name or a choice is invalid."""
    if not re.fullmatch(r'[a-z][a-z0-9_]*', self.name):
      raise errors.InputError(
        f'--name={self.name!r}: give lowercase letters, digits and _, as in '
        'rotten_tomatoes'
      )
    if self.duplicates not in DUPLICATES:
      raise errors.InputError(
        f'--duplicates={self.duplicates!r}: choose one of {DUPLICATES}'
      )

  def asked(self, sources: list[dict[str, Any]]) -> dict[str, Any]:
    """Returns what the dataset depends on, of JSON's types; not where it is.

    Args:
      sources: the path, format, split and SHA-256 of each input.
    """
    asked = dataclasses.asdict(self) | {'inputs': sources}
    del asked['data_dir']
    return json.loads(json.dumps(asked))


class Progress(Protocol):
  """Shows the progress of an iteration under a label."""

  def __call__(self, iterable: Iterable[T], label: str, /) -> Iterable[T]: ...


def difference(old: dict[str, Any], new: dict[str, Any]) -> str:
  """Returns the options in which two requests differ, of what they asked."""
  old, new = map(_content, (old, new))
  keys = old.keys() | new.keys()
  return ', '.join(sorted(k for k in keys if old.get(k) != new.get(k)))


def _content(asked):
  """Drops paths: a file is identified by its content."""
  kept = 'sha256', 'split', 'format'
  inputs = [{key: one[key] for key in kept} for one in asked['inputs']]
  others = {key: asked[key] for key in asked if key != 'format'}
  return others | {'inputs': inputs}


def read_record(folder: str) -> dict[str, Any] | None:
  """Returns the content of preparation.json, or None without a dataset.

  Raises:
    InputError: the folder has something else, or a layout of another version.
  """
  path = os.path.join(folder, RECORD)
  if not os.path.exists(folder):
    return None
  try:
    record = files.read_json(path)
    layout = record['layout']
  except (OSError, ValueError, KeyError, TypeError):
    raise errors.InputError(
      f'{folder} exists and was not written by launch.prepare: choose another '
      '--name or --data_dir'
    ) from None
  if layout != LAYOUT:
    raise errors.InputError(
      f'{folder} was written by another version of rnn_jax (layout {layout}, '
      f'here {LAYOUT}): remove it and prepare it again'
    )
  return record


def report(record: dict[str, Any], folder: str, written: bool) -> str:
  """Returns the lines about a dataset that launch.prepare prints."""
  lines = [f'{folder}: {"written" if written else "exists, nothing to do"}']
  for split, count in record['examples'].items():
    lines.append(f'  {split:<12}{count:>9,} examples')
    for name, points in record['lengths'].get(split, {}).items():
      listed = ', '.join(f'{key} {value:,.0f}' for key, value in points.items())
      lines.append(f'    {name}: {listed}')
    if by_class := record['examples_by_class'].get(split):
      listed = ', '.join(f'{key} {value:,}' for key, value in by_class.items())
      lines.append(f'    {record["label"]}: {listed}')
  for reason, count in record['skipped'].items():
    lines.append(f'  {count:,} example(s) skipped: {reason}')
  for one in record['duplicates']:
    first, second = one['first'], one['second']
    where = 'twice in' if first == second else f'in {first} and'
    lines.append(
      f'  {one["contents"]:,} example(s) {where} {second}, such as '
      f'{one["example"][0]} and {one["example"][1]}'
    )
  return '\n'.join(lines)
