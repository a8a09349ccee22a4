"""JSONL: rows read where they lie, and bad rows named by file and line."""

import json
import pickle

import pytest

from rnn_jax import config
from rnn_jax import errors
from rnn_jax.data.sources import jsonl


def load(path, splits=(100, 0, 0), **options):
  return jsonl.load(config.Data(path=str(path), splits=splits, **options))


def test_each_row_with_a_text_is_a_document(tmp_path):
  texts = ['first', 'zwei ü', '', 'with "quotes" and \n lines', '末']
  rows = [json.dumps({'id': n, 'body': t}) for n, t in enumerate(texts)]
  rows.insert(1, '')  # a blank line
  (tmp_path / 'a.jsonl').write_text('\r\n'.join(rows))
  found = load(tmp_path / 'a.jsonl', field='body')['train']
  found = pickle.loads(pickle.dumps(found))
  read = [found.read(n).decode() for n in range(len(found))]
  assert read == [text for text in texts if text]
  assert found.names[1] == 'a.jsonl:3'
  assert found.sizes.tolist() == [len(text.encode()) for text in read]


def test_several_files_read_from_their_own_offsets(tmp_path):
  for name in 'ab':
    rows = [json.dumps({'text': f'{name}{n}' * (n + 1)}) for n in range(3)]
    (tmp_path / f'{name}.jsonl').write_text('\n'.join(rows) + '\n')
  found = load(tmp_path / '*.jsonl')['train']
  assert found.read(4) == b'b1b1'
  assert found.read(5, 2, 4) == b'b2'


@pytest.mark.parametrize(
  ('row', 'message'),
  (
    ('{"text": ', 'a.jsonl:2: not JSON'),
    ('[1]', 'a.jsonl:2: a row must be an object, not list'),
    ('{"body": "x"}', r"a.jsonl:2: no field data.field='text'.*\['body'\]"),
    ('{"text": 3}', "a.jsonl:2: data.field='text' holds int"),
    ('{"text": "\\ud800"}', 'a.jsonl:2: .*surrogate'),
  ),
)
def test_a_bad_row_is_named_by_file_and_line(tmp_path, row, message):
  (tmp_path / 'a.jsonl').write_text('{"text": "good"}\n' + row + '\n')
  with pytest.raises(errors.InputError, match=message):
    load(tmp_path / 'a.jsonl')


def test_undecodable_bytes_are_named_with_their_offset(tmp_path):
  (tmp_path / 'a.jsonl').write_bytes(b'{"text": "\xe9"}\n')
  with pytest.raises(errors.InputError, match='a.jsonl is not UTF-8.* 10'):
    load(tmp_path / 'a.jsonl')


def test_rows_without_any_text_are_refused(tmp_path):
  (tmp_path / 'a.jsonl').write_text('{"text": ""}\n\n')
  with pytest.raises(errors.InputError, match='no row holds any text'):
    load(tmp_path / 'a.jsonl')


def test_a_missing_file_is_named(tmp_path):
  with pytest.raises(errors.InputError, match='data.path=.*no such file'):
    load(tmp_path / 'a.jsonl')
