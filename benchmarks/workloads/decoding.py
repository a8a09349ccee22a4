"""Our decoding: prefill, the loop on the device, one step, a cold start.

As a command it makes one token with the published model after a prefix of 256:

  python -m benchmarks.workloads.decoding
"""

import functools
import os
import subprocess
import sys
import tempfile
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.harness import case
from benchmarks.harness import measure
from benchmarks.workloads import inputs
from benchmarks.workloads import programs
from benchmarks.workloads import published_model
from rnn_jax import config as config_lib
from rnn_jax.inference import decode
from rnn_jax.inference import layers
from rnn_jax.inference import sampling
from rnn_jax.tasks import language_modeling
from rnn_jax.training.memory import batch_size

GREEDY = sampling.Sampling(temperature=0.0)


def generate(
  repeats: int, way: str, prefix: int = 256, new_tokens: int = 100
) -> measure.Values:
  """Greedy tokens after a prefix, from a prompt on the host to tokens on it.

  Args:
    repeats: of the whole.
    way: 'loop', one program; 'stepwise', one call per token from Python;
      'rerun', each token from a pass over all before it.
    prefix: tokens.
    new_tokens: that are made.
  """
  make = {'loop': _in_loop, 'stepwise': _stepwise, 'rerun': _rerun}[way]
  run, values = make(prefix, new_tokens)
  values |= measure.with_memory(run, repeats)
  return _rated(values, new_tokens)


def _rated(values, new_tokens, batch=1):
  return values | {
    'seconds_per_token': values['median'] / new_tokens,
    'tokens_per_second': batch * new_tokens / values['median'],
  }


def _in_loop(prefix, new_tokens):
  decoder = _Decoder(1, prefix)

  def run():
    tokens = jax.device_get(decoder.decode(decoder.prefill(), new_tokens))
    assert int(tokens.made) == new_tokens

  return run, decoder.values


def _stepwise(prefix, new_tokens):
  decoder = _Decoder(1, prefix)

  def run():
    carry = decoder.prefill()
    state, tokens = carry.state, [_greedy(carry.logits_BxV)]
    for _ in range(new_tokens - 1):
      state, logits = decode.step(
        decoder.model, decoder.params, state, tokens[-1]
      )
      tokens.append(_greedy(logits))
    jax.device_get(tokens)

  return run, decoder.values


def _rerun(prefix, new_tokens):
  """The program is one for all lengths: tokens are padded."""
  task = published_model.make_task(1, prefix)
  params = published_model.init(task)
  longest = prefix + new_tokens

  @functools.partial(jax.jit, donate_argnums=1)
  def extend(params, tokens, length):
    _, logits = task.model.apply({'params': params}, task.init_state(1), tokens)
    return tokens.at[:, length].set(_greedy(logits[:, length - 1]))

  tokens = np.zeros((1, longest), np.int32)
  tokens[:, :prefix] = inputs.tokens(1, prefix)[:, :-1]
  program, values = programs.compile_ahead(
    extend, params, jnp.asarray(tokens), jnp.int32(prefix)
  )

  def run():
    made = jax.device_put(tokens)
    for length in range(prefix, longest):
      made = program(params, made, jnp.int32(length))
    jax.device_get(made)

  return run, values | _weights(params)


def _weights(params):
  count = published_model.count(params, case.PUBLISHED_WEIGHTS)
  return {'weights': count}


def _greedy(logits):
  """The most likely token of the last axis."""
  return jnp.argmax(logits, -1).astype(jnp.int32)


def loop(
  repeats: int, prefix: int = 256, new_tokens: int = 100, batch: int = 1
) -> measure.Values:
  """Greedy tokens by one program, without reading the prefixes."""
  decoder = _Decoder(batch, prefix)
  seconds = []
  for _ in range(repeats + 1):
    carry = jax.block_until_ready(decoder.prefill())
    run = programs.run(decoder.decode, carry, new_tokens)
    seconds.append(measure.seconds(run))
  # The first one warms up.
  values = decoder.values | measure.summarize(seconds[1:])
  return _rated(values, new_tokens, batch)


def prefill(repeats: int, prefix: int = 256, batch: int = 1) -> measure.Values:
  """Reading prompts and nothing more."""
  decoder = _Decoder(batch, prefix)
  values = measure.repeat(programs.run(decoder.prefill), repeats)
  rate = batch * prefix / values['median']
  return decoder.values | values | {'tokens_per_second': rate}


def step(steps: int = 1000) -> measure.Values:
  """One call per token from Python: latency and its percentiles."""
  decoder = _Decoder(1, 64)
  state = decoder.prefill().state
  return _latency(decoder.model, decoder.params, state, steps) | decoder.values


def latency_of(raw: Any, steps: int) -> measure.Values:
  """The same of any language model's config; bytes of its state of one row."""
  task = language_modeling.Task(
    config_lib.parse(raw), published_model.TOKENIZER
  )
  model = layers.for_inference(task.model)
  params = jax.jit(layers.unstack)(published_model.init(task))
  state = model.apply({}, 1, method='init_state')
  state = jax.tree.map(jnp.copy, state)  # layers may share zeros: it's donated
  size = {'state_bytes': batch_size.tree_bytes(state)}
  return size | _latency(model, params, state, steps)


def _latency(model, params, state, steps):
  jitted = jax.jit(
    lambda state, params, token: decode.step(model, params, state, token),
    donate_argnums=0,
  )
  arguments = state, params, jnp.zeros(1, jnp.int32)
  program, values = programs.compile_ahead(jitted, *arguments)
  run = programs.step(program, *arguments)
  # The first tenth warms up.
  seconds = [measure.seconds(run) for _ in range(steps)][steps // 10 :]
  percentiles = {
    f'p{n}': measure.quantile(seconds, n / 100) for n in (50, 95, 99)
  }
  return values | measure.summarize(seconds) | percentiles


def cold_start(repeats: int, cached: bool = False) -> measure.Values:
  """From the start of a process to its first token.

  With `cached` its programs were compiled by an earlier process.
  """
  command = [sys.executable, '-m', 'benchmarks.workloads.decoding']
  with tempfile.TemporaryDirectory() as folder:
    variables = {'JAX_COMPILATION_CACHE_DIR': folder} if cached else {}
    variables['JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS'] = '0'
    variables['JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES'] = '-1'
    environment = {**os.environ, **variables}

    def run():
      subprocess.run(command, env=environment, check=True)

    return measure.repeat(run, repeats, warmups=1)


class _Decoder:
  """The published model's compiled programs for prompts of one length."""

  def __init__(self, batch, prefix):
    task = published_model.make_task(batch, prefix)
    self.model = layers.for_inference(task.model)
    params = published_model.init(task)
    self.params = jax.jit(layers.unstack)(params)
    self._weights = decode.Weights(self.params)
    self._prompts = decode.pad(list(inputs.tokens(batch, prefix)[:, :-1]))
    self._table = sampling.make_table(batch)
    for row in range(batch):
      sampling.put(self._table, row, sampling.line(GREEDY))
    self._table.limit_B[:] = sampling.MAX_COUNT
    self.values = _weights(params)

  def prefill(self):
    """The carry after the prompts."""
    prompts = jax.device_put(self._prompts)
    return decode.prefill(self.model, self._weights, *prompts)

  def decode(self, carry, count):
    """Makes `count` tokens per row."""
    kind = GREEDY.kind(self.model.vocabulary)
    options = decode.Options(kind, decode.buffer_size(count))
    packed = sampling.pack(self._table)
    _, produced = decode.decode(
      self.model, options, self._weights, carry, packed, jnp.int32(count)
    )
    return produced


if __name__ == '__main__':
  decoder = _Decoder(1, 256)
  jax.device_get(decoder.decode(decoder.prefill(), 1).tokens_BxN[0, 0])
