"""Lines of files, their locations, and undecodable bytes."""

import pytest

from rnn_jax import errors
from rnn_jax.data.preparation import lines


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
