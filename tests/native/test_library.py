"""The C++ library is built once, loaded safely, and done without elsewhere."""

import ctypes
import json
import os
import pathlib
import subprocess
import sys
import time

import pytest

from rnn_jax.native import build
from rnn_jax.native import cache
from rnn_jax.native import library
from rnn_jax.native import prebuilt
from rnn_jax.native import wheel
from rnn_jax.system import processor

SOURCES = ('one.cc', 'two.cc')
needs_compiler = pytest.mark.skipif(
  bool(library.lacking()), reason='a C++ compiler is optional'
)


@pytest.fixture
def tiny(tmp_path, monkeypatch):
  """A folder of sources; the cache is a new one beside it."""
  folder = tmp_path / 'sources'
  folder.mkdir()
  (folder / 'number.h').write_text('#define NUMBER 41\n')
  (folder / 'one.cc').write_text(
    '#include "number.h"\nint one();\nint one() { return NUMBER; }\n'
  )
  (folder / 'two.cc').write_text(
    'int one();\nextern "C" int answer() { return one() + 1; }\n'
  )
  monkeypatch.setenv('RNN_JAX_CACHE', str(tmp_path / 'cache'))
  return folder


def script(path, text):
  path.write_text(f'#!/bin/sh\n{text}\n')
  path.chmod(0o755)
  return path


def answer(path):
  return ctypes.CDLL(str(path)).answer()


@needs_compiler
def test_a_library_is_built_once_and_again_when_a_source_changes(tiny):
  path, compiler = build.find_or_build(tiny, SOURCES)
  assert answer(path) == 42 and compiler.version
  key = json.loads(path.with_name(path.name[:16] + '.json').read_text())
  assert key['processor'] == sorted(processor.features())
  made = path.stat().st_ino
  assert build.find_or_build(tiny, SOURCES)[0] == path
  assert path.stat().st_ino == made
  (tiny / 'number.h').write_text('#define NUMBER 6\n')
  other, _ = build.find_or_build(tiny, SOURCES)
  assert other != path and answer(other) == 7
  assert not [*path.parent.glob('building-*')]


@needs_compiler
@pytest.mark.parametrize('what', ('flags', 'jaxlib', 'processor', 'compiler'))
def test_the_key_has_everything_a_library_depends_on(tiny, monkeypatch, what):
  def key():
    chosen = build.compiler()
    flags = build.native_flags(chosen)
    return cache.digest(build._key(tiny, SOURCES, chosen, flags))

  before = key()
  if what == 'flags':
    monkeypatch.setenv('RNN_JAX_NATIVE_FLAGS', '-g')
  elif what == 'jaxlib':
    monkeypatch.setattr(build.jax.lib, '__version__', '0')
  elif what == 'processor':
    monkeypatch.setattr(processor, 'features', lambda: frozenset({'avx9'}))
  else:
    fake = script(tiny / 'fake', 'echo fake 1.0')
    monkeypatch.setenv('CXX', str(fake))
  assert key() != before


@needs_compiler
@pytest.mark.parametrize('keep', (0, 100, -1))
def test_a_truncated_library_is_built_again(tiny, keep):
  path, _ = build.find_or_build(tiny, SOURCES)
  whole = path.read_bytes()
  path.write_bytes(whole[:keep])
  again, _ = build.find_or_build(tiny, SOURCES)
  assert answer(again) == 42 and again.read_bytes() == whole


@needs_compiler
def test_two_processes_may_build_at_once(tiny):
  code = (
    'import ctypes, pathlib, sys; from rnn_jax.native import build; '
    'path, _ = build.find_or_build(pathlib.Path(sys.argv[1]), sys.argv[2:]); '
    'print(ctypes.CDLL(str(path)).answer())'
  )
  command = (sys.executable, '-c', code, str(tiny), *SOURCES)
  options = {'stdout': subprocess.PIPE, 'text': True}
  processes = [subprocess.Popen(command, **options) for _ in range(2)]
  assert [p.communicate()[0] for p in processes] == ['42\n', '42\n']
  assert len([*cache.folder().glob('*.so')]) == 1


def test_without_a_compiler_the_reason_names_the_candidates(tiny, monkeypatch):
  monkeypatch.delenv('CXX', raising=False)
  monkeypatch.setenv('PATH', str(tiny))
  with pytest.raises(cache.UnavailableError, match='no C.. compiler found'):
    build.find_or_build(tiny, SOURCES)
  monkeypatch.setenv('CXX', 'nowhere++ -O2')
  with pytest.raises(cache.UnavailableError, match='nowhere.* not on the PATH'):
    build.find_or_build(tiny, SOURCES)


def test_flags_of_gcc_are_not_given_to_clang():
  given = {
    version: build.native_flags(build.Compiler(('c++',), version))
    for version in ('g++ (Debian) 12.2.0', 'Apple clang version 16.0.0')
  }
  gcc, clang = given.values()
  assert {*gcc} - {*clang} == {*build.GCC_FLAGS}


def test_a_broken_compiler_is_quoted(tiny, monkeypatch):
  text = (
    '[ "$1" = --version ] && echo fake 1.0 && exit\n'
    'echo first line >&2; echo "the last line" >&2; echo >&2; exit 3'
  )
  monkeypatch.setenv('CXX', str(script(tiny / 'broken', text)))
  with pytest.raises(
    cache.UnavailableError, match='^broken fails with 3: the last line$'
  ):
    build.find_or_build(tiny, SOURCES)
  assert not [*cache.folder().glob('building-*')]


def test_a_folder_that_others_can_write_is_not_used(tiny):
  cache.folder().chmod(0o777)
  with pytest.raises(
    cache.UnavailableError, match='others can write to .*native'
  ):
    cache.folder()


def test_a_folder_of_another_user_is_not_used(tiny, monkeypatch):
  cache.folder()
  other = os.getuid() + 1
  monkeypatch.setattr(os, 'getuid', lambda: other)
  with pytest.raises(cache.UnavailableError, match='others can write to'):
    cache.folder()


@needs_compiler
def test_a_library_that_others_can_write_is_not_loaded(tiny):
  path, _ = build.find_or_build(tiny, SOURCES)
  path.chmod(0o722)
  with pytest.raises(
    cache.UnavailableError, match=f'others can write to {path}'
  ):
    build.find_or_build(tiny, SOURCES)


def test_a_link_is_not_a_folder_of_libraries(tiny, tmp_path):
  (tmp_path / 'cache').mkdir()
  (tmp_path / 'elsewhere').mkdir()
  (tmp_path / 'cache' / 'native').symlink_to(tmp_path / 'elsewhere')
  with pytest.raises(cache.UnavailableError, match='others can write to'):
    cache.folder()


def test_a_folder_that_cannot_be_created_is_a_reason(tmp_path, monkeypatch):
  (tmp_path / 'file').touch()
  monkeypatch.setenv('RNN_JAX_CACHE', str(tmp_path / 'file'))
  with pytest.raises(cache.UnavailableError, match='set RNN_JAX_CACHE'):
    cache.folder()


def test_a_user_without_a_home_is_a_reason(monkeypatch):
  for name in ('RNN_JAX_CACHE', 'XDG_CACHE_HOME'):
    monkeypatch.delenv(name, raising=False)
  monkeypatch.setattr(os.path, 'expanduser', lambda path: path)
  with pytest.raises(cache.UnavailableError, match='no home folder'):
    cache.root()


def test_unused_libraries_are_removed(tiny):
  where = cache.folder()
  for name, days in (('old-1.so', 31), ('new-1.so', 29)):
    (where / name).touch()
    (where / name).with_name(f'{name[:3]}.json').touch()
    then = time.time() - days * 24 * 3600
    os.utime(where / name, (then, then))
  (tiny / 'built').write_text('content')
  kept = cache.keep(tiny / 'built', where, {'key': 1})
  names = {path.name for path in where.iterdir()}
  assert names >= {kept.name, 'new-1.so', 'new.json'}
  assert not names & {'old-1.so', 'old.json'}


@pytest.fixture
def unloaded():
  library._load.cache_clear()
  yield
  library._load.cache_clear()


def test_it_can_be_switched_off(monkeypatch, unloaded):
  monkeypatch.setenv('RNN_JAX_NATIVE', '0')
  assert library.lacking() == 'RNN_JAX_NATIVE=0 switches it off'
  assert library.describe() == (
    'native: not available: RNN_JAX_NATIVE=0 switches it off; '
    "impl='auto' runs 'chunked'"
  )
  with pytest.raises(NotImplementedError, match='RNN_JAX_NATIVE=0'):
    library.call('linear_scan_forward', ())


@needs_compiler
def test_a_library_without_a_handler_is_a_reason(tiny, monkeypatch, unloaded):
  monkeypatch.setattr(library, 'FOLDER', tiny)
  monkeypatch.setattr(library, 'SOURCES', SOURCES)
  assert library.lacking().startswith("it doesn't load: AttributeError")


def test_the_library_is_described():
  if why := library.lacking():
    assert why in library.describe()
  else:
    assert processor.vectors() in library.describe()


class TestPrebuilt:
  """Libraries of a wheel; their content is never loaded here."""

  @pytest.fixture(autouse=True)
  def folder(self, tmp_path, monkeypatch):
    monkeypatch.setattr(prebuilt, 'FOLDER', tmp_path)
    monkeypatch.setattr(prebuilt.platform, 'machine', lambda: 'x86_64')
    monkeypatch.setattr(processor, 'features', lambda: prebuilt._V3)
    self.folder = tmp_path
    for level in prebuilt.LEVELS['x86_64']:
      self.write(level)

  def write(self, level, **about):
    path = self.folder / f'{level}.so'
    path.write_text(level)
    about = {
      'sha256': cache.sha256(path),
      'interface': prebuilt.interface(),
      'sources': 'abc',
    } | about
    path.with_suffix('.json').write_text(json.dumps(about))

  def test_the_best_that_this_processor_runs_is_taken(self, monkeypatch):
    assert prebuilt.find('abc')[1] == 'x86-64-v3'
    monkeypatch.setattr(processor, 'features', lambda: prebuilt._V4)
    assert prebuilt.find('abc')[1] == 'x86-64-v4'
    monkeypatch.setattr(processor, 'features', lambda: {'sse2'})
    with pytest.raises(cache.UnavailableError, match='no prebuilt library'):
      prebuilt.find('abc')

  def test_a_mac_needs_no_features(self, monkeypatch):
    monkeypatch.setattr(prebuilt.platform, 'machine', lambda: 'arm64')
    monkeypatch.setattr(processor, 'features', lambda: frozenset({'arm64'}))
    self.write('apple-m1')
    assert prebuilt.find('abc')[1] == 'apple-m1'

  @pytest.mark.parametrize(
    ('about', 'why'),
    (
      ({'interface': (0, 999)}, 'for version 0.999'),
      ({'interface': (7, 0)}, 'for version 7.0'),
      ({'sources': 'abd'}, 'of other sources'),
      ({'sha256': '0'}, 'is damaged'),
    ),
  )
  def test_one_that_does_not_fit_is_a_reason(self, monkeypatch, about, why):
    for level in prebuilt.LEVELS['x86_64']:
      self.write(level, **about)
    with pytest.raises(cache.UnavailableError, match=why):
      prebuilt.find('abc')

  def test_an_older_minor_version_is_taken(self):
    major, minor = prebuilt.interface()
    assert minor > 0
    self.write('x86-64-v3', interface=(major, minor - 1))
    assert prebuilt.find('abc')[1] == 'x86-64-v3'


def test_each_target_of_wheels_has_libraries():
  for target in wheel.TARGETS.values():
    assert prebuilt.LEVELS[target.machine]
    assert target.machine in target.triple.replace('aarch64-macos', 'arm64')
    assert target.tag.endswith(target.machine)


def test_the_package_holds_its_sources():
  text = pathlib.Path(library.__file__).parents[2] / 'pyproject.toml'
  assert '"*.cc", "*.h", "prebuilt/*"' in text.read_text()
  for name in library.SOURCES:
    assert (library.FOLDER / name).exists()
