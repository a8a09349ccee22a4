"""Sealed folders: every damage of a file is noticed when it is read."""

import json
import os
import pickle

import pytest

from rnn_jax import errors
from rnn_jax.data.store import sealed

SIZE = 2 * sealed.BLOCK + 100


@pytest.fixture
def folder(tmp_path):
  def build(new):
    (new / 'a.bin').write_bytes(bytes(range(256)) * (SIZE // 256))
    (new / 'b.bin').write_bytes(b'')
    return {'count': 3}

  return sealed.write(tmp_path / 'kept', build)


def flip(path, at):
  content = bytearray(path.read_bytes())
  content[at] ^= 1
  path.write_bytes(content)


def test_a_folder_holds_what_was_built(folder):
  again = sealed.open_folder(folder.path)
  assert again.about == {'count': 3}
  whole = folder.path.joinpath('a.bin').read_bytes()
  for start, stop in ((0, 5), (sealed.BLOCK - 3, sealed.BLOCK + 3), (7, 10**9)):
    assert again.files['a.bin'].read(start, stop) == whole[start:stop]
  assert again.files['b.bin'].read(0, 9) == b''
  assert again.verify() == len(whole)
  assert [p.name for p in folder.path.parent.iterdir()] == ['kept']


@pytest.mark.parametrize('block', (0, 1))
def test_a_block_is_checked_when_it_is_first_read(folder, block):
  flip(folder.path / 'a.bin', block * sealed.BLOCK + 9)
  file = sealed.open_folder(folder.path).files['a.bin']
  other = (1 - block) * sealed.BLOCK
  assert len(file.read(other, other + 9)) == 9
  with pytest.raises(sealed.DamagedError, match='a.bin: bytes .*start again'):
    file.read(block * sealed.BLOCK, block * sealed.BLOCK + 1)
  with pytest.raises(sealed.DamagedError):  # the next start notices, too
    sealed.open_folder(folder.path)


def test_verify_checks_what_was_read_before(folder):
  file = sealed.open_folder(folder.path).files['a.bin']
  file.read(0, 10**9)
  flip(folder.path / 'a.bin', 5)
  with pytest.raises(sealed.DamagedError):
    file.verify()


def test_another_process_checks_too(folder):
  file = sealed.open_folder(folder.path).files['a.bin']
  file.read(0, 10**9)
  sent = pickle.dumps(file)
  flip(folder.path / 'a.bin', 5)
  with pytest.raises(sealed.DamagedError):
    pickle.loads(sent).read(0, 1)
  error = pickle.loads(pickle.dumps(sealed.DamagedError('x')))
  assert 'x: start again' in str(error)


def test_a_file_that_shrinks_while_it_is_read_is_damaged(folder):
  file = sealed.open_folder(folder.path).files['a.bin']
  file.read(0, 1)
  os.truncate(folder.path / 'a.bin', sealed.BLOCK + 9)
  with pytest.raises(sealed.DamagedError, match='ends after'):
    file.read(0, 10**9)


def change_index(path, change):
  index = json.loads(path.read_text())
  change(index)
  path.write_text(json.dumps(index))


def sealed_again(index):
  index['name'] = 'another'
  del index['seal']
  index['seal'] = sealed._seal(index)


@pytest.mark.parametrize(
  'damage',
  (
    lambda path: flip(path, 30),
    lambda path: path.write_text(''),
    lambda path: path.write_text('3'),
    lambda path: path.write_text('[' * 10**5),
    lambda path: path.unlink(),
    lambda path: (path.unlink(), path.mkdir()),
    lambda path: (path.rename(f'{path}.x'), path.symlink_to(f'{path}.x')),
    lambda path: (path.unlink(), os.mkfifo(path)),
    lambda path: os.truncate(path, 2**40),
    lambda path: change_index(path, lambda index: index.update(about={})),
    lambda path: change_index(path, sealed_again),
  ),
)
def test_a_damaged_index_is_noticed(folder, damage):
  damage(folder.path / sealed.INDEX)
  with pytest.raises(sealed.DamagedError, match='index.json|kept'):
    sealed.open_folder(folder.path)


@pytest.mark.parametrize('mode', (0o777, 0o775))
def test_a_folder_that_others_can_write_to_is_refused(folder, mode):
  folder.path.chmod(mode)
  with pytest.raises(errors.InputError, match='another user.*data.cache'):
    sealed.open_folder(folder.path)


def test_nobody_else_can_write_whatever_the_umask_is(tmp_path):
  before = os.umask(0)
  try:
    kept = sealed.write(tmp_path / 'kept', fill)
  finally:
    os.umask(before)
  paths = kept.path, *kept.path.iterdir()
  assert not any(path.stat().st_mode & 0o022 for path in paths)


def fill(new):
  (new / 'x').write_text('x')
  return {}


def test_files_reach_the_disk_before_the_folder_has_its_name(
  tmp_path, monkeypatch
):
  done, sync, replace = [], os.fsync, os.replace

  def synced(number):
    done.append(os.path.basename(os.readlink(f'/proc/self/fd/{number}')))
    sync(number)

  def replaced(*paths):
    done.append('rename')
    replace(*paths)

  monkeypatch.setattr(os, 'fsync', synced)
  monkeypatch.setattr(os, 'replace', replaced)
  sealed.write(tmp_path / 'kept', fill)
  expected = ['x', sealed.INDEX, 'new', 'rename', tmp_path.name]
  assert done == expected


def test_a_build_that_fails_leaves_nothing(tmp_path):
  def build(new):
    fill(new)
    raise OSError(28, 'No space left on device')

  with pytest.raises(OSError, match='No space'):
    sealed.write(tmp_path / 'kept', build)
  assert not [*tmp_path.iterdir()]


def test_a_fact_is_made_again_unless_it_is_what_was_kept(folder, tmp_path):
  path, made = folder.path / 'fact.json', []

  def ask(what='bytes'):
    return sealed.remember(path, what, lambda: made.append(what) or [1, 'é'])

  assert ask() == ask() == [1, 'é'] and len(made) == 1
  flip(path, path.read_bytes().index(b'1'))
  assert ask() == [1, 'é'] and len(made) == 2
  assert ask('lines') == [1, 'é'] and made[-1] == 'lines'
  moved = tmp_path / 'other' / 'fact.json'
  moved.parent.mkdir()
  path.rename(moved)
  sealed.remember(moved, 'lines', lambda: made.append('moved'))
  assert made[-1] == 'moved'
