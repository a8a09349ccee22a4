"""A training run: from a config and a work folder to trained parameters.

The same call again resumes a run that was stopped. An interrupted run ends with
the same parameters as an uninterrupted one, bit for bit: a checkpoint (arrays,
the position in the data, `Progress`) holds all that the next step depends on.

All processes of a job (parallel/hosts.py) run this. Only the first one writes
and prints, except that each writes its own part of a checkpoint.
"""

import contextlib
import dataclasses
import functools
import os
import pathlib
from collections.abc import Callable
from collections.abc import Iterable

import jax

from rnn_jax import config as config_lib
from rnn_jax import errors
from rnn_jax.config import values
from rnn_jax.data import identity
from rnn_jax.data import pipeline
from rnn_jax.ops import precision
from rnn_jax.parallel import hosts
from rnn_jax.parallel import mesh as mesh_lib
from rnn_jax.runs import agreement
from rnn_jax.runs import bundle
from rnn_jax.runs import goodput
from rnn_jax.runs import metrics
from rnn_jax.runs import origin
from rnn_jax.runs import progress as progress_lib
from rnn_jax.runs import signals
from rnn_jax.runs import workdir as workdir_lib
from rnn_jax.runs.checkpoints import checkpoint
from rnn_jax.runs.checkpoints import sections
from rnn_jax.system import activity
from rnn_jax.system import bounds
from rnn_jax.system import host
from rnn_jax.system import streams
from rnn_jax.system import target
from rnn_jax.training import extend
from rnn_jax.training import hooks as hooks_lib
from rnn_jax.training import initialize
from rnn_jax.training import optimizer as optimizer_lib
from rnn_jax.training import programs as programs_lib
from rnn_jax.training import resolve
from rnn_jax.training import train_state
from rnn_jax.training import trainer as trainer_lib

Trainer = trainer_lib.Trainer
DESCRIPTORS = 20  # that a save and the rest of a run have open at once


@dataclasses.dataclass(frozen=True)
class Start:
  """How a run starts, which isn't part of its config.

  Attributes:
    from_step: of the checkpoint to resume from; None: the newest. Newer ones
      are renamed, and no longer count.
    accept_new_data: the run may resume on other documents than it began with,
      which are then its own.
    init: the run that a new run begins with, or None; read only once.
    verify: checks all token files of the data, not as they are read.
  """

  from_step: int | None = None
  accept_new_data: bool = False
  init: origin.Init | None = None
  verify: bool = False


def train(
  config: config_lib.Config,
  workdir: str | os.PathLike,
  hooks: Iterable[Callable[[Trainer], None]] = (),
  stop: signals.StopRequest | None = None,
  start: Start = Start(),
) -> trainer_lib.Progress:
  """Trains, or resumes training, in a work folder.

  Args:
    config: of the run.
    workdir: path of its folder.
    hooks: called with the Trainer after each step and after the standard hooks
      (training/hooks.py).
    stop: names the signal that stopped the run, afterwards.
    start: how it starts.

  Returns:
    Progress; `finished` is empty if a signal stopped the run.

  Raises:
    InputError: bad data or config, a folder of another run, a full disk, no
      checkpoint of `from_step`, or numbers that aren't finite: too many steps
      in a row, a validation loss, parameters.
  """
  stop = stop or signals.StopRequest()
  with _opened(config, workdir, start) as trainer, _stoppable(trainer, stop):
    hooks_lib.add_all(trainer, stop)
    for hook in hooks:
      trainer.add_hook(hook)

    trainer.clock.enter('steps')
    for hook in trainer.start_hooks:
      hook(trainer)
    steps = trainer.config.train.steps
    with activity.doing('training', steps, 'steps') as done:
      done(trainer.step)
      while not trainer.is_done:
        trainer.next_batch()
        with trainer.step_clock():
          trainer.state, trainer.metrics = trainer.programs.train_step(
            trainer.state, trainer.batch
          )
        trainer.step += 1
        done(1)
        for hook in trainer.hooks_due():
          hook(trainer)
    for hook in trainer.end_hooks:
      hook(trainer)
    return trainer.progress


@contextlib.contextmanager
def _opened(config, workdir, start):
  """Opens and restores a run; its folder is locked, and closed at the end."""
  agreement.check(config_lib.to_dict(config))
  host.check_descriptors(DESCRIPTORS, 'training')
  hosts.run_on_first(lambda: metrics.check(config.metrics.writers))
  source = initialize.open_source(start.init, workdir, config)
  resolved = resolve_run(config, workdir, start, source)
  given = config_lib.to_dict(resolved.config)
  lock = hosts.run_on_first(
    lambda: workdir_lib.open_for_training(workdir, given)
  )
  with streams.guarded(), lock or contextlib.nullcontext():
    hosts.check_shared(f'{workdir}/{workdir_lib.CONFIG}')
    with contextlib.closing(open_run(resolved, workdir)) as trainer:
      if start.from_step is not None:
        trainer.checkpoints.set_aside_after(start.from_step)
      restore(trainer, source)
      with _reporting(trainer):
        yield trainer


@contextlib.contextmanager
def _stoppable(trainer, stop):
  """Inside it signals stop the run, saved."""
  with stop:
    stop.finish = lambda: trainer.stop(stop.name or '')
    stop.lost = trainer.lost
    yield


def resolve_run(
  config: config_lib.Config,
  workdir: str | os.PathLike,
  start: Start = Start(),
  source: initialize.Source | None = None,
) -> resolve.Resolved:
  """Fills in a run's config and opens its data; leaves its folder as it is.

  Args:
    config: of the run.
    workdir: path of its folder.
    start: how it starts.
    source: what a new run begins with.

  Raises:
    InputError: bad data or config, a folder of another run, or other data than
      the run began with.
  """
  given = config_lib.to_dict(config)
  before = hosts.broadcast(
    hosts.run_on_first(lambda: workdir_lib.join(workdir, given))
  )
  tokenizer = None
  if source:
    tokenizer, taken = initialize.tokenizer_of(source, config)
    _say(taken)
  folder = None if before is None else workdir
  data = resolve.Data(folder, tokenizer, start.accept_new_data, start.verify)
  resolved = resolve.resolve(config, data, before)
  if filled := resolve.describe(resolved.config):
    _say(filled)
  return resolved


def open_run(resolved: resolve.Resolved, workdir: str | os.PathLike) -> Trainer:
  """Opens the programs, the batches and the checkpoints of a run.

  Raises:
    InputError: the machine can't hold them, or there are no batches.
  """
  clock = goodput.Clock()
  config, corpus = resolved.config, resolved.corpus
  mesh = mesh_lib.make(config.mesh)
  multiple = resolve.row_multiple(config)
  hosts.run_on_first(lambda: _keep_data(corpus, workdir))
  quantized = config.train.quantized
  if emulated := precision.emulated(quantized, target.device()):
    _say(f'train.quantized={quantized!r}: {emulated}')
  with activity.doing('building the model'):
    task = programs_lib.make_task(config, corpus.tokenizer)
    programs = programs_lib.Programs(task, config, mesh)
  bounds.check_arrays(
    programs.parts_like(('params', 'opt_state')),
    f"parameters and the optimizer's state with {values.largest_sizes(config)}",
  )
  if programs.follows_evaluations:
    _check_validation(corpus, config.schedule.name)
  place = functools.partial(mesh_lib.put, shardings=programs.batch_sharding)
  batches = pipeline.training_batches(
    corpus,
    config,
    multiple,
    place=place,
    own=mesh_lib.own_rows(programs.batch_sharding.tokens_BxL),
  )
  folder = config.train.checkpoint_dir
  hosts.run_on_first(lambda: workdir_lib.keep_copies(workdir, folder))
  checkpoints = checkpoint.Checkpoints(
    workdir_lib.checkpoint_folder(workdir, folder),
    config.train.keep_checkpoints,
  )
  return Trainer(
    config=config,
    workdir=workdir,
    corpus=corpus,
    programs=programs,
    batches=batches,
    row_multiple=multiple,
    checkpoints=checkpoints,
    clock=clock,
  )


def _keep_data(corpus, workdir):
  """Writes which data a run has, and its tokenizer."""
  os.makedirs(workdir, exist_ok=True)
  identity.write(corpus.digests, workdir)
  path = pathlib.Path(workdir, 'tokenizer.json')
  if not path.exists():
    corpus.tokenizer.save(path)


def restore(trainer: Trainer, source: initialize.Source | None = None) -> None:
  """Restores a run's newest checkpoint, or initializes the run.

  Args:
    trainer: of an opened run.
    source: what a new run begins with; None: parameters of its own.

  Raises:
    InputError: all checkpoints are damaged, they don't fit the config, or
      nothing of the source does.
  """
  config, programs, corpus = trainer.config, trainer.programs, trainer.corpus
  data = corpus, config, trainer.row_multiple
  shapes = pipeline.batch_shapes(*data)
  _say(f'batches: {pipeline.describe(*data)}')
  taken = None
  if source:
    taken = initialize.match(source, programs, config, corpus.tokenizer)
  # Compile while data and parameters load. Several processes must compile in
  # the same order, and which of several shapes comes first isn't known.
  if jax.process_count() == 1 and len(shapes) == 1:
    trainer.compiling = hooks_lib.in_background(
      programs.compile_train, *shapes[0]
    )
  rows = max(rows for rows, _ in shapes)
  with activity.doing('initializing the parameters'):
    state = jax.block_until_ready(programs.init(config.train.seed, rows))
  fields = bundle.table(trainer.workdir, config, state.shapes())
  trainer.sections = (*fields, *sections.RECORDS)
  steps = trainer.checkpoints.steps()
  if not steps:
    state = _begun(trainer, state, taken)
  elif steps == [0]:
    state = _from_model(trainer, state)
  else:
    state = _resumed(trainer)
  if frozen := optimizer_lib.describe_frozen(config, state.params):
    _say(frozen)
  trainer.state = state
  trainer.progress.planned_steps = config.train.steps
  trainer.data_state = trainer.batches.get_state()
  _show_placement(trainer)
  trainer.clock.resume(trainer.progress.parts, trainer.step, trainer.workdir)


def _begun(trainer, state, taken):
  """Returns the state of a new run, with what it takes of another one."""
  state = trainer.programs.init_from_data(state, trainer.corpus)
  _say(f'parameters:\n{progress_lib.parameter_table(state.params)}')
  if not taken:
    return state
  state = initialize.apply(taken, trainer.programs, trainer.config, state)
  _say(str(taken))
  hosts.run_on_first(lambda: initialize.record(taken, trainer.workdir))
  folder = trainer.config.train.checkpoint_dir
  hosts.run_on_first(lambda: workdir_lib.keep_copies(trainer.workdir, folder))
  return state


def _from_model(trainer, state):
  """Returns the state of a new run in the folder of a model (bundle.py)."""
  like = sections.of_state(trainer.programs.parts_like(('params',)))
  _, saved = trainer.checkpoints.read(like, 0)
  _say(f"starts from the parameters of {trainer.workdir}'s checkpoint 0")
  return trainer.programs.init_from(state, saved['params'])


def _resumed(trainer):
  """Returns the state of the newest checkpoint, whose position others get."""
  trainer.step, saved = trainer.checkpoints.read(trainer.sections)
  trainer.batches.set_state(saved.pop('data'))
  trainer.batches.start_prefetch()
  progress = trainer.progress = trainer_lib.Progress(**saved.pop('progress'))
  state = train_state.TrainState(**saved)
  before = extend.extend(trainer.config, progress, trainer.step)
  trainer.saved = trainer.step
  trainer.skipped_at_save = progress.skipped_steps
  _say(f'resumed at step {trainer.step}')
  if before:
    scale = float(jax.device_get(state.rate_scale))
    _say(extend.describe(trainer.config, before, trainer.step, scale))
  return state


@contextlib.contextmanager
def _reporting(trainer):
  """Opens the first process's metrics file and progress display."""
  if hosts.is_first():
    trainer.writer = metrics.Writer(
      trainer.workdir, trainer.step, trainer.config.metrics.writers
    )
    steps = trainer.config.train.steps
    trainer.display = progress_lib.Display(steps, trainer.step)
  try:
    yield
  finally:
    trainer.display.close()
    trainer.writer.close()


def _show_placement(trainer):
  """Prints the bytes on each device of a mesh of several."""
  where = trainer.programs.placement
  if where.mesh.size > 1:
    sizes = ', '.join(f'{name} {n}' for name, n in where.mesh.shape.items())
    table = progress_lib.placement_table(
      trainer.state.entries(), where.shardings('gradients')
    )
    _say(f'mesh: {sizes}\n{table}')


def _say(text):
  if hosts.is_first():
    print(text, flush=True)


def _check_validation(corpus, schedule):
  if not len(corpus.documents['validation']):
    raise errors.InputError(
      f'schedule.name={schedule!r} needs validation documents: give '
      'data.validation_path, or a percentage in data.splits'
    )
