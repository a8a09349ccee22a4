"""`launch.train`: cut in every way, and what it refuses, prints and draws."""

import json
import re
import signal

import jax
import numpy as np
import pytest

from rnn_jax import config as config_lib
from rnn_jax.data import corpus as corpus_lib
from rnn_jax.runs import bundle
from rnn_jax.runs import bundle as bundle_lib
from rnn_jax.runs import metrics
from rnn_jax.training import programs as programs_lib
from tests.support import bundles
from tests.support import jobs
from tests.support import launchers
from tests.support import shared
from tests.support import tiny

pytestmark = pytest.mark.slow
STEPS = 40


@pytest.fixture(autouse=True, scope='module')
def _shared():
  with shared.programs():
    yield


@pytest.fixture
def raw(tmp_path):
  raw = tiny.raw_config(tiny.write_text(tmp_path / 'text'))
  raw.data.layout = 'stream'
  raw.data.carry_state = True
  raw.data.segment_tokens = 90
  raw.data.workers = 1
  raw.train.steps = STEPS
  raw.train.log_every = 1
  raw.train.checkpoint_every = 5
  raw.evaluate.every = 20
  raw.sample.new_tokens = 5
  raw.metrics.writers = ()  # each process takes a second to import one
  return raw


def run(config, workdir, *more):
  return launchers.run(
    'train', f'--config={config}', f'--workdir={workdir}', *more
  )


def read_params(raw, workdir):
  config = config_lib.parse(raw)
  corpus = corpus_lib.Corpus.open(config, workdir)
  programs = programs_lib.from_config(config, corpus.tokenizer)
  like = {'params': programs.states.like().params}
  step, fields = bundle.restore(workdir, config, like, 'latest')
  return step, jax.device_get(fields['params'])


def cut_run(make, config, workdir, step, number, *more):
  """A run that gets a signal at a step. Returns (code, stdout, stderr)."""
  flags = f'--config={config}', f'--workdir={workdir}', *more
  process = make('train', *flags, env=jobs.environment())
  jobs.wait_for_step([process], workdir, step)
  process.send_signal(number)
  return tiny.finish(process)


def assert_same_runs(raw, *workdirs):
  """The same parameters, and a loss of each step: none twice, none missed."""
  runs = [read_params(raw, workdir) for workdir in workdirs]
  assert [step for step, _ in runs] == [STEPS, STEPS]
  for x, y in zip(*(jax.tree.leaves(p) for _, p in runs), strict=True):
    np.testing.assert_array_equal(x, y)
  losses = [
    [(r['step'], r['split'], r['loss']) for r in metrics.read(workdir)]
    for workdir in workdirs
  ]
  assert losses[0] == losses[1]


def test_runs_cut_by_signals_end_bit_for_bit_like_an_uncut_one(raw, tmp_path):
  config = tiny.write_config(tmp_path / 'config.py', raw)
  # Other workers, and Ctrl-C: neither changes what is learnt. The SIGTERM of a
  # process is in tests/parallel/test_hosts.py.
  other = '--config.data.workers=0'
  code, out, err = run(config, tmp_path / 'whole', other)
  assert code == 0, err
  for text in (
    'first step after',
    f'step {STEPS}/{STEPS}',
    'bits per byte',
    'gzip',
    'a sample',
  ):
    assert text in out

  cut = tmp_path / 'cut'
  # The save of step 10 has waited for that of step 5.
  code, *_ = cut_run(jobs.Process, config, cut, 12, signal.SIGKILL, other)
  assert code == -signal.SIGKILL
  code, out, err = cut_run(tiny.launch, config, cut, 18, signal.SIGINT)
  assert code == 130, err
  assert 'resumed at step' in out
  assert 'SIGINT: saved at step' in out
  code, out, err = run(config, cut, other, '--config.sample.new_tokens=0')
  assert code == 0, err
  assert 'resumed at step' in out
  assert_same_runs(raw, tmp_path / 'whole', cut)


def test_a_finished_run_is_evaluated_and_drawn(raw, tmp_path):
  """What is evaluated, saved and read back are the averaged parameters."""
  raw.train.steps = 8
  raw.data.workers = 0
  raw.evaluate.every = 8
  raw.sample.new_tokens = 0
  raw.optimizer.update(
    name='schedule_free', multipliers=(('embedding/.*', 0.5),)
  )
  raw.schedule.name = 'constant'
  config = tiny.write_config(tmp_path / 'config.py', raw)
  folder = tmp_path / 'run'
  code, _, err = run(config, folder)
  assert code == 0, err
  (held_out,) = (r for r in metrics.read(folder) if r['split'] == 'validation')
  flags = f'--workdir={folder}', '--split=validation', '--json'
  code, out, err = launchers.run('evaluate', *flags)
  assert code == 0, err
  row = json.loads(out)
  assert row['split'] == 'validation'
  assert {'loss', 'bits_per_byte', 'gzip', 'xz'} <= row.keys()
  assert row['loss'] == pytest.approx(held_out['loss'], rel=1e-6)

  code, out, err = launchers.run('evaluate', f'--workdir={folder}')
  assert code == 0, err
  assert out.startswith('test split, step')

  code, out, err = run(config, folder, '--plot')
  assert (code, out.strip()) == (0, f'{folder}/loss.png'), err


BAD = {
  'a key that does not exist': (
    ['--config.model.widht=3'],
    r"widht.*did you mean 'width'",
  ),
  'a value of the wrong type': (['--config.model.width=wide'], 'wide'),
  'a contradiction': (
    ['--config.train.accumulate=3'],
    'train.accumulate=3.*data.batch_size=8',
  ),
  'a flag that needs another': (
    ['--init_optimizer'],
    '--init_optimizer: name the run with --init_from=FOLDER',
  ),
  'a model of no run': (
    ['--init_model'],
    '--init_model: name the run with --init_from=FOLDER',
  ),
  'no run to begin with': (
    ['--init_from=/no/such/run'],
    "--init_from='/no/such/run': .*no such folder",
  ),
  'an unknown writer': (
    ["--config.metrics.writers=('board',)"],
    "metrics.writers='board': choose one of ",
  ),
  'a missing file': (['--config.data.path=/no/such.txt'], '/no/such.txt'),
}


@pytest.mark.parametrize('case', BAD)
def test_bad_input_is_one_line_and_leaves_nothing(case, raw, tmp_path):
  flags, message = BAD[case]
  config = tiny.write_config(tmp_path / 'config.py', raw)
  code, out, err = run(config, tmp_path / 'run', *flags)
  assert code == 1
  lines = [line for line in err.splitlines() if line.startswith('error: ')]
  assert len(lines) == 1, err
  assert 'Traceback' not in err
  assert out == ''
  assert re.search(message, lines[0])
  assert not (tmp_path / 'run' / 'checkpoints').exists()


def test_print_config_shows_every_key_as_set(raw, tmp_path):
  config = tiny.write_config(tmp_path / 'config.py', raw)
  flags = ('--print_config', '--config.train.steps=77')
  code, out, err = run(config, '', *flags)
  assert code == 0, err
  shown = json.loads(out)
  assert shown['train']['steps'] == 77
  assert shown['model']['width'] == 16
  assert shown.keys() - {'given'} == set(config_lib.default().keys())


@pytest.mark.parametrize('config_is', ('first', 'last'))
def test_flags_change_the_model_that_a_run_begins_with(
  config_is, raw, tmp_path
):
  config = f'--config={tiny.write_config(tmp_path / "config.py", raw)}'
  other = bundles.raw_attention()
  other.model.positions = 'sinusoidal'
  bundle_lib.write(bundles.make(other), tmp_path / 'other')
  flags = (
    '--config.cell.window=3',  # no key of the file's cell
    '--config.model.dropout',
    '0.25',
    '--init_model',
    f'--init_from={tmp_path / "other"}',
    '--print_config',
  )
  order = (config, *flags) if config_is == 'first' else (*flags, config)
  code, out, err = launchers.run('train', *order)
  assert code == 0, err
  shown = json.loads(out)
  assert (shown['model']['cell'], shown['model']['width']) == ('attention', 8)
  assert shown['model']['dropout'] == 0.25
  assert shown['cell']['window'] == 3


def test_plot_schedule_draws_and_trains_nothing(raw, tmp_path):
  config = tiny.write_config(tmp_path / 'config.py', raw)
  picture, folder = tmp_path / 'rates.png', tmp_path / 'run'
  cases = ((f'--plot_schedule={picture}', picture),)
  cases += (('--plot_schedule', folder / 'schedule.png'),)
  for flag, path in cases:
    code, out, err = run(config, folder, flag)
    assert (code, out.strip()) == (0, str(path)), err
    assert path.read_bytes().startswith(b'\x89PNG')
  assert [x.name for x in folder.iterdir()] == ['schedule.png']


def test_help_with_a_config_lists_its_keys():
  code, out, err = launchers.run('train', '--config=stdlib_bytes', '--help')
  assert code == 0, err
  assert '--config.mesh.micro_batches=0\n' in out
