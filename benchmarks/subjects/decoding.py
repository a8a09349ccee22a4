"""Our decoding: prefill, the loop on the device, one step, a cold start."""

import functools
import os
import subprocess
import sys
import tempfile
import time

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks import measure
from benchmarks.subjects import inputs
from benchmarks.subjects import models
from rnn_jax import host
from rnn_jax.inference import decode
from rnn_jax.inference import layers
from rnn_jax.inference import sampling

GREEDY = sampling.Sampling(temperature=0.0)


def generate(
  repeats, prefix=256, new_tokens=100, batch=1, overrides=None, weights=0
):
  """Greedy tokens behind prefixes, from prompts on the host to tokens on it."""
  made = _Decoder(overrides, batch, prefix, weights)
  memory = host.Memory()

  def run():
    tokens = jax.device_get(made.decode(made.prefill(), new_tokens))
    assert int(tokens.made) == new_tokens

  values = made.values | measure.repeat(run, repeats) | memory.values()
  values['seconds_per_token'] = values['median'] / new_tokens
  return values | {'tokens_per_second': _rate(values, batch * new_tokens)}


def loop(
  repeats, prefix=256, new_tokens=100, batch=1, overrides=None, weights=0
):
  """As `generate`, without reading the prefixes."""
  made = _Decoder(overrides, batch, prefix, weights)
  seconds = []
  for turn in range(repeats + 1):
    carry = models.wait(made.prefill())
    begin = time.perf_counter()
    models.wait(made.decode(carry, new_tokens))
    if turn:  # the first one warms up
      seconds.append(time.perf_counter() - begin)
  values = made.values | measure.summarize(seconds)
  values['seconds_per_token'] = values['median'] / new_tokens
  return values | {'tokens_per_second': _rate(values, batch * new_tokens)}


def prefill(repeats, prefix=256, batch=1, overrides=None, weights=0):
  """Reading prompts alone."""
  made = _Decoder(overrides, batch, prefix, weights)
  values = measure.repeat(lambda: models.wait(made.prefill()), repeats)
  values['tokens_per_second'] = _rate(values, batch * prefix)
  return made.values | values


def step(repeats, batch=1, steps=1000, overrides=None, weights=0):
  """One call a token from Python: latency and its percentiles."""
  made = _Decoder(overrides, batch, 64, weights)
  state = made.prefill().state
  values = latency(made.model, made.params, state, batch, max(steps, repeats))
  return values | {'weights': made.values['weights']}


def latency(model, params, state, batch, steps):
  """Seconds of one step each, for a model of `layers.for_inference`."""
  token = jnp.zeros(batch, jnp.int32)
  run = jax.jit(
    lambda params, state, token: decode.step(model, params, state, token),
    donate_argnums=1,
  )
  program, values = measure.compile_program(run, params, state, token)
  seconds = []
  for _ in range(steps):
    begin = time.perf_counter()
    state, _ = models.wait(program(params, state, token))
    seconds.append(time.perf_counter() - begin)
  seconds = seconds[len(seconds) // 10 :]  # the first tenth warms up
  return values | measure.summarize(seconds) | measure.percentiles(seconds)


def stepwise(repeats, prefix=256, new_tokens=100, overrides=None, weights=0):
  """As `generate` for a batch of 1, with one call a token from Python."""
  made = _Decoder(overrides, 1, prefix, weights)
  memory = host.Memory()

  def run():
    carry = made.prefill()
    state, tokens = carry.state, [models.greedy(carry.logits_BxV)]
    for _ in range(new_tokens - 1):
      state, logits = decode.step(made.model, made.params, state, tokens[-1])
      tokens.append(models.greedy(logits))
    jax.device_get(tokens)

  values = made.values | measure.repeat(run, repeats) | memory.values()
  return values | {'seconds_per_token': values['median'] / new_tokens}


def rerun(repeats, prefix=256, new_tokens=100, overrides=None, weights=0):
  """Each new token from a pass over all before it: one program, padded."""
  task = models.make_task(overrides, 1, prefix)
  params = models.init(task)
  longest = prefix + new_tokens

  @functools.partial(jax.jit, donate_argnums=1)
  def extend(params, tokens, length):
    _, logits = task.model.apply({'params': params}, task.init_state(1), tokens)
    new = models.greedy(logits[:, length - 1])
    return tokens.at[:, length].set(new)

  tokens = np.zeros((1, longest), np.int32)
  tokens[:, :prefix] = inputs.tokens(1, prefix)[:, :-1]
  program, values = measure.compile_program(
    extend, params, jnp.asarray(tokens), jnp.int32(prefix)
  )
  memory = host.Memory()

  def run():
    made = jax.device_put(tokens)
    for length in range(prefix, longest):
      made = program(params, made, jnp.int32(length))
    jax.device_get(made)

  values |= measure.repeat(run, repeats) | memory.values()
  values['weights'] = models.count(params, weights)
  return values | {'seconds_per_token': values['median'] / new_tokens}


def cold_start(repeats, cached=False):
  """From the start of a process to its first token.

  With `cached` its programs were compiled by an earlier process.
  """
  command = [sys.executable, '-m', 'benchmarks.subjects.first_token']
  with tempfile.TemporaryDirectory() as folder:
    variables = {'JAX_COMPILATION_CACHE_DIR': folder} if cached else {}
    variables['JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS'] = '0'
    variables['JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES'] = '-1'
    environment = {**os.environ, **variables}

    def run():
      subprocess.run(command, env=environment, check=True)

    return measure.repeat(run, repeats, warmups=1)


def first_token(prefix):
  """Makes one token behind a prefix, and returns it."""
  made = _Decoder(None, 1, prefix, 0)
  return jax.device_get(made.decode(made.prefill(), 1).tokens_BxN[0, 0])


class _Decoder:
  """Compiled programs for prompts of one length, and what XLA says of them."""

  def __init__(self, overrides, batch, prefix, weights):
    task = models.make_task(overrides, batch, prefix)
    self.model = layers.for_inference(task.model)
    params = models.init(task)
    self.params = jax.jit(layers.unstack)(params)
    self._prompts = decode.pad(list(inputs.tokens(batch, prefix)[:, :-1]))
    self._keys = decode.row_keys(
      jnp.uint32(0), jnp.arange(batch, dtype=jnp.uint32)
    )
    self._batch = batch
    self.values = {'weights': models.count(params, weights)}

  def prefill(self):
    """The carry behind the prompts."""
    prompts = jax.device_put(self._prompts)
    return decode.prefill(self.model, self.params, *prompts, self._keys)

  def decode(self, carry, count):
    """Makes `count` tokens a row."""
    options = decode.Options(GREEDY, None, decode.buffer_size(count))
    done = jnp.zeros(self._batch, bool)
    _, produced = decode.decode(
      self.model, options, self.params, carry, done, jnp.int32(count)
    )
    return produced


def _rate(values, tokens):
  return tokens / values['median']
