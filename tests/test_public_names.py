"""No public name comes or goes unseen: tests/public_names.txt has them all."""

import importlib

import pytest

import rnn_jax
from tests.support import public_names

REMEDY = """
If you meant that, `python -m tests.support.public_names` writes
tests/public_names.txt again, and CHANGELOG.md says what was removed or renamed.
A name that others needn't use begins with an underscore."""


def by_name(text):
  """Returns the whole names of a list."""
  found, module = set(), ''
  for line in text.splitlines():
    if line.startswith('  '):
      found.add(f'{module}.{line.strip()}')
    else:
      module = line
  return found


def test_public_names_are_those_of_the_list():
  kept = by_name(public_names.LIST.read_text())
  found = by_name(public_names.text())
  added, removed = sorted(found - kept), sorted(kept - found)
  assert not added and not removed, f'{added=}\n{removed=}\n{REMEDY}'
  assert public_names.LIST.read_text() == public_names.text(), REMEDY


def test_kinds_of_names_are_found():
  source = """
from a import b
from a import c as c
if TYPE_CHECKING:
  from a import d as d
X, (Y, Z) = 1, (2, 3)
w: int = 4
class Public:
  field = 0
  def method(self): ...
def public(): ...
async def waits(): ...
def _private(): ...
"""
  found = {*public_names.defined(source)}
  private = '_private'
  assert found - {private} == {
    *('c', 'd', 'X', 'Y', 'Z', 'w', 'Public', 'public', 'waits')
  }
  assert private in found  # `modules` leaves it out


def test_the_list_has_what_users_import():
  names = public_names.modules()
  assert (
    {'layers', 'load', 'ops'}
    == names['rnn_jax']
    == {name for name in rnn_jax.__all__ if not name.startswith('_')}
  )
  for module in ('rnn_jax.layers', 'rnn_jax.ops.gla', 'rnn_jax.training.loop'):
    assert all(
      hasattr(importlib.import_module(module), name) for name in names[module]
    )
  assert {'LSTM', 'Bidirectional', 'last'} <= names['rnn_jax.layers']
  assert 'recurrence' in names['rnn_jax.ops.gla']
  assert {'rnn_jax.cells.gru', 'rnn_jax.cells.parts.vector'} <= names.keys()


@pytest.mark.parametrize(
  'module', ('ops.gla.pallas.tiles', 'ops.gla.native', 'serving.http.app')
)
def test_how_a_package_is_made_is_not_public(module):
  path = public_names.tiny.ROOT / 'rnn_jax' / module.replace('.', '/')
  assert path.with_suffix('.py').exists()
  assert f'rnn_jax.{module}' not in public_names.modules()
