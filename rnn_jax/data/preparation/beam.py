"""The preparation as a pipeline of Apache Beam, in parallel over input files.

    inputs -> read and check -> deduplicate and split
           -> read and encode -> write shards -> sum sizes

It consists of the functions that a single process calls, and a shard's records
are sorted by their place in the inputs, so all files are equal bit for bit.
Duplicates and a seeded split depend on all examples: one worker gathers a fact
about each, without its values. A worker that writes holds the records of a
shard. A bad row is a value, not an exception, which runners would retry: the
first one in order of reading becomes the error. Every worker needs this
package, and sees the inputs and the folder of the dataset by the same paths.
TFDS's own `BeamWriter` isn't used: its shards begin at other examples.

Source: https://beam.apache.org/documentation/programming-guide/
"""

import collections
import contextlib
import copy
import functools
import io
import itertools
import operator
import os
import pickle
import re
import shlex
import shutil
import uuid
from collections.abc import Callable
from typing import Any
from typing import NamedTuple

from rnn_jax import errors
from rnn_jax.data.preparation import inputs as inputs_lib
from rnn_jax.data.preparation import prepared
from rnn_jax.data.preparation import schema as schema_lib
from rnn_jax.data.preparation import survey as survey_lib
from rnn_jax.data.preparation import writer as writer_lib

NOTES = '.notes'  # what workers leave for the process that started them
IN_A_STEP = '[while running'  # in the message of an error of a worker


class Plan(NamedTuple):
  """What to do with the rows of an input.

  Attributes:
    input: the file or folder.
    splits: the split of each row.
    ranks: {split: its number of rows in earlier inputs}.
    layout: where shards are written.
    schema: the columns of all inputs.
  """

  input: inputs_lib.Input
  splits: list[str]
  ranks: dict[str, int]
  layout: writer_lib.Layout
  schema: schema_lib.Schema


def engine(runner: str, options: str) -> Callable[..., Any]:
  """Returns what prepares a dataset on a runner, as `prepare` calls it.

  Args:
    runner: its name in Beam, such as 'DirectRunner' or 'FlinkRunner'.
    options: its flags, as in a shell.

  Raises:
    InputError: Beam isn't installed, or the runner or an option is invalid.
  """
  with prepared.quiet():  # it warns about clients of clouds
    beam = _beam(runner)
  said = io.StringIO()
  try:
    with contextlib.redirect_stderr(said):
      flags = beam.options.pipeline_options.PipelineOptions(
        shlex.split(options)
      )
      flags.get_all_options()  # parses them
      pipeline = beam.Pipeline(runner=runner, options=flags)
  except (Exception, SystemExit) as error:
    # argparse prints its usage and what is wrong, and exits.
    exits = isinstance(error, SystemExit)
    reason = said.getvalue().rpartition('error: ')[2] if exits else str(error)
    raise _refusal(runner, options, reason) from None

  def run(request, inputs, folder, progress):
    del progress  # runners have their own
    schema = survey_lib.begin(request, inputs)
    notes = os.path.join(folder, NOTES)
    os.mkdir(notes)
    _build(pipeline, request, inputs, schema, folder)
    try:
      state = pipeline.run().wait_until_finish()
    except Exception as error:
      system = re.search(r'\[Errno \d+\] [^\n\[]+', str(error))
      if IN_A_STEP in str(error) and not system:
        raise
      reason = system[0] if system else f'{type(error).__name__}: {error}'
      raise _refusal(runner, options, reason) from error
    if not os.path.exists(os.path.join(notes, 'sizes')):
      reason = f'the state is {state}, without a result in {notes}'
      raise _refusal(runner, options, reason)
    survey, sizes = _load(notes, 'survey'), _load(notes, 'sizes')
    shutil.rmtree(notes)
    if isinstance(survey, errors.InputError):
      raise survey
    return survey, sizes

  return run


def _beam(runner):
  """Returns the package, with its options."""
  try:
    import apache_beam
    import apache_beam.options.pipeline_options
  except ImportError:
    errors.refuse(
      '--runner',
      runner,
      "it needs the package apache-beam: pip install 'rnn_jax[beam]'",
    )
  return apache_beam


def _refusal(runner, options, reason):
  return errors.InputError(
    f'--runner={runner!r}, --runner_options={options!r}: Apache Beam fails '
    f'({" ".join(reason.split())}): see "On many machines" in docs/data.md'
  )


def _build(pipeline, request, inputs, schema, folder):
  """Adds the steps, from files to shards, to a pipeline."""
  import apache_beam as beam

  notes = os.path.join(folder, NOTES)
  _ = (
    pipeline
    | 'inputs' >> beam.Create([*enumerate(inputs)])
    | 'to workers' >> beam.Reshuffle()
    | 'read and check' >> beam.FlatMap(_check, request, schema)
    | 'gather' >> beam.GroupByKey()
    | 'deduplicate and split' >> beam.FlatMap(_plan, request, inputs, folder)
    | 'plans to workers' >> beam.Reshuffle()
    | 'read and encode' >> beam.FlatMap(_encode, request)
    | 'by shard' >> beam.GroupByKey()
    | 'write shards' >> beam.Map(_write, notes)
    | 'sum sizes' >> beam.CombinePerKey(sum)
    | 'of all splits' >> beam.combiners.ToDict()
    | 'report' >> beam.Map(_save, notes, 'sizes')
  )


def _check(numbered, request, schema):
  """Yields (None, (place, what it is)) of each row, and then of the input.

  That is a Fact of each row, and the schema as of the last row; or in its place
  the InputError that ends the input.
  """
  number, one = numbered
  schema = copy.deepcopy(schema)  # a worker has several inputs
  row = 0
  try:
    for example in survey_lib.read(request, [one], schema, schema.skipped):
      yield None, ((number, row), survey_lib.observe(schema, example))
      row += 1
    yield None, ((number, row), schema)
  except errors.InputError as error:
    yield None, ((number, row), error)
  except OSError as error:
    remedy = 'every worker must see the inputs, by the same path'
    bad = errors.InputError(f'{one.path}: {error.strerror}: {remedy}')
    yield None, ((number, row), bad)


def _plan(gathered, request, inputs, folder):
  """Yields the Plan of each input; nothing if the examples are refused."""
  _, seen = gathered
  seen = sorted(seen, key=operator.itemgetter(0))
  notes = os.path.join(folder, NOTES)
  try:
    survey = _conclude(request, [what for _, what in seen])
  except errors.InputError as error:
    _save(error, notes, 'survey')
    return
  _save(survey, notes, 'survey')
  layout = writer_lib.Layout(folder, request.name, survey.counts)
  splits = iter(survey.splits)
  ranks = dict.fromkeys(survey.counts, 0)
  ends = [
    place for place, what in seen if not isinstance(what, survey_lib.Fact)
  ]
  for number, rows in ends:
    chosen = [*itertools.islice(splits, rows)]
    yield Plan(inputs[number], chosen, dict(ranks), layout, survey.schema)
    for split, count in collections.Counter(chosen).items():
      ranks[split] += count


def _conclude(request, seen):
  """Returns the survey of what `_check` saw, in order of reading."""
  schemas = [what for what in seen if isinstance(what, schema_lib.Schema)]
  for what in seen:
    if isinstance(what, errors.InputError):
      raise what
  for other in schemas[1:]:
    schemas[0].merge(other)
  facts = [what for what in seen if isinstance(what, survey_lib.Fact)]
  return survey_lib.conclude(request, schemas[0], facts)


def _encode(plan, request):
  """Yields ((split, file of a shard), (rank, record)) of each row."""
  encode = writer_lib.Encoder(plan.schema)
  path = functools.cache(plan.layout.path)
  ranks = dict(plan.ranks)
  rows = survey_lib.read(request, [plan.input], plan.schema)
  for example, split in zip(rows, plan.splits, strict=True):
    rank = ranks[split]
    yield (
      (split, path(split, rank // writer_lib.SHARD)),
      (rank, encode(example)),
    )
    ranks[split] += 1


def _write(shard, notes):
  """Writes a shard whole; returns its split and the bytes of its records."""
  (split, path), records = shard
  part = os.path.join(notes, uuid.uuid4().hex)  # a runner may try it twice
  writer = writer_lib.shard_writer(part)
  size = 0
  for _, record in sorted(records, key=operator.itemgetter(0)):
    writer.write(record)
    size += len(record)
  writer.close()
  os.replace(part, path)
  return split, size


def _save(value, notes, name):
  """Leaves a value for the process that started the workers."""
  part = os.path.join(notes, uuid.uuid4().hex)
  with open(part, 'wb') as file:
    pickle.dump(value, file)
  os.replace(part, os.path.join(notes, name))


def _load(notes, name):
  with open(os.path.join(notes, name), 'rb') as file:
    return pickle.load(file)
