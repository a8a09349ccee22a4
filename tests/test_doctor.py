"""`launch.doctor`: what is missing or broken is said, with a remedy."""

import importlib.metadata
import json
import shutil
import socket

import pytest

from rnn_jax import version
from rnn_jax.native import library
from rnn_jax.selfcheck import machine
from rnn_jax.system import compile_cache
from tests.support import launchers


def found(name):
  return [*machine.PROBES[name](name)]


def test_a_package_of_another_version_is_broken(monkeypatch):
  right = importlib.metadata.version
  monkeypatch.setattr(
    importlib.metadata,
    'version',
    lambda name: '0.4.1' if name == 'jax' else right(name),
  )
  (finding,) = found('packages')
  assert finding.status == machine.BROKEN and finding.text == 'jax 0.4.1'
  assert finding.remedy.startswith("pip install 'jax<0.13,>=")


def test_an_extra_that_lacks_a_package_is_named(monkeypatch):
  installed = {'starlette', 'uvicorn', 'redis'}
  monkeypatch.setattr(
    machine,
    '_installed',
    lambda name: '1' if name in installed else None,
  )
  here, lacking = found('extras')
  assert here.text == 'installed: redis' and here.status == machine.OK
  assert 'serve: pydantic, prometheus-client' in lacking.text
  assert lacking.status == machine.MISSING and 'serve' in lacking.remedy
  assert 'torch' not in lacking.text  # of developers


def test_what_is_missing_has_a_remedy(monkeypatch, tmp_path):
  monkeypatch.setattr(library, 'lacking', lambda: 'no compiler')
  monkeypatch.setattr(compile_cache, 'own_folder', lambda version: '')
  monkeypatch.setattr(shutil, 'which', lambda name: f'/bin/{name}')
  monkeypatch.setattr(
    shutil, 'disk_usage', lambda path: shutil._ntuple_diskusage(9, 8, 1)
  )
  monkeypatch.chdir(tmp_path)
  of = {name: found(name) for name in ('C++', 'programs', 'devices', 'folder')}
  for name, (finding,) in of.items():
    assert finding.status != machine.OK and finding.remedy, name
  assert of['folder'][0].status == machine.BROKEN
  with socket.socket() as other:
    other.bind(('127.0.0.1', 0))
    other.listen()
    monkeypatch.setattr(machine, 'PORT', other.getsockname()[1])
    (finding,) = found('port')
  assert finding.status == machine.MISSING and '--port' in finding.remedy


def test_a_probe_that_fails_is_a_finding(monkeypatch):
  def fails(name):
    raise OSError('no such machine')
    yield

  monkeypatch.setattr(machine, 'PROBES', {'disk': fails})
  (finding,) = machine.findings()
  assert finding.status == machine.BROKEN and 'no such machine' in finding.text
  assert str(finding).startswith('! disk ')


@pytest.mark.slow
def test_the_command_fits_on_a_screen():
  code, out, err = launchers.run('doctor', '--json')
  assert code == 0, err + out
  lines = [machine.Finding(**json.loads(line)) for line in out.splitlines()]
  assert {line.name for line in lines} == {*machine.PROBES}
  assert version.__version__ in lines[0].text and 'error' in lines[-1].text
  assert sum(str(line).count('\n') + 1 for line in lines) <= 24
