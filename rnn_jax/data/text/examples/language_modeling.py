"""Language modelling: a piece of a document is an example, see windows.py."""

from rnn_jax.data.text import windows


def make(documents, tokenizer, options):
  """Returns the `windows.Pieces` of documents."""
  return windows.Pieces(documents, tokenizer, options.piece_bytes, options.seed)


def check(documents, config):
  """Any document will do."""
