"""Reconstruction: the labels of a text, all from the features of its last step.

    loss = - sum_t w_t log p(label_t | x_last, t)                 in nats

Documents are those of tagging, whose labels may be the text itself: then the
last step has to hold all of it (models/reconstruction.py). `accuracy` counts
labels, `exact` runs of labels, all of which are right.
"""

import dataclasses
from typing import ClassVar

from rnn_jax import config as config_lib
from rnn_jax.data.text import tokenizer as tokenizer_lib
from rnn_jax.models import reconstruction
from rnn_jax.tasks import tagging


@dataclasses.dataclass(frozen=True)
class Config(tagging.Config):
  """Options of the task, section `task` of the config."""

  # A text's labels are known when it ends, so no stream of tokens has any.
  labels_tokens: ClassVar[bool] = False

  excludes: ClassVar[tuple[str, ...]] = (
    *tagging.Config.excludes,
    'mesh.pipe>1',  # whose stages compute the head's inputs by themselves
    'model.bidirectional',
  )


make_examples = tagging.make_examples
check_documents = tagging.check_documents
unpack = tagging.unpack
parts = tagging.parts


class Task(tagging.Task):
  """The model of a config and tokenizer, its loss and metrics."""

  def __init__(
    self, config: config_lib.Config, tokenizer: tokenizer_lib.Tokenizer
  ) -> None:
    super().__init__(config, tokenizer)
    self.model = reconstruction.from_config(config, tokenizer.size)


make = Task
