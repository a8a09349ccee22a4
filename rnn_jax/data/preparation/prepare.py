"""Raw files to a TFDS dataset: read, check, split, write.

The inputs are read twice: once to check every example and to determine classes
and splits, and once to write; in this process, or by a runner of Apache Beam,
with the same result. `preparation.json` next to the data records what was done;
calling it again with the same inputs does nothing.
"""

import dataclasses
import json
import os
from typing import Any

from rnn_jax import errors
from rnn_jax import version
from rnn_jax.data.preparation import inputs as inputs_lib
from rnn_jax.data.preparation import lengths as lengths_lib
from rnn_jax.data.preparation import requests
from rnn_jax.data.preparation import survey as survey_lib
from rnn_jax.data.preparation import writer as writer_lib

HISTOGRAM = 'lengths.png'
SINGLE_PROCESS = 'single_process'


def _silent(iterable, label, /):
  del label
  return iterable


def prepare(
  request: requests.Request,
  progress: requests.Progress = _silent,
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
  request.check()
  write = _engine(runner, runner_options)
  inputs = inputs_lib.find(list(request.inputs), request.format)
  sources = [
    {**dataclasses.asdict(one), 'sha256': inputs_lib.digest(one.path)}
    for one in progress(inputs, 'hashing')
  ]
  asked = request.asked(sources)
  if (record := requests.read_record(request.folder)) is not None:
    if difference := requests.difference(record['asked'], asked):
      raise errors.InputError(
        f'{request.folder} was made from other inputs or options '
        f'({difference}): remove it, or choose another --name'
      )
    return record, False
  record = {'layout': requests.LAYOUT, 'rnn_jax': version.__version__}
  record['asked'] = asked
  with writer_lib.moved_into_place(request.folder) as partial:
    survey, sizes = write(request, inputs, partial, progress)
    record |= survey.summary()
    layout = writer_lib.Layout(partial, request.name, survey.counts)
    layout.write_metadata(survey.schema, sizes, _description(request, record))
    if survey.lengths:
      lengths_lib.draw(survey.lengths, os.path.join(partial, HISTOGRAM))
    with open(
      os.path.join(partial, requests.RECORD), 'w', encoding='utf-8'
    ) as file:
      json.dump(record, file, indent=2)
  return record, True


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
