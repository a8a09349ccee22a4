"""Our model: forward passes and whole training steps, compiled ahead."""

import jax

from benchmarks import measure
from benchmarks.subjects import models
from rnn_jax import host


def train_step(
  repeats,
  overrides=None,
  batch=32,
  length=512,
  donate=True,
  cell='',
  weights=0,
):
  """Forward, backward and AdamW on one batch, compiled as one program."""
  models.use_cell(cell)
  steps = models.make_steps(overrides, batch, length)
  data = models.make_batch(batch, length, steps.batch_sharding)
  state = steps.init(0, batch)
  step = jax.jit(steps.train, donate_argnums=0 if donate else ())
  program, values = measure.compile_program(step, state, data)
  values['weights'] = models.count(state['params'], weights)
  memory = host.Memory()

  def run():
    nonlocal state
    state, metrics = models.wait(program(state, data))
    return metrics

  values |= measure.repeat(run, repeats) | memory.values()
  config = models.config(overrides, batch, length)
  flops = models.training_flops(config, batch, length)
  if cell != 'without_recurrence':
    values['needed_flops'] = flops
  return values | _rates(values, batch, length)


def forward(
  repeats,
  overrides=None,
  batch=32,
  length=512,
  sequences=32,
  weights=0,
):
  """Logits of `sequences` sequences, `batch` at a time."""
  task = models.make_task(overrides, batch, length)
  params = models.init(task)
  batches = [models.make_batch(batch, length)] * (sequences // batch)

  @jax.jit
  def apply(params, data):
    state = task.init_state(batch)
    inputs = data.tokens_BxL, data.starts_BxL
    return task.model.apply({'params': params}, state, *inputs)[1]

  program, values = measure.compile_program(apply, params, batches[0])
  values['weights'] = models.count(params, weights)
  memory = host.Memory()

  def run():
    for data in batches:
      models.wait(program(params, data))

  values |= measure.repeat(run, repeats) | memory.values()
  return values | _rates(values, sequences, length)


def _rates(values, sequences, length):
  tokens = sequences * length
  device = measure.device_peak(jax.devices()[0])
  return device | {
    'sequences': sequences,
    'tokens_per_second': tokens / values['median'],
  }
