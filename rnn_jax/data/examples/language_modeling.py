"""Language modelling: a piece of a document is an example, see data.pieces."""

from rnn_jax.data import pieces


def make(documents, tokenizer, options):
  """Returns the `pieces.Pieces` of documents."""
  return pieces.Pieces(documents, tokenizer, options.piece_bytes, options.seed)


def check(documents, config):
  """Any document will do."""
