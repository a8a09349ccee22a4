"""The command `rnn-jax`: lists the commands, and runs one.

    rnn-jax                                   the list
    rnn-jax train --config=stdlib_bytes --workdir=runs/demo

`rnn-jax NAME` is `python -m launch.NAME` from any folder, also outside of a
checkout. A command is a file of launch/ that can be run; its docstring begins
with what the list says, and its PURPOSE is where the list says it.
"""

import ast
import difflib
import re
import runpy
import sys
import textwrap
from collections.abc import Sequence
from typing import NamedTuple

from rnn_jax import errors
from rnn_jax import version
from rnn_jax.system import shipped
from rnn_jax.system import streams

PROGRAM = 'rnn-jax'
PURPOSES = ('Train', 'Use', 'Data', 'Measure', 'Exchange', 'Other')
HELP = ('-h', '--help', '-help', '--helpshort', '--helpfull', 'help')
WIDTH = 80
PIPE_CLOSED = 141  # 128 + SIGPIPE, as shells count


class Command(NamedTuple):
  """A file of launch/ that can be run."""

  name: str
  purpose: str  # one of PURPOSES
  summary: str  # the first paragraph of its docstring


def main(arguments: Sequence[str] | None = None) -> int:
  """Runs what the arguments name. Returns the exit code.

  Args:
    arguments: of the process, if None.
  """
  with streams.guarded():
    return _answer([*(sys.argv[1:] if arguments is None else arguments)])


def _answer(given):
  if not given or given[0] in HELP:
    return _show(listing())
  if given[0] == '--version':
    return _show(f'{PROGRAM} {version.__version__}')
  name = given[0].replace('-', '_')
  if name not in shipped.names('launch') or not _read(name):
    print(f'error: {_unknown(given[0])}', file=sys.stderr)
    return 1
  _run(name, given[1:])
  return 0


def commands() -> list[Command]:
  """Returns all commands by name; reads their files and imports none."""
  return [x for name in shipped.names('launch') if (x := _read(name))]


def listing() -> str:
  """Returns the commands by purpose, one line each."""
  found = commands()
  wide = max(len(command.name) for command in found)
  lines = [
    f'{PROGRAM} {version.__version__}: train and serve recurrent sequence '
    'models in JAX',
    '',
    f'usage: {PROGRAM} COMMAND [--flag=value ...]',
  ]
  for purpose in PURPOSES:
    own = [command for command in found if command.purpose == purpose]
    lines += ['', purpose] if own else []
    lines += [f'  {each.name:<{wide}}  {each.summary}' for each in own]
  configs = textwrap.wrap(', '.join(shipped.names()), WIDTH - 2)
  lines += ['', 'Configs, for --config=NAME', *(f'  {row}' for row in configs)]
  return '\n'.join([*lines, '', f'{PROGRAM} COMMAND --help shows its flags.'])


def as_typed(text: str) -> str:
  """Returns a text with its commands as this process's user types them.

  `python -m launch.NAME` and `launch.NAME` become `rnn-jax NAME` in a process
  that `rnn-jax` started.
  """
  if not hasattr(sys.modules['__main__'], 'STARTED_BY_RNN_JAX'):
    return text
  names = '|'.join(command.name for command in commands())
  pattern = rf'(python3? -m )?\blaunch\.({names})\b(?!\.py)'
  return re.sub(pattern, rf'{PROGRAM} \2', text)


def _show(text):
  """Prints a text. Returns the exit code."""
  try:
    streams.stdout_is_the_result()
    print(text, flush=True)
  except streams.ReaderGone:  # of `rnn-jax | head`
    return PIPE_CLOSED
  except (errors.InputError, OSError) as error:
    print(f'error: {errors.explain(error)}', file=sys.stderr)
    return 1
  return 0


def _run(name, arguments):
  # Ours come first: the user's folder may have a launch/ or configs/ too. The
  # workers of the input pipeline get the same path, and import launch.NAME.
  sys.path.insert(0, str(shipped.ROOT))
  module = f'launch.{name}'
  sys.argv = [module, *arguments]
  runpy.run_module(
    module,
    init_globals={'STARTED_BY_RNN_JAX': True},
    run_name='__main__',
    alter_sys=True,
  )


def _unknown(given):
  known = [command.name for command in commands()]
  close = difflib.get_close_matches(given.replace('-', '_'), known, 1)
  remedy = f'did you mean {close[0]!r}?' if close else f'see {PROGRAM} --help'
  return f'unknown command {given!r}: {remedy}'


def _read(name):
  """The Command of a file in launch/; None for a file that commands share."""
  path = shipped.ROOT / 'launch' / f'{name}.py'
  tree = ast.parse(path.read_text(encoding='utf-8'))
  if not any(_runs(node) for node in tree.body):
    return None
  summary = (ast.get_docstring(tree) or '').partition('\n\n')[0]
  purpose = next(filter(None, map(_purpose, tree.body)), PURPOSES[-1])
  return Command(name, purpose, ' '.join(summary.split()))


def _runs(node):
  return isinstance(node, ast.If) and '__main__' in ast.dump(node.test)


def _purpose(node):
  """The string of `PURPOSE = '...'`, or ''."""
  match node:
    case ast.Assign([ast.Name('PURPOSE')], ast.Constant(str(purpose))):
      return purpose if purpose in PURPOSES else ''
  return ''
