"""What --help prints: the docstring, the command's flags, then shared ones."""

import inspect
import sys
import textwrap
from collections.abc import Iterable

from absl import flags

from rnn_jax import command_line

WIDTH = 80
REPEATED = '; repeat this option to specify a list of values'  # absl's words
INDENT = 23  # of a flag's help


def text(*, every: bool, keys: Iterable[tuple[str, str]] | None = None) -> str:
  """Returns the help of the program that runs.

  A module of launch/ that defines flags for several commands names them by its
  HEADING.

  Args:
    every: whether to show the flags of all libraries too.
    keys: each key of the config in --config, and what limits its values; None:
      no config is given.
  """
  main = sys.modules['__main__']
  doc = inspect.cleandoc(main.__doc__ or f'Usage: {sys.argv[0]} [flags]')
  parts = [command_line.as_typed(doc)]
  own, shared, others = _groups()
  parts += [_section('Flags', own)] if own else []
  parts += [_section(heading, group) for heading, group in shared]
  if keys:
    lines = [_entry(f'  --config.{key}', about) for key, about in keys]
    parts.append('\n'.join(['Keys of the config:', *lines]))
  elif 'config' in flags.FLAGS:
    parts.append('With --config, --help shows its keys too.')
  if every:
    parts += [_section(f'Flags of {name}', group) for name, group in others]
  else:
    parts.append('--helpfull shows the flags of the libraries too.')
  return '\n\n'.join(parts)


def _groups():
  """(the program's flags, those of launch/ by heading, the rest by module)."""
  table = flags.FLAGS.flags_by_module_dict()
  own, shared, others = [], [], []
  for name, group in table.items():
    heading = getattr(sys.modules.get(name), 'HEADING', None)
    if name == sys.argv[0]:
      own = group
    elif heading:
      shared.append((heading, group))
    else:
      others.append((name, group))
  # The most general ones last.
  return own, sorted(shared, key=lambda one: one[0] == 'Common flags'), others


def _section(heading, group):
  return '\n'.join([f'{heading}:', *map(_line, group)])


def _line(flag):
  negative = '[no]' if flag.boolean and flag.default is not False else ''
  about = ' '.join(filter(None, (_sentence(flag.help), _default(flag))))
  return _entry(f'  --{negative}{flag.name}', about)


def _entry(left, about):
  """Returns lines with a flag at the left, and what is said of it."""
  wrapped = textwrap.wrap(about, WIDTH - INDENT, break_on_hyphens=False)
  gap = ' ' * INDENT
  if len(left) < INDENT - 1 and wrapped:
    left = left.ljust(INDENT) + wrapped.pop(0)
  return '\n'.join([left, *(gap + line for line in wrapped)])


def _sentence(help_text):
  help_text = ' '.join((help_text or '').split())
  help_text = help_text.replace(REPEATED, '; can be repeated')
  return help_text if help_text.endswith('.') else f'{help_text}.'


def _default(flag):
  """The default, unless it is nothing or the help names it."""
  value = flag.default
  unset = value is None or value in ('', [], False)
  if unset or 'efault' in (flag.help or ''):
    return ''
  shown = flag.default_as_str.strip('\'"')
  return f'[{shown}]'
