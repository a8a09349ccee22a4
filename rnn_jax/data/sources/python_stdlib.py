"""The running Python's standard library: real text on every machine.

A document is one `.py` file. Tests, installed packages, and the few files that
are empty or not UTF-8 are left out.
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


def raw_files(data: config_lib.Data) -> dict[str, list[str]]:
  """Returns the files that may be documents."""
  del data
  return {'stdlib': sorted(_python_files(sysconfig.get_path('stdlib')))}


def load(data: config_lib.Data) -> dict[str, documents.Documents]:
  """Returns the documents of each split.

  Raises:
    InputError: this Python is installed without its source files.
  """
  root = sysconfig.get_path('stdlib')
  files = [*filter(_is_text, raw_files(data)['stdlib'])]
  if not files:
    raise errors.InputError(
      f"data.source='python_stdlib': no .py files in {root}: use another "
      "Python, or data.source='text'"
    )
  everything = documents.whole(text.Files(files, root))
  return documents.split(everything, data.splits, data.split_by)


def _python_files(root):
  for folder, subfolders, names in os.walk(root):
    subfolders[:] = sorted(set(subfolders) - LEFT_OUT)
    yield from (os.path.join(folder, n) for n in names if n.endswith('.py'))


def _is_text(file):
  try:
    with open(file, 'rb') as opened:
      return bool(opened.read().decode())
  except (OSError, UnicodeDecodeError):
    return False
