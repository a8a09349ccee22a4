"""How a wheel gets the commands and the configs; pyproject.toml names this.

setuptools runs it when it builds, and doesn't import the rest of rnn_jax. The
folders become rnn_jax/commands/launch and rnn_jax/commands/configs; see
shipped.py. An editable install uses those of the checkout.
"""

import pathlib
import shutil

from setuptools.command import build_py

FOLDERS = ('launch', 'configs')


class BuildPy(build_py.build_py):
  """Builds the package, then copies FOLDERS into it."""

  def run(self) -> None:
    """Writes the package to build_lib."""
    super().run()
    if self.editable_mode:
      return
    root = pathlib.Path(self.build_lib, 'rnn_jax', 'commands')
    shutil.rmtree(root, ignore_errors=True)
    for source in _sources():
      to = root / source
      to.parent.mkdir(parents=True, exist_ok=True)
      shutil.copyfile(source, to)

  def get_source_files(self) -> list[str]:
    """Returns what a source distribution needs."""
    return [*super().get_source_files(), *map(str, _sources())]


def _sources():
  """The files to copy, from the project's root, where builds run."""
  return [
    path
    for folder in FOLDERS
    for path in sorted(pathlib.Path(folder).rglob('*.py'))
  ]
