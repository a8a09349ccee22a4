"""The running Python's own standard library: real text on every machine.

A document is one `.py` file. Tests and installed packages are left out, so
are the few files that are empty or not UTF-8.
"""

import dataclasses
import os
import sysconfig

from rnn_jax import config as config_lib
from rnn_jax import errors
from rnn_jax.data.sources import text
from rnn_jax.data.text import documents

LEFT_OUT = {
  '__pycache__',
  'dist-packages',
  'idle_test',
  'site-packages',
  'test',
  'tests',
}


@dataclasses.dataclass(frozen=True)
class Config(config_lib.Data):
  """Options of the source, of section `data` of the config."""


def load(data: Config) -> dict[str, documents.Documents]:
  """Returns the documents of each split.

  Raises:
    InputError: this Python comes without its source files.
  """
  root = sysconfig.get_path('stdlib')
  files = sorted(filter(_is_text, _python_files(root)))
  if not files:
    raise errors.InputError(
      f"data.source='python_stdlib': no .py files in {root}: use another "
      "Python, or data.source='text'"
    )
  found = documents.whole(text.Files(files, root))
  return documents.split(found, data.splits, data.split_by)


def _python_files(root):
  for folder, below, names in os.walk(root):
    below[:] = sorted(set(below) - LEFT_OUT)
    yield from (os.path.join(folder, n) for n in names if n.endswith('.py'))


def _is_text(file):
  try:
    with open(file, 'rb') as opened:
      return bool(opened.read().decode())
  except (OSError, UnicodeDecodeError):
    return False
