"""JSONL: rows read by offset, and bad rows named by file and line."""

import json
import pickle

import numpy as np
import pytest

from rnn_jax import config
from rnn_jax import errors
from rnn_jax.data.sources import jsonl
from rnn_jax.data.tables import indexed
from rnn_jax.data.tables import jsonl as jsonl_lib
from rnn_jax.data.text import turns


def load(path, splits=(100, 0, 0), **options):
  return jsonl.load(
    config.section(
      'data', source='jsonl', path=str(path), splits=splits, **options
    )
  )


def test_each_row_with_a_text_is_a_document(tmp_path):
  texts = ['first', 'zwei ü', '', 'with "quotes" and \n lines', '末']
  rows = [json.dumps({'id': n, 'body': t}) for n, t in enumerate(texts)]
  rows.insert(1, '')  # a blank line
  (tmp_path / 'a.jsonl').write_text('\r\n'.join(rows))
  documents = load(tmp_path / 'a.jsonl', field='body')['train']
  documents = pickle.loads(pickle.dumps(documents))
  read = [documents.read(n).decode() for n in range(len(documents))]
  assert read == [text for text in texts if text]
  assert documents.names == ('0', '1', '3', '4')
  assert documents.sizes.tolist() == [len(text.encode()) for text in read]


def test_several_files_read_from_their_own_offsets(tmp_path):
  for name in 'ab':
    rows = [json.dumps({'text': f'{name}{n}' * (n + 1)}) for n in range(3)]
    (tmp_path / f'{name}.jsonl').write_text('\n'.join(rows) + '\n')
  documents = load(tmp_path / '*.jsonl')['train']
  assert documents.read(4) == b'b1b1'
  assert documents.read(5, 2, 4) == b'b2'


@pytest.mark.parametrize(
  ('row', 'message'),
  (
    ('{"text": ', 'a.jsonl:2: not JSON'),
    ('[1]', 'a.jsonl:2: a row must be an object, not list'),
    (
      '{"body": "x"}',
      r"a.jsonl:2: no column 'text': .*\['body'\] in data.field",
    ),
    ('{"text": 3}', "a.jsonl:2: 'text' is int, not text: fix it"),
    ('{"text": "\\ud800"}', 'a.jsonl:2: .*surrogate'),
  ),
)
def test_a_bad_row_is_named_by_file_and_line(tmp_path, row, message):
  (tmp_path / 'a.jsonl').write_text('{"text": "good"}\n' + row + '\n')
  with pytest.raises(errors.InputError, match=message):
    load(tmp_path / 'a.jsonl')


def test_undecodable_bytes_are_named_with_their_line(tmp_path):
  (tmp_path / 'a.jsonl').write_bytes(b'{"text": "a"}\n{"text": "\xe9"}\n')
  with pytest.raises(errors.InputError, match='a.jsonl:2: byte 10 is not utf'):
    load(tmp_path / 'a.jsonl')


def test_rows_without_any_text_are_refused(tmp_path):
  (tmp_path / 'a.jsonl').write_text('{"text": ""}\n\n')
  with pytest.raises(errors.InputError, match='no row has any text'):
    load(tmp_path / 'a.jsonl')


def test_a_missing_file_is_named(tmp_path):
  with pytest.raises(errors.InputError, match='data.path=.*no such file'):
    load(tmp_path / 'a.jsonl')


def test_a_list_of_texts_has_a_line_each(tmp_path):
  row = {'turns': ['one ü', 'two\nlines'], 'label': 'b'}
  (tmp_path / 'a.jsonl').write_text(json.dumps(row))
  documents = load(tmp_path / 'a.jsonl', field='turns')['train']
  assert documents.read(0).decode() == 'one ü\ntwo lines'
  assert documents.sizes.tolist() == [16]
  assert documents.labels is None


def test_messages_keep_their_roles_and_lines(tmp_path):
  said = [('system', ''), ('user', 'two\nlines ü'), ('assistant', ' ')]
  rows = [
    {'id': n, 'messages': [{'role': r, 'content': t, 'x': 1} for r, t in part]}
    for n, part in enumerate((said, said[1:]))
  ]
  (tmp_path / 'a.jsonl').write_text('\n'.join(map(json.dumps, rows)))
  documents = load(tmp_path / 'a.jsonl', field='')['train']
  for n, part in enumerate((said, said[1:])):
    assert turns.load(documents.read(n)) == part
    assert documents.sizes[n] == len(documents.read(n))


@pytest.mark.parametrize(
  ('message', 'named'),
  (
    ({'role': 'user', 'content': None}, 'item 1 is NoneType, not text'),
    ({'role': 'user'}, 'item 1 is NoneType, not text'),
    ({'role': 3, 'content': 'a'}, 'item 1 has role=3: give a text'),
    ({'content': 'a'}, r"'messages\[0\]' is dict, not text"),
  ),
)
def test_a_bad_message_is_named_by_file_and_line(tmp_path, message, named):
  row = {'messages': [{'role': 'user', 'content': 'a'}, message]}
  (tmp_path / 'a.jsonl').write_text(json.dumps(row))
  with pytest.raises(errors.InputError, match=f'a.jsonl:1: .*{named}'):
    load(tmp_path / 'a.jsonl', field='messages')


def test_classes_are_read_by_number_or_name(tmp_path):
  rows = [{'text': t, 'y': y} for t, y in (('a', 1), ('b', 'no'), ('c', 0))]
  (tmp_path / 'a.jsonl').write_text('\n'.join(map(json.dumps, rows)))
  named = {'label': 'y', 'classes': ('no', 'yes')}
  documents = load(tmp_path / 'a.jsonl', **named)['train']
  assert pickle.loads(pickle.dumps(documents)).labels.tolist() == [1, 0, 0]
  assert documents.select([0, 2]).labels.tolist() == [1, 0]


@pytest.mark.parametrize(
  ('row', 'message'),
  (
    (
      {'text': 'x', 'label': 2},
      "a.jsonl:2: label=2 isn't one of the classes .*'yes'",
    ),
    ({'text': 'x', 'label': 'maybe'}, "label='maybe' isn't one of"),
    ({'text': 'x', 'label': True}, 'label=True isn.t one'),
    ({'text': 'x'}, "data.label='label' is missing"),
    ({'text': '', 'label': 0}, "a.jsonl:2: 'text' is empty"),
    (
      {'text': ['x', 3], 'label': 0},
      r"a.jsonl:2: 'text\[1\]' is int, not text",
    ),
    ({'text': ['x', ' '], 'label': 0}, r"a.jsonl:2: 'text\[1\]' is empty"),
  ),
)
def test_a_bad_class_or_turn_is_named_by_file_and_line(tmp_path, row, message):
  good = {'text': 'good', 'label': 1}
  lines = '\n'.join(map(json.dumps, (good, row)))
  (tmp_path / 'a.jsonl').write_text(lines)
  with pytest.raises(errors.InputError, match=message):
    load(tmp_path / 'a.jsonl', classes=('no', 'yes'))


@pytest.mark.parametrize('size', (1, 40, 100, 10**6))
def test_an_index_of_parts_is_that_of_the_file(tmp_path, monkeypatch, size):
  path = tmp_path / 'a.jsonl'
  lines = [
    '' if n % 5 == 2 else json.dumps({'text': 'x' * (n % 7 + 1), 'id': f'r{n}'})
    for n in range(40)
  ]
  path.write_text('\n\n'.join(lines))
  monkeypatch.setattr(indexed, 'PART', size)
  table, data = jsonl_lib.Table(str(path)), jsonl.Config(field='text')
  rows = indexed.Rows([table, table], data)
  want = [(row.line, row.offset, row.length) for row in table.rows()]
  np.testing.assert_array_equal(rows._locations[:, 1:], want * 2)
  assert rows._ids is None  # each comes twice
  names = [f'r{n}' for n in range(40) if lines[n]]
  assert [*indexed.Rows([table], data).names] == names
  path.write_text(path.read_text() + '\n{"text": 3}\n')
  with pytest.raises(errors.InputError, match=r'a\.jsonl:80: .* is int'):
    indexed.Rows([table], data)


def test_a_byte_order_mark_is_no_part_of_a_row(tmp_path):
  path = tmp_path / 'a.jsonl'
  path.write_bytes(b'\xef\xbb\xbf{"text": "a"}\n{"text": "b"}\n')
  train = load(path)['train']
  assert [train.read(n) for n in range(2)] == [b'a', b'b']


@pytest.mark.parametrize(
  ('content', 'message'),
  (
    (b'{"text": "a"}\r{"text": "b"}\r', 'a.jsonl:1: .*carriage returns only'),
    (b'\x1f\x8b\x08\0', 'a.jsonl is a gzip file: unpack it with gunzip'),
    ('{"text": "a"}\n'.encode('utf-16'), 'a.jsonl is text in UTF-16'),
  ),
)
def test_the_cause_of_what_is_no_row_is_named(tmp_path, content, message):
  (tmp_path / 'a.jsonl').write_bytes(content)
  with pytest.raises(errors.InputError, match=message):
    load(tmp_path / 'a.jsonl')
