"""Sums and gradients of image classes; a training step."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rnn_jax import config as config_lib
from rnn_jax.data.batching import batch as batch_lib
from rnn_jax.data.text import tokenizer
from rnn_jax.profiling import workload
from rnn_jax.tasks import image_classification
from rnn_jax.training import programs as programs_lib

ROWS = 8


def config(**changes):
  raw = config_lib.default('bdh')
  raw.task.name = 'image_classification'
  raw.data.update(source='digits', layout='images', length=1, batch_size=ROWS)
  raw.data.classes = tuple('abc')
  raw.data.image.update(size=4, channels=1)
  raw.vision.patch = 2
  raw.model.update(width=4, block='normed', norm='standard', shared_layers=True)
  raw.cell.update(heads=2, neurons=8, sees='row')
  raw.schedule.warmup_steps = 0
  raw.train.steps = 10
  raw.update_from_flattened_dict(changes)
  return config_lib.parse(raw)


@functools.cache
def parameters():
  task = image_classification.make(config(), None)
  return jax.device_get(jax.jit(task.init_parameters)(jax.random.key(0)))


def batch(parsed, n=0):
  made = workload.random_batch(parsed, 257, ROWS, n)
  made.weights_BxL[-2:] = 0
  return batch_lib.Batch(*(x if x is None else jnp.asarray(x) for x in made))


@pytest.mark.slow
def test_sums_are_those_of_a_softmax_and_padding_changes_no_gradient():
  parsed = config(**{'train.label_smoothing': 0.1})
  task, given = image_classification.make(parsed, None), batch(parsed)
  head = parameters()['head']
  params = parameters() | {'head': head | {'kernel': 9 * head['kernel']}}
  run = jax.jit(jax.value_and_grad(task.loss, has_aux=True))
  (_, (sums, _)), gradient = run(params, None, given)
  apply = jax.jit(task.model.apply)
  logits = np.float64(apply({'params': params}, given.image_BxHxWxC))
  logp = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
  labels, weights = (
    np.asarray(given.label_B),
    np.asarray(given.weights_BxL[:, 0]),
  )
  nats = -logp[np.arange(ROWS), labels]
  # Measured: 4e-7 of each sum.
  assert float(sums['loss']) == pytest.approx(nats @ weights, rel=4e-6)
  mixed = 0.9 * nats - 0.1 * logp.mean(-1)
  assert float(sums['objective']) == pytest.approx(mixed @ weights, rel=4e-6)
  assert float(sums['weight']) == ROWS - 2
  assert float(sums['hits']) == (logp.argmax(-1) == labels) @ weights
  metrics = task.summarize({name: float(x) for name, x in sums.items()})
  assert metrics['accuracy'] == float(sums['hits']) / (ROWS - 2)
  other = given.image_BxHxWxC.at[-2:].set(255)
  _, same = run(params, None, given._replace(image_BxHxWxC=other))
  jax.tree.map(np.testing.assert_array_equal, gradient, same)


@pytest.mark.slow
def test_accumulated_gradients_are_those_of_one_large_batch():
  state, gradients = None, []
  for parts in (1, 2):
    parsed = config(**{'train.accumulate': parts, 'optimizer.name': 'sgd'})
    made = programs_lib.from_config(parsed, tokenizer.Bytes())
    state = state or made.states.init(ROWS)
    own, _, sums = made.compute_gradients(state, batch(parsed))
    gradients.append(own)
    assert int(sums['weight']) == ROWS - 2
  for a, b in zip(*map(jax.tree.leaves, gradients), strict=True):
    np.testing.assert_allclose(a, b, rtol=0, atol=1e-6)


def test_a_program_is_compiled_only_from_shapes():
  parsed = config()
  made = programs_lib.from_config(parsed, tokenizer.Bytes())
  text = made.trace_train(ROWS, 1).lower().as_text()
  assert f'{ROWS}x4x4x1xui8' in text
