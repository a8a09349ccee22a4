"""Trains a model, or resumes its training.

    python -m launch.train --config=stdlib_bytes --workdir=runs/demo

Every key of the config is a flag: --config.train.steps=2000. The same command
resumes a stopped run; with a larger --config.train.steps it extends one.
--init_from=FOLDER begins a new run with the parameters of another one, and
--init_model with its model as well. On several hosts (docs/scaling.md), run it
on each host with --coordinator, --processes and --process, or with --cluster.
Three flags print or draw and don't train: --print_config shows every key and
its value, --plot draws the learning curve of a run so far, and --plot_schedule
or --plot_schedule=FILE.png draws the learning rate by step.
"""

import concurrent.futures
import contextlib
import dataclasses
import functools
import json
import pathlib

from absl import flags

from launch import command
from launch import hosts

PURPOSE = 'Train'


def _take_model(config, given):
  """With --init_model, gives the config the model of the run to begin with."""
  from rnn_jax.runs import origin

  workdir, modules, *flagged = command.ahead(WORKDIR, command.MODULES, *INIT)
  if not flagged[-1]:
    return
  if init := _init(flagged):
    folder = given.get('train.checkpoint_dir', config.train.checkpoint_dir)
    command.import_modules(modules)
    origin.take_model(config, init, workdir, folder)


CONFIG = command.define_config(
  'A name, as stdlib_bytes, or a file; each of its keys is a flag too.',
  _take_model,
)
WORKDIR = flags.DEFINE_string(
  'workdir', None, 'Folder of the run: checkpoints, metrics, tokenizer.'
)
PRINT_CONFIG = flags.DEFINE_bool(
  'print_config', False, 'Print the resolved config and exit.'
)
FROM_STEP = flags.DEFINE_integer(
  'from_step',
  None,
  'Resume from the checkpoint of this step; newer ones are renamed.',
  lower_bound=1,
)
ACCEPT_NEW_DATA = flags.DEFINE_bool(
  'accept_new_data',
  False,
  'Resume on other documents than the run began with.',
)
VERIFY = flags.DEFINE_bool(
  'verify', False, 'Check all token files of the data (data.cache) first.'
)
INIT_FROM = flags.DEFINE_string(
  'init_from',
  None,
  'Folder of another run: begin a new run with its parameters.',
)
INIT_CHECKPOINT = flags.DEFINE_string(
  'init_checkpoint',
  None,
  "Which of its checkpoints: 'best', 'latest' or a step. Default: best.",
)
INIT_OPTIMIZER = flags.DEFINE_bool(
  'init_optimizer', False, 'Take the state of its optimizer as well.'
)
INIT_MODEL = flags.DEFINE_bool(
  'init_model',
  False,
  'Take its sections model, cell and vision, and its kind of tokenizer, in the '
  "place of the config's; flags such as --config.model.dropout change them.",
)
INIT = INIT_FROM, INIT_CHECKPOINT, INIT_OPTIMIZER, INIT_MODEL
PLOT = flags.DEFINE_bool(
  'plot', False, 'Draw loss.png of the run in --workdir and exit.'
)


class _Picture(flags.ArgumentParser):
  """A path; without one, schedule.png in --workdir or the current folder."""

  def parse(self, argument):
    return {'true': SCHEDULE, 'false': None}.get(argument, argument)


SCHEDULE = object()
PLOT_SCHEDULE = flags.DEFINE_flag(
  flags.Flag(
    _Picture(),
    None,
    'plot_schedule',
    None,
    'Draw the learning rate by step to schedule.png, or to the given file, '
    'and exit.',
    boolean=True,  # the value is optional
  )
)


def main(argv):
  # Imported here: the input pipeline's workers import this file too.
  from rnn_jax import config as config_lib
  from rnn_jax import errors
  from rnn_jax.runs import signals
  from rnn_jax.system import streams
  from rnn_jax.training import loop

  del argv
  looks = PRINT_CONFIG.value or PLOT_SCHEDULE.value
  if looks or PLOT.value:
    streams.stdout_is_the_result()
  if not WORKDIR.value and not looks:
    raise errors.InputError('--workdir is missing: name a folder for the run')
  if PLOT.value:
    from rnn_jax.runs import workdir
    from rnn_jax.training import plots

    run = config_lib.parse(workdir.load_config(WORKDIR.value))
    drawn = plots.draw_loss(WORKDIR.value, run)
    if not drawn:
      raise errors.InputError(
        f'--workdir={WORKDIR.value}: no losses to draw yet: train first'
      )
    print(drawn)
    return None
  if CONFIG.value is None:
    raise errors.InputError('--config is missing: name a file of configs/')
  init = _init([flag.value for flag in INIT])
  config = config_lib.parse(CONFIG.value)
  if PRINT_CONFIG.value:
    shown = config_lib.to_dict(config)
    shown.pop('given')  # it isn't a key
    print(json.dumps(shown, indent=2))
    return None
  if path := PLOT_SCHEDULE.value:
    from rnn_jax.training import plots

    if path is SCHEDULE:
      path = pathlib.Path(WORKDIR.value or '', 'schedule.png')
    print(plots.draw_schedule(config, path))
    return None
  stop, kept = signals.StopRequest(), {}
  with hosts.joined(stops_together=True):
    progress = loop.train(
      config,
      WORKDIR.value,
      hooks=[lambda trainer: kept.update(programs=trainer.programs)],
      stop=stop,
      start=loop.Start(
        FROM_STEP.value, ACCEPT_NEW_DATA.value, init, VERIFY.value
      ),
    )
    if progress.finished and not stop.name:
      _conclude(config, progress, _on_one_device(config, **kept))
  return _end(stop.name)


def _init(given):
  """Returns the run to begin with, as the values of INIT name it, or None."""
  from rnn_jax import errors
  from rnn_jax.runs import origin

  run, which, optimizer, _ = given
  if run:
    return origin.Init(run, which or 'best', optimizer)
  for flag, value in zip(INIT[1:], given[1:], strict=True):
    if value:
      raise errors.InputError(
        f'--{flag.name}: name the run with --init_from=FOLDER'
      )
  return None


def _on_one_device(config, programs=None):
  """Returns the programs of a training that can evaluate its run, or None."""
  if not programs or programs.mesh.size > 1 or config.distillation.teacher:
    return None
  return programs


def _end(stopped_by):
  """Returns the exit code; soon ends a process that a signal stopped."""
  from rnn_jax.system import signal_thread

  code = signal_thread.exit_code(stopped_by)
  if stopped_by:
    signal_thread.end_within(signal_thread.GRACE, code)
  return code


def _conclude(config, progress, programs):
  """Prints the best checkpoint's evaluation and a sample of its text."""
  from rnn_jax.parallel import hosts as hosts_lib
  from rnn_jax.runs import progress as progress_lib
  from rnn_jax.training import evaluate

  # All processes run this, as they compute together; the first one prints.
  report = print if hosts_lib.is_first() else lambda text: None
  report(
    f'trained: {progress.finished}, {progress.real_tokens:,} tokens in '
    f'{progress.seconds:.0f} s; the curve is {WORKDIR.value}/loss.png'
  )
  with _background() as call:
    sample = config.sample
    if not sample.prompt:
      prompt = config.data.prompt()
      sample = dataclasses.replace(sample, prompt=prompt)
    written = None
    if sample.new_tokens and config.task.writes_text:
      written = call(_write, sample, config.task.answers)
    if progress.best_loss is not None:
      run = evaluate.Run.open(WORKDIR.value, programs=programs)
      tokens = evaluate.tokens_after(config, progress.real_tokens)
      row = evaluate.evaluate_run(run, '', tokens)
      report(progress_lib.evaluation_table(row))
      if row['fraction'] < 1:
        report(f'  launch.evaluate --workdir={WORKDIR.value} reads all of it')
    if written:
      report(f'a sample after {sample.prompt!r}:\n{written()}')


def _write(sample, is_reply):
  """Returns the prompt and what the best checkpoint generates after it."""
  from rnn_jax import errors
  from rnn_jax.inference import generate
  from rnn_jax.inference import sampling
  from rnn_jax.runs import progress

  options = generate.Options(
    max_new_tokens=sample.new_tokens,
    sampling=sampling.Sampling(sample.temperature, sample.top_k),
  )
  generator = generate.Generator.from_workdir(WORKDIR.value)
  try:
    (written,) = generator.generate([sample.prompt], options).completions
  except errors.InputError as error:  # the run is whole without it
    return f'none: {error}'
  return progress.sample(sample.prompt, written.text, is_reply)


@contextlib.contextmanager
def _background():
  """Yields call(function, *args), which returns a function of the result.

  The call compiles and runs in the background. Several processes must compute
  in the same order: there it runs when its result is asked for.
  """
  import jax

  if jax.process_count() > 1:
    yield functools.partial
    return
  with concurrent.futures.ThreadPoolExecutor(1) as pool:
    yield lambda *call: pool.submit(*call).result


if __name__ == '__main__':
  command.run(main)
