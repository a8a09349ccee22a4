"""What a finished run shows: its best checkpoint's scores, and a sample."""

import concurrent.futures
import contextlib
import dataclasses
import functools
import os

import jax

from rnn_jax import command_line
from rnn_jax import config as config_lib
from rnn_jax import errors
from rnn_jax.inference import generate
from rnn_jax.inference import sampling
from rnn_jax.runs import progress as progress_lib
from rnn_jax.training import evaluate
from rnn_jax.training import programs as programs_lib
from rnn_jax.training import trainer as trainer_lib


class Conclusion:
  """The conclusion of a run, which takes its programs to evaluate it."""

  def __init__(self, config: config_lib.Config) -> None:
    self._config = config
    self._programs: programs_lib.Programs | None = None

  def keep(self, trainer: trainer_lib.Trainer) -> None:
    """Keeps the programs that can evaluate the run: a hook of its training."""
    if (
      trainer.programs.mesh.size == 1 and not self._config.distillation.teacher
    ):
      self._programs = trainer.programs

  def report(
    self, workdir: str | os.PathLike, progress: trainer_lib.Progress
  ) -> None:
    """Prints the best checkpoint's evaluation and a sample of its text.

    All processes run it, as they compute together; the first one prints.

    Args:
      workdir: the run's folder.
      progress: at its end.
    """
    config = self._config
    progress_lib.say(
      f'trained: {progress.finished}, {progress.real_tokens:,} tokens in '
      f'{progress.seconds:.0f} s; the curve is {workdir}/loss.png'
    )
    prompt = config.sample.prompt or config.data.prompt()
    sample = dataclasses.replace(config.sample, prompt=prompt)
    with _background() as call:
      written = None
      if sample.new_tokens and config.task.writes_text:
        written = call(_write, workdir, sample, config.task.answers)
      if progress.best_loss is not None:
        run = evaluate.Run.open(workdir, programs=self._programs)
        tokens = evaluate.tokens_after(config, progress.real_tokens)
        row = evaluate.evaluate_run(run, '', tokens)
        progress_lib.say(progress_lib.evaluation_table(row))
        if row['fraction'] < 1:
          line = f'  launch.evaluate --workdir={workdir} reads all of it'
          progress_lib.say(command_line.as_typed(line))
      if written:
        progress_lib.say(f'a sample after {prompt!r}:\n{written()}')


def _write(workdir, sample, is_reply):
  """Returns the prompt and what the best checkpoint generates after it."""
  options = generate.Options(
    max_new_tokens=sample.new_tokens,
    sampling=sampling.Sampling(sample.temperature, sample.top_k),
  )
  generator = generate.Generator.from_workdir(workdir)
  try:
    (written,) = generator.generate([sample.prompt], options).completions
  except errors.InputError as error:  # the run is whole without it
    return f'none: {error}'
  return progress_lib.sample(sample.prompt, written.text, is_reply)


@contextlib.contextmanager
def _background():
  """Yields call(function, *args), which returns a function of the result.

  The call compiles and runs in the background. Several processes must compute
  in the same order: there it runs when its result is asked for.
  """
  if jax.process_count() > 1:
    yield functools.partial
    return
  with concurrent.futures.ThreadPoolExecutor(1) as pool:
    yield lambda *call: pool.submit(*call).result
