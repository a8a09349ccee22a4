"""Texts by line and by file."""

import pytest

from tests.support import files


@pytest.mark.parametrize('encoding', ('utf-16', 'utf-16-le', 'utf-32', 'cp037'))
def test_lines_of_encodings_unlike_ascii(tmp_path, encoding):
  path = tmp_path / 'a.txt'
  path.write_bytes('one\r\n\nz ü\n'.encode(encoding))
  examples = files.read('text', path, encoding=encoding)
  assert [example.values['text'] for example in examples] == ['one', 'z ü']
  assert examples[1].where == f'{path}:3'


def test_text_by_lines_and_files(tmp_path):
  path = tmp_path / 'a.txt'
  path.write_text('one\n\ntwo\n')
  assert files.values('text', path) == [{'text': 'one'}, {'text': 'two'}]
  assert files.values('text', path, document='file') == [
    {'text': 'one\n\ntwo\n'}
  ]
  path.write_bytes(b'caf\xe9\n')
  assert files.values('text', path, encoding='cp1252') == [{'text': 'café'}]
  message = "--encoding='utf-9': no such encoding: 'utf-8' is the usual one"
  assert files.refusal('text', path, encoding='utf-9') == message
