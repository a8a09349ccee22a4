"""The state that a run starts from: new, of a model, or of a checkpoint."""

import jax

from rnn_jax.data import pipeline
from rnn_jax.parallel import hosts
from rnn_jax.runs import bundle
from rnn_jax.runs import progress as progress_lib
from rnn_jax.runs import workdir as workdir_lib
from rnn_jax.runs.checkpoints import sections
from rnn_jax.system import activity
from rnn_jax.training import extend
from rnn_jax.training import frozen
from rnn_jax.training import hooks
from rnn_jax.training import initialize
from rnn_jax.training import train_state
from rnn_jax.training import trainer as trainer_lib


def restore(
  trainer: trainer_lib.Trainer, source: initialize.Source | None = None
) -> None:
  """Restores a run's newest checkpoint, or initializes the run.

  Args:
    trainer: of a run that was just assembled.
    source: what a new run begins with; None: parameters of its own.

  Raises:
    InputError: all checkpoints are damaged, they don't fit the config, or
      nothing of the source does.
  """
  config, programs = trainer.config, trainer.programs
  data = trainer.corpus, config, trainer.row_multiple
  progress_lib.say(f'batches: {pipeline.describe(*data)}')
  shapes = pipeline.batch_shapes(*data)
  taken = None
  if source:
    taken = initialize.match(
      source, programs.states, config, trainer.corpus.tokenizer
    )
  # Compile while data and parameters load. Several processes must compile in
  # the same order, and which of several shapes comes first isn't known.
  if jax.process_count() == 1 and len(shapes) == 1:
    trainer.compiling = hooks.in_background(programs.compile_train, *shapes[0])
  rows = max(rows for rows, _ in shapes)
  with activity.doing('initializing the parameters'):
    state = programs.states.init(rows)
    state = jax.block_until_ready(state)
  fields = bundle.table(trainer.workdir, config.adapters, state.shapes())
  trainer.sections = (*fields, *sections.RECORDS)
  steps = trainer.checkpoints.steps()
  if not steps:
    state = _begun(trainer, state, taken)
  elif steps == [0]:
    state = _from_model(trainer, state)
  else:
    state = _resumed(trainer)
  trainer.state = state
  trainer.progress.planned_steps = config.train.steps
  trainer.data_state = trainer.batches.get_state()
  _show(trainer)
  trainer.clock.resume(trainer.progress.parts, trainer.step, trainer.workdir)


def _begun(trainer, state, taken):
  """Returns the state of a new run, with what it takes of another one."""
  states = trainer.programs.states
  state = states.init_from_data(state, trainer.corpus)
  progress_lib.say(f'parameters:\n{progress_lib.parameter_table(state.params)}')
  if not taken:
    return state
  state = initialize.apply(taken, states, trainer.config.adapters, state)
  progress_lib.say(str(taken))
  hosts.run_on_first(lambda: initialize.record(taken, trainer.workdir))
  folder = trainer.config.train.checkpoint_dir
  hosts.run_on_first(lambda: workdir_lib.keep_copies(trainer.workdir, folder))
  return state


def _from_model(trainer, state):
  """Returns the state of a new run in the folder of a model (bundle.py)."""
  states = trainer.programs.states
  like = sections.of_state({'params': states.like().params})
  _, saved = trainer.checkpoints.read(like, 0)
  progress_lib.say(
    f"starts from the parameters of {trainer.workdir}'s checkpoint 0"
  )
  return states.init_from(state, saved['params'])


def _resumed(trainer):
  """Returns the state of the newest checkpoint, whose position others get."""
  trainer.step, saved = trainer.checkpoints.read(trainer.sections)
  trainer.batches.set_state(saved.pop('data'))
  trainer.batches.start_prefetch()
  progress = trainer.progress = trainer_lib.Progress(**saved.pop('progress'))
  state = train_state.TrainState(**saved)
  trainer.saved = trainer.step
  trainer.skipped_at_save = progress.skipped_steps
  progress_lib.say(f'resumed at step {trainer.step}')
  if before := extend.extend(trainer.config.train.steps, progress):
    scale = float(jax.device_get(state.rate_scale))
    progress_lib.say(
      extend.describe(trainer.config, before, trainer.step, scale)
    )
  return state


def _show(trainer):
  """Prints what is frozen, and the bytes on each device of several."""
  config, params = trainer.config, trainer.state.params
  if lines := frozen.describe(config.optimizer.frozen, config.adapters, params):
    progress_lib.say(lines)
  where = trainer.programs.states.placement
  if where.mesh.size > 1:
    sizes = ', '.join(f'{name} {n}' for name, n in where.mesh.shape.items())
    table = progress_lib.placement_table(
      trainer.state.entries(), where.shardings('gradients')
    )
    progress_lib.say(f'mesh: {sizes}\n{table}')
