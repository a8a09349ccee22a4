"""Two processes of `python -m launch.train` on one machine, as one job."""

import json
import re
import signal
import time

import jax
import numpy as np
import pytest

from rnn_jax import config as config_lib
from rnn_jax.data import corpus as corpus_lib
from rnn_jax.runs import bundle
from rnn_jax.runs import metrics
from rnn_jax.training import programs as programs_lib
from tests.support import jobs
from tests.support import tiny

STEPS = 16


@pytest.fixture(scope='module')
def raw(tmp_path_factory):
  folder = tmp_path_factory.mktemp('data')
  raw = tiny.raw_config(tiny.write_text(folder / 'text'))
  raw.data.layout = 'stream'
  raw.data.carry_state = True
  raw.data.segment_tokens = 90
  raw.train.steps = STEPS
  raw.train.log_every = 1
  raw.train.checkpoint_every = 4
  raw.evaluate.every = 8
  raw.sample.new_tokens = 0
  raw.model.update(cell='lstm', mlp_width=0)
  return raw


@pytest.fixture(scope='module')
def config(raw, tmp_path_factory):
  return tiny.write_config(tmp_path_factory.mktemp('config') / 'c.py', raw)


@pytest.fixture(scope='module')
def slow(raw, tmp_path_factory):
  path = tiny.write_config(tmp_path_factory.mktemp('slow') / 'c.py', raw)
  path.write_text(path.read_text() + jobs.SLOW)
  return path


@pytest.fixture(scope='module')
def expected(raw, config, tmp_path_factory):
  """The folder of an uninterrupted run of one process on two devices."""
  workdir = tmp_path_factory.mktemp('expected') / 'run'
  code, _, err = tiny.finish(single(config, workdir))
  assert code == 0, err
  return workdir


def single(config, workdir, name='train'):
  files = () if config is None else (f'--config={config}',)
  flags = (*files, f'--workdir={workdir}')
  return jobs.Process(name, *flags, env=jobs.environment(devices=2))


def pair(config, workdir, own=((), ()), timeout=60):
  """Starts two processes; `own` are the flags of each."""
  flags = f'--config={config}', f'--workdir={workdir}'
  timeout = f'--host_timeout={timeout}'
  return jobs.start('train', [(*flags, timeout, *more) for more in own])


def wait_for(path):
  """Returns when it exists: a slow machine may still write a checkpoint."""
  end = time.monotonic() + 60
  while not path.exists():
    assert time.monotonic() < end
    time.sleep(0.02)


def saved_params(raw, workdir):
  parsed = config_lib.parse(raw)
  corpus = corpus_lib.Corpus.open(parsed, workdir)
  made = programs_lib.from_config(parsed, corpus.tokenizer)
  like = {'params': made.states.like().params}
  step, fields = bundle.restore(workdir, parsed, like, 'latest')
  assert step == STEPS
  return jax.tree.leaves(jax.device_get(fields['params']))


def assert_same_training(raw, workdir, expected):
  """Compares parameters, and one loss for each step."""
  pairs = zip(
    saved_params(raw, workdir), saved_params(raw, expected), strict=True
  )
  for got, want in pairs:
    # Two addends commute: of two devices even the sums are the same, 0 of 0.
    np.testing.assert_array_equal(got, want)
  for split in ('train', 'validation'):
    losses = [
      [(r['step'], r['loss']) for r in metrics.read(w) if r['split'] == split]
      for w in (workdir, expected)
    ]
    assert losses[0] == losses[1]


@pytest.mark.slow
def test_a_job_interrupted_in_every_way_trains_like_one_process(
  raw, config, slow, expected, tmp_path
):
  run = tmp_path / 'run'
  # One process is killed: the other ends in time, with a message.
  processes = pair(slow, run, timeout=10)
  jobs.wait_for_step(processes, run, 5)
  wait_for(run / 'checkpoints' / '4')
  processes[1].kill()
  killed = time.monotonic()
  code, _, err = tiny.finish(processes[0], timeout=120)
  seconds = time.monotonic() - killed
  assert code == 1, err
  # Twice the bound of the command, for a busy machine.
  assert seconds < 2 * (10 + 5), err
  assert 'error: process 0 of 2: JAX' in err.splitlines()[-1]
  processes[1].communicate()

  # One process resumes where two had been; SIGTERM stops it.
  process = single(slow, run)
  jobs.wait_for_step([process], run, 7)
  process.send_signal(signal.SIGTERM)
  result = tiny.finish(process)
  assert result[0] == 128 + signal.SIGTERM, result[2]
  assert 'resumed at step 4' in result[1]

  step = int(re.search(r'saved at step (\d+)', result[1])[1])
  assert 7 <= step < STEPS

  # Two resume. The SIGTERM of one stops all, see test_hosts_meshes.py.
  results = jobs.finish(pair(config, run))
  assert [code for code, _, _ in results] == [0, 0], results
  assert f'resumed at step {step}' in results[0][1]
  assert_same_training(raw, run, expected)
  _assert_only_the_first_process_prints(results, run, expected)


def _assert_only_the_first_process_prints(results, run, expected):
  """Checks the last of three starts: what the pair printed, and the folder."""
  (_, first, _), (_, second, _) = results
  assert f'step {STEPS}/{STEPS}' in first
  assert 'bits per byte' in first
  assert second == '' and '[Gloo]' not in first
  assert len([*(run / 'tensorboard').iterdir()]) == 3  # one for each start
  written = {path.name for path in run.iterdir()}
  assert written == {path.name for path in expected.iterdir()}


@pytest.mark.slow
def test_two_processes_evaluate_as_one_has_done(expected):
  flags = f'--workdir={expected}', '--split=validation', '--json'
  results = jobs.finish(jobs.start('evaluate', [flags] * 2))
  for code, _, err in results:
    assert code == 0, err
  assert results[1][1] == ''
  evaluated = json.loads(results[0][1])
  (row,) = (
    row
    for row in metrics.read(expected)
    if (row['step'], row['split']) == (evaluated['step'], 'validation')
  )
  for name in ('loss', 'accuracy', 'tokens'):
    assert evaluated[name] == row[name]


@pytest.mark.slow
def test_different_configs_are_refused_by_all(config, tmp_path):
  own = ('--config.data.prefetch=3',), ('--config.train.seed=9',)
  for code, _, err in jobs.finish(pair(config, tmp_path / 'run', own)):
    assert code == 1
    assert re.search(r'error: .*different configs', err), err
    assert 'process 1: train.seed: 0 -> 9' in err
    assert 'prefetch' not in err
    assert 'Traceback' not in err
  assert not (tmp_path / 'run').exists()


@pytest.mark.slow
def test_what_the_first_process_refuses_ends_all(config, tmp_path):
  (tmp_path / 'run').mkdir()
  (tmp_path / 'run' / 'notes.txt').write_text('mine')
  for code, _, err in jobs.finish(pair(config, tmp_path / 'run')):
    assert code == 1
    assert "is not a run's folder" in err


@pytest.mark.slow
def test_a_job_that_is_never_complete_ends(config, tmp_path):
  begun = time.monotonic()
  processes = [
    jobs.Process(
      'train',
      f'--config={config}',
      f'--workdir={tmp_path / "run"}',
      f'--coordinator=127.0.0.1:{jobs.free_port()}',
      '--processes=2',
      f'--process={number}',
      '--connect_timeout=5',
      env=jobs.environment(),
    )
    for number in range(2)
  ]
  messages = (
    r'after 5 s some processes have not joined \(coordinator 127.0.0.1',
    r'the coordinator 127.0.0.1:\d+ cannot be reached \(Connection refus',
  )
  for number, (code, out, err) in enumerate(jobs.finish(processes)):
    assert code == 1
    assert out == ''
    (line,) = err.splitlines()
    assert re.search(f'error: process {number} of 2: {messages[number]}', line)
  assert time.monotonic() - begun < 90  # for a busy machine
