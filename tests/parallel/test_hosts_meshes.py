"""Meshes over several processes of `python -m launch.train`."""

import signal

import jax
import numpy as np
import pytest

from rnn_jax import config as config_lib
from rnn_jax.runs import metrics
from rnn_jax.training import evaluate
from tests.support import jobs
from tests.support import launchers
from tests.support import tiny

STEPS = 10


@pytest.fixture
def config(tmp_path):
  raw = tiny.raw_config(tiny.write_text(tmp_path / 'text'))
  raw.data.update(layout='stream', carry_state=True, segment_tokens=90)
  raw.train.update(steps=STEPS, log_every=1, checkpoint_every=STEPS)
  raw.model.mlp_width = 0
  raw.evaluate.every = 0
  raw.metrics.writers = ()
  raw.sample.new_tokens = 0
  raw.optimizer.eps = 1e-3  # else Adam turns rounding into whole steps
  config_lib.parse(raw)
  return tiny.write_config(tmp_path / 'config.py', raw)


@pytest.fixture
def slow(config, tmp_path):
  path = tmp_path / 'slow.py'
  path.write_text(config.read_text() + jobs.SLOW)
  return path


def start(config, workdir, devices, **mesh):
  sizes = [f'--config.mesh.{axis}={size}' for axis, size in mesh.items()]
  flags = f'--config={config}', f'--workdir={workdir}', *sizes
  return jobs.start('train', [flags] * 2, devices)


def losses(workdir):
  rows = [row for row in metrics.read(workdir) if row['split'] == 'train']
  return [row['step'] for row in rows], [row['loss'] for row in rows]


@pytest.mark.slow
def test_four_devices_and_then_two_end_like_one(config, slow, tmp_path):
  single, run = tmp_path / 'single', tmp_path / 'run'
  flags = f'--config={config}', f'--workdir={single}'
  code, _, err = launchers.run('train', *flags)
  assert code == 0, err

  # Each process has a shard of the rows and of the parameters, each of its two
  # devices half of the heads.
  processes = start(slow, run, 2, fsdp=2, tensor=2)
  jobs.wait_for_step(processes, run, 2)
  processes[1].send_signal(signal.SIGTERM)
  results = jobs.finish(processes)
  for code, _, err in results:
    assert code == 128 + signal.SIGTERM, err
  assert 'SIGTERM: saved at step' in results[0][1]
  assert results[1][1] == ''

  # Two of one device resume, each with a stage of the pipeline.
  results = jobs.finish(start(config, run, 1, pipe=2))
  for code, _, err in results:
    assert code == 0, err
  assert 'resumed at step' in results[0][1]
  assert 'fsdp 1, expert 1, pipe 2' in results[0][1]

  steps, own = losses(run)
  assert steps == [*range(1, STEPS + 1)]
  np.testing.assert_allclose(own, losses(single)[1], 3e-6)
  both = [evaluate.Run.open(w, 'latest').params for w in (run, single)]
  for got, want in zip(*map(jax.tree.leaves, both), strict=True):
    np.testing.assert_allclose(got, want, 0, 2e-6)
