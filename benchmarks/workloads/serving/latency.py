"""Times between tokens while long prompts are read, and to a first token."""

import itertools
import time
from collections.abc import Sequence

import numpy as np

from benchmarks.harness import measure
from benchmarks.workloads.serving import model as model_lib
from rnn_jax.serving import engine as engine_lib
from rnn_jax.serving import reading
from rnn_jax.serving import requests as requests_lib

ENDLESS = 10**9  # tokens that no case waits for


def between_tokens(
  repeats: int,
  calls: int,
  prompt: int = 4096,
  slots: int = 64,
  chunks: Sequence[int] = reading.SIZES,
  overrides: model_lib.Overrides = None,
) -> measure.Values:
  """Seconds between a text's tokens, with prompts arriving and without.

  All slots but one write without an end, one token per call. In the last one,
  prompts arrive: as soon as one was read and answered, the next one comes.
  Rounds with and without them take turns.

  Args:
    repeats: rounds.
    calls: tokens of each text in a round.
    prompt: tokens of those that arrive.
    slots: of the engine.
    chunks: lengths in which prompts are read.
    overrides: keys of the model's config.
  """
  source = model_lib.generator(overrides)
  options = engine_lib.Options(slots=slots, steps=1, chunks=tuple(chunks))
  load = _Load(engine_lib.Engine(source, options), prompt)
  try:
    load.gaps(calls // 10 + 1, True)  # warms up
    quiet, arriving = [], []
    for _ in range(repeats):
      quiet.append(load.gaps(calls, False))
      arriving.append(load.gaps(calls, True))
  finally:
    load.close()
  seconds = sum(itertools.chain(*arriving)) / (slots - 1)
  some, others = _percentiles(quiet), _percentiles(arriving)
  return (
    model_lib.facts(source)
    | measure.summarize(_flat(quiet))
    | {
      'quiet': some,
      'arriving': others,
      'read_tokens_per_second': load.read / seconds,
      'p99_by_median': others['p99'] / others['p50'],
      'p99_by_quiet_median': others['p99'] / some['p50'],
      'p99_by_median_of_rounds': [
        _p(gaps, 0.99) / _p(gaps, 0.5) for gaps in arriving
      ],
    }
  )


class _Load:
  """An engine whose slots write without an end, but for one."""

  def __init__(self, engine, length):
    self._engine, self._length = engine, length
    self._rng = np.random.default_rng(0)
    self._times = [[] for _ in range(engine.options.slots - 1)]
    self._coming = None
    self.read = 0  # tokens of the prompts that arrived, in counted rounds
    self._writers = [
      engine.submit(*self._request(16, ENDLESS), self._listener(times))
      for times in self._times
    ]
    while not all(self._times):
      engine.step()

  def _request(self, length, new):
    prompt = model_lib.prompt(self._rng, length)
    return prompt, requests_lib.Options(
      max_new_tokens=new, stop_at_boundary=False
    )

  def _listener(self, times):
    return lambda tokens, ended: times.append(time.perf_counter())

  def gaps(self, count, arrive):
    """Seconds between `count` + 1 tokens of each text."""
    engine = self._engine
    for times in self._times:
      times.clear()
    before = engine.stats().read_tokens
    while min(map(len, self._times)) <= count:
      if arrive and (self._coming is None or self._coming.done):
        self._coming = engine.submit(*self._request(self._length, 1))
      engine.step()
    self.read += engine.stats().read_tokens - before
    gaps = [
      float(gap) for times in self._times for gap in np.diff(times[: count + 1])
    ]
    if self._coming is not None:
      self._coming.cancel()
      while not self._coming.done:
        engine.step()
      self._coming = None
    return gaps

  def close(self):
    for writer in self._writers:
      writer.cancel()
    self._engine.close()


def _flat(rounds):
  return [*itertools.chain(*rounds)]


def _p(gaps, share):
  return measure.quantile(gaps, share)


def _percentiles(rounds):
  gaps = sorted(_flat(rounds))
  values = {f'p{n}': _p(gaps, n / 100) for n in (50, 95, 99)}
  return values | {'max': gaps[-1], 'gaps': len(gaps)}


def first_token(
  repeats: int,
  prefix: int = 4096,
  suffix: int = 16,
  slots: int = 16,
  overrides: model_lib.Overrides = None,
) -> measure.Values:
  """Seconds to the first token, after a stored beginning and without one.

  Each round reads a new text of `prefix` + `suffix` tokens, and then one that
  begins in the same way and ends otherwise. The engine serves nothing else.
  """
  source = model_lib.generator(overrides)
  engine = engine_lib.Engine(source, engine_lib.Options(slots=slots))
  engine.warm_up()
  rng = np.random.default_rng(0)

  def ask(begin):
    ids = np.concatenate([begin, model_lib.prompt(rng, suffix)])
    (reply,) = engine.generate(
      [ids], requests_lib.Options(max_new_tokens=1, stop_at_boundary=False)
    )
    return reply.timing.first_token, reply.cached_tokens

  cold, cached = [], []
  for round_number in range(repeats + 2):
    begin = model_lib.prompt(rng, prefix)
    (first, none), (second, stored) = ask(begin), ask(begin)
    if none or stored != prefix:
      raise RuntimeError(f'{none} and {stored} of {prefix} tokens were stored')
    if round_number >= 2:  # the first ones warm up
      cold.append(first)
      cached.append(second)
  values = measure.summarize(cached)
  without = measure.summarize(cold)
  return (
    model_lib.facts(source)
    | values
    | {
      'cold': without,
      'share': values['median'] / without['median'],
    }
  )
