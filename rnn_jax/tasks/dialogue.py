"""Dialogue: predict each reply from the turns before it.

The loss is language modelling's, only on replies: the examples
(data/text/examples/dialogue.py) determine which ids are predicted.
evaluation/dialogue.py scores written replies.
"""

import dataclasses
from typing import ClassVar

from rnn_jax import config as config_lib
from rnn_jax import errors
from rnn_jax.data.store import tokens as tokens_lib
from rnn_jax.data.text import turns
from rnn_jax.data.text.examples import dialogue as examples
from rnn_jax.tasks import language_modeling


@dataclasses.dataclass(frozen=True)
class Config(config_lib.Task):
  """Options of the task, section `task` of the config."""

  # 'all': each turn after the first is a reply; 'first': only the second.
  turns: str = config_lib.option('all', choices=('all', 'first'))
  # Of replies that evaluation writes.
  min_reply_tokens: int = config_lib.option(0, minimum=0)
  reply_tokens: int = config_lib.option(50, minimum=1)  # the longest
  reply_temperature: float = config_lib.option(0.0, minimum=0)  # 0: greedy

  per_token: ClassVar[bool] = True
  answers: ClassVar[bool] = True
  predictor: ClassVar[str] = 'rnn_jax.evaluation.dialogue'

  def check(self, config: config_lib.Config) -> None:
    """Checks the options against each other and the whole config.

    Raises:
      InputError: names the key, the value and the remedy.
    """
    if self.min_reply_tokens > self.reply_tokens:
      errors.refuse(
        'task.min_reply_tokens',
        self.min_reply_tokens,
        f'give at most task.reply_tokens={self.reply_tokens}',
      )


make_examples = examples.Dialogues  # workers import that file, and no jax
check_documents = examples.check
make = language_modeling.Task


def parts(task: config_lib.Task) -> tokens_lib.EncodeParts:
  """Returns what encodes the parts of documents."""
  del task
  return turns.encode_documents
