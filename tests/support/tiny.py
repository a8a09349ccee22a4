"""A run that is small enough for a test: its data, config and command."""

import os
import pathlib
import random
import subprocess
import sys

from rnn_jax import config as config_lib

WORDS = ('the', 'state', 'gate', 'forgets', 'reads', 'writes', 'a', 'key')
ROOT = pathlib.Path(__file__).parents[2]
WITHOUT = ROOT / 'tests/support/without'


def write_text(folder, files=12, words=60, seed=0):
  """Makes text files of different lengths. Returns their glob."""
  rng = random.Random(seed)
  folder.mkdir(exist_ok=True)
  for n in range(files):
    count = rng.randint(words // 3, words)
    text = ' '.join(rng.choice(WORDS) for _ in range(count))
    (folder / f'{n:02}.txt').write_text(text)
  return str(folder / '*.txt')


def raw_config(path):
  """An unparsed config of a model that trains in a second.

  It compiles in half the time of one with the usual blocks, see `with_blocks`.
  """
  raw = config_lib.default()
  raw.data.source = 'text'
  raw.data.path = path
  raw.data.splits = (70, 20, 10)
  raw.data.length = 32
  raw.data.batch_size = 8
  raw.data.workers = 0
  raw.model.width = 16
  raw.model.block = 'plain'
  raw.cell.preset = 'simple'
  raw.cell.heads = 2
  raw.cell.key_width = 4
  raw.cell.value_width = 4
  raw.train.steps = 12
  raw.train.log_every = 3
  raw.train.checkpoint_every = 4
  raw.schedule.warmup_steps = 2
  raw.evaluate.every = 6
  raw.evaluate.batch_size = 8
  raw.sample.new_tokens = 8
  return raw


def with_blocks(raw):
  """Gives a config norms, an MLP and a cell with gates. Returns it."""
  raw.model.update(block='residual', mlp_width=16)
  raw.cell.preset = 'improved'
  return raw


def write_config(path, raw):
  """Writes a config file that returns `raw`."""
  path.write_text(
    'import json\n\nimport ml_collections\n\n\ndef get_config():\n'
    '  from rnn_jax import config as config_lib\n'
    f'  changed = json.loads({raw.to_json()!r})\n'
    '  config = config_lib.default()\n'
    '  config.update(changed)\n'
    '  return config\n'
  )
  return path


def launch(name, *flags, env=None, **options):
  """Starts `python -m launch.<name>` as a user types it, who has no PyTorch."""
  command = [sys.executable, '-m', f'launch.{name}', *map(str, flags)]
  env = dict(os.environ if env is None else env)
  paths = (str(WITHOUT), env.get('PYTHONPATH'))
  env['PYTHONPATH'] = os.pathsep.join(filter(None, paths))
  return subprocess.Popen(
    command,
    cwd=ROOT,
    env=env,
    stdout=subprocess.PIPE,
    stderr=subprocess.PIPE,
    text=True,
    **options,
  )


def finish(process, timeout=1200):
  """Waits for a process. Returns (exit code, stdout, stderr)."""
  out, err = process.communicate(timeout=timeout)
  return process.returncode, out, err
