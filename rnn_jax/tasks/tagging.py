"""Tagging: predict a label after each character, from those read so far.

    loss = - sum_t w_t log p(label_t | input_1 ... input_t)        in nats

With model.bidirectional a label is predicted from all inputs. `accuracy` counts
labels, `exact` runs of labels, all of which are right: whole texts if each
character has a label.
"""

import dataclasses
from typing import ClassVar

from rnn_jax import config as config_lib
from rnn_jax.data.store import tokens as tokens_lib
from rnn_jax.data.text.examples import tagging as examples
from rnn_jax.tasks import recall


@dataclasses.dataclass(frozen=True)
class Config(recall.Config):
  """Options of the task, section `task` of the config."""

  writes_text: ClassVar[bool] = False
  labels_tokens: ClassVar[bool] = True

  # It labels characters, and examples are pairs of tokens.
  excludes: ClassVar[tuple[str, ...]] = (
    *recall.Config.excludes,
    "data.tokenizer!='characters'",
    'data.curriculum',
    'data.rarity_buckets>1',
    'data.feature_buckets>1',
  )


make_examples = examples.Tagged  # workers import that file, and no jax
check_documents = examples.check
unpack = examples.unpack


def parts(task: config_lib.Task) -> tokens_lib.EncodeParts:
  """Returns what encodes the parts of documents."""
  del task
  return examples.encode_parts


class Task(recall.Task):
  """The model of a config and tokenizer, its loss and metrics."""

  @property
  def headline(self) -> tuple[str, str]:
    """The metric to show during training: (key of summarize, short name)."""
    return 'accuracy', 'labels right'


make = Task
