"""Where this checkout lies, and processes that import it from anywhere."""

import os
import pathlib

ROOT = pathlib.Path(__file__).parents[1]


def environment() -> dict[str, str]:
  """This process's variables, with the checkout on Python's path."""
  paths = [str(ROOT), os.environ.get('PYTHONPATH', '')]
  return os.environ | {'PYTHONPATH': os.pathsep.join(filter(None, paths))}
