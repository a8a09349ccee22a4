"""Small models, engines and random requests for the tests of serving."""

import dataclasses
import functools
import random

import jax
import numpy as np

from rnn_jax import config as config_lib
from rnn_jax.data.text import tokenizer
from rnn_jax.inference import generate
from rnn_jax.inference import layers as layers_lib
from rnn_jax.inference import sampling
from rnn_jax.models import language_model
from rnn_jax.serving import engine
from rnn_jax.serving import requests
from tests.support import chats
from tests.support import draws

# Digits and JSON's own characters, so that constraints can be followed.
LETTERS = 'abcdefgh '
CHARACTERS = tokenizer.Characters(
  ''.join(sorted(LETTERS + '0123456789"{}[]:,-.'))
)
ATTENTION = {'heads': 2, 'head_width': 4, 'window': 7}
CELLS = {
  'simple_rnn': {'heads': 2, 'key_width': 4, 'value_width': 4},
  'hybrid': {
    'gated_deltanet': {'heads': 2, 'key_width': 4, 'value_width': 4},
    'attention': {**ATTENTION, 'kv_heads': 1},
  },
  'lstm': {},
}
CHUNKS = 4, 8
STEPS = 4
TOKENS = np.zeros((1, 2), np.int32)


@functools.cache
def generator(
  cell='simple_rnn',
  asks=False,
  weights='float32',
  seed=0,
  template='',
  states='float32',
):
  """A Generator of a random model, whose texts end soon.

  With a chat template it has the tokenizer of chats.py.
  """
  tokenizer = chats.make(template) if template else CHARACTERS
  learned = cell == 'positions'  # a Transformer that has learned 40 of them
  options = ATTENTION | {'rotary': 0.0} if learned else CELLS[cell]
  names = {'positions': 'attention', 'hybrid': (*CELLS['hybrid'],)}
  raw = config_lib.default(names.get(cell, cell))
  layers = len(raw.model.cells) or 1
  raw.model.update(layers=layers, width=8, mlp_width=8)
  if cell == 'hybrid':
    raw.model.mlp = 'channel_mix'  # which has a state
  raw.cell.update(options)
  if learned:
    raw.model.update(positions='learned', max_positions=40)
    raw.data.length, raw.sample.new_tokens = 40, 8
  raw.recurrence.chunk_length = 4  # compiles faster than 64
  config = config_lib.parse(raw)
  model = language_model.from_config(config, tokenizer.size)
  state = draws.computed(lambda: model.apply({}, 1, method='init_state'))
  params = draws.parameters(model.init, state, TOKENS, seed=seed)['params']
  # So that texts differ.
  params['head'] = jax.tree.map(lambda x: 4 * x, params['head'])
  model = layers_lib.with_states(model, states)
  return generate.Generator(model, params, tokenizer, asks, weights)


def make(source, **options):
  """An Engine with small programs."""
  # One chunk per step, however long it takes.
  values = {'slots': 4, 'steps': STEPS, 'chunks': CHUNKS, 'read_seconds': 0.0}
  values |= options
  return engine.Engine(source, engine.Options(**values))


def draw_sampling(rng):
  """Random options; half of the rows need no sorting."""
  values = {'temperature': rng.choice((0.0, 0.7, 1.0, 1.5))}
  if rng.random() < 0.5:
    values |= {
      'top_k': rng.choice((0, 1, 5, 70)),
      'top_p': rng.choice((1.0, 0.9, 0.5)),
    }
  if rng.random() < 0.3:
    values['min_p'] = rng.choice((0.05, 0.3))
  if rng.random() < 0.3:
    values |= {
      'repetition_penalty': rng.choice((1.0, 1.3)),
      'presence_penalty': rng.choice((0.0, 0.5)),
      'frequency_penalty': rng.choice((0.0, -0.5)),
    }
  if rng.random() < 0.2:
    values['logit_bias'] = {rng.randrange(20): rng.choice((-5.0, 5.0))}
  return sampling.Sampling(**values)


def text(rng, longest):
  """A random text."""
  return ''.join(rng.choices(LETTERS, k=rng.randint(0, longest)))


def draw(seed, prefixes=(), **changes):
  """A random request; half of them begin with one of `prefixes`."""
  rng = random.Random(seed)
  prompt = text(rng, 30)
  if prefixes and rng.random() < 0.5:
    prompt = rng.choice(prefixes) + prompt
  values = {
    'max_new_tokens': rng.randint(1, 20),
    'sampling': draw_sampling(rng),
    'seed': rng.randrange(2**32),
    'n': rng.choice((1, 1, 1, 2)),
    'stop': rng.choice(((), (), ('ab', '0'))),
    'stop_at_boundary': rng.random() < 0.8,
    'alternatives': rng.choice((0, 0, 3)),
  }
  values['min_new_tokens'] = rng.choice((0, values['max_new_tokens'] // 2))
  return ask(prompt, **values | changes)


def ask(prompt='', **options):
  """A request: a prompt, a text or ids, and its options."""
  return prompt, requests.Options(**options)


def changed(request, **changes):
  """A request with other options."""
  prompt, options = request
  return prompt, dataclasses.replace(options, **changes)


def submit(served, request, listener=None):
  """The handle of a request."""
  prompt, options = request
  if isinstance(prompt, str):
    prompt = _encode(served, prompt, options)
  return served.submit(prompt, options, listener)


def record(handle):
  """All that a client gets, with each number's bits."""
  tokens = [
    (x.choice, x.id, x.text, x.logprob.hex(), x.alternatives) for x in handle
  ]
  # Several completions of a request arrive in any order.
  tokens.sort(key=lambda token: token[0])
  texts = [(c.text, c.tokens, c.reason) for c in handle.result().completions]
  return tokens, texts


def finish(served, handles):
  """Makes steps until all have ended."""
  while not all(handle.done for handle in handles):
    assert served.step()


def _encode(served, prompt, options):
  state = options.state
  prompts = served.model(options.adapter).prompts
  return prompts.encode(prompt, ended=state and state.ended)


def alone(served, request):
  """The record of a request that has the engine to itself."""
  handle = submit(served, request)
  finish(served, [handle])
  return record(handle)


def bits(tree):
  """The bytes of all leaves."""
  return [x.tobytes() for x in jax.tree.leaves(jax.device_get(tree))]
