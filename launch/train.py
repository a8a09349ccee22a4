"""Trains a model, or resumes its training.

    python -m launch.train --config=stdlib_bytes --workdir=runs/demo

Every key of the config is a flag: --config.train.steps=2000. The same command
resumes a stopped run; with a larger --config.train.steps it extends one.
--init_from=FOLDER begins a new run with the parameters of another one, and
--init_model with its model as well. On several hosts (docs/scaling.md), run it
on each host with --coordinator, --processes and --process, or with --cluster.
Four flags print or draw and train no run: --print_config shows every key and
its value, --plot draws the learning curve of a run so far, --plot_schedule or
--plot_schedule=FILE.png draws the learning rate by step, and --find_rate or
--find_rate=FILE.png suggests one.
"""

import contextlib
import json
import pathlib
import sys

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
  'Save and stop after this step; the same command without it resumes.',
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
  """A path; without one, UNNAMED."""

  def parse(self, argument):
    return {'true': UNNAMED, 'false': None}.get(argument, argument)


def _define_picture(name, text):
  # The value is optional, as a boolean's.
  picture = flags.Flag(_Picture(), None, name, None, text, boolean=True)
  return flags.DEFINE_flag(picture)


UNNAMED = object()
PLOT_SCHEDULE = _define_picture(
  'plot_schedule',
  'Draw the learning rate by step to schedule.png, or to the given file, and '
  'exit.',
)
FIND_RATE = _define_picture(
  'find_rate',
  'Take a few steps with rising learning rates, which are not kept, suggest '
  'one, and draw the loss by rate to rates.png, or to the given file.',
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
  looks = PRINT_CONFIG.value or PLOT_SCHEDULE.value or FIND_RATE.value
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

    if path is UNNAMED:
      path = pathlib.Path(WORKDIR.value or '', 'schedule.png')
    print(plots.draw_schedule(config, path))
    return None
  if FIND_RATE.value:
    _find_rate(init)
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


def _find_rate(init):
  """Prints and draws what a rate finder found; no run's folder changes."""
  from rnn_jax.experiments import rate_finder

  with contextlib.redirect_stdout(sys.stderr):  # what training prints
    found = rate_finder.find(CONFIG.value, init)
  path = 'rates.png' if FIND_RATE.value is UNNAMED else FIND_RATE.value
  print(found.describe())
  print(rate_finder.draw(found, path))


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
