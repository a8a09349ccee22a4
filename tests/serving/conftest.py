"""The tests of this folder share the programs of equal models."""

import pytest

from rnn_jax.serving import agreement
from tests.support import compiled


@pytest.fixture(scope='session', autouse=True)
def _programs():
  with compiled.shared():
    yield


@pytest.fixture(autouse=True)
def _cost(monkeypatch):
  """Whether rows draft doesn't depend on how fast a machine is."""
  monkeypatch.setattr(agreement, 'cost', lambda *_: 1.5)
