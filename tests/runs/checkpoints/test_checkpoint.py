"""Checkpoints: exact, kept by step and by loss."""

import errno
import os
import pathlib
import shutil
import subprocess
import sys

import jax
import jax.numpy as jnp
import pytest

from rnn_jax import errors
from rnn_jax.runs.checkpoints import checkpoint
from rnn_jax.runs.checkpoints import checksums
from rnn_jax.runs.checkpoints import disk
from tests.support import saved
from tests.support import virtual

PARAMS = {'params': saved.make_state(0)['params']}


def test_a_state_is_restored_bit_for_bit(reader):
  iterator = saved.make_iterator()
  step, state, progress = saved.restore(
    reader, saved.like(saved.make_state(0)), iterator
  )
  assert step == 3
  assert progress == {'held_out_loss': None, 'evaluations': 3}
  saved.assert_same(state, saved.make_state(3))
  assert next(iterator) == next(saved.make_iterator(3))


def test_a_save_takes_the_values_of_its_call(writer):
  state, iterator = saved.make_state(7), saved.make_iterator(7)
  advance = jax.jit(
    lambda tree: jax.tree.map(lambda x: x + x.astype(x.dtype), tree),
    donate_argnums=0,
  )
  big = jnp.arange(2**21, dtype=jnp.float32)
  progress = {'held_out_loss': None, 'list': [1]}
  saved.save(writer, 4, {**state, 'big': big}, iterator, progress)
  advance(big)
  next(iterator)
  progress['list'].append(2)
  wanted = {**saved.make_state(7), 'big': jnp.arange(2**21, dtype=jnp.float32)}
  writer.wait()
  _, got, progress = saved.restore(writer, saved.like(wanted), iterator)
  saved.assert_same(got, wanted)
  assert progress['list'] == [1]
  assert next(iterator) == next(saved.make_iterator(7))


def test_the_newest_and_the_best_are_kept(tmp_path):
  losses = {1: 3.0, 2: 1.0, 3: 1.0, 4: None, 5: float('nan'), 6: 2.0}
  saved.save_all(tmp_path, 2, losses)
  assert checkpoint.Checkpoints(tmp_path).steps() == [2, 5, 6]
  saved.save_all(tmp_path, 1, {7: 0.5})  # a new process reads the losses again
  assert sorted(os.listdir(tmp_path)) == ['7']


@pytest.mark.parametrize('which,step', (('latest', 3), ('best', 2), (1, 1)))
def test_which(reader, which, step):
  assert saved.restore(reader, which=which)[0] == step
  got, fields = saved.read(reader, PARAMS, which)
  assert got == step
  saved.assert_same(fields['params'], saved.make_state(step)['params'])


def test_parts_of_a_state_are_read_without_the_others(reader):
  names = 'params', 'optimizer', 'scale'
  like = {name: saved.make_state(0)[name] for name in names}
  step, parts = saved.read(reader, like, 1)
  want = saved.make_state(1)
  assert step == 1
  saved.assert_same(parts, {name: want[name] for name in names})


def test_best_without_a_loss_is_the_latest(tmp_path):
  saved.save_all(tmp_path, 3, {1: None, 2: None})
  reader = checkpoint.Checkpoints(tmp_path)
  assert saved.restore(reader, which='best')[0] == 2


def test_parameters_without_a_sharding_go_to_the_device(reader):
  params = saved.make_state(2)['params']
  bare = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), params)
  saved.assert_same(saved.read(reader, {'params': bare})[1]['params'], params)


def test_nothing_to_restore(tmp_path):
  reader = checkpoint.Checkpoints(tmp_path / 'run' / 'checkpoints')
  assert not reader.steps()
  with pytest.raises(errors.InputError, match='train first .*--workdir=.*run'):
    saved.read(reader, PARAMS)
  assert not os.listdir(tmp_path)


def test_a_missing_step(reader):
  with pytest.raises(errors.InputError, match=r'step 9 .*\[1, 2, 3\]'):
    saved.restore(reader, which=9)


@pytest.mark.parametrize(
  'change,line',
  (
    ({'scale': jnp.zeros(2)}, r"scale: 'float32\(\)' -> 'float32\(2,\)'"),
    ({'scale': jnp.bfloat16(0)}, r"scale: 'float32\(\)' -> 'bfloat16\(\)'"),
    ({'scale': None}, r"scale: 'float32\(\)' -> '\(absent\)'"),
    ({'new': jnp.zeros(2)}, r"new: '\(absent\)' -> 'float32\(2,\)'"),
    ({'params': {'w': jnp.zeros((24, 40))}}, 'params/b: '),
  ),
)
def test_another_model_is_an_error_that_shows_the_difference(
  reader, change, line
):
  with pytest.raises(errors.InputError, match=f'does not fit(.|\n)*{line}'):
    saved.restore(reader, saved.make_state(0) | change)


@pytest.mark.parametrize('name', ('w', 'b', 'c'))
def test_other_parameters_are_an_error(reader, name):
  params = saved.make_state(0)['params'] | {name: jnp.zeros(2)}
  with pytest.raises(errors.InputError, match=f'params/{name}: '):
    saved.read(reader, {'params': params})


def test_a_saved_step_is_not_written_twice(writer):
  step, state, progress = saved.restore(writer, which=3)
  assert not saved.save(writer, step, state, saved.make_iterator(3), progress)
  assert saved.save(
    writer, 4, state, saved.make_iterator(), {'held_out_loss': 1.0}
  )
  assert not saved.save(writer, 4, state, progress={'held_out_loss': None})
  with pytest.raises(ValueError, match='evaluate before saving'):
    saved.save(writer, 4, state, progress={'held_out_loss': 0.5})


def test_a_full_disk_is_noticed_before_the_save(writer, monkeypatch):
  state = saved.make_state(4)
  size = sum(leaf.nbytes for leaf in jax.tree.leaves(state))
  needed = int(1.1 * size) + 2**20
  free = [needed - 1]
  monkeypatch.setattr(
    shutil, 'disk_usage', lambda _: shutil._ntuple_diskusage(2**40, 0, free[0])
  )
  with pytest.raises(errors.InputError) as caught:
    saved.save(writer, 4, state)
  for text in (str(writer.folder), f'{needed:,}', f'{needed - 1:,}', 'command'):
    assert text in str(caught.value)
  assert sorted(os.listdir(writer.folder)) == ['1', '2', '3']
  free[0] = needed
  assert saved.save(writer, 4, state)


@pytest.mark.parametrize('code', sorted(disk.FULL))
def test_a_disk_that_fills_during_the_save(folder, monkeypatch, code):
  writer = checkpoint.Checkpoints(folder, 3)

  def fail(*_):
    raise OSError(code, os.strerror(code))

  with monkeypatch.context() as patch:
    patch.setattr(checksums, '_sums', fail)
    assert saved.save(writer, 4, saved.make_state(4))
    with pytest.raises(errors.InputError, match='the last complete checkpoint'):
      writer.wait()
  assert saved.save(writer, 4, saved.make_state(4))
  writer.close()
  assert saved.restore(checkpoint.Checkpoints(folder))[0] == 4


def test_too_few_descriptors_are_a_line(tmp_path):
  text = 'RESOURCE_EXHAUSTED: ... [OS error 24: EMFILE Too many open files]'
  line = 'Too many open files: raise the limit, ulimit -n'
  with pytest.raises(errors.InputError, match=line):
    with disk.clear_errors(tmp_path):
      raise ValueError(text)


def test_eight_devices():
  """Sharded arrays are restored sharded, and whole on one device."""
  folder = virtual.call('tests.runs.checkpoints.sharded', 'save')
  try:
    _, got, _ = saved.restore(
      checkpoint.Checkpoints(folder), saved.make_state(0)
    )
  finally:
    shutil.rmtree(folder)
  saved.assert_same(got, saved.make_state(1))


def test_the_terminal_stays_quiet_and_the_process_ends(tmp_path):
  """Also when the kernel itself refuses to write more, as on a full disk."""
  output = run(
    tmp_path,
    'import resource, signal\n'
    'absl.logging.set_verbosity("info")\n'
    'writer = checkpoint.Checkpoints(folder, 1)\n'
    'for step in (1, 2):\n'
    '  saved.save(writer, step, saved.make_state(step))\n'
    'saved.restore(writer, saved.make_state(0), saved.make_iterator())\n'
    'saved.read(writer, {"params": saved.make_state(0)["params"]})\n'
    'writer.close()\n'
    'absl.logging.info("ours")\n'
    'signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n'
    'resource.setrlimit(resource.RLIMIT_FSIZE, (4000, 4000))\n'
    'writer = checkpoint.Checkpoints(folder, 1)\n'
    'saved.restore(writer)\n'
    'saved.save(writer, 3, saved.make_state(3))\n'
    'try:\n'
    '  writer.close()\n'
    'except errors.InputError as error:\n'
    '  print(error)\n',
  )
  quiet, refused = output.split('INFO:absl:ours\n')
  assert not quiet
  assert os.strerror(errno.EFBIG) in refused and str(tmp_path) in refused


def run(folder, code):
  """Runs code in a fresh process; returns what it wrote to the terminal."""
  code = (
    'import absl.logging, jax\n'
    'from rnn_jax import errors\n'
    'from rnn_jax.runs.checkpoints import checkpoint\n'
    'from tests.support import saved\n'
    f'folder = {str(folder)!r}\n{code}'
  )
  done = subprocess.run(
    [sys.executable, '-c', code],
    cwd=pathlib.Path(__file__).parents[3],
    env=os.environ | {'JAX_PLATFORMS': 'cpu'},
    stdout=subprocess.PIPE,
    stderr=subprocess.STDOUT,
    text=True,
    timeout=120,
    check=False,
  )
  assert done.returncode == 0, done.stdout
  return done.stdout
