"""Distillation against its equation, and as a run."""

import functools
import shutil

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.special

from rnn_jax import config as config_lib
from rnn_jax import errors
from rnn_jax.data.batching import batch as batch_lib
from rnn_jax.data.text import tokenizer as tokenizer_lib
from rnn_jax.runs import bundle as bundle_lib
from rnn_jax.training import distillation
from rnn_jax.training import evaluate
from rnn_jax.training import loop
from tests.support import bundles
from tests.support import shared
from tests.support import tiny

ALPHA, T = 0.3, 2.5


def student():
  raw = tiny.raw_config('text')
  raw.model.layers, raw.model.logits_cap = 1, 3.0
  raw.distillation.update(teacher='runs/teacher', alpha=ALPHA, temperature=T)
  return raw


@functools.cache
def teacher_bundle():
  """A teacher of another kind, with learned positions."""
  raw = bundles.raw_attention()
  raw.model.layers = 1
  return bundles.make(raw, seed=1)


def softmax(x):
  return scipy.special.softmax(np.float64(x), -1)


def test_the_divergence_of_two_predictions():
  rng = np.random.default_rng(0)
  teacher, own = rng.normal(0, 3, (2, 2, 3, 7))
  p, q = softmax(teacher / T), softmax(own / T)
  got = distillation.divergence(np.float32(teacher), np.float32(own), T)
  np.testing.assert_allclose(got, (p * np.log(p / q)).sum(-1), rtol=1e-5)
  assert not np.any(distillation.divergence(own, own, T))


def test_objective_and_gradient_of_a_teacher_of_another_kind():
  teacher = teacher_bundle()
  own = bundles.make(student(), seed=2)
  task = distillation.Task(own.config, own.tokenizer, teacher)
  rng = np.random.default_rng(0)
  tokens, targets = rng.integers(0, 21, (2, 2, 6))
  weights = rng.uniform(0, 1, (2, 6)).astype(np.float32)
  starts = np.eye(2, 6, dtype=np.int32)[[0, 0]]
  batch = batch_lib.Batch(*map(jnp.array, (tokens, targets, weights, starts)))

  def objective(params):
    state, key = task.init_state(2), jax.random.key(0)
    objective, (sums, _) = task.loss(params, state, batch, key)
    return objective, sums

  (got, sums), gradients = jax.jit(jax.value_and_grad(objective, has_aux=True))(
    own.params
  )
  model = bundles.model(own)
  state = model.apply({}, 2, method='init_state')

  @jax.jit
  def run(params, slope):
    out, back = jax.vjp(
      lambda p: model.apply({'params': p}, state, tokens)[1], params
    )
    return out, back(slope)[0]

  logits, _ = run(own.params, np.zeros((2, 6, 21), np.float32))
  q, p = softmax(logits / T), softmax(bundles.logits(teacher, tokens) / T)
  onehot = np.eye(21)[targets]
  hard = -(weights * np.log((softmax(logits) * onehot).sum(-1))).sum()
  soft = (weights * (p * np.log(p / q)).sum(-1)).sum()
  np.testing.assert_allclose(sums['loss'], hard, rtol=1e-5)
  want = ALPHA * hard + (1 - ALPHA) * T**2 * soft
  np.testing.assert_allclose(got, want, rtol=1e-5)
  # By hand: the gradient of T^2 KL by the logits is T (q - p).
  slope = ALPHA * (softmax(logits) - onehot) + (1 - ALPHA) * T * (q - p)
  slope = jnp.array(slope * weights[..., None], jnp.float32)
  _, wanted = run(own.params, slope)
  jax.tree.map(
    lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=5e-6),
    gradients,
    wanted,
  )


@pytest.mark.slow
def test_a_run_learns_from_a_teacher_and_is_read_without_it(tmp_path):
  raw = tiny.raw_config(tiny.write_text(tmp_path / 'text'))
  teacher = bundles.make(raw, tokenizer_lib.Bytes())
  bundle_lib.write(teacher, tmp_path / 'teacher')
  raw.train.steps = 2
  raw.schedule.warmup_steps = 0
  raw.evaluate.every = 0
  raw.model.update(layers=1, width=8)
  raw.data.update(layout='stream', segment_tokens=64, carry_state=True)
  raw.train.accumulate = 2
  raw.distillation.teacher = str(tmp_path / 'teacher')
  run = tmp_path / 'student'
  with shared.programs():
    done = loop.train(config_lib.parse(raw), str(run))
  assert done.finished == 'all steps' and done.skipped_steps == 0
  shutil.rmtree(tmp_path / 'teacher')
  row = evaluate.evaluate_run(evaluate.Run.open(str(run)), 'test')
  assert row['loss'] == pytest.approx(np.log(257), rel=0.2)


def test_a_teacher_of_another_vocabulary_is_refused(tmp_path):
  bundle = bundles.make(bundles.raw_published())
  bundle_lib.write(bundle, tmp_path / 'teacher')
  raw = student()
  raw.distillation.teacher = str(tmp_path / 'teacher')
  config = config_lib.parse(raw)
  distillation.make(config, bundle.tokenizer)
  with pytest.raises(
    errors.InputError, match='vocabulary, of 21 entries, and .* one of 257'
  ):
    distillation.make(config, tokenizer_lib.Bytes())
  raw.distillation.teacher = str(tmp_path / 'absent')
  with pytest.raises(errors.InputError, match='absent.*no such folder'):
    distillation.make(config_lib.parse(raw), bundle.tokenizer)


def test_a_teacher_that_knows_fewer_positions_is_refused(tmp_path):
  bundle = teacher_bundle()
  bundle_lib.write(bundle, tmp_path / 'teacher')
  raw = student()
  raw.data.update(length=24, layout='stream')
  raw.distillation.teacher = str(tmp_path / 'teacher')
  distillation.make(config_lib.parse(raw), bundle.tokenizer)
  for changes in (
    {'data.length': 32},
    {'data.length': 24, 'data.carry_state': True},
  ):
    raw.update_from_flattened_dict(changes)
    with pytest.raises(errors.InputError, match='learned positions for 24 tok'):
      distillation.make(config_lib.parse(raw), bundle.tokenizer)
