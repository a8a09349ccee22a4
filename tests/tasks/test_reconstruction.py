"""A text comes back from its last step, whatever is beside it in a row."""

import math

import jax
import jax.numpy as jnp
import numpy as np

from rnn_jax import config as config_lib
from rnn_jax.models import language_model
from rnn_jax.models import reconstruction
from rnn_jax.training import evaluate
from rnn_jax.training import loop

V, D, L = 7, 8, 5


def raw_config():
  raw = config_lib.default('gru', task='reconstruction', source='mad')
  raw.data.update(tokenizer='characters', length=L, workers=0, batch_size=32)
  raw.data.boundaries = (L,)
  raw.data.mad.update(
    task='compression', vocabulary=4, length=L, examples=640, held_out=64
  )
  raw.model.update(layers=1, width=D, mlp_width=0)
  raw.optimizer.learning_rate = 0.02
  raw.schedule.warmup_steps = 10
  raw.train.update(steps=150, checkpoint_every=150, log_every=50)
  raw.evaluate.update(every=0)
  raw.sample.new_tokens = 0
  return raw


def normed(x):
  return x / np.sqrt(np.mean(x * x, -1, keepdims=True) + 1e-6)


def gelu(x):
  return x * 0.5 * (1 + np.vectorize(math.erf)(x / math.sqrt(2)))


def oracle(params, last_D, length):
  """The head's inputs of a document, in float64, from its last x."""
  step = np.arange(length)[:, None]
  angle = step * 10_000.0 ** (-2 * np.arange(D // 2) / D)
  y = last_D + np.stack([np.sin(angle), np.cos(angle)], -1).reshape(length, D)
  for n in range(2):
    dense = params[f'decoder_{n}']
    y = gelu(
      normed(y) @ np.float64(dense['kernel']) + np.float64(dense['bias'])
    )
  return normed(y)


def test_features_are_those_of_the_last_step_of_each_document():
  model = reconstruction.from_config(config_lib.parse(raw_config()), V)
  tokens = jnp.array([[1, 4, 2, 0, 3, 5, 6], [2, 2, 1, 6, 0, 4, 3]])
  starts = jnp.array([[1, 0, 0, 1, 0, 0, 0], [1, 0, 0, 0, 0, -1, 0]])
  documents = [(0, 0, 3), (0, 3, 7), (1, 0, 5)]
  state = model.bind({}).init_state(2)
  params = model.init(jax.random.key(0), state, tokens)['params']
  params = jax.tree.map(lambda x: x + 0.1, params)
  apply = jax.jit(
    lambda rows, tokens, starts: model.apply(
      {'params': params},
      model.bind({}).init_state(rows),
      tokens,
      starts,
      method='features',
    )[1],
    static_argnums=0,
  )
  together = np.asarray(apply(2, tokens, starts))
  plain = language_model.LanguageModel(
    model.config, model.cell_config, V, model.plan, model.policy
  )
  _, x = plain.apply({'params': params}, state, tokens, starts, method='hidden')
  for row, start, stop in documents:
    want = oracle(params, np.float64(x[row, stop - 1]), stop - start)
    np.testing.assert_allclose(together[row, start:stop], want, atol=2e-6)
    alone = apply(1, tokens[row : row + 1, start:stop], None)
    np.testing.assert_allclose(alone[0], want, atol=2e-6)


def test_short_texts_are_compressed(tmp_path):
  config = config_lib.parse(raw_config())
  assert loop.train(config, tmp_path).finished == 'all steps'
  scores = evaluate.evaluate_run(evaluate.Run.open(tmp_path), 'validation')
  assert scores['tokens'] == L * 64 and scores['accuracy'] > 0.7
