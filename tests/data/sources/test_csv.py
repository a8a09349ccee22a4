"""CSV: rows read by their offset, columns and classes found in them."""

import pickle

import pytest

from rnn_jax import config
from rnn_jax import errors
from rnn_jax.data import columns
from rnn_jax.data.sources import csv

TICKETS = (
  '\ufeffid,body,kind,hours\r\n'
  'T-1,"a, ""b""\nü",bug,3\r\n'
  '\r\n'
  'T-2,second,billing,0.5\r\n'
  'T-3,third,bug,1\n'
  'T-4,"four\r\n\r\nlines",billing,2'
)


def section(path, **options):
  options = {'splits': (100, 0, 0)} | options
  return config.section('data', source='csv', path=str(path), **options)


def resolved(path, **options):
  data = section(path, **options)
  return data.resolve(config.section('task', name='classification'))


@pytest.fixture(name='tickets')
def _tickets(tmp_path):
  path = tmp_path / 'a.csv'
  path.write_bytes(TICKETS.encode())
  return path


def test_rows_are_read_with_their_ids_and_classes(tickets):
  data = resolved(tickets)
  assert data.field == 'body' and data.label == 'kind'
  assert data.classes == ('billing', 'bug')
  train = pickle.loads(pickle.dumps(csv.load(data)['train']))
  texts = [train.read(n).decode() for n in range(len(train))]
  assert texts == ['a, "b"\nü', 'second', 'third', 'four\r\n\r\nlines']
  assert train.sizes.tolist() == [len(text.encode()) for text in texts]
  assert train.names == ('T-1', 'T-2', 'T-3', 'T-4')
  assert train.labels.tolist() == [1, 0, 1, 0]
  assert train.read(2, 1, 3) == b'hi'


def test_a_difficulty_is_a_number_as_text(tickets):
  options = {'curriculum': 'column', 'difficulty': 'hours'}
  train = csv.load(section(tickets, field='body', **options))['train']
  assert train.difficulties.tolist() == [3, 0.5, 1, 2]
  assert train.labels is None
  with pytest.raises(errors.InputError, match="a.csv:3: .*'kind' is 'bug': gi"):
    csv.load(section(tickets, field='body', difficulty='kind'))


def test_tabs_separate_values_of_tsv(tmp_path):
  (tmp_path / 'a.tsv').write_text('text\tlabel\n"x\t1\ny, z\t0\n')
  train = csv.load(resolved(tmp_path / 'a.tsv'))['train']
  assert [train.read(n) for n in range(2)] == [b'"x', b'y, z']
  assert train.labels.tolist() == [1, 0]
  assert train.names == ('a.tsv:2', 'a.tsv:3')


@pytest.mark.parametrize(
  ('text', 'message'),
  (
    ('', 'a.csv is empty'),
    ('text,label\n', 'no row has any text'),
    ('text,text\n', 'a.csv:1: .*name each column once'),
    ('text,label\na,b\na,b,c\n', 'a.csv:3: 3 columns, and the header has 2'),
    ('text,label\na,x\nb,y\nc,\n', "a.csv:4: data.label='label' is missing"),
    ('text,label\na,x\n,y\n', "a.csv:3: 'text' is empty"),
  ),
)
def test_what_is_wrong_is_named(tmp_path, text, message):
  (tmp_path / 'a.csv').write_text(text)
  with pytest.raises(errors.InputError, match=message):
    csv.load(resolved(tmp_path / 'a.csv'))


def test_a_column_with_too_many_values_is_not_one_of_classes(tmp_path):
  rows = ''.join(f't{n},{n}\n' for n in range(columns.MAX_CLASSES + 1))
  (tmp_path / 'a.csv').write_text(f'text,label\n{rows}')
  with pytest.raises(errors.InputError, match="'label': .* more than 1,000"):
    resolved(tmp_path / 'a.csv')


def test_rows_of_a_spreadsheet_are_read_by_their_offset(tmp_path):
  path = tmp_path / 'a.csv'
  rows = 'id;text;label\r\n7;"a fine day; and\r\nmore";x\r\n8;nö;y\r\n'
  path.write_bytes(f'\ufeff{rows}'.encode())
  data = resolved(path)
  assert data.classes == ('x', 'y')
  train = csv.load(data)['train']
  read = [train.read(n).decode() for n in range(2)]
  assert read == ['a fine day; and\r\nmore', 'nö']
  assert train.names == ('7', '8')
  path.write_bytes(rows.replace('\r\n', '\r').replace(';', '|').encode())
  train = csv.load(section(path, delimiter='|', classes=('x', 'y')))['train']
  assert train.read(1).decode() == 'nö' and train.labels.tolist() == [0, 1]


def test_rows_without_a_class_are_skipped_on_request(tmp_path, caplog):
  path = tmp_path / 'a.csv'
  path.write_text('text,label\na,x\nb,\n,\nc,y\n')
  data = resolved(path, missing_labels='skip')
  train = csv.load(data)['train']
  assert [train.read(n) for n in range(len(train))] == [b'a', b'c']
  assert train.labels.tolist() == [0, 1]
  assert "2 of 4 rows have no 'label' and are left out" in caplog.text
  path.write_text('text,label\na,\nb,\n')
  with pytest.raises(errors.InputError, match='no row of .* has a class'):
    csv.load(section(path, classes=('x', 'y'), missing_labels='skip'))


@pytest.mark.parametrize(
  'values',
  (
    ('1', '2.5', '-3'),
    ('0.1 0.2', '[3, 4]', 'nan'),
    ('1,5', '12%', '1e-3', '?'),
  ),
)
def test_numbers_are_no_texts_unless_they_are_said_to_be(tmp_path, values):
  path = tmp_path / 'a.csv'
  rows = ''.join(f'"{value}",{n % 2}\n' for n, value in enumerate(values))
  path.write_text(f'text,label\n{rows}')
  with pytest.raises(errors.InputError, match="data.source='series': na"):
    resolved(path)
  assert resolved(path, numbers_as_text=True).field == 'text'
  path.write_text(f'text,label\n{rows}a film,1\nanother,0\nfine,1\nno,0\n')
  assert resolved(path).field == 'text'


def test_columns_of_numbers_only_say_what_is_read(tmp_path):
  path = tmp_path / 'a.csv'
  path.write_text('x1,x2,label\n1,2,0\n3,4,1\n5,6,0\n7,8,1\n')
  with pytest.raises(errors.InputError, match='no column of texts.*series of'):
    resolved(path)
