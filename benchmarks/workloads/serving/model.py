"""The model that the serving cases serve.

configs/stdlib_bytes.py: SimpleRNN, three layers, bytes. Its weights are drawn,
not trained: neither speed nor exactness depends on what a text says. Prompts
are random bytes, as ids.
"""

import dataclasses

import jax
import numpy as np

from benchmarks.harness import measure
from benchmarks.workloads import configs
from rnn_jax.data.text import tokenizer as tokenizer_lib
from rnn_jax.inference import generate
from rnn_jax.models import language_model
from rnn_jax.runs import bundle as bundle_lib

BYTES = 256

Overrides = measure.Values | None


def make(overrides: Overrides = None) -> bundle_lib.Bundle:
  """The model, with keys of its config changed."""
  config = configs.parse('stdlib_bytes', '', overrides)
  tokenizer = tokenizer_lib.Bytes()
  task = bundle_lib.make_task(config, tokenizer)
  params = jax.jit(lambda: task.init_parameters(jax.random.key(0)))()
  return bundle_lib.make(config, tokenizer, jax.device_get(params))


def generator(overrides: Overrides = None) -> generate.Generator:
  """The same, ready to write."""
  return generate.Generator.from_bundle(make(overrides))


def of_few_tokens(bundle: bundle_lib.Bundle, count: int) -> bundle_lib.Bundle:
  """The model of a bundle, made to write `count` tokens and hardly others."""
  head = bundle.params['head']
  bias_V = np.array(head['bias'])
  bias_V[:count] += 20
  params = bundle.params | {'head': head | {'bias': bias_V}}
  return dataclasses.replace(bundle, params=params)


def of_turns(bundle: bundle_lib.Bundle) -> generate.Generator:
  """A generator that reads prompts as turns of a conversation."""
  model = language_model.from_config(bundle.config, bundle.tokenizer.size)
  return generate.Generator(model, bundle.params, bundle.tokenizer, asks=True)


def facts(model: generate.Generator) -> measure.Values:
  """What a row says of the model: weights, and bytes of a row's state."""
  state = jax.eval_shape(lambda: model.model.apply({}, 1, method='init_state'))
  return {
    'weights': sum(x.size for x in jax.tree.leaves(model.params)),
    'state_bytes': sum(
      x.size * x.dtype.itemsize for x in jax.tree.leaves(state)
    ),
  }


def prompt(rng: np.random.Generator, length: int) -> np.ndarray:
  """Random ids."""
  return rng.integers(0, BYTES, length).astype(np.int32)
