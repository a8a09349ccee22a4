"""What a process takes from its environment, on machines unlike ours."""

import codecs
import os
import sys

MODE = 'PYTHONUTF8'
FOLDERS = (  # whose relative values the XDG specification has programs ignore
  'XDG_CACHE_HOME',
  'XDG_CONFIG_HOME',
  'XDG_DATA_HOME',
  'XDG_STATE_HOME',
)


def normalize() -> None:
  """Makes names and folders usual; a command does this before all else.

  A process whose file names are ASCII, under LC_ALL=POSIX with PYTHONUTF8=0,
  starts again in Python's UTF-8 mode: there a prompt and a folder are as the
  shell passed them, and libraries can take their names. Relative folders of
  XDG are removed: libraries would create them in the current folder.
  """
  ascii_names = codecs.lookup(sys.getfilesystemencoding()).name == 'ascii'
  if ascii_names and os.environ.get(MODE) != '1':
    os.environ[MODE] = '1'
    os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])
  for name in FOLDERS:
    if not os.path.isabs(os.environ.get(name, '/')):
      del os.environ[name]


def cache_home() -> str:
  """Returns the folder of the user's caches; '' without a home."""
  named = os.environ.get('XDG_CACHE_HOME', '')
  folder = named if os.path.isabs(named) else os.path.expanduser('~/.cache')
  return folder if os.path.isabs(folder) else ''
