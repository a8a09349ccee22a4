"""General-purpose compressors on the same text: a baseline for a model."""

import gzip
import lzma

from rnn_jax.data.text import documents as documents_lib


def bits_per_byte(documents: documents_lib.Documents) -> dict[str, float]:
  """Returns bits per byte of gzip and xz at their best, on all documents."""
  text = b''.join(documents.read(n) for n in range(len(documents)))
  compressed = {
    'gzip': gzip.compress(text, 9),
    'xz': lzma.compress(text, preset=9 | lzma.PRESET_EXTREME),
  }
  return {name: 8 * len(data) / len(text) for name, data in compressed.items()}
