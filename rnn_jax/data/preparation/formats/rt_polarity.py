"""The original sentence polarity dataset: rt-polarity.pos and rt-polarity.neg.

One sentence per line, 5,331 of each class. The files are in cp1252, which
replaces the default encoding. Source: Pang and Lee, "Seeing stars", 2005.
"""

from collections.abc import Iterator

from rnn_jax import errors
from rnn_jax.data.tables import lines
from rnn_jax.data.tables import values

SUFFIXES = ('.pos', '.neg')
CLASSES = ('neg', 'pos')
ENCODING = 'cp1252'


def read(path: str, options: lines.Options) -> Iterator[values.Row]:
  """Yields a sentence with its label for each line that is not blank.

  Raises:
    InputError: the file's name ends in neither .pos nor .neg.
  """
  suffix = path.lower().rpartition('.')[2]
  if suffix not in CLASSES:
    raise errors.InputError(
      f'{path}: the files of this format end in .pos and .neg'
    )
  default = lines.Options().encoding
  encoding = ENCODING if options.encoding == default else options.encoding
  for where, line in lines.read(path, encoding):
    if line.strip():
      yield values.Row(where, {'text': line.strip(), 'label': suffix})
