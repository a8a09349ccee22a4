"""Each command that a guide has can be read: its name, flags, config and keys.

Nothing is trained: the commands of docs/start run in test_start.py.
"""

import importlib.util
import re

import pytest

from rnn_jax import command_line
from rnn_jax.runs import origin
from rnn_jax.system import shipped
from tests.support import guides
from tests.support import launchers

# What a guide leaves to its reader, and what is read in its place; '': the word
# is left out.
OWN_CELL = '--config=configs/tiny_shakespeare.py:'
OWN_OPTIMIZER = '--config.optimizer.name='
PLACEHOLDERS = {
  '...': '',
  '--config=...': '--config=stdlib_bytes',
  '--config=FILE': '--config=stdlib_bytes',
  '--config=NAME': '--config=stdlib_bytes',
  '--format=FORMAT': '--format=safetensors',
  '--process=$n': '--process=0',
  f'{OWN_CELL}average': f'{OWN_CELL}gru',
  f'{OWN_OPTIMIZER}mypackage.sign': f'{OWN_OPTIMIZER}tests.support.own.sign',
}
MODULE = re.compile(r'python3? -m ([\w.]+)')
SUITE = re.compile(r'python -m benchmarks.run .*--suite=(\w+)')


@pytest.fixture(autouse=True)
def _no_runs(monkeypatch):
  """--init_model would open a run."""
  monkeypatch.setattr(origin, 'take_model', lambda *_: None)


def unread(text):
  """Returns {line of a page: why its command can't be read}."""
  known = {command.name for command in command_line.commands()}
  found = {}
  for line, name, words in guides.commands(text):
    if name.isupper():  # "rnn-jax COMMAND --help"
      continue
    if name not in known:
      found[line] = f'no command {name!r}'
    elif words := [*filter(None, (PLACEHOLDERS.get(x, x) for x in words))]:
      lists = name == 'experiments' and '--list' not in words
      read = launchers.run if lists else launchers.parse
      code, _, err = read(name, *words, *['--list'] * lists)
      if code:
        found[line] = err
  return found


@pytest.mark.parametrize('page', guides.PAGES)
def test_each_command_of_a_guide_can_be_read(page):
  assert unread(guides.read(page)) == {}


@pytest.mark.parametrize(
  ('command', 'why'),
  (
    ('rnn-jax trian --config=recall', "no command 'trian'"),
    ('python -m launch.score --workdir=a --inptu=b', "flag 'inptu'"),
    ('python -m launch.train --config=recal --workdir=a', 'no such name'),
    (
      'python -m launch.train --config=recall --config.model.widht=3',
      'unknown config key model.widht',
    ),
    (
      'python -m launch.train --config=recall \\\n --config.model.width=-1',
      'model.width=-1',
    ),
    ('python -m launch.generate --prompt=a', '--workdir is missing'),
  ),
)
@pytest.mark.parametrize(
  'page', ('before\n\n    {}\n', '```sh\n\n{}\n```\n', '\n\nas `{}` does')
)
def test_a_wrong_command_is_found(page, command, why):
  ((line, error),) = unread(page.format(command)).items()
  assert line == 3 and why in error


def test_each_module_and_each_suite_exists():
  suites = {*shipped.names('benchmarks/suites')}
  for page in guides.PAGES:
    for line, command in guides.shell(guides.read(page)):
      for module in MODULE.findall(command):
        assert importlib.util.find_spec(module), f'{page}:{line}: {module}'
      for suite in SUITE.findall(command):
        assert suite in suites, f'{page}:{line}: {suite}'
