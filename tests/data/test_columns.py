"""The columns and classes that a config leaves to its data."""

import pytest

from rnn_jax import config
from rnn_jax import errors
from rnn_jax.data import columns

TEXT = columns.Column(is_text=True)
LABEL = columns.Column(classes=('n', 'p'), is_label=True)
WORD = columns.Column(is_text=True, classes=('a', 'b'), is_label=True)
NUMBER = columns.Column()


def choose(table, classifies=True, **given):
  data = config.section('data', source='csv', **given)
  chosen = columns.choose(data, classifies, [*table], lambda: table)
  return chosen.field, chosen.label, chosen.classes


@pytest.mark.parametrize(
  ('table', 'given', 'chosen'),
  (
    ({'text': TEXT, 'label': LABEL}, {}, ('text', 'label', ('n', 'p'))),
    ({'n': NUMBER, 'body': TEXT, 'y': LABEL}, {}, ('body', 'y', ('n', 'p'))),
    # Names come first: other columns may have texts and classes too.
    (
      {'text': WORD, 'label': WORD, 'title': TEXT, 'kind': WORD},
      {},
      ('text', 'label', ('a', 'b')),
    ),
    ({'id': TEXT, 'body': TEXT, 'kind': WORD}, {}, ('body', 'kind', 'ab')),
    ({'a': WORD, 'b': WORD}, {'label': 'a'}, ('b', 'a', 'ab')),
    ({'a': WORD, 'b': WORD}, {'field': 'a'}, ('a', 'b', 'ab')),
    ({'text': TEXT, 'y': LABEL}, {'classes': ('p', 'n')}, ('text', 'y', 'pn')),
  ),
)
def test_a_column_is_known_by_its_name_or_is_the_only_one(table, given, chosen):
  field, label, classes = chosen
  assert choose(table, **given) == (field, label, tuple(classes))


def test_without_classes_only_the_text_is_chosen():
  table = {'body': TEXT, 'x': LABEL, 'y': LABEL}
  assert choose(table, classifies=False) == ('body', 'label', ())


@pytest.mark.parametrize(
  ('table', 'given', 'message'),
  (
    ({'a': TEXT, 'b': TEXT, 'y': LABEL}, {}, r"field='': .*\['a', 'b'\]"),
    ({'n': NUMBER, 'y': LABEL}, {}, r"no column of texts, only \['n', 'y'\]"),
    ({'a': TEXT, 'x': LABEL, 'y': LABEL}, {}, r"label='': .*\['x', 'y'\]"),
    ({'a': TEXT, 'n': NUMBER}, {}, r"no column of classes, only \['a', 'n'\]"),
    ({'a': TEXT, 'y': LABEL}, {'label': 'z'}, r"'z': csv .*\['a', 'y'\]"),
    ({'a': TEXT, 'n': NUMBER}, {'label': 'n'}, "label='n': it has no classes"),
  ),
)
def test_a_choice_is_refused_with_the_columns(table, given, message):
  with pytest.raises(errors.InputError, match=message) as caught:
    choose(table, **given)
  assert '\n' not in str(caught.value)


def test_only_names_are_looked_at_where_they_do():
  def look():
    raise AssertionError('all rows are read')

  data = config.section('data', source='csv', classes=('n', 'p'))
  chosen = columns.choose(data, True, ['label', 'text'], look)
  assert (chosen.field, chosen.label) == ('text', 'label')


def test_classes_are_in_order():
  assert columns.in_order(['10', '-1', '9']) == ('-1', '9', '10')
  assert columns.in_order(['b', '10', 'a', 'a']) == ('10', 'a', 'b')
  assert columns.in_order(['²', '1']) == ('1', '²')


@pytest.mark.parametrize(
  ('values', 'ids'),
  (
    (['a', 7, 'ü'], ['a', '7', 'ü']),
    (['a', 'a'], None),
    (['1', 1], None),
    (['a', ''], None),
    (['a', None], None),
    ([0.5], None),
    ([], None),
  ),
)
def test_ids_name_rows_if_each_has_its_own(values, ids):
  got = columns.unique_ids(values)
  assert ids == (None if got is None else [x.decode() for x in got.tolist()])


def test_one_class_is_refused(tmp_path):
  path = tmp_path / 'a.csv'
  path.write_text('text,label\nx,a\ny,a\n')
  given = {'source': 'csv', 'path': str(path)}
  parsed = config.parse({'task': {'name': 'classification'}, 'data': given})
  with pytest.raises(errors.InputError, match=r"data.classes=\('a',\): .*csv"):
    columns.resolve(parsed)
