"""What `make docs` lists is all there is, and its links lead somewhere."""

import importlib.util
import ipaddress
import pathlib
import re
import urllib.parse

import pytest

from rnn_jax import command_line
from rnn_jax import config as config_lib
from rnn_jax.config import parts

DOCS = pathlib.Path(__file__).parents[1] / 'docs'
# What a page names as an address: in a link, or by itself.
ADDRESS = re.compile(r'https?:[^\s)\]"\'`<>|\\]+')
HOST = re.compile(r'([a-z0-9]([a-z0-9-]*[a-z0-9])?\.)+[a-z]{2,}')


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


def malformed(address):
  """Returns what is wrong with the form of an address, or ''."""
  parts = urllib.parse.urlsplit(address)
  host = parts.hostname or ''
  try:
    local = ipaddress.ip_address(host).is_loopback
  except ValueError:
    local = host == 'localhost'
  if not local and not HOST.fullmatch(host):
    return f'no host: {host!r}'
  if parts.scheme != 'https' and not local:
    return 'not https'
  if (
    not re.fullmatch(r'[\w.~!$&()*+,;=:@%/-]*', parts.path)
    or '//' in parts.path
  ):
    return 'no path'
  return ''


def test_addresses_have_their_form():
  pages = DOCS.parent / 'README.md', DOCS.parent / 'CHANGELOG.md'
  pages += (*DOCS.glob('*.md'), *DOCS.glob('*/*.md'))
  found = {
    (page.name, address): malformed(address)
    for page in pages
    for each in ADDRESS.findall(page.read_text())
    if (address := each.rstrip('.,;:'))
  }
  assert len(found) > 10
  assert {key: why for key, why in found.items() if why} == {}


@pytest.mark.parametrize(
  ('address', 'why'),
  (
    ('https:/example.org/a', 'no host'),
    ('https://example/a', 'no host'),
    ('http://example.org/a', 'not https'),
    ('https://example.org//a', 'no path'),
    ('https://example.org/a?b=c#d', ''),
    ('http://127.0.0.1:8000/v1', ''),
  ),
)
def test_a_wrong_address_is_found(address, why):
  assert ADDRESS.fullmatch(address)
  assert malformed(address).startswith(why)
  assert bool(malformed(address)) == bool(why)


def test_two_builds_are_compared_file_by_file(tmp_path):
  compare = load('compare')
  sites = [tmp_path / name for name in 'ab']
  for site in sites:
    (site / 'api').mkdir(parents=True)
    (site / 'index.html').write_text('same')
    (site / '.buildinfo').write_text(site.name)
  assert compare.differences(*sites) == []
  (sites[0] / 'api' / 'x.html').write_text('one')
  (sites[1] / 'index.html').write_text('more')
  assert compare.differences(*sites) == [
    f'only {sites[0]}: api/x.html',
    'differs: index.html',
  ]
