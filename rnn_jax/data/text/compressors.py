"""General-purpose compressors on the same text: a baseline for a model."""

import gzip
import lzma

from rnn_jax.data.text import documents as documents_lib

SMALLEST, LARGEST = 2**12, 2**26  # a dictionary of xz -9


def bits_per_byte(documents: documents_lib.Documents) -> dict[str, float]:
  """Returns bits per byte of gzip and xz at their best, on all documents."""
  return of_text(b''.join(documents.read(n) for n in range(len(documents))))


def of_text(text: bytes) -> dict[str, float]:
  """Returns bits per byte of gzip and xz at their best, on a text of any."""
  compressed = {'gzip': gzip.compress(text, 9), 'xz': _xz(text)}
  return {name: 8 * len(data) / len(text) for name, data in compressed.items()}


def _xz(text):
  # A dictionary beyond the text saves nothing and takes 0.2 s to clear.
  size = 1 << max(len(text) - 1, 1).bit_length()
  preset = 9 | lzma.PRESET_EXTREME
  size = min(max(size, SMALLEST), LARGEST)
  lzma2 = {'id': lzma.FILTER_LZMA2, 'preset': preset, 'dict_size': size}
  return lzma.compress(text, filters=[lzma2])
