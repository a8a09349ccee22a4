"""A run that resumes with a larger train.steps: what changes, in one line.

Nothing of the past changes. A learning rate that doesn't depend on train.steps
makes an extended run, bit for bit, one that had the larger number from its
start. One that does has fallen too early: it rises to that of the longer run.
"""

import jax
import jax.numpy as jnp
import numpy as np

from rnn_jax import config as config_lib
from rnn_jax.config import resolve
from rnn_jax.config import values
from rnn_jax.training import schedule as schedule_lib
from rnn_jax.training import trainer as trainer_lib

COMPARED = 1000  # steps, at most


def extend(steps: int, progress: trainer_lib.Progress) -> int:
  """Prepares the progress of a checkpoint for a number of steps.

  A run that had ended has more to do; one that had stopped early gets all of
  its patience back.

  Args:
    steps: of the run, as it resumes.
    progress: of the checkpoint; changed in place.

  Returns:
    The number of steps that the run had before; 0: it isn't extended.
  """
  before, progress.planned_steps = progress.planned_steps, steps
  if steps <= before:
    return 0
  if progress.finished not in ('', trainer_lib.ALL_STEPS):
    progress.evaluations_since_best = 0
  progress.finished = ''
  return before


def describe(
  config: config_lib.Config, before: int, step: int, scale: float = 1.0
) -> str:
  """Returns a line about the steps and the learning rate of an extended run.

  Args:
    config: of the run, as it resumes.
    before: the number of steps that it had.
    step: that it resumes from.
    scale: of the rate, by evaluations so far.
  """
  steps, name = config.train.steps, config.schedule.name
  earlier = values.replaced(resolve.as_given(config), {'train.steps': before})
  earlier = resolve.run(earlier, (resolve.WARMUP,))
  shown = np.unique(np.linspace(step, steps - 1, COMPARED).astype(np.int32))
  old, new = (scale * _rates(c, shown) for c in (earlier, config))
  text = f'extended from {before:,} to {steps:,} steps: '
  if np.array_equal(old, new):
    return f"{text}schedule.name={name!r} doesn't depend on their number"
  last = scale * _rates(earlier, np.array([step - 1]))[0]
  change = 'rises' if new[0] > last else 'falls'
  if np.isclose(new[0], last, rtol=1e-3):
    change = 'goes'
  return (
    f'{text}schedule.name={name!r} now ends at step {steps:,}: the learning '
    f'rate {change} from {last:.3g} to {new[0]:.3g} and ends at {new[-1]:.3g}'
  )


def _rates(config, steps):
  rate = schedule_lib.make(config).rate
  rates = jax.jit(jax.vmap(lambda n: jnp.float32(rate(n))))
  return jax.device_get(rates(jax.device_put(steps)))
