"""The loader: positions in sequence, restarted anywhere."""

import multiprocessing
import pathlib
import signal
import subprocess
import sys
import time

import grain
import numpy as np
import pytest

from rnn_jax import errors
from rnn_jax.data import loader
from rnn_jax.data import pipeline
from tests.support import corpora

ROOT = pathlib.Path(__file__).parents[2]


def examples(count=None):
  numbers = grain.MapDataset.range(count or 10)
  numbers = numbers if count else numbers.shuffle(0).repeat()
  return numbers.map(lambda n: np.array([n, n + 1]))


def test_positions_count_up_from_the_state():
  order = loader.Loader(examples(), workers=0)
  first = [next(order) for _ in range(25)]
  assert [position for position, _ in first] == [*range(25)]
  state = order.get_state()
  assert state == {'position': 25}
  order.set_state({'position': 7})
  for (_, ids), (_, again) in zip(first[7:], order, strict=False):
    np.testing.assert_array_equal(ids, again)
  np.testing.assert_array_equal(order.make(3), first[3][1])


def test_a_finite_loader_ends_and_stays_ended():
  order = loader.Loader(examples(3), workers=0)
  assert [position for position, _ in order] == [0, 1, 2]
  assert next(order, None) is None
  order.set_state({'position': 2})
  assert [position for position, _ in order] == [2]


def test_a_closed_loader_raises():
  order = loader.Loader(examples(), workers=0)
  order.close()
  with pytest.raises(ValueError, match='closed'):
    next(order)


def test_a_finite_loader_resumes_within_a_group_with_workers():
  # Of the one group of examples that remains, a worker gets none.
  order = loader.Loader(examples(40), workers=2)
  order.set_state({'position': 33})
  assert [int(ids[0]) for _, ids in order] == [*range(33, 40)]
  order.close()


# A group of them is as large as a pipe may get, or is in shared memory.
@pytest.mark.parametrize('size', (120, 40000))
def test_workers_exit_however_much_they_have_made(size):
  made = grain.MapDataset.range(999).map(lambda n: np.full(size, n))
  order = loader.Loader(made, workers=1)
  for expected in range(20):
    position, ids = next(order)
    assert position == expected and (ids == expected).all()
    assert len(ids) == size
  time.sleep(0.5)  # Their buffers fill.
  workers = multiprocessing.active_children()
  order.close()
  assert not multiprocessing.active_children()
  # Those that a full pipe holds up are killed by Grain after half a minute.
  assert [worker.exitcode for worker in workers] == [0]


SCRIPT = """
import os, pathlib, signal, sys
from rnn_jax.data import pipeline
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
  order = loader.Loader(examples(), workers=2)
  with pytest.raises(
    errors.InputError, match=r'data\.workers=2 needs .* ulimit -n'
  ):
    next(order)
  order = loader.Loader(examples(), workers=0)
  assert next(order)[0] == 0
