"""A training run: from a config and a work folder to trained parameters.

The same call again goes on where the last one stopped. A run that was cut
anywhere ends with the parameters of one that wasn't, bit for bit: what a
checkpoint keeps (arrays, the position in the data, `Progress`) is all that the
next step depends on.

Of several processes (parallel/hosts.py) all run this, the first one alone
writes and prints; of checkpoints each writes its own part.
"""

import concurrent.futures
import contextlib
import dataclasses
import functools
import math
import time

import jax

from rnn_jax import config as config_lib
from rnn_jax import errors
from rnn_jax.data import pipeline
from rnn_jax.data import plan
from rnn_jax.parallel import hosts
from rnn_jax.parallel import mesh as mesh_lib
from rnn_jax.training import agreement
from rnn_jax.training import checkpoint
from rnn_jax.training import evaluate
from rnn_jax.training import goodput
from rnn_jax.training import memory
from rnn_jax.training import metrics
from rnn_jax.training import progress as progress_lib
from rnn_jax.training import remat_budget
from rnn_jax.training import signals
from rnn_jax.training import step as step_lib
from rnn_jax.training import workdir as workdir_lib


@dataclasses.dataclass
class Progress:
  """What a checkpoint keeps beside arrays."""

  held_out_loss: float | None = None  # at this very step
  best_loss: float | None = None
  best_step: int = 0
  evaluations_since_best: int = 0
  real_tokens: int = 0
  padded_tokens: int = 0
  skipped_steps: int = 0
  seconds: float = 0.0  # of training steps
  finished: str = ''  # 'all steps', or why it ended early
  parts: dict = dataclasses.field(default_factory=dict)  # see goodput.py


def train(config, workdir):
  """Trains, or goes on training, in a work folder.

  Args:
    config: Config of the run.
    workdir: path of its folder.

  Returns:
    Progress; `finished` is empty if a signal stopped the run.

  Raises:
    InputError: bad data or config, a folder of another run, a full disk, or
      too many non-finite steps in a row.
  """
  given = config_lib.to_dict(config)
  agreement.check(given)
  lock = hosts.by_first(lambda: workdir_lib.open_for_training(workdir, given))
  with lock or contextlib.nullcontext():
    hosts.check_shared(f'{workdir}/{workdir_lib.CONFIG}')
    run = Run(config, workdir)
    try:
      return run.go()
    finally:
      run.close()


class Run:
  """The parts of a run and where it stands."""

  def __init__(self, config, workdir):
    self._clock = goodput.Clock()
    self._workdir = workdir
    mesh = mesh_lib.make(config.mesh)
    multiple = mesh_lib.row_multiple(mesh, config.mesh)
    self._multiple = multiple * config.train.accumulate
    self._corpus = hosts.first_ahead(
      lambda: pipeline.Corpus.open(config, workdir)
    )
    config = memory.resolve(
      config, self._corpus.tokenizer, workdir, self._multiple
    )
    if config.remat.every == 'auto':
      shapes = pipeline.batch_shapes(self._corpus, config, self._multiple)
      config = remat_budget.resolve(config, self._corpus.tokenizer, shapes)
      _say(f"remat.every='auto': {remat_budget.told(config)}")
    self._config = config
    self._steps = step_lib.from_config(config, self._corpus.tokenizer)
    if self._steps.follows_evaluations:
      _check_validation(self._corpus, config.schedule.name)
    self._batches = self._open_batches()
    elsewhere = config.train.checkpoint_dir
    hosts.by_first(lambda: workdir_lib.keep_copies(workdir, elsewhere))
    self._checkpoints = checkpoint.Checkpoints(
      workdir_lib.checkpoint_folder(workdir, elsewhere),
      config.train.keep_checkpoints,
    )
    self._progress = Progress()
    self._step, self._state = 0, None
    self._writer, self._display = metrics.NoWriter(), progress_lib.NoDisplay()
    self._window = []  # (step, metrics on the device, padded tokens)
    self._began = 0.0
    self._waited = 0.0  # for batches, since the last row of metrics
    self._saved = None  # the step of the newest checkpoint
    self._created = time.monotonic()
    self._first_step_seconds = None
    self._compiled = None  # a Future of the training step's program

  def go(self):
    """Runs to the end, or until a signal. Returns Progress."""
    self._restore()
    self._clock.resume(self._progress.parts, self._step, self._workdir)
    if hosts.first():
      self._writer = metrics.Writer(self._workdir, self._step)
      steps = self._config.train.steps
      self._display = progress_lib.Display(steps, self._step)
    try:
      with signals.StopRequest() as stop:
        self._began = time.monotonic()
        self._clock.enter('steps')
        while not (self._progress.finished or stop.wanted(self._step)):
          self._advance()
        self._flush()
        self._save()
        with self._clock.part('checkpoint'):
          self._checkpoints.wait()
      if stop.name and not self._progress.finished:
        self._display.say(
          f'{stop.name}: saved at step {self._step}; the same command goes on'
        )
      self._display.say(goodput.table(self._tell_time()))
    finally:
      self._display.close()
      self._writer.close()
    hosts.by_first(self._draw_loss)
    return self._progress

  def _draw_loss(self):
    from rnn_jax.training import plots  # matplotlib takes long to import

    plots.draw_loss(self._workdir)

  def close(self):
    self._batches.close()
    self._checkpoints.close()

  def _open_batches(self):
    return pipeline.training_batches(
      self._corpus,
      self._config,
      self._multiple,
      place=functools.partial(
        mesh_lib.put, shardings=self._steps.batch_sharding
      ),
    )

  def _compile_ahead(self):
    """Compiles the training step beside what comes before the first one.

    The call of the step then finds its program. Several processes compile in
    the order of their calls, and which of several shapes comes first is not
    known: these wait for the first batch.
    """
    shapes = pipeline.batch_shapes(self._corpus, self._config, self._multiple)
    if jax.process_count() > 1 or len(shapes) > 1:
      return
    self._compiled = _aside(self._steps.compile_train, *shapes[0])

  def _compile_evaluation(self):
    """Compiles an evaluation step beside the training steps before it."""
    if not len(self._corpus.documents['validation']):
      return
    multiple = mesh_lib.row_multiple(self._steps.mesh, self._config.mesh)
    shapes = plan.heldout_shapes(self._corpus, self._config, multiple)
    if jax.process_count() > 1 or len(shapes) > 1:
      return
    # Traced here: what counts traces would see one in the midst of a step.
    _aside(self._steps.trace_evaluate(*shapes[0]).lower().compile)

  def _restore(self):
    made = self._corpus, self._config, self._multiple
    rows = max(rows for rows, _ in pipeline.batch_shapes(*made))
    if self._config.data.memory_gib:
      _say(
        f'data.memory_gib={self._config.data.memory_gib!r} holds '
        f'{self._config.data.tokens_per_batch:,} tokens a batch'
      )
    _say(f'batches: {pipeline.describe(*made)}')
    self._compile_ahead()
    self._state = self._steps.init(self._config.train.seed, rows)
    if self._checkpoints.steps() == [0]:
      self._begin_with_parameters()
      return
    found = self._checkpoints.restore(self._state, self._batches)
    if found is None:
      self._state = self._steps.prime(self._state, self._corpus)
      table = progress_lib.parameter_table(self._state['params'])
      _say(f'parameters:\n{table}')
      self._show_placement()
      return
    self._step, self._state, progress = found
    self._progress = Progress(**progress)
    self._saved = self._step
    _say(f'resumed at step {self._step}')
    self._show_placement()

  def _begin_with_parameters(self):
    """Begins with a model that was put here, see training/bundle.py."""
    like = self._steps.parameters_like()
    _, params = self._checkpoints.restore_parameters(like, 0)
    self._state = self._steps.begin_with(self._state, params)
    _say(f"begins with the parameters in {self._workdir}'s checkpoint 0")
    self._show_placement()

  def _show_placement(self):
    """Prints what lies where, if there is more than one device."""
    where = self._steps.placement
    if where.mesh.size > 1:
      sizes = ', '.join(f'{name} {n}' for name, n in where.mesh.shape.items())
      gradients = where.shardings('gradients')
      table = progress_lib.placement_table(self._state, gradients)
      _say(f'mesh: {sizes}\n{table}')

  def _advance(self):
    """One step, and what is due behind it."""
    train, every = self._config.train, self._config.evaluate.every
    asked = time.monotonic()
    with self._clock.part('data'):
      batch = next(self._batches)
    self._waited += time.monotonic() - asked
    values = self._train(batch)
    self._step += 1
    if self._first_step_seconds is None:
      self._first_step_seconds = time.monotonic() - self._created
      self._display.say(f'first step after {self._first_step_seconds:.1f} s')
      with self._clock.part('compile'):
        self._compile_evaluation()
    self._window.append((self._step, values, batch.weights_BxL.size))
    self._display.advance()
    last = self._step == train.steps
    if self._step % train.log_every == 0 or last:
      self._flush()
    self._progress.held_out_loss = None
    improved = False
    if last or (every and self._step % every == 0):
      improved = self._evaluate()
    if last and not self._progress.finished:
      self._progress.finished = 'all steps'
    if improved or self._step % train.checkpoint_every == 0:
      self._save()

  def _train(self, batch):
    with self._clock.part('steps'):
      traces = self._steps.traces
      if self._compiled is not None:
        with self._clock.part('compile'):
          self._compiled.result()
        self._compiled = None
      self._state, values = self._steps.train(self._state, batch)
      if self._first_step_seconds is None:
        jax.block_until_ready(values)
      if self._steps.traces > traces:
        self._clock.rename('compile')
    return values

  def _tell_time(self):
    """Writes and returns the seconds of each part of the run."""
    seconds = self._clock.seconds()
    if hosts.first():
      goodput.write(self._workdir, self._step, seconds)
    return seconds

  def _flush(self):
    """Fetches, checks and writes the metrics since the last time."""
    if not self._window:
      return
    window, self._window = self._window, []
    values = jax.device_get([values for _, values, _ in window])
    seconds = time.monotonic() - self._began
    self._check_finite(
      [(s, v) for (s, _, _), v in zip(window, values, strict=True)]
    )
    good = [v for v in values if v['finite']]
    padded = sum(size for _, _, size in window)
    real = sum(int(v['real_tokens']) for v in values)
    self._progress.real_tokens += int(real)
    self._progress.padded_tokens += padded
    self._progress.seconds += seconds
    row = {}
    if good:
      sums = jax.tree.map(
        lambda *x: sum(map(float, x)), *[v['sums'] for v in good]
      )
      row = self._steps.task.summarize(sums)
    row |= {
      'gradient_norm': float((good or values)[-1]['gradient_norm']),
      'learning_rate': float(values[-1]['learning_rate']),
      'tokens': int(real),
      'seconds': seconds,
      'tokens_per_second': real / seconds,
      'padded_tokens_per_second': padded / seconds,
      'padding_efficiency': real / padded,
      'data_waiting_share': self._waited / seconds,
      'goodput': goodput.share(self._tell_time(), 'steps'),
      'first_step_seconds': self._first_step_seconds,
      'compiled_programs': self._steps.traces,
      'skipped_steps': self._progress.skipped_steps,
      'peak_memory_bytes': metrics.peak_memory_bytes(),
    }
    if 'loss_scale' in values[-1]:
      row['loss_scale'] = float(values[-1]['loss_scale'])
    self._writer.write(self._step, 'train', row)
    self._report(row, seconds / len(window))
    self._began, self._waited = time.monotonic(), 0.0

  def _check_finite(self, values):
    limit = self._config.train.max_skipped_steps
    for step, value in values:
      self._progress.skipped_steps += int(not value['finite'])
      if value['skipped'] >= limit:
        half = self._config.train.precision == 'float16'
        raise errors.InputError(
          f'{limit} steps in a row, up to step {step}, had a non-finite loss '
          'or gradient and were skipped (train.max_skipped_steps): lower '
          'optimizer.learning_rate='
          f'{self._config.optimizer.learning_rate!r}, or start from an '
          'earlier checkpoint'
          + ", or use train.precision='bfloat16', which holds more"
          * half
        )

  def _report(self, row, seconds_a_step):
    left = (self._config.train.steps - self._step) * seconds_a_step
    headline, name = self._steps.task.headline
    if 'loss' not in row:
      text = 'every step skipped: the loss or the gradient is not finite'
    else:
      text = f'loss {row["loss"]:.4f}  {row[headline]:.4f} {name}'
    self._display.report(
      self._step,
      f'{text}  {row["tokens_per_second"]:,.0f} {self._steps.task.unit}/s '
      f'({row["padded_tokens_per_second"]:,.0f} padded)  '
      f'{left / 60:.1f} min left',
    )

  def _evaluate(self):
    """Evaluates; returns whether this is the best so far."""
    if not len(self._corpus.documents['validation']):
      return False
    self._flush()
    with self._clock.part('evaluation'):
      values = evaluate.evaluate(
        self._steps,
        self._state['params'],
        self._corpus,
        self._config,
        'validation',
      )
    progress, loss = self._progress, values['loss']
    if self._config.evaluate.criterion == 'errors':
      loss = 1 - values['accuracy']
    improved = self._judge(loss)
    row = values | {'best': float(improved)}
    self._writer.write(self._step, 'validation', row)
    since = progress.evaluations_since_best
    self._state = self._steps.rescale(self._state, since)
    headline, name = self._steps.task.headline
    self._display.say(
      f'step {self._step}  validation loss {values["loss"]:.4f}  '
      f'{values[headline]:.4f} {name}{"  (best)" if improved else ""}'
    )
    patience = self._config.evaluate.patience
    if patience and since >= patience:
      progress.finished = f'no better for {since} evaluations'
      self._display.say(f'stopped early: {progress.finished}')
    self._began = time.monotonic()
    return improved

  def _judge(self, loss):
    """Takes down a held-out loss; returns whether it is the best so far."""
    progress, pruning = self._progress, self._config.pruning
    if pruning.sparsity and self._step <= pruning.end_step:
      return False  # of a model that has not lost all it is to lose
    progress.held_out_loss = loss
    best = progress.best_loss
    improved = math.isfinite(loss) and (best is None or loss < best)
    if improved:
      progress.best_loss, progress.best_step = loss, self._step
    since = 0 if improved else progress.evaluations_since_best + 1
    progress.evaluations_since_best = since
    return improved

  def _save(self):
    if self._saved == self._step or not self._step:
      return
    self._flush()
    self._progress.parts = self._clock.seconds()
    with self._clock.part('checkpoint'):
      self._checkpoints.save(
        self._step,
        self._state,
        self._batches,
        dataclasses.asdict(self._progress),
      )
    self._saved = self._step
    self._began = time.monotonic()


def _aside(function, *args):
  """A Future of a call on a thread of its own."""
  pool = concurrent.futures.ThreadPoolExecutor(1)
  future = pool.submit(function, *args)
  pool.shutdown(wait=False)
  return future


def _say(text):
  if hosts.first():
    print(text, flush=True)


def _check_validation(corpus, schedule):
  if not len(corpus.documents['validation']):
    raise errors.InputError(
      f'schedule.name={schedule!r}: no validation documents to go by: give '
      'data.validation_path, or a share of data.splits'
    )
