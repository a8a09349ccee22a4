"""The first reading: every example checked, counted and given its split."""

import collections
import dataclasses
from collections.abc import Iterator

from rnn_jax import errors
from rnn_jax.data.preparation import channels
from rnn_jax.data.preparation import examples
from rnn_jax.data.preparation import inputs as inputs_lib
from rnn_jax.data.preparation import lengths as lengths_lib
from rnn_jax.data.preparation import numbers
from rnn_jax.data.preparation import schema as schema_lib
from rnn_jax.data.preparation import splits as splits_lib


@dataclasses.dataclass
class Survey:
  """What it found.

  splits: of each example that is kept, in order of reading.
  lengths: {split: {what is counted: values}}.
  labels: {split: examples of each class}.
  """

  schema: schema_lib.Schema
  splits: list[str]
  overlaps: list[splits_lib.Overlap]
  lengths: dict[str, dict[str, list[int]]]
  labels: dict[str, collections.Counter]

  @property
  def counts(self):
    """{split: examples}, in the usual order."""
    counts = collections.Counter(self.splits)
    return {name: counts[name] for name in inputs_lib.SPLITS if counts[name]}

  def told(self):
    """The part of the record that it gives."""
    return {
      'examples': self.counts,
      'label': self.schema.label,
      'classes': list(self.schema.classes),
      'examples_by_class': {
        split: {name: count[name] for name in self.schema.classes}
        for split, count in self.labels.items()
        if self.schema.label
      },
      'duplicates': [dataclasses.asdict(each) for each in self.overlaps],
      'lengths': {
        split: lengths_lib.summary(found)
        for split, found in self.lengths.items()
      },
    }


def read(request, found: list[inputs_lib.Input]) -> Iterator[examples.Example]:
  """Yields all examples of the inputs but the empty ones to be left out."""
  for one in found:
    examples_of = inputs_lib.load_format(one.format).read
    for example in examples_of(one.path, request.options):
      if not (request.skip_empty and _is_empty(example)):
        yield example._replace(split=one.split or example.split)


def take(request, found: list[inputs_lib.Input], progress) -> Survey:
  """Reads the inputs of a `prepare.Request` once.

  Raises:
    InputError: an example cannot be used, or there is none; splits are missing
      or superfluous; or two of them overlap and that was to be refused.
  """
  schema = None
  contents, where, given, lengths, labels = [], [], [], [], []
  for example in progress(read(request, found), 'checking'):
    if schema is None:
      schema = _schema(request, found, example)
    schema.check(example)
    channels.note(schema, example)
    numbers.note(schema, example)
    contents.append(splits_lib.content_hash(example, schema.label))
    where.append(example.where)
    given.append(example.split)
    lengths.append(lengths_lib.of(example, schema.label))
    if schema.label:
      labels.append(example.values[schema.label])
  if schema is None:
    raise errors.InputError(f'--input: {found[0].path} holds no example')
  schema.finish()
  numbers.settle(schema)
  chosen = _splits(request, given, where, contents)
  overlaps = splits_lib.overlaps(contents, where, chosen)
  _refuse_overlaps(request, overlaps)
  return Survey(
    schema,
    chosen,
    overlaps,
    _by_split(chosen, lengths, {*map(lengths_lib.words, schema.numbers)}),
    _count_labels(schema, chosen, labels),
  )


def _schema(request, found, first):
  formats = [inputs_lib.load_format(one.format) for one in found]
  schema = schema_lib.of(first, request.label, _classes(request, found))
  if all(getattr(each, 'UNTYPED', False) for each in formats):
    numbers.expect(schema)
  return schema


def _classes(request, found):
  """The names of the classes: as asked for, or as the format fixes them."""
  if request.classes:
    return request.classes
  formats = {one.format for one in found}
  if len(formats) > 1:
    return ()
  return getattr(inputs_lib.load_format(*formats), 'CLASSES', ())


def _is_empty(example):
  return any(map(_holds_empty, example.values.values()))


def _holds_empty(value):
  if isinstance(value, list):
    return not value or any(map(_holds_empty, value))
  return isinstance(value, str) and not value.strip()


def _splits(request, given, where, contents):
  """The split of each example: as given, or dealt out by shares.

  Inputs that all lie in one split, as a published training set does, can be
  dealt out as well.
  """
  named = set(given)
  if '' in named and len(named) > 1:
    missing = where[given.index('')]
    raise errors.InputError(
      f'{missing} lies in no split and others do: name its folder train, '
      'validation or test'
    )
  if request.shares and len(named) > 1:
    raise errors.InputError(
      '--splits: the inputs have splits of their own: leave it out'
    )
  if request.shares:
    return splits_lib.assign(contents, request.shares, request.seed)
  if '' in named:
    raise errors.InputError(
      '--splits is missing: the inputs have no splits: give --splits=85,10,5, '
      'or --input=train=PATH and so on'
    )
  return given


def _refuse_overlaps(request, overlaps):
  across = [one for one in overlaps if one.first != one.second]
  if across and request.duplicates == 'refuse':
    one = across[0]
    raise errors.InputError(
      f'--duplicates=refuse: {one.contents} example(s) of {one.first} are in '
      f'{one.second} too, {one.example[0]} and {one.example[1]} for one'
    )


def _by_split(splits, lengths, left_out):
  found = {name: collections.defaultdict(list) for name in inputs_lib.SPLITS}
  for split, counted in zip(splits, lengths, strict=True):
    for name, value in counted.items():
      if name not in left_out:
        found[split][name].append(value)
  return {split: dict(values) for split, values in found.items() if values}


def _count_labels(schema, splits, labels):
  found = collections.defaultdict(collections.Counter)
  for split, label in zip(splits, labels, strict=False):
    found[split][schema.classes[schema.class_of(label)]] += 1
  return dict(found)
