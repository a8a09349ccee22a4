"""Parquet as a hub publishes it."""

import json

import pyarrow
from pyarrow import parquet

from tests.data.preparation.formats import files


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
