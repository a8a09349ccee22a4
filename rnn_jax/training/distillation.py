"""Distillation: a student learns a trained teacher's predictions and the text.

    objective = alpha hard + (1 - alpha) T^2 sum_t w_t KL(p_t || q_t)

p and q are softmax(logits / T) of teacher and student; `hard` is the objective
of the student's task without a teacher. The two may differ in everything but
the vocabulary. The teacher's parameters are constants of the training program,
copied to each device, so the teacher should be small, if larger than the
student. Its recurrent state is carried with the student's. Evaluation doesn't
use the teacher.
Source: Hinton et al., "Distilling the Knowledge in a Neural Network", 2015.
"""

from typing import Any

import jax
import jax.numpy as jnp

from rnn_jax import config as config_lib
from rnn_jax.data.batching import batch as batch_lib
from rnn_jax.data.text import tokenizer as tokenizer_lib
from rnn_jax.models import language_model
from rnn_jax.runs import bundle as bundle_lib
from rnn_jax.runs import reference_model
from rnn_jax.tasks import language_modeling

PyTree = Any


def make(
  config: config_lib.Config, tokenizer: tokenizer_lib.Tokenizer
) -> 'Task':
  """Returns the task of a Config that names a teacher.

  Raises:
    InputError: the teacher's run doesn't exist, or doesn't fit
      (runs/reference_model.py).
  """
  options = config.distillation
  key, named = 'distillation.teacher', (options.teacher, options.checkpoint)
  teacher = reference_model.read(key, *named, config, tokenizer)
  return Task(config, tokenizer, teacher)


def divergence(
  teacher_BxLxV: jax.Array, student_BxLxV: jax.Array, temperature: float
) -> jax.Array:
  """Returns KL(p || q), BxL, of logits divided by a temperature."""
  logp = jax.nn.log_softmax(teacher_BxLxV / temperature)
  logq = jax.nn.log_softmax(student_BxLxV / temperature)
  return jnp.sum(jnp.exp(logp) * (logp - logq), -1)


class Task(language_modeling.Task):
  """The student's task; its state is (the student's, the teacher's)."""

  def __init__(
    self,
    config: config_lib.Config,
    tokenizer: tokenizer_lib.Tokenizer,
    teacher: bundle_lib.Bundle,
  ) -> None:
    super().__init__(config, tokenizer)
    self._options = config.distillation
    self._teacher = language_model.from_config(teacher.config, tokenizer.size)
    self._constants = {'params': teacher.params}

  def init_state(self, B: int) -> PyTree:
    return super().init_state(B), self._teacher.bind({}).init_state(B)

  def state_axes(self) -> PyTree:
    return super().state_axes(), self._teacher.bind({}).state_axes()

  def loss(
    self,
    params: PyTree,
    state: PyTree,
    batch: batch_lib.Batch,
    key: jax.Array | None = None,
  ) -> tuple[jax.Array, tuple[dict[str, jax.Array], PyTree]]:
    student, teacher = state
    if key is None:
      objective, (sums, student) = super().loss(params, student, batch)
      return objective, (sums, (student, teacher))
    teacher, target_BxLxV = self._run_teacher(teacher, batch)
    rngs = self._rngs(key)
    student, x_BxLxD, routes = self.features(params, rngs, student, batch)
    variables = {'params': params}
    sums = self.head_sums(variables, x_BxLxD, batch)
    soft = jnp.sum(
      batch.weights_BxL
      * divergence(
        jax.lax.stop_gradient(target_BxLxV),
        self.model.apply(variables, x_BxLxD, method='logits'),
        self._options.temperature,
      )
    )
    alpha, T = self._options.alpha, self._options.temperature
    objective = alpha * sums['objective'] + (1 - alpha) * T**2 * soft
    sums = self.with_load(sums | {'objective': objective}, routes, batch)
    return sums['objective'], (sums, (student, teacher))

  def _run_teacher(self, state, batch):
    return self._teacher.apply(
      self._constants, state, batch.tokens_BxL, batch.starts_BxL
    )
