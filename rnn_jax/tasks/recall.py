"""Recall: predict answers to questions about what was read before.

The loss is language modelling's, over the answers alone. `accuracy` counts
tokens, `exact` whole answers: those with every token right, each predicted
behind the right ones before it. An answer is a run of steps with weight.
"""

import dataclasses
from typing import ClassVar

import jax.numpy as jnp
from jax import lax

from rnn_jax import config as config_lib
from rnn_jax import errors
from rnn_jax.data.text import tokenizer as tokenizer_lib
from rnn_jax.data.text.examples import recall as examples
from rnn_jax.ops import precision
from rnn_jax.tasks import language_modeling


@dataclasses.dataclass(frozen=True)
class Config(config_lib.Task):
  """Options of the task, section `task` of the config."""

  reads_logits: ClassVar[bool] = True

  def check(self, config: config_lib.Config) -> None:
    """Checks the options against each other and the whole config.

    Raises:
      InputError: names the key, the value and the remedy.
    """
    if config.remat.segment:
      errors.refuse(
        'remat.segment', config.remat.segment, 'it would cut answers'
      )


make_examples = examples.make  # workers import that file, and no jax
check_documents = examples.check


def make(
  config: config_lib.Config, tokenizer: tokenizer_lib.Tokenizer
) -> 'Task':
  """Returns the task of a Config."""
  return Task(config, tokenizer)


class Task(language_modeling.Task):
  """The model of a config and tokenizer, and what is measured on it."""

  def more_sums(self, x_BxLxD, head, batch):
    """Sums over answers: how many there are, and how many are right."""
    kernel_DxV, bias_V = head
    contract = (((2,), (0,)), ((), ()))
    operands = self.model.policy.operands
    logits = precision.dot_general(x_BxLxD, kernel_DxV, contract, operands)
    logits = logits + bias_V[None, None]
    right_BxL = jnp.argmax(logits, -1) == batch.targets_BxL
    return count_answers(right_BxL, batch.weights_BxL > 0)

  def summarize(self, sums):
    """Metrics of summed sums, Python floats."""
    metrics = super().summarize(sums)
    metrics.pop('bits_per_byte', None)  # the texts are not what is learnt
    return metrics | {'exact': sums['exact'] / sums['answers']}

  @property
  def headline(self):
    """The metric to show while training: (key of summarize, short name)."""
    return 'exact', 'answers right'


def count_answers(right_BxL, asked_BxL):
  """Sums 'answers', runs of steps that are asked, and 'exact', right ones."""
  steps_BxL = jnp.broadcast_to(
    jnp.arange(asked_BxL.shape[1])[None], asked_BxL.shape
  )
  before = jnp.pad(asked_BxL, [(0, 0), (1, 0)])[:, :-1]
  behind = jnp.pad(asked_BxL, [(0, 0), (0, 1)])[:, 1:]
  begin = _latest(asked_BxL & ~before, steps_BxL)
  wrong = _latest(asked_BxL & ~right_BxL, steps_BxL)
  end = asked_BxL & ~behind
  return {
    'answers': jnp.sum(end, dtype=jnp.float32),
    'exact': jnp.sum(end & (wrong < begin), dtype=jnp.float32),
  }


def _latest(flags_BxL, steps_BxL):
  """The last step so far with a flag; -1 where there was none."""
  return lax.cummax(jnp.where(flags_BxL, steps_BxL, -1), axis=1)
