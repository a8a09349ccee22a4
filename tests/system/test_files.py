"""Files that a stranger may have made, and one's own."""

import os
import pathlib
import socket

import pytest

from rnn_jax import errors
from rnn_jax.system import files


def special(path, kind):
  """Makes something in the place of a file."""
  if kind == 'pipe':
    os.mkfifo(path)
  elif kind == 'socket':
    with socket.socket(socket.AF_UNIX) as made:
      made.bind(str(path))
  elif kind == 'folder':
    path.mkdir()
  else:
    path.symlink_to(kind)
  return path


@pytest.mark.parametrize(
  ('kind', 'says'),
  (
    ('pipe', 'it is a pipe'),
    ('socket', 'it is a socket'),
    ('folder', 'it is a folder'),
    ('/dev/zero', 'it is a device'),
    ('/dev/urandom', 'it is a device'),
    ('../secret', 'it links to .*/secret, outside of'),
    ('/etc/hostname', 'it links to /etc/hostname, outside of'),
  ),
)
def test_only_files_of_a_folder_are_opened(kind, says, tmp_path, monkeypatch):
  (tmp_path / 'secret').write_text('{}')
  (tmp_path / 'theirs').mkdir()
  monkeypatch.chdir(tmp_path / 'theirs')  # names of sockets are short
  path = special(pathlib.Path('x.json'), kind)
  for read in (files.read_bytes, files.read_text, files.read_json):
    with pytest.raises(ValueError, match=says):
      read(path)


def test_links_within_a_folder_and_to_the_hubs_blobs_are_followed(tmp_path):
  hub = tmp_path / 'models--theirs--model'
  snapshot = hub / 'snapshots' / '5d1'
  (hub / 'blobs').mkdir(parents=True)
  (snapshot / 'inner').mkdir(parents=True)
  (hub / 'blobs' / 'a0').write_text('[1]')
  (snapshot / 'config.json').symlink_to('../../blobs/a0')
  (snapshot / 'inner' / 'x.json').symlink_to('../../../blobs/a0')
  (snapshot / 'same.json').symlink_to('config.json')
  for name in ('config.json', 'inner/x.json', 'same.json'):
    assert files.read_json(snapshot / name) == [1]
  (tmp_path / 'link').symlink_to(snapshot)  # of the user
  assert files.read_json(tmp_path / 'link' / 'config.json') == [1]
  # A blob that leads on, and another revision's file.
  (tmp_path / 'secret').write_text('[2]')
  (hub / 'blobs' / 'b1').symlink_to(tmp_path / 'secret')
  (snapshot / 'b.json').symlink_to('../../blobs/b1')
  (hub / 'snapshots' / '77' / 'blobs').mkdir(parents=True)
  (hub / 'snapshots' / '77' / 'c.json').write_text('[2]')
  (snapshot / 'c.json').symlink_to('../77/c.json')
  for name in ('b.json', 'c.json'):
    with pytest.raises(ValueError, match='outside of'):
      files.read_json(snapshot / name)


def test_a_file_that_the_user_names_may_be_a_link(tmp_path):
  (tmp_path / 'far').mkdir()
  (tmp_path / 'far' / 'x.json').write_text('[1]')
  link = tmp_path / 'x.json'
  link.symlink_to('far/x.json')
  assert files.read_json(link) == [1]
  (tmp_path / 'near').mkdir()
  link = tmp_path / 'near' / 'x.json'
  link.symlink_to('../far/x.json')
  assert files.read_json(link, within=files.named(link)) == [1]
  with pytest.raises(ValueError, match='outside of'):
    files.read_json(link)


def test_a_file_is_bounded_while_it_is_read(tmp_path, monkeypatch):
  path = tmp_path / 'x'
  path.write_bytes(b'12345')
  assert files.read_bytes(path, 5) == b'12345'
  with pytest.raises(ValueError, match='5 bytes, and 4 are allowed'):
    files.read_bytes(path, 4)
  with path.open('wb') as file:
    file.truncate(3 * 2**30)
  with pytest.raises(ValueError, match='3,221,225,472 bytes, and 67,108,864'):
    files.read_text(path)

  class Lies:
    st_size, st_mode = 0, path.stat().st_mode

  monkeypatch.setattr(files.os, 'fstat', lambda _: Lies)
  with pytest.raises(ValueError, match='more than 64 bytes'):
    files.read_bytes(path, 64)


def test_a_text_is_utf8(tmp_path):
  path = tmp_path / 'x'
  path.write_bytes('ab é'.encode())
  assert files.read_text(path) == 'ab é'
  path.write_bytes('ab é'.encode('latin-1'))
  with pytest.raises(ValueError, match='byte 3 is not UTF-8'):
    files.read_text(path)
  with pytest.raises(FileNotFoundError):
    files.read_text(tmp_path / 'none')


def test_nothing_is_added_to_what_a_link_leads_to(tmp_path):
  own = tmp_path / 'own'
  own.write_text('mine')
  (tmp_path / 'link').symlink_to(own)
  os.mkfifo(tmp_path / 'pipe')
  for name in ('link', 'pipe'):
    with pytest.raises(OSError, match='symbolic|No such device'):
      files.open_append(tmp_path / name)
  with files.open_append(tmp_path / 'new') as file:
    file.write(b'1')
  assert own.read_text() == 'mine'


def test_what_a_file_lacks_is_one_line_with_its_path_and_a_remedy(tmp_path):
  def read(name, content):
    path = tmp_path / name
    if content is not None:
      path.write_bytes(content)
    with pytest.raises(errors.InputError) as caught:
      with files.reading(path, 'restore a copy'):
        return files.read_json(path)['key']
    return str(caught.value).removeprefix(f'{tmp_path}/')

  assert read('a', None) == 'a: No such file or directory: restore a copy'
  assert read('b', b'{}') == "b is damaged ('key'): restore a copy"
  for content, says in (
    (b'\xff', 'byte 0 is not UTF-8'),
    (b'{', 'line 1 column 2'),
    (b'3', 'not subscriptable'),
  ):
    message = read('c', content)
    assert says in message
    assert message.startswith('c is damaged (')
    assert message.endswith('): restore a copy')
