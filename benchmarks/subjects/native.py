"""The native recurrence beside its peers, all of them in one process.

A shared machine's speed changes from second to second. So the forms take turns,
and what counts is the ratio of each turn's times, its median and spread.
"""

import statistics
import time

import jax

from benchmarks import measure
from benchmarks.subjects import models
from benchmarks.subjects import operators
from rnn_jax.native import library
from rnn_jax.ops import gla

WITHOUT = 'without recurrence'


def train_step(repeats, batch=32, length=512, base=WITHOUT):
  """A training step of the published model under each impl, and without the
  recurrence; ratios are to `base`'s."""
  runs, values = {}, {}
  for name in ('native', 'chunked', WITHOUT):
    runs[name], values[name] = _step(name, batch, length)
  return _in_turns(runs, values, base, repeats) | {'native': describe()}


def _step(name, batch, length):
  without = name == WITHOUT
  if without:
    models.use_cell('without_recurrence')
  overrides = {} if without else {'recurrence.impl': name}
  steps = models.make_steps(overrides, batch, length)
  data = models.make_batch(batch, length, steps.batch_sharding)
  state = steps.init(0, batch)
  jitted = jax.jit(steps.train, donate_argnums=0)
  program, values = measure.compile_program(jitted, state, data)

  def run():
    nonlocal state
    state, metrics = models.wait(program(state, data))
    return metrics

  return run, values


def recurrence(repeats, shape, backward, by_head=False, base='chunked'):
  """`gla.recurrence` by itself; ratios are to `base`'s time."""
  draw = jax.jit(operators.draw_recurrence, static_argnums=(0, 1, 2))
  state, inputs, cotangent = draw(tuple(shape), 'float32', by_head)
  runs, values = {}, {}

  def make(impl):
    def forward(inputs):
      return gla.recurrence(state, *inputs, impl=impl)[1]

    def both(inputs):
      y, back = jax.vjp(forward, inputs)
      return y, back(cotangent)

    jitted = jax.jit(both if backward else forward)
    program, values[impl] = measure.compile_program(jitted, inputs)
    runs[impl] = lambda: models.wait(program(inputs))

  for impl in ('native', 'chunked', 'scan'):
    make(impl)
  return _in_turns(runs, values, base, repeats) | {'native': describe()}


def describe():
  """The library that these rows are of, without its path."""
  return library.describe().partition(', ')[2]


def _in_turns(runs, values, base, repeats):
  """Times of each run, by turns, and their ratios to the base's."""
  for run in runs.values():
    run()
  times = {name: [] for name in runs}
  for _ in range(repeats):
    for name, run in runs.items():
      began = time.perf_counter()
      run()
      times[name].append(time.perf_counter() - began)
  for name, seconds in times.items():
    ratios = [a / b for a, b in zip(seconds, times[base], strict=True)]
    ordered = sorted(ratios)
    last = len(ordered) - 1
    values[name] |= measure.summarize(seconds) | {
      'ratio': statistics.median(ratios),
      'ratio_low': ordered[round(0.1 * last)],
      'ratio_high': ordered[round(0.9 * last)],
    }
  return {'base': base, 'forms': values}
