"""Dialogue: predict the replies, each behind the turns before it.

The loss is that of language modelling, on replies alone: the examples
(data/examples/dialogue.py) say which ids are predicted. Written replies are
scored by evaluation/dialogue.py.
"""

from rnn_jax.tasks import language_modeling


def make(config, tokenizer):
  """Returns the task of a Config."""
  return language_modeling.Task(config, tokenizer)
