"""Sums of the loss against NumPy; bits per byte against bytes counted."""

import math

import jax
import numpy as np
import pytest

from rnn_jax import config as config_lib
from rnn_jax.data.batching import batch as batch_lib
from rnn_jax.data.text import tokenizer as tokenizer_lib
from rnn_jax.data.text import tokenizer_training
from rnn_jax.tasks import language_modeling
from tests.support import tiny


def raw_config():
  raw = tiny.raw_config('unused')
  raw.model.update(layers=1, block='plain', mlp_width=0)
  raw.cell.update(preset='simple', heads=1)
  return raw


@pytest.fixture(scope='module')
def case():
  config = config_lib.parse(raw_config())
  tokenizer = tokenizer_lib.Bytes()
  task = language_modeling.Task(config, tokenizer)
  params = jax.jit(task.init_parameters)(jax.random.key(0))
  rng = np.random.default_rng(0)
  tokens = rng.integers(0, 257, (3, 9)).astype(np.int32)
  weights = rng.integers(0, 2, (3, 8)).astype(np.float32)
  starts = np.zeros((3, 8), np.int32)
  batch = batch_lib.Batch(tokens[:, :-1], tokens[:, 1:], weights, starts)
  return task, params, batch


@pytest.fixture(scope='module')
def sums(case):
  task, params, batch = case
  objective, (sums, _) = jax.jit(task.loss)(params, task.init_state(3), batch)
  assert objective == sums['objective']
  return sums


def test_sums_equal_numpy(case, sums):
  task, params, batch = case
  _, logits = jax.jit(task.model.apply)(
    {'params': params}, task.init_state(3), batch.tokens_BxL, batch.starts_BxL
  )
  logits = np.float64(logits)
  shifted = np.exp(logits - logits.max(-1, keepdims=True))
  p = shifted / shifted.sum(-1, keepdims=True)
  at = np.take_along_axis(p, batch.targets_BxL[..., None], -1)[..., 0]
  weights = batch.weights_BxL
  hits = logits.argmax(-1) == batch.targets_BxL
  bytes_ = batch.targets_BxL < 256  # the boundary has no bytes
  np.testing.assert_allclose(
    sums['loss'], -(weights * np.log(at)).sum(), rtol=1e-5
  )
  assert sums['weight'] == weights.sum()
  assert sums['hits'] == (weights * hits).sum()
  assert sums['bytes'] == (weights * bytes_).sum()


def test_smoothing_and_z_loss_change_what_is_minimized_not_what_is_reported(
  case, sums
):
  _, params, batch = case
  raw = raw_config()
  raw.train.update({'label_smoothing': 0.1, 'z_loss': 0.01})
  other = language_modeling.Task(config_lib.parse(raw), tokenizer_lib.Bytes())
  _, (smooth, _) = jax.jit(other.loss)(params, other.init_state(3), batch)
  assert sums['objective'] == sums['loss'] == smooth['loss']
  assert smooth['objective'] > smooth['loss']


def test_bits_per_byte_divide_by_bytes_not_tokens(case):
  task, *_ = case
  sums = {'loss': 100.0, 'weight': 50.0, 'hits': 5.0, 'bytes': 200.0}
  metrics = task.summarize(sums)
  assert metrics['loss'] == 2.0
  assert metrics['perplexity'] == math.exp(2.0)
  assert metrics['accuracy'] == 0.1
  assert metrics['bits_per_byte'] == pytest.approx(0.5 / math.log(2))


def test_a_lossy_tokenizer_has_no_bits_per_byte():
  raw = tiny.raw_config('unused')
  raw.data.tokenizer = 'bpe'
  raw.data.pre_tokenizer = 'whitespace'
  raw.data.vocabulary = 40
  config = config_lib.parse(raw)
  words = tokenizer_training.train_byte_pairs(
    iter(['some few words']), config.data
  )
  task = language_modeling.Task(config, words)
  assert task.headline == ('perplexity', 'ppl')
  sums = {'loss': 1.0, 'weight': 1.0, 'hits': 0.0}
  assert 'bits_per_byte' not in task.summarize(sums)
