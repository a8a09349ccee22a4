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


CONFIG = command.define_config(prepare=_take_model)
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
PAUSE_AT = flags.DEFINE_integer(
  'pause_at',
  None,
  'Stop, saved, after this step; the same command without it goes on.',
  lower_bound=1,
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
  from rnn_jax.evaluation import conclusion
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
  stop, end = signals.StopRequest(), conclusion.Conclusion(config)
  start = loop.Start(
    FROM_STEP.value,
    ACCEPT_NEW_DATA.value,
    init,
    VERIFY.value,
    PAUSE_AT.value,
  )
  with hosts.joined(stops_together=True):
    progress = loop.train(config, WORKDIR.value, [end.keep], stop, start)
    if progress.finished and not stop.name:
      end.report(WORKDIR.value, progress)
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


def _end(stopped_by):
  """Returns the exit code; soon ends a process that a signal stopped."""
  from rnn_jax.system import signal_thread

  code = signal_thread.exit_code(stopped_by)
  if stopped_by:
    signal_thread.end_within(signal_thread.GRACE, code)
  return code


if __name__ == '__main__':
  command.run(main)
