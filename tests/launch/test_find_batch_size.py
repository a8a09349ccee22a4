"""`launch.find_batch_size`: its answer, its budget and what it refuses."""

import json
import math
import re

import pytest

from rnn_jax import config as config_lib
from rnn_jax.profiling import workload
from rnn_jax.system import host
from rnn_jax.system import target
from rnn_jax.training.memory import batch_size as memory_batch_size
from tests.support import launchers
from tests.support import tiny

pytestmark = pytest.mark.slow


@pytest.fixture(name='raw')
def _raw():
  raw = tiny.raw_config('unused')
  raw.model.width = 64
  return raw


def find(folder, raw, *flags):
  config = tiny.write_config(folder / 'config.py', raw)
  return launchers.run('find_batch_size', f'--config={config}', *flags)


def test_the_answer_is_within_a_tenth_of_the_true_limit(raw, tmp_path):
  # Rows that need far more than the parameters, and of which 6 fit: the search
  # probes 6 first.
  raw.data.length = 32_768
  search = memory_batch_size.Search(
    workload.make(config_lib.parse(raw)).programs, raw.data.length, 1
  )
  gib = 1.05 * search.memory(6).total / 2**30
  code, out, err = find(tmp_path, raw, f'--memory_gib={gib}', '--confirm')
  assert code == 0, err
  result = int(re.search(r'--config\.data\.batch_size=(\d+)$', out.strip())[1])
  rows = {}
  for line in map(str.split, out.replace('|', ' ').splitlines()):
    if line[0].isdigit():
      rows[int(line[0])] = line
  *_, total, share, confirmed, peak = rows[result]
  assert confirmed == 'yes'
  assert 0.9 * gib < float(total) <= gib
  assert 0.9 < float(share[:-1]) / 100 <= 1
  # What the process really grew by: nothing of the compiler's account. Its
  # threads keep some memory for themselves: .10 more was measured.
  assert float(peak) == pytest.approx(float(total), rel=0.15)
  # Real steps of a batch a tenth larger, or of less, ran out of memory.
  failed = [n for n, line in rows.items() if line[6] == 'no']
  assert failed and result < min(failed) <= math.ceil(1.1 * result)


def test_the_default_budget_is_this_device_s(raw, tmp_path, monkeypatch):
  monkeypatch.setattr(host, 'available_bytes', lambda: 2**30)
  monkeypatch.setattr(  # no compilation
    memory_batch_size.Search,
    '_memory',
    lambda _, rows: target.Memory(2**20, 2**20 * rows, 0),
  )
  raw.train.accumulate = 4
  code, out, err = find(tmp_path, raw, '--json', '--length=16')
  assert code == 0, err
  assert 'rows of 16 tokens, vocabulary 257, float32, accumulate 4' in out
  assert 'confirmed' not in out
  assert int(re.search(r'batch_size=(\d+)', out)[1]) % 4 == 0
  *_, flag, last = out.splitlines()
  assert flag.endswith(f'={json.loads(last)["rows"]}')
  given = float(re.search(r'^budget: (\S+) GiB', out, re.MULTILINE)[1])
  total = float(out.splitlines()[4].replace('|', ' ').split()[4])
  assert given == 1 and 0.9 < total <= 1


@pytest.mark.parametrize(
  ('flags', 'message'),
  (
    (
      ['--memory_gib=0.0001'],
      r'--memory_gib=0.0001: parameters and optimizer state need '
      r'[\d,]+ bytes \(.* GiB\): give more, or a smaller model',
    ),
    (['--memory_gib=0'], '--memory_gib=0.0: give more than 0'),
    (['--memory_gib=much'], 'memory_gib'),
    (['--target=h101'], "--target='h101': choose one of h100, h200, b200"),
    (['--target=h100', '--confirm'], '--target=h100: --confirm runs steps'),
    (['--length=-1'], 'length'),
    (
      ['--memory_gib=100000', '--confirm'],
      '--memory_gib=100000.0: --confirm runs on this machine',
    ),
    (['--config.data.memory_gib=x'], 'data.memory_gib'),
  ),
)
def test_bad_input_is_one_line(raw, tmp_path, flags, message):
  code, _, err = find(tmp_path, raw, *flags)
  assert code == 1
  lines = [line for line in err.splitlines() if line.startswith('error: ')]
  assert len(lines) == 1, err
  assert 'Traceback' not in err
  assert re.search(message, lines[0])
