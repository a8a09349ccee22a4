"""Language modeling: a window of a document is an example, see windows.py."""

from collections.abc import Mapping

from rnn_jax import config as config_lib
from rnn_jax.data.text import documents as documents_lib
from rnn_jax.data.text import tokenizer as tokenizer_lib
from rnn_jax.data.text import windows
from rnn_jax.data.text.examples import base


def make(
  documents: documents_lib.Documents,
  tokenizer: tokenizer_lib.Tokenizer,
  options: base.Options,
) -> windows.Windows:
  """Returns the windows of documents."""
  size, data = options.window_bytes, options.data
  stride = max(size * data.stride // data.length, data.stride > 0)
  return windows.Windows(
    documents, tokenizer, size, options.seed, min(stride, size)
  )


def check(
  documents: Mapping[str, documents_lib.Documents], config: config_lib.Config
) -> None:
  """Accepts any document."""
