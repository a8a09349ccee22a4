"""Compares two builds of the site: they have the same files, byte for byte.

    python docs/site/compare.py build/site build/site-again

What Sphinx keeps for its next build isn't part of the site.
"""

import filecmp
import pathlib
import sys

KEPT = '.doctrees', '.buildinfo', '.buildinfo.bak', '.jupyter_cache'


def files(folder: pathlib.Path) -> set[str]:
  """Returns the paths of a site's files."""
  return {
    str(path.relative_to(folder))
    for path in folder.rglob('*')
    if path.is_file() and path.relative_to(folder).parts[0] not in KEPT
  }


def differences(a: pathlib.Path, b: pathlib.Path) -> list[str]:
  """Returns a line for each file that only one has, or whose bytes differ."""
  in_a, in_b = files(a), files(b)
  lines = [f'only {a}: {name}' for name in sorted(in_a - in_b)]
  lines += [f'only {b}: {name}' for name in sorted(in_b - in_a)]
  lines += [
    f'differs: {name}'
    for name in sorted(in_a & in_b)
    if not filecmp.cmp(a / name, b / name, shallow=False)
  ]
  return lines


if __name__ == '__main__':
  found = differences(*map(pathlib.Path, sys.argv[1:]))
  print('\n'.join(found) or 'the two builds are equal')
  sys.exit(bool(found))
