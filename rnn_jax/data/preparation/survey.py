"""The first pass over the inputs: checks, counts and splits the examples."""

import collections
import dataclasses
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Sequence
from typing import Any
from typing import NamedTuple

from rnn_jax import errors
from rnn_jax.data import columns
from rnn_jax.data.preparation import inputs as inputs_lib
from rnn_jax.data.preparation import lengths as lengths_lib
from rnn_jax.data.preparation import requests
from rnn_jax.data.preparation import schema as schema_lib
from rnn_jax.data.preparation import splits as splits_lib
from rnn_jax.data.tables import values as values_lib
from rnn_jax.data.text import documents

EMPTY, MISSING_LABEL = 'empty text', 'no label'  # why examples are skipped


class Fact(NamedTuple):
  """What the survey keeps of an example.

  Attributes:
    content: its `content_hash`.
    where: its location.
    split: that its file assigns it to, or ''.
    lengths: {name of the count: value}.
    label: its class as the file has it; None: it has none.
  """

  content: bytes
  where: str
  split: str
  lengths: dict[str, int]
  label: Any


@dataclasses.dataclass
class Survey:
  """The result of the first pass.

  Attributes:
    schema: the columns.
    splits: of each example that isn't skipped, in order of reading.
    overlaps: examples that occur more than once.
    lengths: {split: {name of the count: values}}, of counts that vary.
    labels: {split: number of examples of each class}.
  """

  schema: schema_lib.Schema
  splits: list[str]
  overlaps: list[splits_lib.Overlap]
  lengths: dict[str, dict[str, list[int]]]
  labels: dict[str, collections.Counter]

  @property
  def counts(self) -> dict[str, int]:
    """{split: number of examples}, in the order of SPLITS."""
    counts = collections.Counter(self.splits)
    return {name: counts[name] for name in documents.SPLITS if counts[name]}

  def summary(self) -> dict[str, Any]:
    """Returns the survey's part of preparation.json."""
    return {
      'examples': self.counts,
      'label': self.schema.label,
      'classes': list(self.schema.classes),
      'examples_by_class': {
        split: {name: count[name] for name in self.schema.classes}
        for split, count in self.labels.items()
        if self.schema.label
      },
      'skipped': dict(self.schema.skipped),
      'duplicates': [dataclasses.asdict(each) for each in self.overlaps],
      'lengths': {
        split: lengths_lib.summary(counts)
        for split, counts in self.lengths.items()
      },
    }


def read(
  request: requests.Request,
  inputs: Sequence[inputs_lib.Input],
  schema: schema_lib.Schema,
  skipped: collections.Counter | None = None,
) -> Iterator[values_lib.Row]:
  """Yields the examples of the inputs, without those to skip.

  Args:
    request: what says which to skip.
    inputs: the files.
    schema: of `begin`.
    skipped: counts what is skipped, by reason.
  """
  for example in _all(request, inputs):
    reason = _reason_to_skip(request, schema, example.values)
    if not reason:
      yield example
    elif skipped is not None:
      skipped[reason] += 1


def _all(request, inputs):
  for one in inputs:
    read_format = inputs_lib.load_format(one.format).read
    for example in read_format(one.path, request.options):
      yield example._replace(split=one.split or example.split)


def _reason_to_skip(request, schema, values):
  """Returns why an example is skipped, or ''."""
  if request.skip_empty and any(
    values_lib.empty_part(name, values.get(name, '')) for name in schema.texts
  ):
    return EMPTY
  if request.missing_labels == values_lib.SKIP and schema.label:
    if values.get(schema.label) in values_lib.MISSING:
      return MISSING_LABEL
  return ''


def run(
  request: requests.Request,
  inputs: Sequence[inputs_lib.Input],
  progress: requests.Progress,
) -> Survey:
  """Reads the inputs once.

  Raises:
    InputError: as `begin`, `observe` and `conclude`.
  """
  schema = begin(request, inputs)
  rows = progress(read(request, inputs, schema, schema.skipped), 'checking')
  return conclude(request, schema, [observe(schema, row) for row in rows])


def begin(
  request: requests.Request, inputs: Sequence[inputs_lib.Input]
) -> schema_lib.Schema:
  """Returns the schema of the first example.

  Raises:
    InputError: it can't be read or stored, or there is none.
  """
  schema = None
  for first in _all(request, inputs):
    label = schema_lib.label_of(first, request.label)
    texts = _texts(request, inputs, first, label)
    schema = schema_lib.Schema({}, label, (), False, texts=texts)
    break
  if schema is not None:
    for first in read(request, inputs, schema):
      return dataclasses.replace(
        _schema(request, inputs, first), texts=schema.texts
      )
  left = 'that is not skipped' if schema is not None else ''
  raise errors.InputError(
    f'--input: {inputs[0].path} has no example {left}'.rstrip()
  )


def _texts(request, inputs, first, label):
  """Returns the columns that must not be empty.

  That is --text, else 'text' and lists, else each column that isn't empty
  everywhere.
  """
  names = [name for name in first.values if name != label]
  if request.text and request.text not in names:
    raise errors.InputError(
      f'--text={request.text!r}: {first.where} has the columns {names}'
    )
  if request.text:
    return (request.text,)
  if columns.TEXT in names:
    lists = (name for name in names if isinstance(first.values[name], list))
    return (columns.TEXT, *lists)
  empty = set(names)
  for example in _all(request, inputs):
    empty -= {n for n, x in example.values.items() if not _is_blank(x)}
    if not empty:
      break
  return tuple(name for name in names if name not in empty) or tuple(names)


def _is_blank(value):
  return value == [] or isinstance(value, str) and not value.strip()


def observe(schema: schema_lib.Schema, example: values_lib.Row) -> Fact:
  """Checks an example, and records in the schema what it shows of columns.

  Raises:
    InputError: the example doesn't fit the columns.
  """
  schema.observe(example)
  return Fact(
    splits_lib.content_hash(example, schema.label),
    example.where,
    example.split,
    lengths_lib.count(example, schema.label),
    example.values[schema.label] if schema.label else None,
  )


def conclude(
  request: requests.Request, schema: schema_lib.Schema, facts: Iterable[Fact]
) -> Survey:
  """Returns the survey of all examples, in order of reading.

  Raises:
    InputError: splits are missing or superfluous, or all examples are of one
      class; or splits overlap and the request refuses that.
  """
  contents, where, given, lengths, labels = zip(*facts, strict=True)
  if schema.label:
    _refuse_unlabelled(schema.label, labels, where, given)
  chosen = _splits(request, given, where, contents)
  schema.finish()
  overlaps = splits_lib.overlaps(contents, where, chosen)
  _refuse_overlaps(request, overlaps)
  return Survey(
    schema,
    chosen,
    overlaps,
    lengths_lib.informative(
      _by_split(chosen, lengths, {*map(lengths_lib.words, schema.numbers)})
    ),
    _count_labels(schema, chosen, labels) if schema.label else {},
  )


def _schema(request, inputs, first):
  formats = [inputs_lib.load_format(one.format) for one in inputs]
  schema = schema_lib.from_example(
    first, request.label, _classes(request, inputs)
  )
  if all(getattr(each, 'UNTYPED', False) for each in formats):
    schema.assume_numbers()
  return schema


def _classes(request, inputs):
  """Returns the names of the classes, by request or by format."""
  if request.classes:
    return request.classes
  formats = {one.format for one in inputs}
  if len(formats) > 1:
    return ()
  return getattr(inputs_lib.load_format(*formats), 'CLASSES', ())


def _splits(request, given, where, contents):
  """Returns the split of each example: as given, or by percentages.

  Percentages also divide inputs that are all in one split, such as a published
  training set.
  """
  named = set(given)
  if '' in named and len(named) > 1:
    missing = where[given.index('')]
    raise errors.InputError(
      f'{missing} is in no split and others are: name its folder train, '
      'validation or test'
    )
  if request.shares and len(named) > 1:
    raise errors.InputError(
      '--splits: the inputs already have splits: leave it out'
    )
  if request.shares:
    return splits_lib.assign(contents, request.shares, request.seed)
  if '' in named:
    raise errors.InputError(
      '--splits is missing: the inputs have no splits: give --splits=85,10,5, '
      'or --input=train=PATH and so on'
    )
  return list(given)


def _refuse_overlaps(request, overlaps):
  across = [one for one in overlaps if one.first != one.second]
  if across and request.duplicates == 'refuse':
    one = across[0]
    raise errors.InputError(
      f'--duplicates=refuse: {one.contents} example(s) of {one.first} are in '
      f'{one.second} too, such as {one.example[0]} and {one.example[1]}'
    )


def _refuse_unlabelled(label, labels, where, splits):
  """Refuses examples without a class, unless it's the test split's secret."""
  labelled = {
    split
    for split, value in zip(splits, labels, strict=True)
    if value not in values_lib.MISSING
  }
  for value, place, split in zip(labels, where, splits, strict=True):
    hidden = split == 'test' and split not in labelled
    if value in values_lib.MISSING and not hidden:
      raise errors.InputError(
        f"{place}: {label}={value!r} isn't a class: give a name or a number, "
        f'or skip such examples with --missing_labels={values_lib.SKIP}'
      )


def _by_split(splits, lengths, excluded):
  by_split = {name: collections.defaultdict(list) for name in documents.SPLITS}
  for split, counts in zip(splits, lengths, strict=True):
    for name, value in counts.items():
      if name not in excluded:
        by_split[split][name].append(value)
  return {split: dict(values) for split, values in by_split.items() if values}


def _count_labels(schema, splits, labels):
  counts = collections.defaultdict(collections.Counter)
  for split, label in zip(splits, labels, strict=True):
    if label not in values_lib.MISSING:
      counts[split][schema.classes[schema.class_of(label)]] += 1
  return dict(counts)
