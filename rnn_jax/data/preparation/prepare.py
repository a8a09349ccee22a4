"""Raw files to a TFDS dataset: read, check, split, write.

The inputs are read twice: once to check every example and to fix classes and
splits, and once to write. What was done is kept beside the data in
`preparation.json`; a second call with the same inputs finds it and stops.
"""

import dataclasses
import json
import os
import re
from collections.abc import Callable
from collections.abc import Iterable

import rnn_jax
from rnn_jax import errors
from rnn_jax.data.preparation import examples
from rnn_jax.data.preparation import inputs as inputs_lib
from rnn_jax.data.preparation import lengths as lengths_lib
from rnn_jax.data.preparation import survey as survey_lib
from rnn_jax.data.preparation import writer as writer_lib

RECORD = 'preparation.json'
HISTOGRAM = 'lengths.png'
LAYOUT = 1  # of what this module writes; another one is not read
DUPLICATES = ('report', 'refuse')


@dataclasses.dataclass(frozen=True)
class Request:
  """What is to be prepared.

  inputs: `[split=]path` each.
  shares: per cent of train, validation and test; () where inputs have splits.
  label: the column of classes; None: 'label' if there is one; '': none.
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
  options: examples.Options = examples.Options()

  @property
  def folder(self) -> str:
    """Where the dataset lies."""
    return os.path.join(self.data_dir, self.name, writer_lib.VERSION)


Progress = Callable[[Iterable, str], Iterable]


def _silent(iterable, told):
  del told
  return iterable


def prepare(
  request: Request, progress: Progress = _silent
) -> tuple[dict, bool]:
  """Writes the dataset unless it is there.

  Returns:
    (record, written): what is kept in preparation.json, and whether it was
    written just now.

  Raises:
    InputError: an input cannot be used, or the folder holds another dataset.
  """
  _check(request)
  found = inputs_lib.find(list(request.inputs), request.format)
  sources = [
    {**dataclasses.asdict(one), 'sha256': inputs_lib.digest(one.path)}
    for one in progress(found, 'hashing')
  ]
  asked = _asked(request, sources)
  if (record := read_record(request.folder)) is not None:
    if told := _difference(record['asked'], asked):
      raise errors.InputError(
        f'{request.folder} was made of other inputs or options '
        f'({told}): remove it, or choose '
        'another --name'
      )
    return record, False
  survey = survey_lib.take(request, found, progress)
  record = {'layout': LAYOUT, 'rnn_jax': rnn_jax.__version__, 'asked': asked}
  record |= survey.told()
  _write(request, found, survey, record, progress)
  return record, True


def read_record(folder: str) -> dict | None:
  """Returns what preparation.json says, or None where there is no dataset.

  Raises:
    InputError: the folder holds something else, or a layout of another version.
  """
  path = os.path.join(folder, RECORD)
  if not os.path.exists(folder):
    return None
  try:
    with open(path, encoding='utf-8') as file:
      record = json.load(file)
    layout = record['layout']
  except (OSError, ValueError, KeyError, TypeError):
    raise errors.InputError(
      f'{folder} is there and was not written by launch.prepare: choose '
      'another --name or --data_dir'
    ) from None
  if layout != LAYOUT:
    raise errors.InputError(
      f'{folder} was written by another version of rnn_jax (layout {layout}, '
      f'here {LAYOUT}): remove it and prepare it again'
    )
  return record


def _check(request):
  if not re.fullmatch(r'[a-z][a-z0-9_]*', request.name):
    raise errors.InputError(
      f'--name={request.name!r}: give small letters, digits and _, as in '
      'rotten_tomatoes'
    )
  if request.duplicates not in DUPLICATES:
    raise errors.InputError(
      f'--duplicates={request.duplicates!r}: choose one of {DUPLICATES}'
    )
  if request.format:
    inputs_lib.load_format(request.format)


def _asked(request, sources):
  """What a dataset depends on, JSON-ready; where it lies is not part of it."""
  asked = dataclasses.asdict(request) | {'inputs': sources}
  del asked['data_dir']
  return json.loads(json.dumps(asked))


def _difference(old, new):
  """The options in which two requests ask for different data."""
  old, new = map(_content, (old, new))
  return ', '.join(sorted(key for key in new if old.get(key) != new[key]))


def _content(asked):
  """Without paths: a file is what it holds, however its path is spelt."""
  kept = 'sha256', 'split', 'format'
  inputs = [{key: one[key] for key in kept} for one in asked['inputs']]
  others = {key: asked[key] for key in asked if key != 'format'}
  return others | {'inputs': inputs}


def _write(request, found, survey, record, progress):
  splits = iter(survey.splits)
  with writer_lib.moved_into_place(request.folder) as partial:
    writer = writer_lib.Writer(
      partial, request.name, survey.schema, survey.counts
    )
    for example in progress(survey_lib.read(request, found), 'writing'):
      writer.add(next(splits), example)
    writer.finish(_description(request, record))
    if survey.lengths:
      lengths_lib.draw(survey.lengths, os.path.join(partial, HISTOGRAM))
    with open(os.path.join(partial, RECORD), 'w', encoding='utf-8') as file:
      json.dump(record, file, indent=2)


def _description(request, record):
  files = ', '.join(
    f'{os.path.basename(one["path"])} (SHA-256 {one["sha256"]})'
    for one in record['asked']['inputs']
  )
  return f'{request.name}, prepared by rnn_jax from {files}.'
