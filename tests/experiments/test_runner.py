"""What is run, kept, skipped and refused, with children that need no jax."""

import dataclasses
import os
import pathlib
import signal
import threading
import time

import pytest

from rnn_jax import errors
from rnn_jax.data import corpus as corpus_lib
from rnn_jax.experiments import axes as axes_lib
from rnn_jax.experiments import commands
from rnn_jax.experiments import divergence
from rnn_jax.experiments import halving
from rnn_jax.experiments import plan
from rnn_jax.experiments import plots
from rnn_jax.experiments import records
from rnn_jax.experiments import runner
from rnn_jax.runs import workdir
from rnn_jax.system import subprocesses
from tests.experiments import made
from tests.support import tiny

VARIANTS = {'narrow': {'model.width': 96}, 'wide': {}}


class Bench:
  """A grid file, its work folder, and children that behave as configured."""

  def __init__(self, folder, monkeypatch):
    self._file = folder / 'grid.py'
    self.workdir = folder / 'runs'
    self.behave = {}  # name of a run -> as made.FAKE has it
    self.started = []  # (command, name of a run)
    self.splits = []  # of those
    self.steps = 2  # of a training
    self.held_out = {}  # variant -> loss of its evaluations, before any step
    self.grid()
    monkeypatch.setattr(commands.Commands, 'line', self._command)

  def grid(self, variants=None, **fields):
    self._file.write_text(
      'from tests.experiments import made\n'
      'def get_grid():\n'
      f'  return made.grid(variants={variants or VARIANTS!r}, **{fields!r})\n'
    )

  def go(self, **request):
    self.started.clear()
    request = {'grid': str(self._file), 'workdir': str(self.workdir)} | request
    return runner.Experiment(runner.Request(**request)).go()

  def experiment(self, **request):
    request = {'grid': str(self._file), 'workdir': str(self.workdir)} | request
    return runner.Experiment(runner.Request(**request))

  def rows(self):
    return records.read(self.workdir)

  def _command(self, name, run, split):
    self.started.append((name, run.name))
    self.splits.append(split)
    behave = self.behave.get(run.name, 'good')
    held_out = self.held_out.get(run.variant, 9.0) + run.seed
    return made.fake(
      name,
      self.workdir / run.name,
      behave,
      2 + run.seed,
      self.steps,
      held_out,
    )


@pytest.fixture
def drawing(tmp_path, monkeypatch):
  monkeypatch.setattr(runner, 'check_data', lambda runs: None)
  return Bench(tmp_path, monkeypatch)


@pytest.fixture
def bench(drawing, monkeypatch):
  # Figures take most of the time; test_plots.py and `drawing` draw them.
  monkeypatch.setattr(plots, 'draw', lambda *_: [])
  return drawing


ALL = ['narrow/seed0', 'wide/seed0', 'narrow/seed1', 'wide/seed1']


def test_every_run_is_trained_evaluated_and_kept(bench):
  assert bench.go() == 0
  assert bench.started == [
    (name, run) for run in ALL for name in ('train', 'evaluate')
  ]
  row = bench.rows()['narrow', 1]
  assert row['scores'] == {'loss': 3.0}
  assert (row['parameters'], row['state_bytes']) == (7, 64)
  assert row['seconds'] == 1.0 and row['tokens_per_second'] == 20.0
  assert row['peak_memory_bytes'] == 2**20 and row['steps'] == 2
  assert row['wall_seconds'] > 0 and row['error'] == ''
  assert row['overrides'] == {'model.width': 96}
  assert row['config']['train']['seed'] == 1
  assert {'python', 'jax', 'flax'} == row['versions'].keys()
  log = (bench.workdir / 'narrow/seed1/run.log').read_text()
  assert 'trained: all steps' in log and 'a warning' in log
  assert 'loss (lower' in (bench.workdir / 'report.md').read_text()
  assert bench.go() == 0 and bench.started == []


def test_a_failed_run_stops_no_other_and_is_tried_again(bench, capsys):
  bench.behave = {'wide/seed0': 'bad', 'narrow/seed1': 'cut'}
  assert bench.go() == runner.FAILED
  assert len(bench.started) == 6
  rows = bench.rows()
  assert rows['wide', 0]['status'] == 'failed'
  assert rows['wide', 0]['error'] == 'train: lower it by half'
  assert rows['wide', 0]['scores'] == {} and rows['wide', 0]['steps'] == 2
  assert 'before its last step' in rows['narrow', 1]['error']
  assert rows['wide', 1]['status'] == 'done'
  err = capsys.readouterr().err
  assert '2 of 4 runs failed: wide/seed0, narrow/seed1: the same' in err
  assert 'wide/seed0 failed' in (bench.workdir / 'report.md').read_text()
  assert bench.experiment().listing().splitlines() == [
    'narrow/seed0  done',
    'wide/seed0    failed: train: lower it by half',
    'narrow/seed1  failed: train: it was stopped before its last step',
    'wide/seed1    done',
  ]
  bench.behave = {}
  assert bench.go() == 0
  assert {run for _, run in bench.started} == {'wide/seed0', 'narrow/seed1'}
  assert 'failed' not in (bench.workdir / 'report.md').read_text()


@pytest.mark.parametrize(
  ('behave', 'why'),
  [
    ('nan', 'train: 10 steps in a row'),
    (
      'rising',
      'train: the training loss is 6.01 at step 2, more than 3 times the '
      'first, 2 (--diverged_at)',
    ),
  ],
)
def test_a_run_that_diverges_ends_and_isnt_tried_again(
  bench, behave, why, capsys
):
  bench.behave = {'wide/seed0': behave}
  assert bench.go(diverged_at=3.0) == 0
  row = bench.rows()['wide', 0]
  assert (row['status'], row['error'], row['scores']) == ('diverged', why, {})
  assert ('evaluate', 'wide/seed0') not in bench.started
  assert ('evaluate', 'wide/seed1') in bench.started
  assert f'wide/seed0: diverged: {why}' in capsys.readouterr().out
  page = (bench.workdir / 'report.md').read_text()
  assert f'## Diverged runs\n\n* wide/seed0 diverged: {why}' in page
  assert '1, 1 diverged' in page and 'Failed' not in page
  listing = bench.experiment().listing()
  assert f'wide/seed0    diverged: {why}' in listing
  bench.behave = {}
  assert bench.go(diverged_at=3.0) == 0 and bench.started == []


@pytest.mark.parametrize('times', (0.0, 4.0))
def test_a_rise_that_isnt_asked_about_stops_no_run(bench, times, tmp_path):
  watch = divergence.Watch(tmp_path, times)
  for line in (
    'parameters:',
    'step 1/2  loss 2.0  7',
    'step 2/2  loss 6.01  9',
  ):
    watch.see(line)
  assert not watch.found
  made.write_metrics(
    tmp_path, [{'step': 1, 'split': 'train', 'loss': 1.0, 'seconds': 1.0}]
  )
  watch = divergence.Watch(tmp_path, times)  # of a run that resumes
  watch.see('step 2/2  loss 4.01  9')
  assert bool(watch.found) == bool(times)


HALVED = {name: {} for name in 'abcd'}
LOSSES = {'a': 5.0, 'b': 8.0, 'c': 4.0, 'd': 6.0}


@pytest.fixture
def halved(bench):
  """A grid with rungs at steps 1 and 3 of 9: four variants, two, one."""
  bench.grid(HALVED, baseline='')
  bench.steps, bench.held_out = 9, {**LOSSES}
  return bench


SHORT = {
  'halving': 3,
  'settings': ('train.steps=9', 'evaluate.every=1'),
}


def test_the_best_variants_go_on_at_rungs(halved, capsys):
  assert halved.go(**SHORT) == 0
  every = [f'{name}/seed{seed}' for seed in (0, 1) for name in 'abcd']
  kept = [f'{name}/seed{seed}' for seed in (0, 1) for name in 'ac']
  ends = ['c/seed0', 'c/seed1']
  assert [run for name, run in halved.started if name == 'train'] == [
    *(*every, *kept, *ends)
  ]
  assert [x for x in halved.started if x[0] == 'evaluate'] == [
    ('evaluate', run) for run in ends
  ]
  rows = halved.rows()
  assert {key: (row['status'], row['rung']) for key, row in rows.items()} == {
    **{(name, seed): ('eliminated', 1) for name in 'bd' for seed in (0, 1)},
    **{('a', seed): ('eliminated', 2) for seed in (0, 1)},
    **{('c', seed): ('done', 0) for seed in (0, 1)},
  }
  assert rows['d', 0]['error'] == 'at step 1 of 9, 3 of 4'
  assert rows['a', 1]['error'] == 'at step 3 of 9, 2 of 2'
  assert rows['a', 1]['steps'] == 3 and rows['c', 1]['steps'] == 9
  page = (halved.workdir / 'report.md').read_text()
  assert '* d/seed0 eliminated: at step 1 of 9, 3 of 4' in page
  assert '0, 2 eliminated' in page and 'only c has a score' in page
  out = capsys.readouterr().out
  assert '[14/14] c/seed1: loss 3.000' in out
  assert halved.go(**SHORT) == 0 and halved.started == []
  # Without the flag, what ended early resumes.
  assert halved.go(**SHORT | {'halving': 0, 'only': 'b/seed0'}) == 0
  assert halved.rows()['b', 0]['status'] == 'done'


def test_halving_lists_its_rungs_and_cost_before_it_starts(halved):
  listing = halved.experiment(**SHORT).listing()
  assert listing.splitlines()[-5:] == [
    '',
    'rung 1: step 1, 4 variants',
    'rung 2: step 3, 2 variants',
    'end: step 9, 1 variants',
    'about 28 steps in place of 72 (39%)',
  ]
  assert not halved.workdir.exists()


def test_halving_tries_again_what_failed(halved):
  halved.behave = {'a/seed1': 'early', 'c/seed0': 'nan'}
  assert halved.go(**SHORT) == runner.FAILED
  rows = halved.rows()
  statuses = {f'{v}{seed}': row['status'] for (v, seed), row in rows.items()}
  assert statuses == {
    **dict.fromkeys(('a0', 'c1'), 'eliminated'),
    **{'a1': 'failed', 'c0': 'diverged'},
    **dict.fromkeys(('b0', 'b1'), 'eliminated'),
    **dict.fromkeys(('d0', 'd1'), 'done'),
  }
  # What failed is tried again, and continues if it is good enough.
  halved.behave = {}
  assert halved.go(**SHORT) == 0
  assert {run for _, run in halved.started} == {'a/seed1', 'a/seed0'}
  rows = halved.rows()
  assert rows['a', 0]['status'] == rows['a', 1]['status'] == 'done'
  assert rows['c', 1]['status'] == 'eliminated'


def test_only_variants_of_a_place_are_compared():
  axes = axes_lib.Axes('cell', 'task', 'rate')
  names = [f'{x}/{y}/{r}' for x in 'ab' for y in ('t', 'u') for r in '123']
  grid = made.grid(variants={n: {} for n in names}, axes=axes, baseline='')
  config = {'train': {'steps': 90}, 'evaluate': {'every': 7}}
  runs = [plan.Run(n, 0, {}, config, ()) for n in names]
  found = halving.make(grid, runs, 3)
  assert found.rungs == 1 and found.step(runs[0], 0) == 35
  alive = found.alive(1, lambda run, step: float(run.variant[-1]))
  assert [run.variant for run in alive] == names[::3]
  higher = dataclasses.replace(found, metric=grid.compared[1])
  alive = higher.alive(1, lambda run, step: float(run.variant[-1]))
  assert [run.variant for run in alive] == names[2::3]


def test_variants_are_compared_within_a_seed():
  config = {'train': {'steps': 9}, 'evaluate': {'every': 1}}
  losses = {('a', 0): 1.0, ('a', 1): 11.0, ('b', 1): 10.5}
  runs = [plan.Run(*key, {}, config, ()) for key in losses]
  found = halving.make(made.grid(variants={'a': {}, 'b': {}}), runs, 2)
  alive = found.alive(1, lambda run, step: losses[run.variant, run.seed])
  assert [run.variant for run in alive] == ['b']


@pytest.mark.parametrize(
  ('request_', 'message'),
  [
    (
      {'settings': ('train.steps=9', 'evaluate.every=2')},
      r"--halving=3: variant 'a' has train.steps=9 and evaluate.every=2, so "
      'none is at the first rung, step 1: give from 1 to 1',
    ),
    (
      {'settings': ('train.steps=0', 'train.epochs=2')},
      "variant 'a' has train.epochs=2.0: rungs are steps: give train.steps",
    ),
    ({'only': 'a'}, '--halving=3: no two variants are compared'),
  ],
)
def test_rungs_that_cannot_be_are_refused(halved, request_, message):
  with pytest.raises(errors.InputError, match=message):
    halved.experiment(**SHORT | request_)


def test_a_main_score_that_training_lacks_is_refused(halved):
  metrics = (('test.bleu', 'higher', 'BLEU'),)
  halved.grid(HALVED, baseline='', metrics=metrics)
  with pytest.raises(
    errors.InputError, match="a/seed0 at step 1 has no 'test."
  ):
    halved.go(**SHORT)
  assert len(halved.started) == 1


def test_only_skip_and_seeds(bench):
  assert bench.go(only='narrow', skip='seed1') == 0
  assert [*bench.rows()] == [('narrow', 0)]
  assert bench.go(only='narrow', seeds=(7, 0)) == 0
  assert [*bench.rows()] == [('narrow', 0), ('narrow', 7)]
  with pytest.raises(errors.InputError, match=r'--seeds=\(3, 3\)'):
    bench.go(seeds=(3, 3))
  # A failure elsewhere is no failure of what was asked for.
  bench.behave = {'wide/seed0': 'bad'}
  assert bench.go(only='wide/seed0') == runner.FAILED
  assert bench.go(only='narrow') == 0


def test_a_listing_or_a_mistake_creates_nothing(bench):
  assert bench.experiment().listing().split('\n')[0] == 'narrow/seed0  to do'
  bench.grid({'narrow': {'model.width': 96}, 'wide': {'model.widht': 1}})
  with pytest.raises(errors.InputError, match="'wide': unknown.*model.widht"):
    bench.go()
  with pytest.raises(errors.InputError, match='no run of this grid'):
    bench.grid()
    bench.experiment().report()
  assert not bench.workdir.exists()


def test_a_changed_grid_is_refused_by_name(bench):
  bench.go(only='narrow')
  before = (bench.workdir / records.NAME).read_bytes()
  bench.grid({'narrow': {'model.width': 48}, 'wide': {}})
  for asked in ({}, {'only': 'wide'}):
    with pytest.raises(errors.InputError) as caught:
      bench.go(**asked)
    for text in (
      'narrow/seed0: model.width: 96 -> 48',
      'narrow/seed1: model.width: 96 -> 48',
      'give the variant a new name, or use another --workdir',
    ):
      assert text in str(caught.value)
  assert bench.started == []
  assert (bench.workdir / records.NAME).read_bytes() == before
  bench.grid()
  with pytest.raises(errors.InputError, match='train.steps: 1500 -> 700'):
    bench.go(settings=('train.steps=700',))
  # What touches no result may change, and variants may come and go.
  bench.grid({'narrow': {'model.width': 96}, 'new': {}}, seeds=(0,))
  assert bench.go(settings=('train.log_every=7',)) == 0
  assert bench.started == [('train', 'new/seed0'), ('evaluate', 'new/seed0')]


def test_an_unfinished_run_of_another_config_is_refused(bench):
  folder = bench.workdir / 'wide/seed0'
  bench.behave = {'wide/seed0': 'bad'}
  assert bench.go(only='wide/seed0') == runner.FAILED
  config = bench.rows()['wide', 0]['config']
  (folder / 'config.json').write_text(workdir.dump(config))
  bench.behave = {}
  lower = {'narrow': {}, 'wide': {'optimizer.learning_rate': 1e-2}}
  bench.grid(lower)
  (folder / 'checkpoints' / '1').mkdir(parents=True)
  with pytest.raises(errors.InputError, match='wide/seed0: optimizer.learning'):
    bench.go()
  (folder / 'checkpoints' / '1').rmdir()  # nothing was trained: fix and retry
  assert bench.go(only='wide/seed0') == 0


def test_another_split_is_evaluated_without_training_again(bench):
  bench.go(only='narrow/seed0')
  bench.grid(split='test')
  listing = bench.experiment(only='narrow/seed0').listing()
  assert listing == 'narrow/seed0  to evaluate'
  assert bench.go(only='narrow/seed0') == 0
  assert bench.rows()['narrow', 0]['split'] == 'test'


def test_metrics_name_further_splits_and_the_gradient_that_reaches_back(bench):
  metrics = (
    ('loss', 'lower', 'loss'),
    ('test.loss', 'lower', 'loss of test'),
    ('flow.2', 'higher', 'from 2'),
  )
  commands = ('train', 'evaluate', 'inspect')
  bench.grid(metrics=metrics, commands=commands, seeds=(0,))
  assert bench.go(only='wide') == 0
  assert bench.splits == ['', 'validation', 'test', '']
  row = bench.rows()['wide', 0]
  assert (row['scores']['loss'], row['scores']['test.loss']) == (2.0, 2.0)
  assert (row['scores']['flow.1'], row['scores']['flow.2']) == (0.5, 0.25)
  assert (row['parameters'], row['state_bytes']) == (7, 64)


def test_without_evaluate_the_curve_has_the_scores(bench):
  bench.grid(commands=('train',))
  assert bench.go(only='narrow/seed0') == 0
  assert bench.started == [('train', 'narrow/seed0')]
  assert bench.rows()['narrow', 0]['scores']['loss'] == 7.0
  assert bench.rows()['narrow', 0]['parameters'] is None


@pytest.mark.parametrize('number', (signal.SIGTERM, signal.SIGINT))
def test_a_signal_stops_the_run_and_keeps_those_before(bench, capsys, number):
  bench.behave = {'wide/seed0': 'slow'}
  log = pathlib.Path(bench.workdir, 'wide/seed0/run.log')

  def ask():
    while not (log.exists() and 'waits' in log.read_text()):
      time.sleep(0.02)
    os.kill(os.getpid(), number)

  asking = threading.Thread(target=ask)
  asking.start()
  assert bench.go() == 128 + number
  asking.join()
  assert 'saved' in log.read_text()
  err = capsys.readouterr().err
  assert f'{number.name}: stopped in wide/seed0: the same command' in err
  assert [*bench.rows()] == [('narrow', 0)]
  bench.behave = {}
  assert bench.go() == 0
  assert bench.started[0] == ('train', 'wide/seed0')
  assert len(bench.rows()) == 4


def test_one_process_at_a_time(bench):
  with records.open_folder(str(bench.workdir)):
    with pytest.raises(errors.InputError, match='another process'):
      bench.go()


def test_profiles_and_largest_batches_are_costs_of_the_row(drawing):
  bench = drawing
  commands = ('train', 'evaluate', 'profile', 'find_batch_size')
  bench.grid(commands=commands, memory_gib=4.0, seeds=(0,))
  assert bench.go() == 0
  assert [name for name, _ in bench.started] == [*commands] * 2
  row = bench.rows()['wide', 0]
  assert row['scores'] == {'loss': 2.0} and row['largest_batch'] == 64
  assert (row['step_seconds'], row['compile_seconds']) == (0.25, 3.0)
  kept = [row[f'{name}_bytes'] for name in ('kept', 'forward', 'backward')]
  assert kept == [5, 2**20, 2 * 2**20]
  page = (bench.workdir / 'report.md').read_text()
  assert ' step MiB, compiled ↓ |' in page and ' 3.000 |' in page
  assert (bench.workdir / 'costs.png').stat().st_size > 1000


def test_data_are_opened_once_and_missing_ones_refused(tmp_path, monkeypatch):
  config = tiny.write_config(
    tmp_path / 'config.py', tiny.raw_config(tiny.write_text(tmp_path / 'text'))
  )
  opened = []
  load = corpus_lib.load_documents
  monkeypatch.setattr(
    corpus_lib,
    'load_documents',
    lambda config: opened.append(1) or load(config),
  )

  def runs(*vary):
    request = runner.Request(str(tmp_path / 'runs'), config=str(config))
    return runner.Experiment(dataclasses.replace(request, vary=vary))

  runner.check_data(runs('model.width=16,32', 'train.seed=0,1').runs)
  assert len(opened) == 1
  missing = runs(f'data.path={tmp_path}/text/*.txt,{tmp_path}/none/*.txt')
  with pytest.raises(errors.InputError, match="variant 'path=.*no such file"):
    missing.go()
  assert not (tmp_path / 'runs').exists()


def test_classes_come_from_the_data_of_a_named_config(tmp_path, monkeypatch):
  monkeypatch.chdir(subprocesses.ROOT)
  request = runner.Request(
    str(tmp_path / 'runs'),
    config='text_classification',
    vary=('optimizer.learning_rate=3e-4,1e-3',),
  )
  runner.check_data(runner.Experiment(request).runs)


def test_varied_runs_have_folders_of_their_names(bench):
  request = {'grid': '', 'config': 'configs/stdlib_bytes.py'}
  vary = ('optimizer.learning_rate=1e-4,2e-3',)
  assert bench.go(**request, vary=vary, seeds=(1,)) == 0
  names = [f'learning_rate={rate},seed=1' for rate in ('0.0001', '0.002')]
  assert [run for _, run in bench.started[::2]] == names
  assert all((bench.workdir / name / 'run.log').exists() for name in names)
  assert bench.go(**request, vary=vary, seeds=(1,)) == 0
  assert bench.started == []


def test_the_commands_of_a_run_are_those_that_a_user_types(tmp_path):
  (tmp_path / 'grid.py').write_text(
    'from tests.experiments import made\n'
    'def get_grid():\n'
    '  commands = ("train", "evaluate", "inspect", "profile",\n'
    '    "find_batch_size")\n'
    '  return made.grid(commands=commands, memory_gib=2.0)\n'
  )
  experiment = runner.Experiment(
    runner.Request(str(tmp_path / 'runs'), grid=str(tmp_path / 'grid.py'))
  )
  run = experiment.runs[0]
  folder = f'{tmp_path}/runs/narrow/seed0'
  typed = {
    name: experiment.commands.line(name, run, 'validation')[3:]
    for name in experiment.grid.commands
  }
  assert typed['train'] == ['train', f'--workdir={folder}', *run.flags]
  assert typed['profile'][1] == f'--workdir={folder}/profile'
  assert typed['find_batch_size'][1:3] == ['--memory_gib=2.0', '--json']
  for name in ('profile', 'find_batch_size'):
    assert typed[name][-len(run.flags) :] == [*run.flags]


def test_each_command_imports_the_modules_that_a_run_names(tmp_path):
  cell = 'tests.support.own.average'
  (tmp_path / 'grid.py').write_text(
    'from tests.experiments import made\n'
    'def get_grid():\n'
    f'  return made.grid(variants={{"narrow": {{}}, "own-1.0": {{'
    f'"model.cell": {cell!r}}}}}, baseline="narrow")\n'
  )
  request = runner.Request(
    str(tmp_path / 'runs'),
    grid=str(tmp_path / 'grid.py'),
    modules=('mine', cell),
    seeds=(0,),
  )
  experiment = runner.Experiment(request)
  for name in experiment.grid.commands:
    for run in experiment.runs:
      assert f'--modules=mine,{cell}' in experiment.commands.line(name, run, '')
  request = dataclasses.replace(request, modules=())
  experiment = runner.Experiment(request)
  narrow, own = (
    experiment.commands.line('evaluate', x, 'test') for x in experiment.runs
  )
  assert f'--modules={cell}' in own
  assert not [flag for flag in narrow if flag.startswith('--modules')]
