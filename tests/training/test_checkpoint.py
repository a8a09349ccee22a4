"""Checkpoints: exact, kept by step and by loss, and never read damaged."""

import errno
import logging
import os
import pathlib
import shutil
import subprocess
import sys
import typing

import absl.logging
import grain
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from rnn_jax import errors
from rnn_jax.training import checkpoint

OPTIMIZER = optax.chain(
  optax.clip_by_global_norm(1.0),
  optax.adamw(
    optax.cosine_decay_schedule(1e-3, 100), mask={'w': True, 'b': False}
  ),
)


class Carry(typing.NamedTuple):
  memory: jax.Array
  ring: tuple[jax.Array, ...]


def make_state(seed):
  rng = np.random.default_rng(seed)
  w, b, m = (jnp.array(rng.normal(size=(24, 40)), 'float32') for _ in range(3))
  params = {'w': w, 'b': b}
  return {
    'params': params,
    'optimizer': update(params),
    'carry': [Carry(m.astype(jnp.bfloat16), (m, m > 0)), None],
    'key': jnp.array(rng.integers(2**32, size=2), 'uint32'),
    'skipped': jnp.int32(seed),
    'scale': jnp.float32(seed / 3),
    'half': jnp.bfloat16(1 / 3),
  }


@jax.jit
def update(params):
  return OPTIMIZER.update(params, OPTIMIZER.init(params), params)[1]


def make_iterator(taken=0):
  iterator = iter(grain.MapDataset.range(1000).shuffle(3).to_iter_dataset())
  for _ in range(taken):
    next(iterator)
  return iterator


def like(state):
  return jax.tree.map(
    lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=x.sharding),
    state,
  )


def assert_same(got, want):
  assert jax.tree.structure(got) == jax.tree.structure(want)
  for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
    assert isinstance(a, jax.Array) and a.dtype == b.dtype
    assert a.sharding == b.sharding
    assert np.asarray(a).tobytes() == np.asarray(b).tobytes()


def save_all(folder, keep, losses):
  """Saves step -> loss; each step's state is made of the step."""
  checkpoints = checkpoint.Checkpoints(folder, keep)
  for step, loss in losses.items():
    progress = {'held_out_loss': loss, 'evaluations': step}
    checkpoints.save(step, make_state(step), make_iterator(step), progress)
  checkpoints.close()


@pytest.fixture
def warnings():
  """The warnings that reach the terminal."""
  lines = []
  handler = logging.Handler(logging.WARNING)
  handler.emit = lambda record: lines.append(record.getMessage())
  absl.logging.get_absl_logger().addHandler(handler)
  yield lines
  absl.logging.get_absl_logger().removeHandler(handler)


@pytest.fixture(scope='module')
def pristine(tmp_path_factory):
  folder = tmp_path_factory.mktemp('run') / 'checkpoints'
  save_all(folder, 3, {1: 0.5, 2: 0.25, 3: None})
  return folder


@pytest.fixture
def folder(pristine, tmp_path):
  return pathlib.Path(shutil.copytree(pristine, tmp_path / 'checkpoints'))


@pytest.fixture
def writer(folder):
  checkpoints = checkpoint.Checkpoints(folder, 3)
  yield checkpoints
  checkpoints.close()


@pytest.fixture
def reader(folder):
  checkpoints = checkpoint.Checkpoints(folder)
  yield checkpoints
  checkpoints.close()


def test_a_state_comes_back_bit_for_bit(reader):
  iterator = make_iterator()
  step, state, progress = reader.restore(like(make_state(0)), iterator)
  assert step == 3
  assert progress == {'held_out_loss': None, 'evaluations': 3}
  assert_same(state, make_state(3))
  assert next(iterator) == next(make_iterator(3))


def test_a_save_takes_the_values_of_its_call(writer):
  state, iterator = make_state(7), make_iterator(7)
  advance = jax.jit(
    lambda tree: jax.tree.map(lambda x: x + x.astype(x.dtype), tree),
    donate_argnums=0,
  )
  big = jnp.arange(2**21, dtype=jnp.float32)
  progress = {'held_out_loss': None, 'list': [1]}
  writer.save(4, {**state, 'big': big}, iterator, progress)
  advance(big)
  next(iterator)
  progress['list'].append(2)
  wanted = {**make_state(7), 'big': jnp.arange(2**21, dtype=jnp.float32)}
  writer.wait()
  _, got, progress = writer.restore(like(wanted), iterator)
  assert_same(got, wanted)
  assert progress['list'] == [1]
  assert next(iterator) == next(make_iterator(7))


def test_the_newest_and_the_best_are_kept(tmp_path):
  losses = {1: 3.0, 2: 1.0, 3: 1.0, 4: None, 5: float('nan'), 6: 2.0}
  save_all(tmp_path, 2, losses)
  assert checkpoint.Checkpoints(tmp_path).steps() == [2, 5, 6]
  save_all(tmp_path, 1, {7: 0.5})  # a new process reads the losses again
  assert sorted(os.listdir(tmp_path)) == ['7']


@pytest.mark.parametrize('which,step', (('latest', 3), ('best', 2), (1, 1)))
def test_which(reader, which, step):
  assert reader.restore(make_state(0), which=which)[0] == step
  got, params = reader.restore_parameters(make_state(0)['params'], which)
  assert got == step
  assert_same(params, make_state(step)['params'])


def test_best_without_a_loss_is_the_latest(tmp_path):
  save_all(tmp_path, 3, {1: None, 2: None})
  reader = checkpoint.Checkpoints(tmp_path)
  assert reader.restore(make_state(0), which='best')[0] == 2


def test_parameters_without_a_sharding_go_to_the_device(reader):
  params = make_state(2)['params']
  bare = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), params)
  assert_same(reader.restore_parameters(bare)[1], params)


def test_nothing_to_restore(tmp_path):
  reader = checkpoint.Checkpoints(tmp_path / 'run' / 'checkpoints')
  assert reader.restore(make_state(0), make_iterator()) is None
  with pytest.raises(errors.InputError, match='train first .*--workdir=.*run'):
    reader.restore_parameters(make_state(0)['params'])
  assert not os.listdir(tmp_path)


def test_a_step_that_is_not_there(reader):
  with pytest.raises(errors.InputError, match=r'step 9 .*\[1, 2, 3\]'):
    reader.restore(make_state(0), which=9)


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
    reader.restore(make_state(0) | change)


@pytest.mark.parametrize('name', ('w', 'b', 'c'))
def test_other_parameters_are_an_error(reader, name):
  params = make_state(0)['params'] | {name: jnp.zeros(2)}
  with pytest.raises(errors.InputError, match=f'params/{name}: '):
    reader.restore_parameters(params)


def largest(step_folder):
  files = [path for path in step_folder.rglob('*') if path.is_file()]
  return max(files, key=lambda path: path.stat().st_size)


def flip_arrays(step_folder):
  flip(largest(step_folder))


def flip_data(step_folder):
  flip(next(step_folder.glob('data/process_*.json')))


def flip_progress(step_folder):
  flip(step_folder / 'progress' / 'metadata')


def flip_seal(step_folder):
  flip(step_folder / checkpoint.SEAL)


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
  (step_folder / checkpoint.SEAL).unlink()


def empty_seal(step_folder):
  (step_folder / checkpoint.SEAL).write_text('')


def cut_seal(step_folder):
  seal = step_folder / checkpoint.SEAL
  seal.write_text('\n'.join(seal.read_text().splitlines()[:-1]) + '\n')


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
  cut_seal,
  empty_the_folder,
  empty_the_folder_but_for_the_seal,
)


@pytest.mark.parametrize('damage', DAMAGES)
def test_damage_is_passed_over_and_the_step_saved_again(
  folder, warnings, damage
):
  damage(folder / '3')
  writer, iterator = checkpoint.Checkpoints(folder, 1), make_iterator()
  step, state, _ = writer.restore(like(make_state(0)), iterator)
  assert step == 2 and next(iterator) == next(make_iterator(2))
  assert_same(state, make_state(2))
  assert len(warnings) == 1 and str(folder / '3') in warnings[0]
  assert folder.joinpath('3').is_dir()
  writer.save(3, make_state(33), make_iterator(33), {})
  writer.close()
  assert len(warnings) == 2 and '3.replaced-1' in warnings[1]
  names = {path.name for path in folder.iterdir()}
  assert names == {'2', '3', '3.replaced-1'}  # the best, the newest
  step, state, _ = checkpoint.Checkpoints(folder).restore(make_state(0))
  assert step == 3
  assert_same(state, make_state(33))


def test_the_best_one_damaged_gives_the_next_best(folder, reader, warnings):
  flip_arrays(folder / '2')
  assert reader.restore_parameters(make_state(0)['params'])[0] == 1
  assert len(warnings) == 1 and str(folder / '2') in warnings[0]


def test_a_damaged_one_takes_no_place_among_the_newest(folder):
  (folder / '3').rename(folder / '30')
  flip_arrays(folder / '30')
  writer = checkpoint.Checkpoints(folder, 1)
  assert writer.restore(make_state(0))[0] == 2
  for step in (21, 22):
    writer.save(step, make_state(step), make_iterator(), {})
  writer.close()
  assert writer.steps() == [2, 22, 30]  # the best, the newest, the damaged


def test_all_damaged(folder, reader, warnings):
  for step in ('1', '2', '3'):
    flip_arrays(folder / step)
  with pytest.raises(errors.InputError) as caught:
    reader.restore(make_state(0))
  assert str(folder) in str(caught.value) and len(warnings) == 3


def test_a_named_step_has_no_substitute(folder, reader):
  flip_arrays(folder / '3')
  with pytest.raises(errors.InputError, match=r'steps \[3\]'):
    reader.restore(make_state(0), which=3)


def test_what_a_killed_save_left_is_ignored_then_cleared(folder):
  left = folder / '4.orbax-checkpoint-tmp'
  shutil.copytree(folder / '3', left)
  assert checkpoint.Checkpoints(folder).restore(make_state(0))[0] == 3
  assert left.exists()  # another process may be writing it
  writer = checkpoint.Checkpoints(folder, 3)
  assert writer.restore(make_state(0))[0] == 3
  writer.save(5, make_state(5), make_iterator(), {})
  writer.close()
  assert not left.exists()


def test_a_saved_step_is_not_written_twice(writer):
  step, state, progress = writer.restore(make_state(0), which=3)
  assert not writer.save(step, state, make_iterator(3), progress)
  assert writer.save(4, state, make_iterator(), {'held_out_loss': 1.0})
  assert not writer.save(4, state, make_iterator(), {'held_out_loss': None})
  with pytest.raises(ValueError, match='evaluate before saving'):
    writer.save(4, state, make_iterator(), {'held_out_loss': 0.5})


def test_a_full_disk_is_seen_before_the_save(writer, monkeypatch):
  state = make_state(4)
  size = sum(leaf.nbytes for leaf in jax.tree.leaves(state))
  needed = int(1.1 * size) + 2**20
  free = [needed - 1]
  monkeypatch.setattr(
    shutil, 'disk_usage', lambda _: shutil._ntuple_diskusage(2**40, 0, free[0])
  )
  with pytest.raises(errors.InputError) as caught:
    writer.save(4, state, make_iterator(), {})
  for text in (str(writer.folder), f'{needed:,}', f'{needed - 1:,}', 'command'):
    assert text in str(caught.value)
  assert sorted(os.listdir(writer.folder)) == ['1', '2', '3']
  free[0] = needed
  assert writer.save(4, state, make_iterator(), {})


@pytest.mark.parametrize('code', sorted(checkpoint.FULL))
def test_a_disk_that_fills_during_the_save(folder, monkeypatch, code):
  writer = checkpoint.Checkpoints(folder, 3)

  def fail(*_):
    raise OSError(code, os.strerror(code))

  with monkeypatch.context() as patch:
    patch.setattr(checkpoint, '_sums', fail)
    assert writer.save(4, make_state(4), make_iterator(), {})
    with pytest.raises(errors.InputError, match='the last complete checkpoint'):
      writer.wait()
  assert writer.save(4, make_state(4), make_iterator(), {})
  writer.close()
  assert checkpoint.Checkpoints(folder).restore(make_state(0))[0] == 4


def test_a_limit_on_the_size_of_a_file(tmp_path):
  """The real thing: the kernel refuses to write on, as on a full disk."""
  output = run(
    tmp_path,
    'import resource, signal\n'
    'signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n'
    'resource.setrlimit(resource.RLIMIT_FSIZE, (4000, 4000))\n'
    'writer = checkpoint.Checkpoints(folder, 1)\n'
    'writer.save(1, test.make_state(1), test.make_iterator(), {})\n'
    'try:\n'
    '  writer.close()\n'
    'except errors.InputError as error:\n'
    '  print(error)\n',
  )
  assert os.strerror(errno.EFBIG) in output and str(tmp_path) in output


def test_eight_devices(tmp_path):
  """Sharded arrays come back sharded, and whole on one device."""
  run(
    tmp_path,
    'mesh = jax.make_mesh((8,), ("B",))\n'
    'P = jax.sharding.PartitionSpec\n'
    'def spread(x):\n'
    '  spec = P("B") if x.ndim and x.shape[0] % 8 == 0 else P()\n'
    '  return jax.device_put(x, jax.sharding.NamedSharding(mesh, spec))\n'
    'state = jax.tree.map(spread, test.make_state(1))\n'
    'assert len(state["params"]["w"].sharding.device_set) == 8\n'
    'writer = checkpoint.Checkpoints(folder, 1)\n'
    'with jax.transfer_guard("disallow"):\n'
    '  writer.save(1, state, test.make_iterator(), {})\n'
    '  _, got, _ = writer.restore(test.like(state))\n'
    '  _, params = writer.restore_parameters(state["params"])\n'
    'test.assert_same(got, state)\n'
    'test.assert_same(params, state["params"])\n'
    'writer.close()\n',
    XLA_FLAGS='--xla_force_host_platform_device_count=8',
  )
  _, got, _ = checkpoint.Checkpoints(tmp_path).restore(make_state(0))
  assert_same(got, make_state(1))


def test_the_terminal_stays_quiet_and_the_process_ends(tmp_path):
  output = run(
    tmp_path,
    'absl.logging.set_verbosity("info")\n'
    'writer = checkpoint.Checkpoints(folder, 1)\n'
    'writer.restore(test.make_state(0))\n'
    'for step in (1, 2):\n'
    '  writer.save(step, test.make_state(step), test.make_iterator(), {})\n'
    'writer.restore(test.make_state(0), test.make_iterator())\n'
    'writer.restore_parameters(test.make_state(0)["params"])\n'
    'writer.close()\n'
    'absl.logging.info("ours")\n',
  )
  assert output.splitlines() == ['INFO:absl:ours']


def run(folder, code, **environment):
  """Runs code in a fresh process; returns what it wrote to the terminal."""
  code = (
    'import absl.logging, jax\n'
    'from rnn_jax import errors\n'
    'from rnn_jax.training import checkpoint\n'
    'from tests.training import test_checkpoint as test\n'
    f'folder = {str(folder)!r}\n{code}'
  )
  done = subprocess.run(
    [sys.executable, '-c', code],
    cwd=pathlib.Path(__file__).parents[2],
    env=os.environ | {'JAX_PLATFORMS': 'cpu'} | environment,
    stdout=subprocess.PIPE,
    stderr=subprocess.STDOUT,
    text=True,
    timeout=120,
    check=False,
  )
  assert done.returncode == 0, done.stdout
  return done.stdout
