"""Limits of this process, and control groups of made-up machines."""

import json
import os
import resource
import sys

import pytest

from rnn_jax import errors
from rnn_jax.system import host
from rnn_jax.system import subprocesses

MIB = 2**20
GROWING = """
import json
import numpy as np
from rnn_jax.system import host

memory = host.Memory()
kept = np.ones(64 * 2**20, np.uint8)
print(json.dumps(memory.values()))
"""
LIMITED = """
import sys
import numpy as np
from rnn_jax.system import host

host.limit(64 * 2**20)
np.ones(48 * 2**20, np.uint8)
try:
  np.ones(80 * 2**20, np.uint8)
except MemoryError:
  sys.exit(3)
"""


def machine(tmp_path, available=1000, groups='', files=()):
  """The files of a made-up machine. Returns their root."""
  made = {
    'proc/meminfo': f'MemTotal: 9999 kB\nMemAvailable:   {available} kB\n',
    'proc/self/cgroup': groups,
    **dict(files),
  }
  for name, text in made.items():
    path = tmp_path / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
  return tmp_path


def test_available_memory_is_the_kernel_s(tmp_path):
  assert host.available_bytes(machine(tmp_path)) == 1000 * 1024
  here = host.available_bytes()
  total = os.sysconf('SC_PHYS_PAGES') * os.sysconf('SC_PAGE_SIZE')
  assert 0 < here <= total


def test_the_tightest_group_of_version_2_counts(tmp_path):
  files = {
    'sys/fs/cgroup/memory.max': 'max\n',
    'sys/fs/cgroup/memory.current': '7\n',
    'sys/fs/cgroup/a/memory.max': '900000\n',
    'sys/fs/cgroup/a/memory.current': '500000\n',
    'sys/fs/cgroup/a/memory.stat': 'anon 5\ninactive_file 100000\n',
    'sys/fs/cgroup/a/b/memory.max': '800000\n',
    'sys/fs/cgroup/a/b/memory.current': '100000\n',
  }
  root = machine(tmp_path, groups='0::/a/b\n', files=files.items())
  assert host.available_bytes(root) == 900_000 - 500_000 + 100_000


def test_groups_of_version_1(tmp_path):
  top = 'sys/fs/cgroup/memory'
  files = {
    f'{top}/memory.limit_in_bytes': '9223372036854771712\n',
    f'{top}/memory.usage_in_bytes': '1000\n',
    f'{top}/job/memory.limit_in_bytes': '600000\n',
    f'{top}/job/memory.usage_in_bytes': '500000\n',
    f'{top}/job/memory.stat': 'inactive_file 7\ntotal_inactive_file 20000\n',
  }
  groups = '5:cpu:/job\n4:memory:/job\n'
  root = machine(tmp_path, groups=groups, files=files.items())
  assert host.available_bytes(root) == 120_000


def test_a_container_that_sees_only_its_own_group(tmp_path):
  files = {
    'sys/fs/cgroup/memory.max': '500000\n',
    'sys/fs/cgroup/memory.current': '100000\n',
  }
  root = machine(tmp_path, groups='0::/\n', files=files.items())
  assert host.available_bytes(root) == 400_000
  root = machine(tmp_path, groups='0::/out/of/sight\n')
  assert host.available_bytes(root) == 400_000


def test_a_system_that_reports_nothing_needs_a_number(tmp_path):
  with pytest.raises(errors.InputError, match='--memory_gib is missing'):
    host.available_bytes(tmp_path)


def run(source):
  """Runs in a new process, whose memory has no traces of other tests."""
  return subprocesses.run([sys.executable, '-c', source])


def test_growth_is_the_memory_that_was_touched():
  ended = run(GROWING)
  assert ended.code == 0, ended.err
  values = json.loads(ended.out[-1])
  assert 64 * MIB <= values['resident_delta_bytes'] < 80 * MIB
  assert values['resident_peak_bytes'] == (
    values['resident_bytes'] + values['resident_delta_bytes']
  )


def test_a_limit_adds_to_what_the_process_has():
  ended = run(LIMITED)
  assert ended.code == 3, ended.err


def test_free_descriptors_are_the_limit_less_the_open_ones(monkeypatch):
  monkeypatch.setattr(resource, 'getrlimit', lambda _: (1000, 4000))
  free = host.free_descriptors()
  assert 0 < free < 1000
  with open(os.devnull, 'rb'), open(os.devnull, 'rb'):
    assert host.free_descriptors() == free - 2
  unlimited = (resource.RLIM_INFINITY, resource.RLIM_INFINITY)
  monkeypatch.setattr(resource, 'getrlimit', lambda _: unlimited)
  assert host.free_descriptors() == float('inf')


@pytest.mark.parametrize('ask', (host.Memory, lambda: host.status('VmRSS')))
def test_without_proc_a_measurement_is_refused(ask, monkeypatch, tmp_path):
  monkeypatch.setattr(host, 'PROCESS', tmp_path)
  with pytest.raises(errors.InputError, match='this system lacks: measure it'):
    ask()
