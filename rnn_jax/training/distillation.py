"""Distillation: a student learns what a trained teacher predicts, and the text.

    objective = alpha hard + (1 - alpha) T^2 sum_t w_t KL(p_t || q_t)

p and q are softmax(logits / T) of teacher and student, `hard` is the objective
of the student's task without a teacher. The two may differ in everything but
the vocabulary. The teacher's parameters are constants of the training program,
a copy on each device: it is meant to be small, for all that it is larger than
the student. Its recurrent state goes along with the student's. Evaluation
leaves it out.
Source: Hinton et al., "Distilling the Knowledge in a Neural Network", 2015.
"""

import jax
import jax.numpy as jnp

from rnn_jax import errors
from rnn_jax.config import compression as config_compression
from rnn_jax.models import language_model
from rnn_jax.ops import precision
from rnn_jax.runs import bundle as bundle_lib
from rnn_jax.tasks import language_modeling


def make(config, tokenizer):
  """Returns the task of a Config that names a teacher.

  Raises:
    InputError: no such run, one that predicts no tokens, or another vocabulary.
  """
  options = config.distillation
  teacher = bundle_lib.read(options.teacher, options.checkpoint)
  if not teacher.config.task.writes_text:
    raise errors.InputError(
      f'distillation.teacher={options.teacher!r} predicts no tokens, its '
      "task.answer is 'pooled': give a language model"
    )
  if teacher.tokenizer.spec() != tokenizer.spec():
    raise errors.InputError(
      f'distillation.teacher={options.teacher!r} has another vocabulary, of '
      f'{teacher.tokenizer.size} entries against {tokenizer.size}, or entries '
      'of another meaning: give a run with the same tokenizer.json'
    )
  _check_length(config, teacher.config)
  return Task(config, tokenizer, teacher)


def _check_length(config, theirs):
  if theirs.model.positions != 'learned':
    return
  name = config.distillation.teacher
  longest = theirs.model.max_positions or theirs.data.length
  if config.data.carry_state or config.data.length > longest:
    raise errors.InputError(
      f'distillation.teacher={name!r} has learned positions for {longest} '
      f'tokens: give data.length={longest} at most, not {config.data.length}, '
      'and data.carry_state=False'
    )


def divergence(
  teacher_BxLxV: jax.Array, student_BxLxV: jax.Array, temperature: float
) -> jax.Array:
  """Returns KL(p || q) of logits over a temperature, BxL."""
  logp = jax.nn.log_softmax(teacher_BxLxV / temperature)
  logq = jax.nn.log_softmax(student_BxLxV / temperature)
  return jnp.sum(jnp.exp(logp) * (logp - logq), -1)


class Task(language_modeling.Task):
  """The student's task; its state is (the student's, the teacher's)."""

  def __init__(self, config, tokenizer, teacher: bundle_lib.Bundle):
    super().__init__(config, tokenizer)
    self._options: config_compression.Distillation = config.distillation
    self._teacher = language_model.from_config(teacher.config, tokenizer.size)
    self._constants = {'params': teacher.params}

  def init_state(self, B):
    return super().init_state(B), self._teacher.bind({}).init_state(B)

  def state_axes(self):
    return super().state_axes(), self._teacher.bind({}).state_axes()

  def loss(self, params, state, batch, key=None):
    own, theirs = state
    if key is None:
      objective, (sums, own) = super().loss(params, own, batch)
      return objective, (sums, (own, theirs))
    inputs = batch.tokens_BxL, batch.starts_BxL
    theirs, wanted_BxLxV = self._teacher.apply(self._constants, theirs, *inputs)
    own, x_BxLxD = self.features(params, self._rngs(key), own, batch)
    variables = {'params': params}
    sums = self.head_sums(variables, x_BxLxD, batch)
    soft = jnp.sum(
      batch.weights_BxL
      * divergence(
        jax.lax.stop_gradient(wanted_BxLxV),
        self._logits(variables, x_BxLxD),
        self._options.temperature,
      )
    )
    alpha, T = self._options.alpha, self._options.temperature
    objective = alpha * sums['objective'] + (1 - alpha) * T**2 * soft
    sums |= {'objective': objective}
    return objective, (sums, (own, theirs))

  def _logits(self, variables, x_BxLxD):
    kernel_DxV, bias_V = self.model.apply(variables, method='head_weights')
    contract = (((2,), (0,)), ((), ()))
    operands = self.model.policy.operands
    logits = precision.dot_general(x_BxLxD, kernel_DxV, contract, operands)
    return logits + bias_V[None, None]
