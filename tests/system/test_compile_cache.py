"""Where compiled programs are kept, and where they are not."""

import os
import pathlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental.compilation_cache import compilation_cache

from rnn_jax.system import compile_cache

SHORTEST = 'jax_persistent_cache_min_compile_time_secs'
NAMES = (
  'jax_compilation_cache_dir',
  SHORTEST,
  'jax_persistent_cache_min_entry_size_bytes',
)


@pytest.fixture(autouse=True)
def _as_before():
  before = {name: jax.config.values[name] for name in NAMES}
  yield
  for name, value in before.items():
    jax.config.update(name, value)
  compilation_cache.reset_cache()


@pytest.fixture(name='home')
def _home(monkeypatch, tmp_path):
  """A user's folder of caches, and a JAX without one of its own."""
  monkeypatch.setenv('XDG_CACHE_HOME', str(tmp_path))
  monkeypatch.delenv(SHORTEST.upper(), raising=False)
  jax.config.update('jax_compilation_cache_dir', None)
  return tmp_path


def test_the_argument_and_jax_s_own_folder_come_first(home):
  assert compile_cache.keep('named') == 'named'
  assert jax.config.jax_compilation_cache_dir == 'named'
  assert compile_cache.keep() == 'named'
  assert compile_cache.keep('') == ''
  assert jax.config.jax_compilation_cache_dir is None


def test_the_default_is_the_user_s(home, monkeypatch):
  folder = pathlib.Path(compile_cache.keep())
  assert folder.parent == home / 'rnn_jax'
  assert folder.name.startswith(f'jaxlib-{jax.lib.__version__}-')
  assert os.stat(folder).st_mode & 0o777 == 0o700
  assert jax.config.jax_compilation_cache_dir == str(folder)
  monkeypatch.setattr(compile_cache, 'processor', lambda: 'another')
  another = compile_cache.own_folder(jax.lib.__version__)
  assert another not in (str(folder), '')


def test_programs_are_kept_after_others_were_compiled_without(
  home, monkeypatch
):
  monkeypatch.setattr(compile_cache, 'SHORTEST', 0.0)
  jax.config.update('jax_persistent_cache_min_entry_size_bytes', 0)
  compilation_cache.reset_cache()
  jax.jit(lambda x: x + 1)(jax.numpy.ones(3)).block_until_ready()
  folder = pathlib.Path(compile_cache.keep())
  jax.jit(lambda x: x * 3 - 1)(jax.numpy.ones(3)).block_until_ready()
  assert [*folder.iterdir()]


@pytest.mark.parametrize('how', ('owner', 'mode', 'link'))
def test_programs_that_others_can_write_are_not_run(home, monkeypatch, how):
  folder = pathlib.Path(compile_cache.own_folder('0.0.1'))
  match how:
    case 'owner':
      monkeypatch.setattr(os, 'getuid', lambda: os.stat(folder).st_uid + 1)
    case 'mode':
      folder.chmod(0o770)
    case 'link':
      folder.rename(home / 'elsewhere')
      folder.symlink_to(home / 'elsewhere')
  assert compile_cache.own_folder('0.0.1') == ''


def test_a_home_without_room_for_programs_keeps_none(home, monkeypatch):
  (home / 'file').touch()
  monkeypatch.setenv('XDG_CACHE_HOME', str(home / 'file'))
  assert compile_cache.keep() == ''
  assert jax.config.jax_compilation_cache_dir is None


@pytest.mark.parametrize('damage', ['swapped', 'flipped', 'cut'])
def test_a_program_of_another_key_is_compiled_again(home, monkeypatch, damage):
  monkeypatch.setattr(compile_cache, 'SHORTEST', 0.0)
  jax.config.update('jax_persistent_cache_min_entry_size_bytes', 0)
  folder = pathlib.Path(compile_cache.keep())
  x = np.ones(7, np.float32)

  def results():
    jax.clear_caches()
    compilation_cache.reset_cache()
    # Of one shape: JAX would run either for the other.
    return [jax.jit(f)(x).tolist() for f in (jnp.sin, jnp.cos, jnp.exp)]

  before = results()
  files = [*folder.glob(f'*{compile_cache.SUFFIX}-cache')]
  assert len(files) >= 3
  contents = [path.read_bytes() for path in files]
  if damage == 'swapped':
    contents = [*contents[1:], contents[0]]
  elif damage == 'flipped':
    contents = [x[:-5] + bytes([x[-5] ^ 1]) + x[-4:] for x in contents]
  else:
    contents = [x[: len(x) // 2] for x in contents]
  for path, content in zip(files, contents, strict=True):
    path.write_bytes(content)
  warnings = []
  monkeypatch.setattr(
    compile_cache.logging, 'warning', lambda *words: warnings.append(words)
  )
  assert results() == before
  assert len(warnings) >= 3
  assert results() == before  # from whole files again
  assert len(warnings) == len({words[1] for words in warnings})


def test_the_user_says_from_what_time_on_a_program_is_kept(home, monkeypatch):
  compile_cache.keep('')
  assert jax.config.values[SHORTEST] == compile_cache.SHORTEST
  jax.config.update(SHORTEST, 2.0)  # as JAX read it from the variable
  monkeypatch.setenv(SHORTEST.upper(), '2')
  compile_cache.keep('')
  assert jax.config.values[SHORTEST] == 2.0
