"""Recall: predict answers to questions about the text before them.

The loss is language modelling's, only over the answers. `accuracy` counts
tokens, `exact` whole answers, whose tokens are all right, each predicted from
the true ones before it. An answer is a run of steps with weight.
"""

import dataclasses
from typing import ClassVar

import jax
import jax.numpy as jnp
from jax import lax

from rnn_jax import config as config_lib
from rnn_jax.data.batching import batch as batch_lib
from rnn_jax.data.store import tokens as tokens_lib
from rnn_jax.data.text.examples import recall as examples
from rnn_jax.tasks import language_modeling

Sums = dict[str, jax.Array]


@dataclasses.dataclass(frozen=True)
class Config(config_lib.Task):
  """Options of the task, section `task` of the config."""

  # They would split answers.
  excludes: ClassVar[tuple[str, ...]] = ('remat.segment',)


make_examples = examples.Questions  # workers import that file, and no jax
check_documents = examples.check


def parts(task: config_lib.Task) -> tokens_lib.EncodeParts:
  """Returns what encodes the parts of documents."""
  del task
  return examples.encode_parts


class Task(language_modeling.Task):
  """The model of a config and tokenizer, its loss and metrics."""

  def more_sums(self, right_BxL: jax.Array, batch: batch_lib.Batch) -> Sums:
    """Returns the numbers of answers and of right ones."""
    return count_answers(right_BxL > 0, batch.weights_BxL > 0)

  def summarize(self, sums: dict[str, float]) -> dict[str, float]:
    """Returns the metrics of total sums."""
    metrics = super().summarize(sums)
    metrics.pop('bits_per_byte', None)  # only answers are predicted
    return metrics | {'exact': sums['exact'] / sums['answers']}

  @property
  def headline(self) -> tuple[str, str]:
    """The metric to show during training: (key of summarize, short name)."""
    return 'exact', 'answers right'


make = Task


def count_answers(right_BxL: jax.Array, asked_BxL: jax.Array) -> Sums:
  """Counts answers.

  Args:
    right_BxL: whether the prediction is right.
    asked_BxL: whether the step is part of an answer.

  Returns:
    {'answers': the number of runs of such steps, 'exact': of right ones}.
  """
  steps_BxL = jnp.broadcast_to(
    jnp.arange(asked_BxL.shape[1])[None], asked_BxL.shape
  )
  before = jnp.pad(asked_BxL, [(0, 0), (1, 0)])[:, :-1]
  after = jnp.pad(asked_BxL, [(0, 0), (0, 1)])[:, 1:]
  start = _latest(asked_BxL & ~before, steps_BxL)
  wrong = _latest(asked_BxL & ~right_BxL, steps_BxL)
  end = asked_BxL & ~after
  return {
    'answers': jnp.sum(end, dtype=jnp.float32),
    'exact': jnp.sum(end & (wrong < start), dtype=jnp.float32),
  }


def _latest(flags_BxL, steps_BxL):
  """Returns the last step so far with a flag, or -1."""
  return lax.cummax(jnp.where(flags_BxL, steps_BxL, -1), axis=1)
