"""`launch.find_batch_size`: its answer, its budget and what it refuses."""

import json
import math
import os
import re
import subprocess
import sys

import pytest

from rnn_jax import config as config_lib
from rnn_jax.profiling import trial
from tests.support import launchers
from tests.support import tiny

pytestmark = pytest.mark.slow
GIB = 1.0
# Steps as launch.train runs them, with an address space that ends so far above
# what the process has: no part of what is tested but the step itself.
STEPS = """
import json, resource, sys, time
import jax, numpy as np
from rnn_jax import config as config_lib
from rnn_jax.data.batching import batch
from rnn_jax.data.text import tokenizer
from rnn_jax.parallel import mesh
from rnn_jax.training import programs as programs_lib

config, rows, budget = sys.argv[1:]
config, rows = config_lib.parse(json.load(open(config))), int(rows)
programs = programs_lib.from_config(config, tokenizer.Bytes())
program = programs.compile_train(rows, config.data.length)
state = jax.block_until_ready(programs.init(0, rows))
ones = np.ones((rows, config.data.length), np.int32)
like = batch.Batch(ones, ones, ones.astype(np.float32), ones)
like = mesh.put(like, programs.batch_sharding)
held = sum(x.nbytes for x in jax.tree.leaves((state, like)))
for line in open('/proc/self/status'):
  if line.startswith('VmSize:'):
    size = int(line.split()[1]) * 1024
most = size - held + int(float(budget) * 2**30)
resource.setrlimit(resource.RLIMIT_AS, (most, most))
for _ in range(2):
  state, metrics = program(state, like)
  jax.block_until_ready((state, metrics))
  time.sleep(0.2)  # temporaries of a step are freed behind its results
"""


@pytest.fixture(name='raw')
def _raw():
  """A model whose batch needs far more than its parameters."""
  raw = tiny.raw_config('unused')
  raw.data.length = 128
  raw.model.width = 64
  raw.model.mlp_width = 128
  return raw


def find(folder, raw, *flags):
  config = tiny.write_config(folder / 'config.py', raw)
  return launchers.run('find_batch_size', f'--config={config}', *flags)


def runs(path, rows):
  command = [sys.executable, '-c', STEPS, path, rows, GIB]
  ended = subprocess.run(
    [*map(str, command)],
    cwd=tiny.ROOT,
    env=os.environ | {'MALLOC_ARENA_MAX': '1'},  # as launchers set it
    capture_output=True,
    text=True,
    check=False,
  )
  if ended.returncode:
    text = ended.stdout + ended.stderr
    assert ended.returncode < 0 or trial.ran_out(text), text
  return ended.returncode == 0


def test_the_answer_is_within_a_tenth_of_the_true_limit(raw, tmp_path):
  config = tiny.write_config(tmp_path / 'config.py', raw)
  flags = f'--config={config}', f'--memory_gib={GIB}', '--confirm'
  code, out, err = tiny.finish(tiny.launch('find_batch_size', *flags))
  assert code == 0, err
  result = int(re.search(r'--config\.data\.batch_size=(\d+)$', out.strip())[1])
  line = next(x for x in out.splitlines() if x.split()[:1] == [str(result)])
  *_, total, share, confirmed, peak = line.split()
  assert confirmed == 'yes'
  assert 0.9 * GIB < float(total) <= GIB
  assert 0.9 < float(share[:-1]) / 100 <= 1
  assert float(peak) == pytest.approx(float(total), rel=0.1)
  path = tmp_path / 'config.json'
  path.write_text(config_lib.to_json(config_lib.parse(raw)))
  # The true limit t: result / 1.1 <= t < result / 0.9.
  assert runs(path, math.ceil(result / 1.1))
  assert not runs(path, math.ceil(result / 0.9))


def test_the_default_budget_is_this_device_s(raw, tmp_path):
  raw.train.accumulate = 4
  code, out, err = find(tmp_path, raw, '--json', '--length=16')
  assert code == 0, err
  assert 'rows of 16 tokens, vocabulary 257, float32, accumulate 4' in out
  assert 'confirmed' not in out
  assert int(re.search(r'batch_size=(\d+)', out)[1]) % 4 == 0
  *_, flag, last = out.splitlines()
  assert flag.endswith(f'={json.loads(last)["rows"]}')
  given = float(re.search(r'^budget: (\S+) GiB', out, re.MULTILINE)[1])
  total = float(out.splitlines()[3].split()[4])
  assert 0.9 * given < total <= given * 1.001


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


def test_help_shows_flags_and_an_example():
  code, out, err = launchers.run('find_batch_size', '--help')
  assert code == 0, err
  assert 'python -m launch.find_batch_size --config=' in out
  for flag in ('--memory_gib', '--confirm', '--length'):
    assert flag in out
