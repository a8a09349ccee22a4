"""Damaged and incomplete checkpoints are never read, and reported."""

import os
import shutil

import pytest

from rnn_jax import errors
from rnn_jax.runs.checkpoints import checkpoint
from rnn_jax.runs.checkpoints import checksums
from tests.support import saved


def largest(step_folder):
  files = [path for path in step_folder.rglob('*') if path.is_file()]
  return max(files, key=lambda path: path.stat().st_size)


def flip_arrays(step_folder):
  flip(largest(step_folder))


def flip_data(step_folder):
  flip(next(step_folder.glob('data/metadata')))


def flip_progress(step_folder):
  flip(step_folder / 'progress' / 'metadata')


def flip_seal(step_folder):
  flip(step_folder / checksums.NAME)


def flip(path):
  content = bytearray(path.read_bytes())
  content[len(content) // 2] ^= 1
  path.write_bytes(content)


def truncate_arrays(step_folder):
  path = largest(step_folder)
  os.truncate(path, path.stat().st_size - 1)


def remove_arrays(step_folder):
  largest(step_folder).unlink()


def remove_seal(step_folder):
  (step_folder / checksums.NAME).unlink()


def empty_seal(step_folder):
  (step_folder / checksums.NAME).write_text('')


def truncate_seal(step_folder):
  sums = step_folder / checksums.NAME
  sums.write_text('\n'.join(sums.read_text().splitlines()[:-1]) + '\n')


def empty_the_folder(step_folder):
  shutil.rmtree(step_folder)
  step_folder.mkdir()


def empty_the_folder_but_for_the_seal(step_folder):
  empty_the_folder(step_folder)
  empty_seal(step_folder)


DAMAGES = (
  flip_arrays,
  flip_data,
  flip_progress,
  flip_seal,
  truncate_arrays,
  remove_arrays,
  remove_seal,
  empty_seal,
  truncate_seal,
  empty_the_folder,
  empty_the_folder_but_for_the_seal,
)


@pytest.mark.parametrize('damage', DAMAGES)
def test_damage_is_skipped(folder, reader, warnings, damage):
  damage(folder / '3')
  iterator = saved.make_iterator()
  step, state, _ = saved.restore(
    reader, saved.like(saved.make_state(0)), iterator
  )
  assert step == 2 and next(iterator) == next(saved.make_iterator(2))
  saved.assert_same(state, saved.make_state(2))
  assert len(warnings) == 1 and str(folder / '3') in warnings[0]
  assert folder.joinpath('3').is_dir()


@pytest.mark.parametrize(
  'damage', (flip_arrays, empty_the_folder, empty_the_folder_but_for_the_seal)
)
def test_a_damaged_step_is_saved_again(folder, warnings, damage):
  damage(folder / '3')
  writer = checkpoint.Checkpoints(folder, 1)
  assert saved.restore(writer)[0] == 2
  saved.save(writer, 3, saved.make_state(33), saved.make_iterator(33), {})
  writer.close()
  assert len(warnings) == 2 and '3.replaced-1' in warnings[1]
  names = {path.name for path in folder.iterdir()}
  assert names == {'2', '3', '3.replaced-1'}  # the best, the newest
  step, state, _ = saved.restore(
    checkpoint.Checkpoints(folder), saved.make_state(0)
  )
  assert step == 3
  saved.assert_same(state, saved.make_state(33))


def test_if_the_best_is_damaged_the_next_best_is_read(folder, reader, warnings):
  flip_arrays(folder / '2')
  params = {'params': saved.make_state(0)['params']}
  assert saved.read(reader, params)[0] == 1
  assert len(warnings) == 1 and str(folder / '2') in warnings[0]


def test_damaged_checkpoints_do_not_count_among_the_newest(folder):
  (folder / '3').rename(folder / '30')
  flip_arrays(folder / '30')
  writer = checkpoint.Checkpoints(folder, 1)
  assert saved.restore(writer)[0] == 2
  for step in (21, 22):
    saved.save(writer, step, saved.make_state(step))
  writer.close()
  assert writer.steps() == [2, 22, 30]  # the best, the newest, the damaged


def test_all_damaged(folder, reader, warnings):
  for step in ('1', '2', '3'):
    flip_arrays(folder / step)
  with pytest.raises(errors.InputError) as caught:
    saved.restore(reader)
  assert str(folder) in str(caught.value) and len(warnings) == 3


def test_a_named_step_has_no_substitute(folder, reader):
  flip_arrays(folder / '3')
  with pytest.raises(errors.InputError, match=r'steps \[3\]'):
    saved.restore(reader, which=3)


def test_what_a_killed_save_left_is_ignored_then_removed(folder):
  left = folder / '4.orbax-checkpoint-tmp'
  shutil.copytree(folder / '3', left)
  assert saved.restore(checkpoint.Checkpoints(folder))[0] == 3
  assert left.exists()  # another process may be writing it
  writer = checkpoint.Checkpoints(folder, 3)
  assert saved.restore(writer)[0] == 3
  saved.save(writer, 5, saved.make_state(5))
  writer.close()
  assert not left.exists()
