"""Raw files to a TFDS dataset: read, check, split, write.

The inputs are read twice: once to check every example and to determine classes
and splits, and once to write; in this process, or by a runner of Apache Beam,
with the same result. `preparation.json` next to the data records what was done;
calling it again with the same inputs does nothing.
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
from rnn_jax import version
from rnn_jax.data.preparation import examples
from rnn_jax.data.preparation import inputs as inputs_lib
from rnn_jax.data.preparation import lengths as lengths_lib
from rnn_jax.data.preparation import survey as survey_lib
from rnn_jax.data.preparation import writer as writer_lib
from rnn_jax.system import files

RECORD = 'preparation.json'
HISTOGRAM = 'lengths.png'
LAYOUT = 1  # version of what this module writes; others aren't read
DUPLICATES = ('report', 'refuse')
SINGLE_PROCESS = 'single_process'

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
    text: the column that must not be empty; '': 'text' if it exists, else all
      columns of texts that aren't empty everywhere.
    missing_labels: what to do about examples without a class, 'error' or
      'skip'; a test split may have none at all.
    duplicates: one of DUPLICATES.
    options: how files are read.
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
  text: str = ''
  missing_labels: str = survey_lib.ERROR

  @property
  def folder(self) -> str:
    """The folder of the dataset."""
    return os.path.join(self.data_dir, self.name, writer_lib.VERSION)


class Progress(Protocol):
  """Shows the progress of an iteration under a label."""

  def __call__(self, iterable: Iterable[T], label: str, /) -> Iterable[T]: ...


def _silent(iterable: Iterable[T], label: str, /) -> Iterable[T]:
  del label
  return iterable


def prepare(
  request: Request,
  progress: Progress = _silent,
  runner: str = SINGLE_PROCESS,
  runner_options: str = '',
) -> tuple[dict[str, Any], bool]:
  """Writes the dataset unless it exists.

  Args:
    request: what to prepare.
    progress: shows how far the single process is.
    runner: SINGLE_PROCESS, or a runner of Apache Beam, such as 'DirectRunner'.
    runner_options: the runner's flags, as in a shell.

  Returns:
    (record, written): the content of preparation.json, and whether this call
    wrote it.

  Raises:
    InputError: an input cannot be used, the folder has another dataset, or the
      runner refuses its options.
  """
  _check(request)
  write = _engine(runner, runner_options)
  inputs = inputs_lib.find(list(request.inputs), request.format)
  sources = [
    {**dataclasses.asdict(one), 'sha256': inputs_lib.digest(one.path)}
    for one in progress(inputs, 'hashing')
  ]
  asked = _asked(request, sources)
  if (record := read_record(request.folder)) is not None:
    if difference := _difference(record['asked'], asked):
      raise errors.InputError(
        f'{request.folder} was made from other inputs or options '
        f'({difference}): remove it, or choose another --name'
      )
    return record, False
  record = {'layout': LAYOUT, 'rnn_jax': version.__version__, 'asked': asked}
  with writer_lib.moved_into_place(request.folder) as partial:
    survey, sizes = write(request, inputs, partial, progress)
    record |= survey.summary()
    layout = writer_lib.Layout(partial, request.name, survey.counts)
    layout.write_metadata(survey.schema, sizes, _description(request, record))
    if survey.lengths:
      lengths_lib.draw(survey.lengths, os.path.join(partial, HISTOGRAM))
    with open(os.path.join(partial, RECORD), 'w', encoding='utf-8') as file:
      json.dump(record, file, indent=2)
  return record, True


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


def _check(request):
  if not re.fullmatch(r'[a-z][a-z0-9_]*', request.name):
    raise errors.InputError(
      f'--name={request.name!r}: give lowercase letters, digits and _, as in '
      'rotten_tomatoes'
    )
  if request.duplicates not in DUPLICATES:
    raise errors.InputError(
      f'--duplicates={request.duplicates!r}: choose one of {DUPLICATES}'
    )
  if request.format:
    inputs_lib.load_format(request.format)


def _asked(request, sources):
  """Returns what a dataset depends on, JSON-ready; not where it is."""
  asked = dataclasses.asdict(request) | {'inputs': sources}
  del asked['data_dir']
  # What datasets of earlier versions don't name is as its default.
  for part, key, default in (
    (asked, 'text', ''),
    (asked, 'missing_labels', survey_lib.ERROR),
    (asked['options'], 'delimiter', ''),
  ):
    if part[key] == default:
      del part[key]
  return json.loads(json.dumps(asked))


def _difference(old, new):
  """Returns the options in which two requests differ."""
  old, new = map(_content, (old, new))
  keys = old.keys() | new.keys()
  return ', '.join(sorted(k for k in keys if old.get(k) != new.get(k)))


def _content(asked):
  """Drops paths: a file is identified by its content."""
  kept = 'sha256', 'split', 'format'
  inputs = [{key: one[key] for key in kept} for one in asked['inputs']]
  others = {key: asked[key] for key in asked if key != 'format'}
  return others | {'inputs': inputs}


def _engine(runner, options):
  """Returns what checks the inputs and writes the shards."""
  if runner != SINGLE_PROCESS:
    from rnn_jax.data.preparation import beam

    return beam.engine(runner, options)
  if options:
    raise errors.InputError(
      f'--runner_options={options!r}: these are options of a runner of Apache '
      'Beam: name it in --runner, or leave them out'
    )
  return _in_this_process


def _in_this_process(request, inputs, folder, progress):
  """Returns (survey, {split: bytes}) of the shards that it writes."""
  survey = survey_lib.run(request, inputs, progress)
  encode = writer_lib.Encoder(survey.schema)
  layout = writer_lib.Layout(folder, request.name, survey.counts)
  splits = iter(survey.splits)
  writer = writer_lib.Writer(layout)
  for example in progress(
    survey_lib.read(request, inputs, survey.schema), 'writing'
  ):
    writer.add(next(splits), encode(example))
  writer.close()
  return survey, writer.sizes


def _description(request, record):
  files = ', '.join(
    f'{os.path.basename(one["path"])} (SHA-256 {one["sha256"]})'
    for one in record['asked']['inputs']
  )
  return f'{request.name}, prepared by rnn_jax from {files}.'
