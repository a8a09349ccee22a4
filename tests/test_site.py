"""What `make docs` lists is all there is, and its links lead somewhere."""

import importlib.util
import pathlib
import re

from rnn_jax import command_line
from rnn_jax import config as config_lib
from rnn_jax.config import parts

DOCS = pathlib.Path(__file__).parents[1] / 'docs'


def load(name):
  spec = importlib.util.spec_from_file_location(
    f'site_{name}', DOCS / 'site' / f'{name}.py'
  )
  module = importlib.util.module_from_spec(spec)
  spec.loader.exec_module(module)
  return module


def test_every_key_is_listed_once_in_its_section():
  ((_, text),) = load('keys').pages()
  rows = re.findall(r'^\| `([\w.]+)` \|', text, re.M)
  config = config_lib.default(task='classification', source='csv')
  wanted = {
    line.partition('=')[0]
    for line, _ in config_lib.usage(config)
    if not line.startswith('cell.')
  }
  assert wanted <= {*rows}
  for kind in parts.KINDS:
    for name in parts.names(kind.folder):
      assert f'\n### `{name}`\n' in text
  assert '| `data.length` | `256` | tokens of' in text
  assert 'a file of rnn_jax/cells, or your module' in text


def test_every_command_is_listed_with_its_flags():
  ((_, text),) = load('flags').pages()
  for command in command_line.commands():
    assert f'\n## {command.name}\n' in text
  for flag in ('workdir', 'draft_tokens', 'cpus', 'coordinator'):
    assert f'| `--{flag}` |' in text


def test_links_lead_to_pages_of_the_site():
  links = load('links')
  written = {}
  text = (
    '[a](tasks.md#evaluation) [b](../README.md) [c](https://x.y) [d](#here) '
    '[e](../Makefile) ![f](plots/serve_page.png) [g](../tests/absent.py)'
  )
  got = links.relocated(text, DOCS, written.__setitem__)
  assert got == (
    '[a](/tasks.md#evaluation) [b](/generated/start.md) [c](https://x.y) '
    '[d](#here) [e](/generated/files/Makefile.md) '
    '![f](/plots/serve_page.png) [g](../tests/absent.py)'
  )
  assert written.keys() == {'files/Makefile'}
  assert 'orphan: true' in written['files/Makefile']
