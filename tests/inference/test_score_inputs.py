"""Which texts are read from files, and what is refused."""

import json

import pytest

from rnn_jax import errors
from rnn_jax.data.text import turns
from rnn_jax.inference import score_inputs


def read(*paths, **options):
  texts = score_inputs.open_texts([*map(str, paths)], **options)
  return [(text.id, text.content) for text in texts]


def test_files_are_documents_lines_or_rows(tmp_path):
  (tmp_path / 'b.txt').write_bytes('é\r\n\nx'.encode())
  (tmp_path / 'a.txt').write_bytes(b'')
  rows = {'text': 'one', 'turns': ['Hi', 'you\nthere']}
  (tmp_path / 'c.jsonl').write_text(f'{json.dumps(rows)}\n\n{json.dumps(rows)}')
  a, b, c = (tmp_path / name for name in ('a.txt', 'b.txt', 'c.jsonl'))
  assert read(tmp_path / '*.txt', c) == [
    (str(a), b''),
    (str(b), 'é\r\n\nx'.encode()),
    (f'{c}:1', b'one'),
    (f'{c}:3', b'one'),
  ]
  assert read(b, a, lines=True) == [
    (f'{b}:1', 'é'.encode()),
    (f'{b}:2', b''),
    (f'{b}:3', b'x'),
  ]
  assert read(c, column='turns')[0] == (f'{c}:1', b'Hi\nyou there')
  (tmp_path / 'd.csv').write_text('id;text\n1;"one\ntwo"\n2;x\n')
  d = tmp_path / 'd.csv'
  assert read(d) == [(f'{d}:3', b'one\ntwo'), (f'{d}:4', b'x')]


def test_marks_are_no_text_and_messages_are_dialogues(tmp_path):
  text, rows = tmp_path / 'a.txt', tmp_path / 'a.jsonl'
  text.write_bytes(b'\xef\xbb\xbfone\ntwo')
  said = [{'role': 'user', 'content': 'hi'}]
  rows.write_text('\ufeff' + json.dumps({'text': 'a', 'messages': said}))
  assert read(text) == [(str(text), b'one\ntwo')]
  assert read(text, lines=True)[0] == (f'{text}:1', b'one')
  assert read(rows) == [(f'{rows}:1', b'a')]
  ((_, document),) = read(rows, column='messages')
  assert turns.load(document) == [('user', 'hi')]


def test_what_needs_no_reading_is_refused_at_once(tmp_path, monkeypatch):
  text, rows = tmp_path / 'a.txt', tmp_path / 'a.jsonl'
  text.write_bytes(b'abc\xff')
  rows.write_text('{}')
  for path, options, message in (
    (tmp_path / 'absent*', {}, r"absent\*': no such file: give a file, a glob"),
    (tmp_path, {}, 'Is a directory'),
    (text, {}, 'not UTF-8 at byte offset 3'),
    (text, {'column': 'x'}, "column='x': .*it has none"),
    (rows, {'lines': True}, 'lines=True: .*is a table of rows'),
    (rows, {'lines': True, 'column': 'x'}, 'lines have no columns'),
  ):
    with pytest.raises(errors.InputError, match=message):
      score_inputs.open_texts([str(path)], **options)
  monkeypatch.setattr(score_inputs, 'LONGEST', 3)
  with pytest.raises(errors.InputError, match='3 bytes at most: give parts'):
    score_inputs.open_texts([str(text)])
  with pytest.raises(errors.InputError, match='^text: the text isn.t UTF-8'):
    score_inputs.of_string('\udcff')


@pytest.mark.parametrize(
  ('row', 'message'),
  (
    ('{"text": ', r'x\.jsonl:2: not JSON: .*fix the row, or remove it'),
    (
      '{"a": 1}',
      "x.jsonl:2: no column 'text': name one of .'a'. in --column",
    ),
    ('{"text": 3}', "x.jsonl:2: 'text' is int, not text: .* in --column"),
  ),
)
def test_a_malformed_row_has_its_place_and_those_before_are_read(
  row, message, tmp_path
):
  path = tmp_path / 'x.jsonl'
  path.write_text(f'{{"text": "one"}}\n{row}\n')
  texts = score_inputs.open_texts([str(path)])
  assert next(texts).content == b'one'
  with pytest.raises(errors.InputError, match=message):
    next(texts)
