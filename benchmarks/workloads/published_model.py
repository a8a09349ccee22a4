"""Our model at the size of the published benchmark, and changes of it.

    config = published_model.config({'recurrence.impl': 'scan'}, 32, 512)

D 128, K 32, P 64, two layers, vocabulary 512: 189,504 weights. Forward passes
and whole training steps, compiled ahead; `overrides` are keys of the config,
{'section.key': value}.
"""

import types
from typing import Any

import jax
import numpy as np

from benchmarks.harness import measure
from benchmarks.workloads import configs
from benchmarks.workloads import inputs
from benchmarks.workloads import programs
from benchmarks.workloads import variants
from rnn_jax import config as config_lib
from rnn_jax.cells import simple_rnn
from rnn_jax.data.batching import batch as batch_lib
from rnn_jax.system import target
from rnn_jax.tasks import language_modeling
from rnn_jax.training import programs as programs_lib

TOKENIZER = types.SimpleNamespace(size=inputs.VOCABULARY, lossless=False)
Overrides = measure.Values | None


def config(overrides: Overrides, batch: int, length: int) -> config_lib.Config:
  """The published config with `overrides`."""
  size = {'data.batch_size': batch, 'data.length': length}
  return configs.parse('published', '', size | (overrides or {}))


def use_cell(name: str) -> None:
  """Puts a cell of workloads/variants.py in SimpleRNN's place.

  A config names only cells of the package; this process runs one case.
  """
  if name:
    simple_rnn.Cell = variants.cell(name)


def make_task(
  batch: int, length: int, overrides: Overrides = None
) -> language_modeling.Task:
  """The task of that config: model, initial parameters, loss."""
  return language_modeling.Task(config(overrides, batch, length), TOKENIZER)


def make_step(
  batch: int, length: int, overrides: Overrides = None, donate: bool = True
) -> tuple[Any, Any, batch_lib.Batch]:
  """(a jitted training step of that config, its state, a batch)."""
  compiled = _programs(batch, length, overrides)
  jitted = jax.jit(compiled.train_step, donate_argnums=0 if donate else ())
  data = make_batch(batch, length, compiled.batch_sharding)
  return jitted, compiled.states.init(batch), data


def _programs(batch, length, overrides):
  parsed = config(overrides, batch, length)
  devices = target.devices(1) if target.used() else None
  return programs_lib.from_config(parsed, TOKENIZER, devices)


def make_batch(
  batch: int, length: int, sharding: Any = None
) -> batch_lib.Batch:
  """A batch of random tokens on the device."""
  drawn = inputs.tokens(batch, length)
  made = batch_lib.Batch(
    np.ascontiguousarray(drawn[:, :-1]),
    np.ascontiguousarray(drawn[:, 1:]),
    weights_BxL=np.ones((batch, length), np.float32),
    starts_BxL=np.zeros((batch, length), np.int32),
  )
  return jax.device_put(made, sharding)


def init(task: language_modeling.Task) -> measure.Values:
  """New parameters on the device."""
  return jax.jit(lambda: task.init_parameters(jax.random.key(0)))()


def count(params: Any, expected: int = 0) -> int:
  """The number of weights.

  Raises:
    RuntimeError: not as many as `expected`, unless that is 0.
  """
  weights = sum(x.size for x in jax.tree.leaves(params))
  if expected not in (0, weights):
    raise RuntimeError(f'{weights:,} weights, not {expected:,}')
  return weights


def training_flops(config: config_lib.Config, batch: int, length: int) -> int:
  """Floating-point operations that a training step of 'simple' cells needs.

  A multiplication and an addition are two; the recurrence takes five for each
  number of its state: decay, write (two), read (two). The backward pass of a
  product is two products, and so three times the forward pass in all.
  """
  model, cell = config.model, config.cell
  keys, values = cell.key_width, cell.value_width
  projections = 2 * model.width * sum(cell.widths.values())
  recurrence = 5 * cell.heads * keys * values
  output = 2 * cell.heads * values * model.width
  layers = model.layers * (projections + recurrence + output)
  head = 2 * model.width * inputs.VOCABULARY
  return 3 * batch * length * (layers + head)


def train_step(
  repeats: int,
  batch: int = 32,
  length: int = 512,
  overrides: Overrides = None,
  donate: bool = True,
  cell: str = '',
  weights: int = 0,
) -> measure.Values:
  """Forward, backward and AdamW on one batch, compiled as one program."""
  use_cell(cell)
  if target.used():
    step = _programs(batch, length, overrides)
    programs.compile_traced(lambda: step.trace_train(batch, length))
  jitted, state, data = make_step(batch, length, overrides, donate)
  program, values = programs.compile_ahead(jitted, state, data)
  values['weights'] = count(state.params, weights)
  values |= measure.with_memory(programs.step(program, state, data), repeats)
  if cell != 'without_recurrence':
    parsed = config(overrides, batch, length)
    values['needed_flops'] = training_flops(parsed, batch, length)
  return values | _rates(values, batch, length)


def forward(
  repeats: int,
  batch: int = 32,
  length: int = 512,
  sequences: int = 32,
  overrides: Overrides = None,
  weights: int = 0,
) -> measure.Values:
  """Logits of `sequences` sequences, `batch` at a time."""
  task = make_task(batch, length, overrides)
  params = init(task)
  batches = [make_batch(batch, length)] * (sequences // batch)

  @jax.jit
  def apply(params, data):
    state = task.init_state(batch)
    inputs = data.tokens_BxL, data.starts_BxL
    return task.model.apply({'params': params}, state, *inputs)[1]

  program, values = programs.compile_ahead(apply, params, batches[0])
  values['weights'] = count(params, weights)

  def run():
    for data in batches:
      jax.block_until_ready(program(params, data))

  values |= measure.with_memory(run, repeats)
  return values | _rates(values, sequences, length)


def _rates(values, sequences, length):
  rate = sequences * length / values['median']
  same = {'sequences': sequences, 'tokens_per_second': rate}
  return programs.device_peak() | same
