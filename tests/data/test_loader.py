"""The loader: batches by number, restarted anywhere, by any workers."""

import multiprocessing
import pathlib
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from rnn_jax import errors
from rnn_jax.data import loader
from rnn_jax.data import pipeline
from rnn_jax.data.batching import batch as batch_lib
from rnn_jax.data.batching import plan as plan_lib
from tests.support import corpora

ROOT = pathlib.Path(__file__).parents[2]


class Made:
  """Batches of three a block, of one array that has the number."""

  def __init__(self, shape=(1, 2), end=None):
    self._shape, self._end = shape, end

  def planned(self, first=0):
    block, place = divmod(first, 10)
    while self._end is None or block < self._end:
      for n in range(place, 3):
        yield plan_lib.Planned(10 * block + n, 0, self._shape, None)
      block, place = block + 1, 0

  def make(self, planned):
    tokens_BxL = np.full(planned.shape, planned.number, np.int32)
    return batch_lib.Batch(tokens_BxL, None, None, None)


def taken(batches, count):
  return [int(next(batches).tokens_BxL[0, 0]) for _ in range(count)]


def with_workers(count):
  """A case of workers, each of which starts for seconds."""
  return pytest.param(count, marks=pytest.mark.slow)


NUMBERS = [10 * block + n for block in range(20) for n in range(3)]


@pytest.mark.parametrize('workers', (0, with_workers(2)))
def test_numbers_follow_each_other_from_any_state(workers):
  batches = loader.Loader(Made(), workers)
  assert taken(batches, 10) == NUMBERS[:10]
  assert batches.get_state() == {'batch': NUMBERS[9] + 1}
  assert taken(batches, 5) == NUMBERS[10:15]
  # Each jump starts workers, which takes most of the time of this test.
  for cut in (3,) if workers else (13, 3, 10):
    batches.set_state({'batch': NUMBERS[cut]})
    assert taken(batches, 4) == NUMBERS[cut : cut + 4]
  batches.close()


@pytest.mark.parametrize('workers', (0, with_workers(1)))
def test_a_finite_loader_ends_and_stays_ended(workers):
  batches = loader.Loader(Made(end=2), workers)
  assert taken(batches, 6) == NUMBERS[:6]
  assert next(batches, None) is None is next(batches, None)
  batches.set_state({'batch': 12})
  assert taken(batches, 1) == [12] and next(batches, None) is None
  assert_workers_exit(batches)


def assert_workers_exit(batches):
  workers = multiprocessing.active_children()
  batches.close()
  assert not multiprocessing.active_children()
  assert {worker.exitcode for worker in workers} <= {0}


def test_a_batch_is_placed_and_a_closed_loader_raises():
  batches = loader.Loader(Made(), place=lambda batch: batch.tokens_BxL + 5)
  assert next(batches).tolist() == [[5, 5]]
  batches.close()
  with pytest.raises(ValueError, match='closed'):
    next(batches)


@pytest.mark.slow
def test_workers_exit_however_much_they_have_made():
  batches = loader.Loader(Made((1, 40000)), workers=1)  # more than a pipe has
  assert taken(batches, 20) == NUMBERS[:20]
  time.sleep(0.5)  # Their buffers fill.
  assert len(multiprocessing.active_children()) == 1
  assert_workers_exit(batches)


SCRIPT = """
import os, pathlib, signal, sys
from rnn_jax.data import pipeline
from rnn_jax.data.batching import batch as batch_lib
from rnn_jax.data.batching import plan as plan_lib
from tests.support import corpora

def main(folder):
  corpus, cfg = corpora.unique_corpus(folder, workers=1)
  batches = pipeline.training_batches(corpus, cfg)
  corpora.take(batches, 2)
  signal.signal(signal.SIGINT, lambda *_: None)
  os.killpg(0, signal.SIGINT)
  tokens = sum(int(b.tokens_BxL.sum()) for b in corpora.take(batches, 40))
  print(tokens, flush=True)
  os.kill(os.getpid(), signal.SIGKILL)

if __name__ == '__main__':
  main(pathlib.Path(sys.argv[1]))
"""


def run_script(folder):
  """Runs SCRIPT as a module; returns when its workers have ended too."""
  (folder / 'script.py').write_text(SCRIPT)
  return subprocess.run(
    [sys.executable, '-m', 'script', str(folder)],
    capture_output=True,
    cwd=ROOT,
    # A killed process leaves what it shares to others, which says so.
    env={
      'PYTHONPATH': f'{folder}:{ROOT}',
      'PYTHONWARNINGS': 'ignore:resource_tracker',
    },
    start_new_session=True,
    text=True,
    timeout=60,
    check=False,
  )


@pytest.mark.slow
def test_workers_serve_after_ctrl_c_and_end_with_a_killed_parent(tmp_path):
  (tmp_path / 'there').mkdir()
  done = run_script(tmp_path / 'there')
  (tmp_path / 'here').mkdir()
  corpus, cfg = corpora.unique_corpus(tmp_path / 'here')
  batches = corpora.take(pipeline.training_batches(corpus, cfg), 42)[2:]
  assert int(done.stdout) == sum(int(b.tokens_BxL.sum()) for b in batches)
  assert not done.stderr
  assert done.returncode == -signal.SIGKILL


def test_workers_that_the_limit_does_not_allow_are_refused(monkeypatch):
  monkeypatch.setattr(loader.host, 'free_descriptors', lambda: 32)
  batches = loader.Loader(Made(), workers=2)
  with pytest.raises(
    errors.InputError, match=r'data\.workers=2 needs .* ulimit -n'
  ):
    next(batches)
  assert taken(loader.Loader(Made()), 1) == [0]
