"""`launch.serve`, as a user types it: what it refuses before it serves."""

import socket
import sys
from unittest import mock

import pytest

from rnn_jax.serving.http import auth
from tests.inference import runs
from tests.support import classifiers
from tests.support import launchers
from tests.support import series


@pytest.fixture(scope='module', name='run')
def _run(tmp_path_factory):
  return runs.make(tmp_path_factory.mktemp('run'), losses=(2.0,))


def refused(*flags):
  """The line with which a start fails."""
  code, out, err = launchers.run('serve', *flags)
  assert (code, out) == (1, ''), err
  (line,) = err.splitlines()
  return line


def test_other_machines_need_keys(run, tmp_path):
  line = refused(f'--workdir={run}', '--host=0.0.0.0')
  assert "host='0.0.0.0'" in line and '--keys_file' in line
  keys = tmp_path / 'keys'
  keys.write_text('alice short\n')
  line = refused(f'--workdir={run}', '--host=0.0.0.0', f'--keys_file={keys}')
  assert 'line 1' in line and 'short' not in line


def test_keys_of_the_environment_are_read(run, monkeypatch):
  monkeypatch.setenv(auth.VARIABLE, 'alice')
  assert auth.VARIABLE in refused(f'--workdir={run}')


def test_a_port_in_use_is_named(run):
  with socket.socket() as other:
    other.bind(('127.0.0.1', 0))
    other.listen()
    port = other.getsockname()[1]
    line = refused(f'--workdir={run}', f'--port={port}')
  assert f'port={port}' in line and 'in use' in line


def test_the_engines_options_are_checked_before_the_model_is_read(tmp_path):
  line = refused(f'--workdir={tmp_path}', '--port=0', '--draft_tokens=17')
  assert 'draft_tokens=17: give 0 to 16' in line


def test_a_run_is_needed(tmp_path):
  assert str(tmp_path) in refused(f'--workdir={tmp_path}', '--port=0')


def test_a_store_that_cannot_be_had_is_named(run):
  line = refused(f'--workdir={run}', '--port=0', '--store=redis://127.0.0.1:1')
  assert '--state_key_file' in line
  line = refused(f'--workdir={run}', '--port=0', '--store=/proc/nowhere')
  assert 'store=' in line


def test_limits_are_checked(run):
  for flag, name in (
    ('--slots=0', 'slots'),
    ('--body_bytes=0', 'body_bytes'),
    ('--request_seconds=nan', 'seconds'),
    ('--store_days=-1', 'store_days'),
    ('--weights=int3', 'weights'),
  ):
    assert name in refused(f'--workdir={run}', '--port=0', flag)


def test_streams_are_checked(tmp_path):
  from rnn_jax.runs import bundle as bundle_lib

  path = tmp_path / 'series.csv'
  series.frame().to_csv(path, index=False)
  bundle_lib.write(series.bundle(path), tmp_path / 'run')
  flags = f'--workdir={tmp_path / "run"}', '--port=0'
  for flag, words in (
    ('--streams=0', 'streams=0: give 1 or more'),
    ('--readings=0', 'readings=0: give 1 or more'),
    ('--store=redis://127.0.0.1:1', 'start the server'),
  ):
    assert words in refused(*flags, flag)


def test_a_model_of_images_is_refused(tmp_path):
  from rnn_jax.runs import bundle as bundle_lib

  bundle_lib.write(classifiers.images_bundle(), tmp_path / 'run')
  line = refused(f'--workdir={tmp_path / "run"}', '--port=0')
  assert 'launch.predict' in line


def test_without_the_extra_one_line_says_how_to_install_it(run):
  with mock.patch.dict(sys.modules, {'uvicorn': None}):
    line = refused(f'--workdir={run}')
  assert "pip install 'rnn_jax[serve]'" in line
