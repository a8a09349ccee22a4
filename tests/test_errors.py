"""What a user can fix becomes one line; a defect keeps its traceback."""

import errno
import os

import pytest

from rnn_jax import errors


@pytest.mark.parametrize(
  ('error', 'expected'),
  (
    (errors.InputError('x=3: give 4'), 'x=3: give 4'),
    (
      OSError(errno.ENOSPC, 'full', 'runs/a/metrics.jsonl'),
      'runs/a/metrics.jsonl: No space left on device: free some space',
    ),
    (
      OSError(errno.EROFS, 'read-only'),
      'Read-only file system: give a folder that can be written',
    ),
    (MemoryError(), "the machine's memory ran out: lower the batch size"),
    (
      RuntimeError('RESOURCE_EXHAUSTED: Out of memory allocating 9 bytes.\nx'),
      'memory ran out (RESOURCE_EXHAUSTED: Out of memory allocating 9 bytes):',
    ),
  ),
)
def test_what_a_user_can_fix_is_one_line(error, expected):
  line = errors.explain(error)
  assert expected in line and '\n' not in line


@pytest.mark.parametrize(
  'error',
  (
    RuntimeError('a bug'),
    KeyError('out of memory'),
    FileNotFoundError(errno.ENOENT, 'none', 'x'),
    RuntimeError('YNNPACK operation failed: invalid parameter'),
  ),
)
def test_a_defect_is_not_explained(error):
  assert errors.explain(error) == ''


def test_an_implementation_for_another_device_is_a_line():
  error = NotImplementedError("impl='pallas' needs a GPU, not cpu")
  assert errors.explain(error) == (
    "recurrence.impl='pallas' needs a GPU, not cpu"
  )
  assert errors.explain(NotImplementedError('batch axes')) == ''


def test_a_deleted_folder_is_named(tmp_path, monkeypatch):
  monkeypatch.chdir(tmp_path)
  tmp_path.rmdir()
  with pytest.raises(FileNotFoundError) as raised:
    os.getcwd()
  line = 'the current folder was deleted: change to another one'
  assert errors.explain(raised.value) == line
