"""Handwritten grids and rows, and fake launchers that need no jax."""

import json
import sys

from rnn_jax.experiments import grid as grid_lib

# Writes what the launchers of a grid write, at once. `behave` is 'good', 'bad',
# 'slow' (until SIGTERM), 'cut' (exits with 0, unfinished), 'early' (fails
# before its first step), 'nan' (the same, as one whose steps aren't finite) or
# 'rising' (its loss rises, and it waits for SIGTERM).
FAKE = """
import json, pathlib, signal, sys, time
name, folder, behave, loss, last, held_out, *pause = sys.argv[1:]
last = int(pause[0].partition('=')[2] if pause else last)
folder = pathlib.Path(folder)
if name == 'evaluate':
  print('a warning', file=sys.stderr)
  print('a word before')
  made = {'loss': float(loss), 'parameters': 7, 'state_bytes': 64}
  print(json.dumps(made))
  sys.exit()
if name == 'inspect':
  print(json.dumps({'flow': [9.0, 0.5, 0.25, 0.25]}))
  sys.exit()
if name == 'profile':
  programs = ('forward', 'forward + backward', 'training step')
  (folder / 'profile').mkdir()
  (folder / 'profile' / 'profile.json').write_text(json.dumps({
    'time': {'median': 0.25, 'compile_seconds': 3.0},
    'memory': {
      'kept_for_backward': 5,
      'programs': {p: {'total': n * 2**20} for n, p in enumerate(programs, 1)},
    },
  }))
  sys.exit()
if name == 'find_batch_size':
  print(json.dumps({'rows': 64}))
  sys.exit()
if behave in ('slow', 'rising'):
  signal.signal(signal.SIGTERM, lambda *_: sys.exit(print('saved')))
if behave in ('nan', 'early'):
  sys.exit('error: ' + 'diverged: 10 steps in a row' * (behave == 'nan'))
with open(folder / 'metrics.jsonl', 'a+') as file:
  file.seek(0)
  for step in range(len(file.readlines()) // 2 + 1, last + 1):
    train = {'step': step, 'split': 'train', 'seconds': 0.5,
             'tokens_per_second': 10.0 * step, 'peak_memory_bytes': 2**20}
    evaluated = {'step': step, 'split': 'validation', 'best': 1.0,
                 'loss': float(held_out) - step}
    file.write(json.dumps(train) + '\\n' + json.dumps(evaluated) + '\\n')
if behave == 'rising':
  print('step 1/2  loss 2.0000  7.389 perplexity')
  print('step 2/2  loss 6.0100  9.000 perplexity', flush=True)
  time.sleep(60)
if pause:
  sys.exit(print('paused: saved at step', last))
if behave == 'slow':
  print('waits', flush=True)
  time.sleep(60)
if behave == 'bad':
  sys.exit('error: lower it\\n  by half')
print('SIGTERM: saved' if behave == 'cut' else 'step 2/2')
if behave != 'cut':
  print('trained: all steps')
"""


def fake(name, folder, behave='good', loss=1.0, steps=2, held_out=9.0):
  """The command line of a fake launcher that behaves so.

  An evaluation has `loss`, one of training `held_out` minus its step.
  """
  values = name, folder, behave, loss, steps, held_out
  return [sys.executable, '-c', FAKE, *map(str, values)]


def grid(**fields):
  """A grid of two variants; `fields` replace what it has."""
  made = {
    'title': 'Two widths',
    'config': 'configs/stdlib_bytes.py',
    'variants': {'narrow': {'model.width': 96}, 'wide': {}},
    'metrics': (
      ('loss', 'lower', 'loss'),
      ('accuracy', 'higher', 'accuracy'),
    ),
    'baseline': 'narrow',
    'seeds': (0, 1),
  }
  return grid_lib.Grid(**(made | fields))


def row(variant, seed, scores=None, **fields):
  """A row of runs.jsonl: done with these scores, or failed without."""
  made = {
    'variant': variant,
    'seed': seed,
    'status': 'failed' if scores is None else 'done',
    'error': 'train: it broke' if scores is None else '',
    'split': 'validation',
    'scores': scores or {},
    'seconds': 10.0,
    'tokens_per_second': 2000.0,
    'peak_memory_bytes': 3 * 2**20,
    'parameters': 1234,
    'overrides': {},
    'config': {},
    'versions': {'python': '3.11', 'jax': '0.10'},
    'commit': 'abc',
  }
  return made | fields


def rows(*made):
  """{(variant, seed): row}, as records.read returns."""
  return {(row['variant'], row['seed']): row for row in made}


def write_metrics(folder, measured):
  """Writes rows as a run's metrics.jsonl."""
  folder.mkdir(parents=True, exist_ok=True)
  lines = [json.dumps(row) + '\n' for row in measured]
  (folder / 'metrics.jsonl').write_text(''.join(lines))
