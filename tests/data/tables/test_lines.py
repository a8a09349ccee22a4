"""Lines of files, their locations, and undecodable bytes."""

import gzip

import pytest

from rnn_jax import errors
from rnn_jax.data.tables import lines


def test_lines_have_locations_and_no_ends(tmp_path):
  path = tmp_path / 'a.txt'
  path.write_bytes(b'\xef\xbb\xbfone\r\ntwo\x0bstill two\n')
  assert [*lines.read(str(path), 'utf-8')] == [
    (f'{path}:1', 'one'),
    (f'{path}:2', 'two\x0bstill two'),
  ]
  assert lines.whole(str(path), 'utf-8') == 'one\r\ntwo\x0bstill two\n'


def test_text_that_cannot_be_decoded_is_named_by_its_byte(tmp_path):
  path = tmp_path / 'a.txt'
  path.write_bytes(b'one\ntw\xff\n')
  with pytest.raises(errors.InputError, match=f'{path}:2: byte 2 is not utf-8'):
    [*lines.read(str(path), 'utf-8')]
  with pytest.raises(errors.InputError, match=f'{path}: byte 6 is not utf-8'):
    lines.whole(str(path), 'utf-8')
  with pytest.raises(errors.InputError, match="--encoding='none': no such"):
    lines.decode(b'a', 'none', 'here')


@pytest.mark.parametrize(
  ('content', 'words'),
  (
    (gzip.compress(b'text\na\n'), 'a gzip file: unpack it with gunzip'),
    (b'PK\x03\x04\x14\0', 'a zip archive, as .xlsx is one'),
    ('text\n'.encode('utf-16'), 'text in UTF-16: save it as text in UTF-8'),
    (b'PAR1\x15\0', 'a Parquet file: name it'),
  ),
  ids=('gzip', 'zip', 'utf-16', 'parquet'),
)
def test_what_is_no_text_is_named(tmp_path, content, words):
  path = tmp_path / 'a.csv'
  path.write_bytes(content)
  for read in (
    lambda: [*lines.read(str(path))],
    lambda: lines.whole(str(path)),
  ):
    with pytest.raises(errors.InputError, match=f'a.csv is {words}'):
      read()


def test_utf_16_is_read_by_its_name(tmp_path):
  path = tmp_path / 'a.txt'
  path.write_bytes('one\r\nzwei ü\n'.encode('utf-16'))
  read = [text for _, text in lines.read(str(path), 'utf-16')]
  assert read == ['one', 'zwei ü']
  old = 'a\rb\r\nc'
  path.write_bytes(old.encode('utf-16'))
  ends = lines.Lines(str(path), 'utf-16', old_ends=True)
  assert [*ends] == ['a\r', 'b\r\n', 'c']


def test_old_ends_are_ends_where_asked(tmp_path):
  path = tmp_path / 'a.txt'
  path.write_bytes(b'\xef\xbb\xbfa\rb\r\nc\r\r\nd')
  assert [*lines.Lines(str(path))] == ['a\rb\r\n', 'c\r\r\n', 'd']
  read = lines.Lines(str(path), old_ends=True)
  assert [*read] == ['a\r', 'b\r\n', 'c\r', '\r\n', 'd']
  assert read.bytes == path.stat().st_size


def test_a_line_is_bounded_while_it_is_read(tmp_path):
  path = tmp_path / 'a.txt'
  path.write_bytes(b'a\n' + b'b' * 100)
  with path.open('rb') as file:
    read = lines.bounded(file, 'a.txt', 50)
    assert next(read) == b'a\n'
    with pytest.raises(errors.InputError, match='a.txt:2: a line has 50 bytes'):
      next(read)
    assert file.tell() <= 2 + 51
