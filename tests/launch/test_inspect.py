"""`launch.inspect`, as a user types it."""

import json

import pytest

from rnn_jax import config as config_lib
from rnn_jax.training import loop
from tests.support import launchers
from tests.support import tiny

pytestmark = pytest.mark.slow


@pytest.fixture(scope='module')
def workdir(tmp_path_factory):
  folder = tmp_path_factory.mktemp('run')
  raw = tiny.raw_config(tiny.write_text(folder / 'text'))
  # The smallest programs with gates and units.
  raw.model.update(cell='min_lstm', layers=1, block='residual', mlp_width=16)
  raw.data.layout = 'stream'
  raw.train.steps = 2
  raw.sample.new_tokens = raw.evaluate.every = 0
  loop.train(config_lib.parse(raw), str(folder / 'run'))
  return folder / 'run'


def test_a_report_is_printed_and_written(workdir):
  flags = f'--workdir={workdir}', '--batches=1', '--json'
  code, out, err = launchers.run('inspect', *flags)
  assert code == 0, err
  report = json.loads(out.splitlines()[-1])
  folder = workdir / 'inspection'
  assert json.loads((folder / 'inspection.json').read_text()) == report
  assert (report['step'], report['split'], report['batches']) == (
    2,
    'validation',
    1,
  )
  parts = [row['part'] for row in report['parts']]
  assert parts == ['embedding', 'layer 0', 'head']
  assert all(row['ratio'] > 0 for row in report['parts'])
  assert [row['gate'] for row in report['gates']] == ['keep', 'read', 'write']
  assert len(report['flow']) > 8 and len(report['units']) == 1
  text = (folder / 'inspection.md').read_text()
  for name in ('gradients', 'gates', 'states', 'flow'):
    assert f'({name}.png)' in text
    assert (folder / f'{name}.png').stat().st_size > 1000
  assert [*(workdir / 'tensorboard' / 'inspection').glob('events*')]


def test_wrong_flags_are_one_line_each(workdir):
  for flag, message in (
    ('--batches=0', 'error: --batches=0: give 1 or more'),
    ('--checkpoint=99', 'no checkpoint of step 99'),
    ('--checkpoint=²', "checkpoint='²': give 'best', 'latest' or a step"),
  ):
    code, _, err = launchers.run('inspect', f'--workdir={workdir}', flag)
    assert code == 1 and message in err and 'Traceback' not in err
