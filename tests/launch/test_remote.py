"""`python -m launch.train` with its checkpoints in a bucket on localhost."""

import importlib.util
import time

import jax
import numpy as np
import pytest

from rnn_jax.runs import metrics
from rnn_jax.runs.checkpoints import remote
from rnn_jax.training import evaluate
from tests.support import bucket as bucket_lib
from tests.support import jobs
from tests.support import launchers
from tests.support import shared
from tests.support import tiny

pytestmark = [
  pytest.mark.slow,
  pytest.mark.skipif(
    importlib.util.find_spec('gcsfs') is None, reason='needs rnn_jax[remote]'
  ),
]
STEPS = 12
FOLDER = f'gs://{bucket_lib.NAME}/demo'


@pytest.fixture(autouse=True, scope='module')
def _shared():
  with shared.programs():
    yield


@pytest.fixture
def config(tmp_path):
  raw = tiny.raw_config(tiny.write_text(tmp_path / 'text'))
  raw.data.update(layout='stream', carry_state=True, segment_tokens=90)
  raw.train.update(steps=STEPS, log_every=1, checkpoint_every=3)
  raw.evaluate.every = 0
  raw.sample.new_tokens = 5
  raw.metrics.writers = ()
  return tiny.write_config(tmp_path / 'config.py', raw)


def start(config, workdir, environment, *flags):
  return jobs.Process(
    'train',
    f'--config={config}',
    f'--workdir={workdir}',
    *flags,
    env=jobs.environment() | environment,
  )


def test_a_run_that_is_killed_goes_on_from_a_bucket(config, tmp_path):
  flags = f'--config={config}', f'--workdir={tmp_path / "alone"}'
  flags += ('--config.sample.new_tokens=0',)
  code, _, err = launchers.run('train', *flags)
  assert code == 0, err
  with bucket_lib.serve() as bucket:
    elsewhere = f'--config.train.checkpoint_dir={FOLDER}'
    killed = start(config, tmp_path / 'one', bucket.variables, elsewhere)
    jobs.wait_for_step([killed], tmp_path / 'one', 10)
    killed.kill()
    killed.communicate()
    done = [n for n in bucket.objects if n.endswith('/commit_success.txt')]
    steps = {int(name.split('/')[1]) for name in done if name.count('/') == 2}
    assert len(steps) >= 2
    newest = f'demo/{max(steps)}/'
    damaged = next(
      n for n in bucket.objects if n.startswith(f'{newest}state/d')
    )
    bucket.put(damaged, b'x' + bucket.objects[damaged][1:])

    # Another machine: the work folder is a new one.
    process = start(config, tmp_path / 'two', bucket.variables, elsewhere)
    code, out, err = tiny.finish(process)
    assert code == 0, err
    assert f'resumed at step {max(steps - {max(steps)})}' in out
    assert f'{newest[:-1]}: {damaged.removeprefix(newest)} changed' in err
    assert 'bits per byte' in out and 'a sample' in out  # read from the bucket
    assert not (tmp_path / 'two' / 'checkpoints').exists()

    with pytest.MonkeyPatch.context() as patch:
      for name, value in bucket.variables.items():
        patch.setenv(name, value)
      both = [
        evaluate.Run.open(tmp_path / name, 'latest')
        for name in ('alone', 'two')
      ]
  assert [run.step for run in both] == [STEPS, STEPS]
  pairs = zip(*(jax.tree.leaves(run.params) for run in both), strict=True)
  for x, y in pairs:
    np.testing.assert_array_equal(x, y)
  losses = [
    [row['loss'] for row in metrics.read(tmp_path / name)]
    for name in ('alone', 'two')
  ]
  assert losses[1] == losses[0][-len(losses[1]) :]


def test_a_bucket_out_of_reach_ends_the_run_with_a_message(config, tmp_path):
  nobody = bucket_lib.Bucket(f'http://127.0.0.1:{jobs.free_port()}')
  begun = time.monotonic()
  process = start(
    config,
    tmp_path / 'run',
    nobody.variables,
    f'--config.train.checkpoint_dir={FOLDER}',
  )
  code, out, err = tiny.finish(process)
  assert code == 1
  assert time.monotonic() - begun < 2 * remote.SECONDS
  assert out == ''
  line = err.splitlines()[-1]
  assert line.startswith(f'error: {FOLDER}: ')
  assert 'check the network' in line
