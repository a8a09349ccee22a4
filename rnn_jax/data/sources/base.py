"""Options that several sources share.

A source is a file with its options, `Config`, which extends config.Data, and

    load(data) -> {split: documents.Documents}

of the splits 'train', 'validation' and 'test'.
"""

import dataclasses

from rnn_jax import config as config_lib
from rnn_jax import errors


@dataclasses.dataclass(frozen=True)
class Files(config_lib.Data):
  """Options of sources that read files."""

  path: str = ''  # a file or a glob
  validation_path: str = ''  # held-out files; empty: split off `path`
  test_path: str = ''


@dataclasses.dataclass(frozen=True)
class Columns(config_lib.Data):
  """Options of sources whose documents are rows of a table."""

  field: str = 'text'  # the column of the text, or of a list of turns
  label: str = 'label'  # the column of the class, where there are classes


def check_pictures(data: config_lib.Data) -> None:
  """Checks that the layout is one for pictures.

  Raises:
    InputError: it isn't; names both.
  """
  if not data.holds_images:
    errors.refuse(
      'data.source',
      data.source,
      f'it holds pictures, and data.layout={data.layout!r} tokens: give '
      "data.layout='images'",
    )
