"""`launch.experiments`: runs that are cut, resumed, mended and compared."""

import json
import signal
import time

import pytest

from rnn_jax.experiments import commands
from rnn_jax.experiments import records
from rnn_jax.runs import metrics
from rnn_jax.runs import workdir as workdir_lib
from tests.experiments import made
from tests.support import jobs
from tests.support import launchers
from tests.support import tiny

STEPS = 20


@pytest.fixture(name='grid')
def _grid(tmp_path):
  """A grid of two variants, of which one is run."""
  raw = tiny.raw_config(tiny.write_text(tmp_path / 'text'))
  raw.train.steps = STEPS
  raw.train.log_every = 1
  raw.train.checkpoint_every = raw.evaluate.every = 10
  raw.evaluate.batch_size = 64  # one batch has no interval
  raw.sample.new_tokens = 0
  raw.metrics.writers = ()
  config = tiny.write_config(tmp_path / 'config.py', raw)
  return write_grid(
    tmp_path / 'grid.py', config, {'good': {}, 'wide': {'model.width': 24}}
  )


def write_grid(path, config, variants):
  path.write_text(
    'from rnn_jax.experiments import grid\n\n\n'
    'def get_grid():\n'
    '  return grid.Grid(\n'
    "    title='Two widths',\n"
    f'    config={str(config)!r},\n'
    f'    variants={variants!r},\n'
    "    metrics=(('bits_per_byte', 'lower', 'bits per byte'),),\n"
    "    baseline='good',\n"
    '    seeds=(0, 1),\n'
    '  )\n'
  )
  return path


def run(grid, workdir, *flags):
  """In this process; the runs of a grid are processes of their own."""
  return launchers.run(
    'experiments', f'--grid={grid}', f'--workdir={workdir}', *flags
  )


def stop_at(step, grid, workdir):
  """A SIGTERM when the first run has come that far. Returns like `run`."""
  flags = f'--grid={grid}', f'--workdir={workdir}'
  process = jobs.Process('experiments', *flags, env=jobs.environment())
  end = time.monotonic() + 600
  while not any(
    row['step'] >= step for row in metrics.read(workdir / 'good/seed0')
  ):
    assert process.poll() is None, process.communicate()
    assert time.monotonic() < end
    time.sleep(0.02)
  process.send_signal(signal.SIGTERM)
  return tiny.finish(process)


@pytest.mark.slow
def test_a_grid_is_cut_resumed_and_compared(grid, tmp_path):
  workdir = tmp_path / 'runs'
  code, out, err = run(grid, workdir, '--list')
  assert code == 0, err
  assert [line.split()[0] for line in out.splitlines()] == [
    *('good/seed0', 'wide/seed0', 'good/seed1', 'wide/seed1'),
  ]
  assert not workdir.exists()
  config = tmp_path / 'config.py'
  text = config.read_text()
  config.write_text(text + jobs.SLOW)
  _cut(grid, workdir)
  config.write_text(text)
  _go_on(grid, workdir)
  _report(grid, workdir)
  _change(grid, workdir, tmp_path)


def _cut(grid, workdir):
  code, out, err = stop_at(5, grid, workdir)
  assert code == 143, err
  assert 'SIGTERM: stopped in good/seed0: the same command resumes' in err
  assert '[1/4] good/seed0: its output is in ' in out
  assert 'SIGTERM: saved at step' in (
    (workdir / 'good/seed0/run.log').read_text()
  )
  assert records.read(workdir) == {}


def _go_on(grid, workdir):
  code, out, err = run(grid, workdir, '--only=good', '--skip=seed1')
  assert code == 0, err
  assert '[1/1] good/seed0: bits per byte ' in out
  rows = records.read(workdir)
  assert {key: row['status'] for key, row in rows.items()} == {
    ('good', 0): 'done'
  }
  row, folder = rows['good', 0], workdir / 'good/seed0'
  # The parent's config is the one that the flags made in the child.
  assert workdir_lib.load_config(folder) == row['config']
  assert row['steps'] == row['scores']['step'] == STEPS
  assert row['scores']['split'] == 'validation'
  assert row['parameters'] == 9857
  held_out = [m for m in metrics.read(folder) if m['split'] == 'validation']
  assert [m['step'] for m in held_out] == [10, 20]
  assert row['scores']['loss'] == pytest.approx(held_out[-1]['loss'])
  log = (folder / 'run.log').read_text()
  assert log.index('SIGTERM: saved') < log.index('resumed at step')


def _report(grid, workdir):
  """What is done isn't done again; the report is written again."""
  before = (workdir / records.NAME).read_text()
  code, out, err = run(grid, workdir, '--only=good/seed0')
  assert code == 0, err
  assert (workdir / records.NAME).read_text() == before
  assert '1 of 1 runs are done already' in out
  assert 'good/seed0:' not in out

  (workdir / 'report.md').unlink()
  code, out, err = run(grid, workdir, '--report')
  assert code == 0, err
  assert 'bits per byte (lower is better): ' in out
  assert out.splitlines()[-1] == f'{workdir}/report.md'
  text = (workdir / 'report.md').read_text()
  assert '| good    |    1 | ' in text
  for name in ('curves.png', 'scores.png', 'memory_quality.png'):
    assert name in text and (workdir / name).stat().st_size > 5000


def _change(grid, workdir, tmp_path):
  write_grid(grid, tmp_path / 'config.py', {'good': {'model.width': 24}})
  code, _, err = run(grid, workdir)
  assert code == 1
  assert 'good/seed0: model.width: 16 -> 24' in err and 'Traceback' not in err


BAD = {
  'no grid': (['--workdir=w'], '--grid is missing: give it, or --config'),
  'nothing to vary': (['--workdir=w', '--vary=a=1'], '--grid is missing'),
  'a grid that varies': (
    ['--grid=g.py', '--workdir=w', '--vary=a=1'],
    '--vary=a=1: it changes keys of --config=FILE',
  ),
  'two configs': (
    ['--grid=g.py', '--config=configs/recall.py', '--workdir=w'],
    '--grid=g.py: it names a config itself',
  ),
  'seeds twice': (
    [
      '--config=configs/recall.py',
      '--workdir=w',
      '--vary=train.seed=0,1',
      '--seeds=2',
    ],
    '--seeds=2: --vary gives train.seed',
  ),
  'an unknown key': (
    ['--config=configs/recall.py', '--workdir=w', '--vary=model.widht=1,2'],
    "unknown config key model.widht: did you mean 'model.width'",
  ),
  'no folder': (['--grid=g.py'], '--workdir is missing'),
  'no such grid': (['--grid=g.py', '--workdir=w'], '--grid=g.py: no such file'),
  'a limit that is none': (
    ['--config=configs/recall.py', '--workdir=w', '--diverged_at=nan'],
    '--diverged_at=nan: give a number',
  ),
  'seeds that are none': (
    ['--grid=g.py', '--workdir=w', '--seeds=a,1'],
    '--seeds=a,1: give',
  ),
}


@pytest.mark.parametrize('case', BAD)
def test_a_mistake_is_one_line(case):
  flags, message = BAD[case]
  code, out, err = launchers.run('experiments', *flags)
  assert (code, out) == (1, '')
  assert err.startswith(f'error: {message}') and err.count('\n') == 1


@pytest.mark.parametrize('way', ('name', 'standard input'))
def test_a_grid_needs_no_file_of_the_user(way, tmp_path):
  text = tmp_path / 'corpus.txt'
  text.write_text('a text')
  flags = '--list', f'--workdir={tmp_path}/w', f'--set=data.path={text}'
  given = (tiny.ROOT / 'configs/experiments/memory_lab.py').read_text()
  name, stdin = ('memory_lab', '') if way == 'name' else ('-', given)
  code, out, err = launchers.run(
    'experiments', f'--grid={name}', *flags, stdin=stdin
  )
  assert code == 0, err
  assert 'checkpoints/seed0 ' in out and 'to do' in out


def test_variants_of_the_command_line(tmp_path, monkeypatch):
  """A listing, then a run, of a fake launcher, whose comparison is JSON."""
  monkeypatch.setattr(
    commands.Commands,
    'line',
    lambda self, name, run, _: made.fake(name, tmp_path / 'runs' / run.name),
  )
  raw = tiny.raw_config(tiny.write_text(tmp_path / 'text'))
  flags = (
    f'--config={tiny.write_config(tmp_path / "config.py", raw)}',
    f'--workdir={tmp_path}/runs',
    '--vary=optimizer.learning_rate=1e-3,2e-3',
    '--config.train.steps=4',
  )
  code, out, err = launchers.run('experiments', *flags, '--list')
  assert code == 0, err
  names = [f'learning_rate={rate},seed=0' for rate in ('0.001', '0.002')]
  assert [line.split()[0] for line in out.splitlines()] == names
  halving = '--halving=2', '--config.evaluate.every=2'
  code, out, err = launchers.run('experiments', *flags, *halving, '--list')
  assert code == 0, err
  assert out.endswith('about 6 steps in place of 8 (75%)\n')
  code, out, err = launchers.run(
    'experiments', *flags, '--json', '--only=0.002'
  )
  assert code == 0, err
  variant = json.loads(out)['variants']['learning_rate=0.002']
  assert variant['done'] == 1 and variant['figures']['loss']['mean'] == 1
  assert f'[1/1] {names[1]}: loss ' in err and '| learning_rate=0.002' in err
  config = records.read(tmp_path / 'runs')['learning_rate=0.002', 0]['config']
  assert config['train']['steps'] == 4
  assert config['optimizer']['learning_rate'] == 0.002
