"""Rows of a file as a split: what trains evaluates."""

import json

import pyarrow
import pytest
from pyarrow import parquet

from rnn_jax import config as config_lib
from rnn_jax import errors
from rnn_jax.data import held_out
from rnn_jax.data.text import turns
from tests.support import tiny

SAID = [{'role': 'user', 'content': 'hi'}, {'role': 'assistant', 'content': ''}]
SKIP = held_out.Options(missing_labels='skip')


def config(**options):
  raw = tiny.raw_config('gone')
  raw.task.name = options.pop('task')
  config_lib.override(raw, {'data.source': 'jsonl', **options})
  return config_lib.parse(raw)


def classifier(**options):
  classes = {'data.classes': ('bad', 'good')}
  return config(task='classification', **classes, **options)


def test_messages_are_dialogues(tmp_path):
  path = tmp_path / 'a.jsonl'
  path.write_text('\ufeff' + json.dumps({'messages': SAID}) + '\n')
  dialogue = config(task='dialogue', **{'data.field': 'messages'})
  name, documents = held_out.open_documents(str(path), '', dialogue)
  assert name == 'a.jsonl'
  assert turns.load(documents.read(0)) == [('user', 'hi'), ('assistant', '')]


def test_rows_of_hidden_classes_are_skipped_on_request(tmp_path, caplog):
  path = str(tmp_path / 'a.parquet')
  names = {'label': {'_type': 'ClassLabel', 'names': ['bad', 'good']}}
  info = json.dumps({'info': {'features': names}}).encode()
  table = pyarrow.table({'text': ['a', 'b', 'c'], 'label': [1, -1, None]})
  table = table.replace_schema_metadata({b'huggingface': info})
  parquet.write_table(table, path)
  with pytest.raises(errors.InputError, match="row 2: 'label' is empty.*skip"):
    held_out.open_documents(path, '', classifier())
  for run, options in (
    (classifier(), SKIP),
    (classifier(**{'data.missing_labels': 'skip'}), held_out.BY_CONFIG),
  ):
    _, documents = held_out.open_documents(path, '', run, options)
    assert documents.labels.tolist() == [1] and documents.read(0) == b'a'
    assert "2 of 3 rows have no 'label' and are left out" in caplog.text
    caplog.clear()


def test_options_of_rows_have_an_effect_or_are_refused(tmp_path):
  path = tmp_path / 'a.csv'
  path.write_text('text|label\na;b|good\n')
  bars = held_out.Options(delimiter='|')
  _, documents = held_out.open_documents(str(path), '', classifier(), bars)
  assert documents.read(0) == b'a;b'
  (tmp_path / 'a.txt').write_text('a')
  (tmp_path / 'a.jsonl').write_text('{"text": "a", "label": 1}\n')
  texts = config(task='language_modeling')
  for name, run in (('a.txt', texts), ('a.jsonl', classifier())):
    with pytest.raises(errors.InputError, match=r"--delimiter='\|': .*no"):
      held_out.open_documents(str(tmp_path / name), '', run, bars)
