"""Parquet as a hub publishes it."""

import datetime
import decimal
import json

import pyarrow
import pytest
from pyarrow import parquet

from tests.support import files


def test_parquet_as_a_hub_publishes_it(tmp_path):
  table = pyarrow.table(
    {'text': ['a', 'b'], 'label': [1, 0], 'turns': [['x', 'y'], ['z']]}
  )
  names = {'label': {'_type': 'ClassLabel', 'names': ['neg', 'pos']}}
  info = json.dumps({'info': {'features': names}})
  metadata = {b'huggingface': info.encode()}
  path = tmp_path / 'train-00000-of-00001.parquet'
  parquet.write_table(table.replace_schema_metadata(metadata), path)
  assert files.values('parquet', path) == [
    {'text': 'a', 'label': 'pos', 'turns': ['x', 'y']},
    {'text': 'b', 'label': 'neg', 'turns': ['z']},
  ]
  content = path.read_bytes()
  path.write_bytes(content[: len(content) // 2])
  assert files.refusal('parquet', path).startswith(
    f'{path}: incomplete Parquet file'
  )


def with_metadata(path, table, info):
  metadata = {b'huggingface': json.dumps(info).encode()}
  parquet.write_table(table.replace_schema_metadata(metadata), path)


def test_hidden_labels_are_none(tmp_path):
  path = tmp_path / 'a.parquet'
  names = {'label': {'_type': 'ClassLabel', 'names': ['neg', 'pos']}}
  table = pyarrow.table({'text': ['a', 'b', 'c'], 'label': [1, -1, None]})
  with_metadata(path, table, {'info': {'features': names}})
  labels = [row['label'] for row in files.values('parquet', path)]
  assert labels == ['pos', None, None]
  table = pyarrow.table({'text': ['a'], 'label': [2]})
  with_metadata(path, table, {'info': {'features': names}})
  assert 'row 1: label=2: the file names the cl' in files.refusal(
    'parquet', path
  )


@pytest.mark.parametrize(
  'info',
  (
    [],
    3,
    None,
    {'info': [1]},
    {'info': {'features': 'x'}},
    {'info': {'features': {'label': {'_type': 'ClassLabel'}}}},
    {'info': {'features': {'label': {'_type': 'ClassLabel', 'names': [1]}}}},
    {'info': {'features': {'gone': {'_type': 'ClassLabel', 'names': ['a']}}}},
  ),
)
def test_other_metadata_say_nothing(tmp_path, info):
  path = tmp_path / 'a.parquet'
  with_metadata(path, pyarrow.table({'text': ['a'], 'label': [1]}), info)
  assert files.values('parquet', path) == [{'text': 'a', 'label': 1}]


def test_values_that_python_lacks(tmp_path):
  path = tmp_path / 'a.parquet'
  nanoseconds = pyarrow.array(
    [1_700_000_000_123_456_789], pyarrow.timestamp('ns')
  )
  table = {
    'ns': nanoseconds,
    'far': pyarrow.array([2**62], pyarrow.timestamp('us')),
    'day': [datetime.date(2024, 2, 29)],
    'map': pyarrow.array(
      [[('a', 1)]], pyarrow.map_(pyarrow.string(), pyarrow.int64())
    ),
    'price': [decimal.Decimal('1.50')],
  }
  parquet.write_table(pyarrow.table(table), path)
  (row,) = files.values('parquet', path)
  assert row['ns'] == '2023-11-14T22:13:20.123456789'
  assert 'out of range' in row['far'] and row['day'] == '2024-02-29'
  assert row['map'] == {'a': 1} and row['price'] == decimal.Decimal('1.50')


def test_text_that_is_not_utf_8_is_named_by_its_row(tmp_path):
  path = tmp_path / 'a.parquet'
  content = pyarrow.array([b'fine', b'\xff\xfe'])
  bad = pyarrow.Array.from_buffers(pyarrow.string(), 2, content.buffers())
  parquet.write_table(pyarrow.table({'text': bad}), path)
  message = "a.parquet: row 2: 'text' is not UTF-8: convert it"
  assert message in files.refusal('parquet', path)
